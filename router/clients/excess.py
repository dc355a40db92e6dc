"""Looks through all client connections, some at a time, for those that hold too much (excess_core.py)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Iterable, Iterator

from oncewire.wire import RESOURCE_LIMIT_EXCEEDED, ConnectionState, ReceiverLink
from router.clients.connection import ClientConnection
from router.clients.excess_core import LINKS, PART_TIME_S, SESSIONS, SHARE, SMALL_BYTES, Parts, too_much
from router.settings.config import RouterConfig

PERIOD_S = 1.0
"""In which all are looked at once."""
SLICES = 10
"""A tenth of them at a time: of 10,000 all at once would hold up the others for 30 ms."""
_BEHIND = "clients do not read what they are sent, or do not complete frames, and this one holds most of it"


class ExcessWatch:
    """Closes connections that hold too much."""

    def __init__(self, holders: Callable[[], Iterable[ClientConnection]], config: Callable[[], RouterConfig]) -> None:
        """Look at nothing yet.

        Args:
            holders: all connections of now.
            config: the settings in force.
        """
        self.closed = 0
        """Connections that were closed for it."""
        self._holders = holders
        self._config = config
        self._round: Iterator[ClientConnection] = iter(())
        self._in_a_slice = 0
        self._loose: dict[ClientConnection, int] = {}
        self._parts: dict[ClientConnection, Parts] = {}
        self._parts_of_round: dict[ClientConnection, Parts] = {}
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Look from now on, as long as there are connections."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(PERIOD_S / SLICES, self._look)

    def _look(self) -> None:
        self._timer = None
        now = time.monotonic()
        for count, holder in enumerate(self._round, 1):
            self._look_at(holder, now)
            if count >= self._in_a_slice:
                break
        else:
            self._end_round()
            found = list(self._holders())
            if not found:
                return
            self._round, self._in_a_slice = iter(found), -(-len(found) // SLICES)
        self.start()

    def _look_at(self, holder: ClientConnection, now: float) -> None:
        if holder.engine.state is not ConnectionState.OPENED:
            return
        why = self._excess(holder, now)
        if why is not None:
            self.closed += 1
            holder.close(RESOURCE_LIMIT_EXCEEDED, why)
        elif (loose := holder.unwritten_bytes + holder.unread_bytes + holder.engine.buffered) >= SMALL_BYTES:
            self._loose[holder] = loose

    def _excess(self, holder: ClientConnection, now: float) -> str | None:
        """Why a connection holds too much by itself; None = it does not."""
        engine, near = holder.engine, holder.routed.near_count
        most = LINKS * self._config().max_links
        sessions = engine.sessions
        if len(sessions) > SESSIONS and not near:
            return f"a connection may have {SESSIONS} sessions"
        if engine.link_count - near > most:
            return f"more than {most} links are attached, or wait for the client's detach"
        sizes = parts_of(holder)
        if not sizes:
            return None
        parts = self._parts_of_round[holder] = self._parts.get(holder) or Parts()
        may_send = holder.is_listening_to_peer and all(session.offered_frames for session in sessions)
        if parts.is_stuck(sizes, may_send, now):
            return f"a message or frame was not completed in {PART_TIME_S:g} s; send it again"
        return None

    def _end_round(self) -> None:
        loose, self._loose = self._loose, {}
        self._parts, self._parts_of_round = self._parts_of_round, {}
        for holder in too_much(loose, self._config().router_bytes // SHARE):
            self.closed += 1
            holder.close(RESOURCE_LIMIT_EXCEEDED, _BEHIND)
            if holder.unwritten_bytes >= SMALL_BYTES:  # it would not read the close either
                holder.abort()


def parts_of(holder: ClientConnection) -> dict[Hashable, int]:
    """Bytes of the frame and of the deliveries that have come in part."""
    engine = holder.engine
    found: dict[Hashable, int] = {}
    if engine.buffered:
        found["frame from here on", holder.bytes_in - engine.buffered] = engine.buffered
    for session in engine.sessions:
        if session.partial_bytes or session.streamed:
            for link in session.links:
                if isinstance(link, ReceiverLink) and link.incoming is not None:
                    delivery_id, size = link.incoming
                    found[session.channel, link.handle, delivery_id] = size
    return found
