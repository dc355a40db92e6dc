"""Shares out the shards of consumers among the processes that run, over the database of their store."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from oncewire.client.errors import StoreCorrupt, UsageError
from oncewire.client.put_off import ended
from oncewire.store.claims import CLAIMS, Found, leave, look
from oncewire.store.contents import Contents
from oncewire.store.errors import EdgeError, InvalidRequest, PartMissing, StoreError, StoreVersionUnknown
from oncewire.store.open_store import OpenStore, until_set
from oncewire.store.owners import OWNERS_NOTICE, Owner
from oncewire.store.store import Transaction

logger = logging.getLogger("oncewire.client")

LEASE_S = 10.0
"""From the crash of an owner to the start of its successor, at most."""
LOOKS = 4
"""In the time of a lease: one that fails, or is late, costs no shard."""
SHORTEST_S = 0.02
"""Between two looks: the end of another process's lease is met a little late rather than early."""
RETRY_S = 0.5
"""After the database did not answer."""


@dataclass(slots=True)
class _Seat:
    """What one consumer of this process asks for.

    Attributes:
        got: done when this process owns it.
        lost: set when another process owns it, may own it or is to own it.
        owner: while it is owned.
    """

    got: asyncio.Future[None]
    lost: asyncio.Event = field(default_factory=asyncio.Event)
    owner: Owner | None = None


class StoreShards:
    """Gives each shard to one of the processes that ask for it, and each process as many as the others (CO-10, CO-11).

    Make one for a process, and give it to all its consumers. It is connected while a consumer runs.

    Args:
        store: ``sqlite:///FILE`` or ``postgresql://USER@HOST/DATABASE``: the consumers' database, or another one.
        lease_s: seconds after which the shards of a process that crashed, hangs or is cut off go to others.
    """

    def __init__(self, store: str, *, lease_s: float = LEASE_S) -> None:
        if lease_s <= 0:
            raise UsageError("the shards cannot be shared out", f"a lease of {lease_s} s has ended", "give lease_s=10")
        self._url = store
        self._lease_s = lease_s
        self._member = secrets.token_hex(8)
        self._seats: dict[str, _Seat] = {}
        self._store: OpenStore[Transaction] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()  # a look that ends behind a leave would take what was left
        self._changed = asyncio.Event()
        self._valid_until = 0.0

    @property
    def owned(self) -> frozenset[str]:
        """The shards that this process owns."""
        return frozenset(shard for shard, seat in self._seats.items() if seat.got.done() and not seat.lost.is_set())

    @asynccontextmanager
    async def own(self, shard: str) -> AsyncIterator[asyncio.Event]:
        """Wait until this process owns the shard, and release it when the block ends.

        Yields an event: it is set when another process may own the shard, or is to own it.

        Raises:
            UsageError: the address means no store, or another consumer of this process asks for the shard.
            StoreCorrupt: the database is damaged, or another version of Oncewire wrote it.
        """
        if shard in self._seats:
            raise UsageError(
                f"the shard {shard!r} cannot be asked for",
                "another consumer of this process does",
                "give each consumer of a process a name of its own",
            )
        seat = self._seats[shard] = _Seat(asyncio.get_running_loop().create_future())
        if self._looking is None:
            self._looking = asyncio.ensure_future(self._look_on())
            self._looking.add_done_callback(self._ended)
        self._changed.set()
        try:
            await seat.got
            yield seat.lost
        finally:
            await self._leave(shard)

    # --- looking ------------------------------------------------------------------------------------------------------

    async def _look_on(self) -> None:
        """Look until this is cancelled; what another attempt would meet again fails all who wait."""
        while True:
            self._changed.clear()
            try:
                async with OpenStore[Transaction].open(self._url, Contents([CLAIMS])) as store:
                    self._store = store
                    await self._look_in(store)
            except (InvalidRequest, PartMissing) as error:
                raise UsageError(error.what, error.why, error.fix) from error
            except StoreVersionUnknown as error:
                raise StoreCorrupt(error.what, error.why, error.fix) from error
            except EdgeError as error:
                logger.warning("the shards cannot be asked for: %s", error)
            finally:
                self._store = None
            await self._pause(RETRY_S)

    def _ended(self, looking: asyncio.Task[None]) -> None:
        error = None if looking.cancelled() else looking.exception()
        if error is None:
            return
        self._looking = None
        for seat in self._seats.values():
            if seat.got.done():
                seat.lost.set()
            else:
                seat.got.set_exception(error)

    async def _look_in(self, store: OpenStore[Transaction]) -> None:
        with store.waiting(OWNERS_NOTICE) as noticed:
            self._changed = noticed
            while True:
                noticed.clear()
                try:
                    with suppress(StoreError):  # without notices it looks as often as its own lease asks
                        await store.listen()
                    pause = await self._look(store)
                except StoreError as error:
                    logger.warning("the shards cannot be asked for: %s", error)
                    pause = RETRY_S
                await self._pause(pause)

    async def _pause(self, seconds: float) -> None:
        """Wait, or until something has changed; what is not renewed in time is lost (CO-11)."""
        self._lose_what_is_late()
        held = self._valid_until - time.monotonic()
        await until_set(self._changed, max(SHORTEST_S, min(seconds, held) if held > 0 else seconds))
        self._lose_what_is_late()

    def _lose_what_is_late(self) -> None:
        if time.monotonic() >= self._valid_until:
            for seat in self._seats.values():
                if seat.got.done():
                    seat.lost.set()

    async def _look(self, store: OpenStore[Transaction]) -> float:
        """One look; returns how long until the next one."""
        async with self._turn:
            asked = {_name(shard): seat.owner for shard, seat in self._seats.items() if _is_asked(seat)}
            began = time.monotonic()
            looking = store.start(lambda do: look(do, self._member, asked, self._lease_s))
            while not looking.done():
                held = self._valid_until - time.monotonic()
                await asyncio.wait([looking], timeout=held if held > 0 else None)
                if not looking.done():  # the database does not answer, and others take what is ours
                    self._lose_what_is_late()
            found = looking.result()
            self._valid_until = began + self._lease_s
            self._note(found)
        often = self._lease_s / LOOKS
        return often if found.seconds is None else min(often, max(SHORTEST_S, found.seconds))

    def _note(self, found: Found) -> None:
        for shard, seat in self._seats.items():
            if not _is_asked(seat):
                continue
            seat.owner = found.owned.get(_name(shard))
            if seat.owner is None:
                if seat.got.done():
                    seat.lost.set()
            elif not seat.got.done():
                seat.got.set_result(None)
            if _name(shard) in found.wanted_elsewhere:
                seat.lost.set()

    # --- leaving ------------------------------------------------------------------------------------------------------

    async def _leave(self, shard: str) -> None:
        """Let others have it; what cannot be notified now ends with its lease."""
        seat, store = self._seats[shard], self._store
        try:
            if store is not None:
                with suppress(EdgeError, TimeoutError):
                    async with asyncio.timeout(self._lease_s), self._turn:
                        await store.transact(lambda do: leave(do, self._member, _name(shard), seat.owner))
        finally:
            del self._seats[shard]
            looking = self._looking
            if not self._seats and looking is not None:
                self._looking = None
                looking.cancel()
                await ended(looking)


def _is_asked(seat: _Seat) -> bool:
    """Not what was lost to another: its consumer ends first, then asks anew."""
    return seat.owner is not None or not seat.lost.is_set()


def _name(shard: str) -> str:
    """Of a shard among all that has owners in the database."""
    return f"consumer {shard}"
