"""The members of one etcd cluster as a client sees them: whom to ask next, and when history went back.

Shared by the stores that talk to a real etcd; how a request travels is theirs.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import NoReturn, TypeVar

from yarl import URL

from topology.etcd.gateway_codec import ErrorClass, classify_error
from topology.etcd.store import (
    RESTORED_ADVICE,
    LeaseLost,
    StoreAuthError,
    StoreFull,
    StoreRejected,
    StoreReplaced,
    StoreTimeout,
    StoreUnavailable,
    StoreUntrusted,
    WatchBatch,
    WatchEvent,
)

CALL_TIMEOUT_S = 3.0
"""For one call over all members: two fit before the fence deadline, two thirds of a 10 s lease (K-3)."""
SNAPSHOT_TIMEOUT_S = 6.0
"""A snapshot may be tens of megabytes; longer is no use, for the fence deadline passes meanwhile (K-4)."""
CONNECT_TIMEOUT_S = 1.0
"""A member that does not even accept a connection is not waited for longer: the next may be well."""
WATCH_SILENCE_S = 3.0
"""A watch without events for so long is opened again, which finds a half-open connection or a frozen member."""
FIRST_PAUSE_S = 0.05
"""Before a broken watch is opened again; doubled each time, up to LONGEST_PAUSE_S."""
LONGEST_PAUSE_S = 1.0
"""A member that is back is noticed within a second: well below the lease's time to live."""

FULL_ADVICE = (
    "etcd takes no writes (alarm NOSPACE): its database has reached --quota-backend-bytes, or the alarm was not"
    " disarmed since. Run `etcdctl compact REVISION` once and `etcdctl defrag` at every member, or start the members"
    " with a larger quota. Then run `etcdctl alarm disarm`: etcd does not end the alarm by itself"
)

_Answer = TypeVar("_Answer")


class NotSent(Exception):
    """The request certainly was not handled; another member may handle it."""


class NotTrusted(NotSent):
    """The same, for this member refuses our certificate, or we refuse its."""


class Unanswered(Exception):
    """The request was sent; what became of it is unknown."""


class TokenRefused(Exception):
    """The login token is missing or too old; the request was not looked at."""


class Silent(Exception):
    """Nothing came for a while: normal on a quiet network, and all that shows of a dead connection."""


