"""The AMQP incoming-window of a client's sessions: what bounds the bytes a router is sent (C-6, AMQP 2.5.6).

A window counts frames, not bytes. For a client that resumes, a frame is taken to be somewhat larger than the largest of
late, and as large as it may be before any came: what its window keeps back waits with it. Any other client loses that
when it closes, so its window follows the credit of its links, and what it sends is bounded by that credit; one that
holds too much is stopped. Flows and dispositions need no window, so they pass where bodies wait. What is offered counts
in the router's budget until it comes (`offers.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from delivery_records.model.budget import Budget
from delivery_records.model.limits import FIRST_CREDIT
from oncewire.wire import DEFAULT_INCOMING_WINDOW, SessionEndpoint
from router.amqp.offers import IDLE_BYTES, IDLE_FRAMES, IDLE_PART, OPEN_BYTES, Offer, Offers
from router.clients.user_bytes import UserBytes, Waiter
from router.records_driver import RecordsDriver

ROUTER_PART = 4
"""One session is offered at most one part in so many of what the router has left: several open theirs at one time."""
GROWTH = 4
"""Frames may become so many times larger than the largest of late before a window was too wide. Were each frame taken
to have the largest size there is, 64 small messages would fill a window: a third of the throughput."""
SMALLEST_FRAME = 1024
"""Bytes a frame is taken to have at least."""
SMALL_PARTS = 4
"""Before frames came, a session's bytes are at least so many of them: one small message must not shut out others."""
FIRST_WINDOW = 1
"""Frames a session of a client that resumes begins with: what the router has room for is known at the end of the turn.
It may have much to send again, as may all others after the failure of a router."""

STREAM_BYTES = 8 << 20
"""Of large messages, in a session that sends one: more waits with the publisher (L-4). It covers a round trip of 80 ms
at 100 MB/s; `window_bytes` of each would be most of a router's memory, and serve nobody."""

_NOBODY: Final[dict[SessionEndpoint, None]] = {}
"""What waits at first; never changed. Connections that are idle share what is empty."""

PASSED = "messages became much larger within one session window; connect again, and resume"
FULL = "the router has no memory left for messages that nobody takes, and this connection holds more than its part"
FULL_FOR_USER = "messages that nobody takes are more than the quota of this user allows"


@dataclass(frozen=True, slots=True)
class WindowLimits:
    """The settings that bound a session's window."""

    window_bytes: int
    max_frame_size: int
    kept_message_size: int
    """Of the largest message that is stored whole."""

    @property
    def frames(self) -> int:
        """The whole window, for frames of the largest size."""
        return max(1, min(DEFAULT_INCOMING_WINDOW, self.window_bytes // self.max_frame_size))

    def counted(self, recent: int) -> int:
        """Bytes a frame is taken to have where the largest of late had `recent`."""
        return min(self.max_frame_size, max(SMALLEST_FRAME, GROWTH * recent))

    @property
    def unknown(self) -> int:
        """Bytes a frame of a client that resumes is taken to have before any came."""
        return min(self.max_frame_size, max(SMALLEST_FRAME, self.window_bytes // SMALL_PARTS))

    def first_frames(self, budget: Budget) -> int:
        """The window that the session of a client begins with which does not resume: it covers its first credit."""
        room = min(self.window_bytes, budget.body_room // ROUTER_PART)
        return max(1, min(FIRST_CREDIT, room // SMALLEST_FRAME))

    @property
    def first_bytes(self) -> int:
        """The most that such a window can bring."""
        return FIRST_CREDIT * self.max_frame_size

    @property
    def publisher_bytes(self) -> int:
        """What a publisher that is alone in its session may hold: the message that passes the limit is taken."""
        return self.window_bytes + self.kept_message_size


class Stored:
    """What the publishers of one session hold (hot path: a plain class)."""

    __slots__ = ("is_awaited", "publishers", "size", "streams")

    def __init__(self, size: int = 0, publishers: int = 0, is_awaited: bool = False, streams: int = 0) -> None:
        """Keep the fields.

        Args:
            size: bytes of bodies that are complete, and of large ones that wait.
            publishers: how many there are.
            is_awaited: one of them has deliveries of its map to send again, which no limit may withhold (F1).
            streams: of `size`, bytes of large messages.
        """
        self.size = size
        self.publishers = publishers
        self.is_awaited = is_awaited
        self.streams = streams


class SessionWindows:
    """Keeps the windows of one connection's sessions, and its part of the router's budget."""

    __slots__ = (
        "_limits",
        "_of_user",
        "_offers",
        "_partial",
        "_user",
        "_waiter",
        "_waiting",
        "is_calm",
        "resumes",
        "stopped_for",
    )

    def __init__(self, limits: WindowLimits) -> None:
        """Nothing has come yet."""
        self._limits = limits
        self._offers: dict[SessionEndpoint, Offer] = {}
        self._partial = 0
        self.resumes = False
        """The client sends again what was not settled, and so loses nothing that waits there for a session window."""
        self.stopped_for = ""
        """A session holds more than it may: end the connection, for this reason."""
        self.is_calm = False
        """Nothing but a read changes the windows: there is no publisher, and none is narrow. A read ends this."""
        self._waiting: dict[SessionEndpoint, None] = _NOBODY
        """Sessions that wait to complete what they have begun to send, over the budget."""
        self._user: UserBytes | None = None
        self._of_user = 0
        """Bytes of this connection that `_user` counts."""
        self._waiter: Waiter | None = None

    def first(self, budget: Budget) -> int:
        """Frames that the next session begins with."""
        return FIRST_WINDOW if self.resumes else self._limits.first_frames(budget)

    def share(self, user: UserBytes, waiter: Waiter) -> None:
        """Count from now on for a user, who has a quota; `waiter` is this connection."""
        self._user, self._waiter = user, waiter

    def unshare(self) -> None:
        """The connection has ended: it counts for nobody."""
        if self._user is None or self._waiter is None:
            return
        for offer in self._offers.values():
            self._user.offered -= offer.of_user
            offer.of_user = 0
        self._user.leave(self._waiter)
        self._hold_for_user(self._user, 0)
        self._user = None

    def look(
        self,
        sessions: Iterable[SessionEndpoint],
        publishers: Sequence[tuple[int, SessionEndpoint]],
        driver: RecordsDriver,
        now: float,
    ) -> bool:
        """At the end of a turn: `update` for what the publishers of a connection hold, who learn of it.

        Args:
            sessions: all of the connection.
            publishers: number and session of each publisher's link.
            driver: of the incarnation that serves the connection.
            now: seconds, monotonic.
        """
        found = {session: Stored() for session in sessions}
        awaited: list[tuple[int, SessionEndpoint]] = []
        for number, session in publishers:
            stored = found.get(session)
            if stored is None:
                continue
            size, is_awaited = driver.publisher_bytes(number)
            stored.size += size
            stored.publishers += 1
            if is_awaited:
                stored.is_awaited = True
            if session.streamed:
                stored.streams += driver.stream_bytes(number)
            if is_awaited or session.streamed:  # I-9, L-5: whether it can go on
                awaited.append((number, session))
        wakes = self.update(found, driver.records.budget, driver.offers, now)
        self.is_calm = not publishers and not any(offer.is_narrow for offer in self._offers.values())
        for number, session in awaited:
            driver.on_session_window(number, self.is_narrow(session))
        return wakes

    def update(self, sessions: Mapping[SessionEndpoint, Stored], budget: Budget, offers: Offers, now: float) -> bool:
        """At the end of a turn: offer what there is room for.

        Args:
            sessions: all of the connection.
            budget: of the router.
            offers: of the router.
            now: seconds, monotonic.

        Returns:
            Whether others who wait for room must be looked at: have the record core finish a turn.
        """
        partial = 0
        for session in sessions:
            partial += session.partial_bytes
        is_less = self._hold(partial, budget)
        if self._user is not None:
            self._hold_for_user(self._user, partial + sum(stored.size for stored in sessions.values()))
        if sessions.keys() != self._offers.keys():
            for session in [found for found in self._offers if found not in sessions]:
                self._forget(session, budget, offers)
        for session, stored in sessions.items():
            self._offer(session, stored, budget, offers, now)
        return budget.was_full and (is_less or budget.is_passed_on)

    def is_narrow(self, session: SessionEndpoint) -> bool:
        """Whether its window is closed, or open for one frame at a time because there is no room."""
        return self._offers[session].is_narrow

    def close(self, budget: Budget, offers: Offers) -> bool:
        """The connection is gone, and with it what was not complete. Returns the same as `update`."""
        is_less = self._hold(0, budget)
        for session in list(self._offers):
            self._forget(session, budget, offers)
        return budget.was_full and (is_less or budget.is_passed_on)

    def _forget(self, session: SessionEndpoint, budget: Budget, offers: Offers) -> None:
        offer = self._offers.pop(session)
        self._count(offer, 0, offers)
        offers.join(offer, False)
        if session in self._waiting:
            self._leave(session, budget)

    def _offer(self, session: SessionEndpoint, stored: Stored, budget: Budget, offers: Offers, now: float) -> None:
        """Offer a session what it uses, as far as there is room beside the offers of others."""
        limits = self._limits
        offer = self._offers.get(session)
        if offer is None:
            offer = self._offers[session] = Offer(session.largest_window, since=now)
        counted = self._counted(session)
        frames = self._frames(session, stored, counted, budget, now)
        frames = self._frames_of_user(frames, stored, offer, counted)
        least = 0
        if not self.resumes:
            least = session.granted
            offers.join(offer, stored.publishers > 0)
            self._stop(stored.size + session.partial_bytes, budget, offers)
        if session.streamed:
            frames = self._frames_of_stream(frames, stored, counted)
        spare = max(0, budget.body_room - offers.size + offer.size) // ROUTER_PART // counted
        idle = max(1, (IDLE_BYTES if self.resumes else OPEN_BYTES) // counted)
        offer.is_narrow = min(frames, max(idle, spare)) < min(2, limits.frames)
        left = session.offered_frames
        wanted = max(offer.wanted(left, now), least)
        frames = min(frames, max(idle, min(wanted, spare), min(IDLE_FRAMES, spare // IDLE_PART)))
        session.offer(frames, least)
        if session.offered_frames != left:
            offer.frames, offer.since = frames, now
        # Without a publisher nothing that comes is kept.
        self._count(offer, counted * session.offered_frames if stored.publishers else 0, offers)

    def _counted(self, session: SessionEndpoint) -> int:
        """Bytes a frame is taken to have."""
        if not self.resumes:
            return max(SMALLEST_FRAME, session.recent_frame)
        return self._limits.counted(session.recent_frame) if session.knows_frames else self._limits.unknown

    def _stop(self, held: int, budget: Budget, offers: Offers) -> None:
        """Where credit has admitted more than there is memory for, end who holds more than its part, and sends."""
        if budget.held > budget.limit and held > budget.limit // max(ROUTER_PART, offers.publishing):
            self.stopped_for = FULL
        user = self._user
        if user is not None and user.held > user.limit + self._limits.kept_message_size and held > user.limit // 2:
            self.stopped_for = FULL_FOR_USER

    def _count(self, offer: Offer, size: int, offers: Offers) -> None:
        if self._user is not None:
            self._user.offered += size - offer.of_user
            offer.of_user = size
        offers.count(offer, size)

    def _hold_for_user(self, user: UserBytes, held: int) -> None:
        is_less = held < self._of_user
        user.held += held - self._of_user
        self._of_user = held
        if is_less:
            user.wake()

    def _frames_of_user(self, frames: int, stored: Stored, offer: Offer, counted: int) -> int:
        """So many of these frames as the user's quota has room for; one where nothing is held (C-1), or owed (F1)."""
        user, waiter = self._user, self._waiter
        if user is None or waiter is None:
            return frames
        room = user.room(offer.of_user)
        if frames * counted <= room:
            return frames
        user.wait(waiter)
        is_always_taken = not stored.size or stored.is_awaited
        return max(int(room // counted), int(is_always_taken and frames > 0))

    def _frames_of_stream(self, frames: int, stored: Stored, counted: int) -> int:
        """While a large message comes: no more of it than is soon taken; what is sent again waits, too (I-9).

        While nothing of it waits, one frame is always offered. Its subscribers get nothing else before its end (L-3),
        and what fills the router may be waiting for them.
        """
        if not stored.streams:
            return max(1, min(frames, STREAM_BYTES // counted))
        return min(frames, max(0, STREAM_BYTES - stored.streams) // counted)

    def _hold(self, partial: int, budget: Budget) -> bool:
        before, self._partial = self._partial, partial
        budget.add_partial(partial - before)
        return partial < before

    def _frames(self, session: SessionEndpoint, stored: Stored, counted: int, budget: Budget, now: float) -> int:
        """Transfer frames of `counted` bytes a session may have in flight, were nobody else offered any."""
        limits = self._limits
        partial = session.partial_bytes
        held = stored.size + partial
        most = (stored.publishers + 1) * limits.publisher_bytes + (0 if self.resumes else limits.first_bytes)
        if held > most:
            self.stopped_for = PASSED
        own = self._own_frames(stored, partial, counted)
        frames = min(own, budget.body_room // ROUTER_PART // counted)
        asks = False
        if own and not frames:
            budget.turn_down(ROUTER_PART * counted)
            if budget.body_room and not stored.size:
                frames = 1  # C-1: one message is always taken where nothing is held
            elif partial:
                asks = True
                if not self._waiting:
                    self._waiting = {}
                self._waiting[session] = None
                frames = int(budget.may_finish(session, partial, now))
        if not asks and session in self._waiting:
            self._leave(session, budget)
        if not frames and stored.is_awaited and held < stored.publishers * limits.publisher_bytes:
            return 1  # C-6, F1
        return frames

    def _own_frames(self, stored: Stored, partial: int, counted: int) -> int:
        """What the session's own limit allows, of frames of `counted` bytes; credit was given for each publisher."""
        limits = self._limits
        most = limits.window_bytes if self.resumes else max(1, stored.publishers) * limits.publisher_bytes
        frames = min(DEFAULT_INCOMING_WINDOW, max(0, most - stored.size - partial) // counted)
        if not frames and not stored.size and partial < limits.publisher_bytes:
            return 1  # only the rest of what has come in part can free anything
        return frames

    def _leave(self, session: SessionEndpoint, budget: Budget) -> None:
        self._waiting.pop(session, None)
        budget.leave(session)