class EtcdMembers(ABC):
    """The members, the one in use, and what all answers so far have reported."""

    def __init__(self, endpoints: Sequence[str], user: str) -> None:
        """Begin with the first; no `user`: no login.

        Raises:
            ValueError: there is no endpoint, or one is not an http or https URL; the text names it.
        """
        self._endpoints = [_endpoint_url(endpoint) for endpoint in endpoints]
        if not self._endpoints:
            raise ValueError("no etcd endpoint is given: name at least one, such as http://127.0.0.1:2379")
        self.cluster_id = 0
        """0 until the first answer."""
        self.highest_revision = 0
        """That any linearizable answer reported; history went back if a later answer is below it."""
        self.closed = False
        self._current = 0
        self._user = user
        self._token = ""

    @property
    def endpoint(self) -> URL:
        """The member that is asked next."""
        return self._endpoints[self._current]

    def rotate(self, failed: URL) -> None:
        """Ask the next member from now on, unless somebody else has moved on from `failed` already."""
        if self.endpoint == failed:
            self._current = (self._current + 1) % len(self._endpoints)

    def check_cluster(self, cluster_id: int) -> None:
        """Of every answer.

        Raises:
            StoreReplaced: it speaks for another cluster than the first answer to this client did.
        """
        if cluster_id and self.cluster_id and cluster_id != self.cluster_id:
            raise StoreReplaced(
                f"etcd at {self.endpoint} is cluster {cluster_id:x}, before it was {self.cluster_id:x}: "
                "its data was lost or restored, or the endpoints belong to different clusters"
            )
        self.cluster_id = cluster_id or self.cluster_id

    def check_revision(self, revision: int, floor: int) -> None:
        """Of a linearizable answer to a call made when `floor` had been seen.

        Raises:
            StoreReplaced: it is behind, which it can be only if history itself was set back (K-9).
        """
        if revision < floor:
            raise StoreReplaced(
                f"etcd at {self.endpoint} is at revision {revision} after it was at {floor}: {RESTORED_ADVICE}"
            )
        self.note_revision(revision)

    def note_revision(self, revision: int) -> None:
        """An answer reported this revision."""
        self.highest_revision = max(self.highest_revision, revision)

    @abstractmethod
    async def _authenticate(self, endpoint: URL) -> str:
        """Ask this member for a login token."""

    async def log_in_once(self, endpoint: URL) -> None:
        """Log in if a user is configured and that has not been done."""
        if self._user and not self._token:
            await self.log_in(endpoint)

    async def log_in(self, endpoint: URL) -> None:
        """Get a new token.

        Raises:
            StoreAuthError: no user is configured, or etcd does not accept it.
            NotSent: this member cannot be asked now.
        """
        if not self._user:
            raise StoreAuthError(f"etcd at {endpoint} wants a login: configure its user and password")
        self._token = ""
        try:
            self._token = await self._authenticate(endpoint)
        except (TokenRefused, StoreAuthError, StoreRejected) as error:
            raise StoreAuthError(f"etcd at {endpoint} does not accept user {self._user!r}: {error}") from None
        except Unanswered as error:
            # The login's fate is unknown; the request it was for has not been sent.
            raise NotSent(f"no answer to the login: {error}") from None

    async def logged_in(self, endpoint: URL, ask: Callable[[], Awaitable[_Answer]]) -> _Answer:
        """One request to one member, logged in if a user is configured; a refused token is renewed once.

        Raises:
            StoreAuthError: the login is not accepted.
            NotSent: this member cannot be asked now; also whatever `ask` raises.
        """
        await self.log_in_once(endpoint)
        try:
            return await ask()
        except TokenRefused:
            await self.log_in(endpoint)
        try:
            return await ask()
        except TokenRefused as error:
            raise StoreAuthError(f"etcd at {endpoint} refuses its own new login token: {error}") from None

    async def call(self, send: Callable[[URL, float], Awaitable[_Answer]], timeout_s: float, *, write: bool) -> _Answer:
        """One call, to as many members as needed and possible in time.

        Args:
            send: asks one member within so many seconds; raises NotSent or Unanswered.
            timeout_s: for all members together.
            write: it may not be asked twice.

        Raises:
            StoreTimeout: a write was not answered.
            StoreUnavailable: no member could be asked, or a read was not answered.
            StoreUntrusted: TLS could not be agreed with any member.
        """
        ends_at = time.monotonic() + timeout_s
        failures: list[str] = []
        only_untrusted = True
        for tries_left in range(len(self._endpoints), 0, -1):
            endpoint = self.endpoint
            left_s = ends_at - time.monotonic()
            if left_s <= 0:
                break
            # A read may be asked elsewhere, so it does not spend all its time on a member that hangs.
            share_s = left_s if write or tries_left == 1 else left_s / 2
            try:
                return await send(endpoint, share_s)
            except NotSent as error:
                failures.append(f"{endpoint} says {error}")
                only_untrusted = only_untrusted and isinstance(error, NotTrusted)
                self.rotate(endpoint)
            except Unanswered as error:
                only_untrusted = False
                self.rotate(endpoint)
                if write:
                    raise StoreTimeout(f"no answer from etcd at {endpoint}: {error}") from None
                failures.append(f"{endpoint} does not answer: {error}")
        kind = StoreUntrusted if failures and only_untrusted else StoreUnavailable
        raise kind(f"etcd cannot be reached ({'; '.join(failures)}): is it running, are the URLs right?")

    async def watch(
        self, once: Callable[[URL, int], AsyncGenerator[WatchBatch, None]], from_revision: int
    ) -> AsyncGenerator[WatchBatch, None]:
        """One watch that survives everything but compaction and a change of history (K-4, K-7); see `Store.watch`.

        A connection begins with the last revision that was delivered: what comes again must be what came then, or
        history was set back and has grown since (K-9). A member that loads a snapshot may first send what is older
        than was asked for, before etcd 3.4.38, 3.5.22 and 3.6.2: that says nothing.

        Args:
            once: watches at one member from a revision on; ends only by an exception. It is asked for one revision more
                than needed: of a compacted one etcd would still send what was put, and not what was deleted; asked
                for the one before, it says that it is compacted.
            from_revision: where to begin.
        """
        next_revision = from_revision
        reported: tuple[WatchEvent, ...] = ()
        pause_s = FIRST_PAUSE_S
        was_refused = False
        while not self.closed:
            endpoint = self.endpoint
            begins_at = max(1, next_revision - 1)
            try:
                is_first = True
                async with aclosing(once(endpoint, begins_at)) as batches:
                    async for batch in batches:
                        pause_s, was_refused = FIRST_PAUSE_S, False
                        if batch.revision < begins_at:
                            continue  # not asked for: etcd-io/etcd#20221
                        if is_first:
                            self._check_repeated(reported, batch)
                            is_first = False
                        fresh = tuple(event for event in batch.events if event.mod_revision >= next_revision)
                        if fresh:
                            reported = tuple(event for event in fresh if event.mod_revision == batch.revision)
                            next_revision = batch.revision + 1
                            yield WatchBatch(batch.revision, fresh)
            except Silent:
                pause_s, was_refused = FIRST_PAUSE_S, False
                continue
            except TokenRefused as error:
                if was_refused:
                    raise StoreAuthError(f"etcd at {endpoint} refuses the watch: {error}") from None
                was_refused = True
                try:
                    await self.log_in(endpoint)
                except NotSent:
                    self.rotate(endpoint)
                    was_refused = False
            except (NotSent, Unanswered):
                self.rotate(endpoint)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _check_repeated(self, reported: tuple[WatchEvent, ...], batch: WatchBatch) -> None:
        if not set(reported) <= set(batch.events):
            raise StoreReplaced(
                f"etcd at {self.endpoint} reports another history than before, up to revision"
                f" {reported[0].mod_revision}: {RESTORED_ADVICE}"
            )


def raise_error(code: int, text: str, lease_id: int = 0) -> NoReturn:
    """Raise what an error answer with this gRPC code and text stands for."""
    kind = classify_error(code, text)
    if kind is ErrorClass.LOGIN:
        raise TokenRefused(text)
    if kind is ErrorClass.AUTH:
        raise StoreAuthError(f"etcd refuses: {text}")
    if kind is ErrorClass.LEASE:
        raise LeaseLost(lease_id)
    if kind is ErrorClass.FULL:
        raise StoreFull(f"{FULL_ADVICE} ({text})")
    if kind is ErrorClass.REJECTED:
        raise StoreRejected(f"etcd refuses: {text}")
    raise NotSent(text) if kind is ErrorClass.NOT_APPLIED else Unanswered(text)


def _endpoint_url(endpoint: str) -> URL:
    try:
        url = URL(endpoint)
        known = url.scheme in ("http", "https") and bool(url.host)
    except ValueError:
        known = False
    if not known:
        raise ValueError(f"{endpoint!r} is not an etcd endpoint: write it as http://HOST:PORT or https://HOST:PORT")
    return url.origin()
