"""Large deliveries on the link to one subscriber: one at a time, in parts, or waiting without a body (L-3 to L-7).

A large delivery here is the *current* one, whose transfer is open; or it waits for its turn with the parts that have
come; or it is a place without a body. While there is a current one, nothing else is sent on the link: transfers of two
deliveries may not interleave. `Outgoing` decides whose turn it is.

The shell reports what has left for the subscriber. TAKEN passes that on to the ingress, which sends no more than a
fixed number of bytes beyond it (L-4). So what waits here is bounded, and a subscriber that stops reading uses no credit
of the channel that others need (T-5).

A current delivery ends in one of these ways. All parts have come and gone: it stays SENT like any other. The ingress
aborts it, its channel starts again, its router has left the view, or no part comes for long: the transfer is aborted,
and the entry is what it was before its first part. The subscriber answers early: the abort settles it. A SYNC or a
settlement also ends what is not here whole.

Where a delivery is still owed but its parts are lost, the entry keeps a place. The place holds back what follows of
that publisher: if a later one went first, E-2 would take the lost one for skipped (L-5). When the place's turn comes,
with credit and room, NEED asks the ingress to have the publisher send again (L-7); other publishers go on meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from delivery_records.model import effects
from delivery_records.model.limits import LARGE_LOOKS, LARGE_STALL_S
from delivery_records.model.messages import LargePart, Need, Taken, ToIngress
from delivery_records.model.outcomes import Decision, DeliveryOutcome
from delivery_records.model.parts import NOT_WANTED, Part, taken_step
from delivery_records.model.timers import Timer
from delivery_records.model.turn import Turn
from delivery_records.model.view import SubscriptionMode
from delivery_records.subscriber.entries import HAS_BODY, HELD, NO_BODY, Entry, LargeBody, State, SyncState
from delivery_records.subscriber.held import HeldQueue
from delivery_records.subscriber.progress import Progress

SILENCE_S: Final = 2 * LARGE_STALL_S
"""L-5: so long nothing comes though the ingress could send: it would have ended the stream itself in half the time."""
_KNOWN: Final = (State.KNOWN, State.KNOWN_HELD)


class Line(Protocol):
    """What goes out to the subscriber, as this part of it knows it."""

    def count_place(self, entry: Entry, change: int) -> None:
        """C-4: it takes a place in the subscriber's map, or gives it back."""

    def resume_first(self, entry: Entry) -> None:
        """It waits ahead of all other resumes."""

    def resume_no_more(self, entry: Entry) -> None:
        """It waits no longer among the resumes."""

    def pump(self) -> None:
        """Send what may be sent now."""


class LargeDeliveries:
    """What one subscriber gets in parts."""

    __slots__ = (
        "_answer",
        "_entries",
        "_key",
        "_line",
        "_link",
        "_mode",
        "_progress",
        "_queue",
        "_turn",
        "_unsent",
        "current",
    )

    def __init__(
        self,
        turn: Turn,
        key: str,
        link: int,
        mode: SubscriptionMode,
        progress: Progress | None,
        answer: Callable[[SyncState, ToIngress], None],
    ) -> None:
        """Nothing comes.

        Args:
            turn: of this router.
            key: of the subscription.
            link: of the subscriber.
            mode: of the subscription.
            progress: set where a policy wants answers in time (K-5b).
            answer: notifies the ingress of a stream.
        """
        self._turn = turn
        self._key = key
        self._link = link
        self._mode = mode
        self._progress = progress
        self._answer = answer
        self._line: Line | None = None
        self._queue = HeldQueue()
        self.current: Entry | None = None
        """In the middle of its transfer: nothing else is sent (L-3)."""
        self._entries: dict[Entry, None] = {}
        """Those with a body that comes in parts, the current one included."""
        self._unsent = 0
        """Bytes given to the link that have not left for the subscriber."""

    def join(self, line: Line, queue: HeldQueue) -> None:
        """What they stand in."""
        self._line = line
        self._queue = queue

    @property
    def line(self) -> Line:
        """See `join`."""
        assert self._line is not None
        return self._line

    @property
    def is_starved(self) -> bool:
        """K-5b: the subscriber has taken all of it that has come, and more is to come."""
        body = None if self.current is None else self.current.large
        return body is not None and not body.is_whole and body.taken >= body.handed

    def held_bytes(self) -> list[int]:
        """Of each body that comes in parts: what is here, or has not left for the subscriber."""
        bodies = [(entry, entry.large) for entry in self._entries]
        return [
            len(entry.message) + sum(map(len, body.pieces)) + body.handed - body.taken
            for entry, body in bodies
            if body is not None
        ]

    # ------------------------------------------------------------------ from the ingress

    def take_up(self, entry: Entry, body: LargeBody) -> None:
        """L-2, L-7: an entry gets its body in parts, or none; `Outgoing.send` follows."""
        entry.large = body
        body.is_taken_up = True
        body.sync = entry.sync
        body.since = self._turn.now
        if not body.is_place:
            self._entries[entry] = None
            if self._queue.aside and not entry.has_place and self._queue.waits_for_publisher(entry):
                self._do_without(entry)

    def on_part(self, entry: Entry, part: LargePart) -> None:
        """L-3: a further part: to the subscriber, or to what waits for its turn."""
        body = entry.large
        if body is None or body.is_place or body.is_whole:
            return
        if part.part is Part.ABORT:
            self._revert(entry, body, is_owed=part.is_owed)
            self.line.pump()
            return
        body.since = self._turn.now
        body.is_whole = part.part is Part.LAST
        if entry is self.current:
            self._hand_over(entry, body, part.data)
            self._finish_if_taken()
        else:
            body.pieces.append(part.data)

    def on_first(self, entry: Entry | None) -> None:
        """L-5: what is here of it does not go on: it was aborted, or the target begins anew. It keeps its place."""
        body = None if entry is None else entry.large
        if entry is not None and body is not None and not body.is_place and not body.is_whole:
            self._revert(entry, body, is_owed=True)
            self.line.pump()

    # ------------------------------------------------------------------ to the subscriber

    def begin(self, entry: Entry, first: bytes, before: State, *, resume: bool, once: bool) -> None:
        """L-3: it is its turn: nothing else is sent until it is through."""
        body = entry.large
        assert body is not None
        assert self.current is None
        self.current = entry
        body.before = before
        self._turn.out.append(
            effects.DeliverPart(
                self._link,
                entry.tag,
                first,
                Part.FIRST,
                resume,
                once,
                entry.redelivered,
                entry.attempt,
                entry.annotations,
                entry.message_format,
            )
        )
        self._count(body, len(first))
        pieces, body.pieces = body.pieces, []
        for at, piece in enumerate(pieces):
            self._hand_over(entry, body, piece, is_last=body.is_whole and at == len(pieces) - 1)
        self._look_again()

    def _hand_over(self, entry: Entry, body: LargeBody, data: bytes, *, is_last: bool | None = None) -> None:
        ends = body.is_whole if is_last is None else is_last
        part = Part.LAST if ends else Part.MIDDLE
        self._turn.out.append(effects.DeliverPart(self._link, entry.tag, data, part))
        self._count(body, len(data))

    def _count(self, body: LargeBody, size: int) -> None:
        body.handed += size
        self._unsent += size

    def on_taken(self, size: int) -> None:
        """L-4: so many bytes have left for the subscriber."""
        self._unsent = max(0, self._unsent - size)
        if self._progress is not None:
            self._progress.on_moved()
        entry = self.current
        body = None if entry is None else entry.large
        if entry is None or body is None:
            return
        body.taken = max(0, body.handed - self._unsent)
        if self._finish_if_taken():
            return
        # L-6: a slow one takes something, too
        is_due = self._turn.now - body.reported_at >= LARGE_STALL_S / LARGE_LOOKS
        is_far = body.taken - body.reported >= taken_step(self._turn.limits.large_ahead_bytes)
        if is_due or is_far or self.is_starved:  # L-4: its publisher may have no room for more
            self._notify(entry, body)

    def _finish_if_taken(self) -> bool:
        """Look whether the subscriber has taken all there is; then others follow."""
        entry = self.current
        body = None if entry is None else entry.large
        if entry is None or body is None or not body.is_whole or body.taken < body.handed:
            return False
        self._finish(entry, body)
        self.line.pump()
        return True

    def _finish(self, entry: Entry, body: LargeBody) -> None:
        """The whole of it has gone to the subscriber."""
        body.taken = body.handed
        self._unsent = 0
        self._notify(entry, body)
        self._turn.counts[Decision.LARGE_DELIVERED] += 1
        self._forget(entry)

    def _notify(self, entry: Entry, body: LargeBody) -> None:
        body.reported = body.taken
        body.reported_at = self._turn.now
        self._say(entry, body, body.taken)

    def decline(self, sync: SyncState, number: int, why: int) -> None:
        """L-2: the first part is not taken up, and `why` says which of two things that means."""
        self._answer(sync, Taken(sync.epoch, sync.named, number, why))

    def _notify_not_wanted(self, entry: Entry, body: LargeBody) -> None:
        self._say(entry, body, NOT_WANTED)

    def _say(self, entry: Entry, body: LargeBody, taken: int) -> None:
        """Only to the ingress that has sent it: the next one knows nothing of these parts (L-4)."""
        if entry.sync is not None and entry.sync is body.sync:
            self._answer(entry.sync, Taken(entry.sync.epoch, entry.sync.named, entry.number, taken))

    def _forget(self, entry: Entry) -> None:
        entry.large = None
        self._entries.pop(entry, None)
        if entry is self.current:
            self.current = None
            self._turn.timers.cancel(Timer.PARTS, self._key)

    def _abort(self, entry: Entry) -> None:
        """AMQP 1.0 section 2.7.5: the subscriber drops what came of it."""
        self._unsent = 0
        self._turn.counts[Decision.LARGE_CUT_OFF] += 1
        self._turn.out.append(effects.DeliverPart(self._link, entry.tag, b"", Part.ABORT))
        if self._progress is not None:
            self._progress.on_done(entry)

    # ------------------------------------------------------------------ it does not come to its end

    def _revert(self, entry: Entry, body: LargeBody, *, is_owed: bool) -> None:
        """L-5, L-6: what it was before its first part; if it is owed, a place without a body."""
        is_begun = entry is self.current
        self._forget(entry)
        if is_begun:
            self._abort(entry)
        if self._mode is SubscriptionMode.AT_MOST_ONCE:
            self._leave(entry, is_begun=is_begun)
            return
        place = LargeBody(is_place=True) if is_owed else None
        if is_begun and body.before is HELD:
            self.line.count_place(entry, -1)
            if place is None:
                self._take_out(entry)
                return
            entry.step(HELD)
            entry.large = place
            self._queue.put_first(entry)
        elif is_begun:
            # S-a: one with the capability has its entry still; others have settled it with the abort.
            is_kept = body.before in _KNOWN and self._mode is SubscriptionMode.EXACTLY_ONCE
            entry.step(State.KNOWN if is_kept else State.AGAIN)
            if place is not None:
                entry.step(HAS_BODY[entry.state])
                entry.large = place
                self.line.resume_first(entry)
        elif place is not None:
            entry.large = place
            entry.message = b""
        else:
            self._leave(entry, is_begun=False)

    def _leave(self, entry: Entry, *, is_begun: bool) -> None:
        """It waits no longer, or was at most once."""
        entry.message = b""
        if entry.state is HELD:
            self._queue.remove(entry)
            self._take_out(entry)
        elif not is_begun:
            self.line.resume_no_more(entry)
            entry.step(NO_BODY[entry.state])

    def _take_out(self, entry: Entry) -> None:
        entry.step(State.GONE)
        if entry.sync is not None:
            entry.sync.numbers.pop(entry.number, None)
            entry.sync.entries.pop(entry.tag, None)

    def cut_off(self, rid: int) -> None:
        """L-5: what came from that router does not go on: the channel starts again, or the router is gone."""
        if not self._entries:
            return
        lost = [entry for entry in self._entries if entry.sync is not None and entry.sync.ingress_rid == rid]
        for entry in lost:
            body = entry.large
            if body is not None and not body.is_whole:
                self._revert(entry, body, is_owed=True)
        self.line.pump()

    def drop(self, sync: SyncState) -> None:
        """E-2: a SYNC says all anew. What the subscriber is being sent goes on only if all of it is here."""
        entry = self.current
        body = None if entry is None else entry.large
        if entry is not None and body is not None and entry.sync is sync and not body.is_whole:
            self._revert(entry, body, is_owed=False)

    def drop_held(self, entry: Entry) -> None:
        """E-2: a copy that waits is dropped."""
        entry.large = None
        self._entries.pop(entry, None)

    def on_settled(self, entry: Entry) -> State:
        """E-5 of a large one, or of a place: it ends. Returns the state that decides how it is settled at S."""
        body = entry.large
        assert body is not None
        state = entry.state
        if entry is self.current and not body.is_whole:
            self._forget(entry)
            self._abort(entry)  # which settles what was new
            if body.before is HELD and self._mode is not SubscriptionMode.AT_MOST_ONCE:
                self.line.count_place(entry, -1)
                return State.GONE
            is_kept = body.before in _KNOWN and self._mode is SubscriptionMode.EXACTLY_ONCE
            return State.KNOWN if is_kept else State.AGAIN
        if body.is_place and entry.sync is not None:
            self._queue.bring_back(entry.sync, entry)
        if entry is not self.current:  # else the rest of it leaves, and the link is free then
            self._forget(entry)
        return state

    def on_answered(self, entry: Entry, outcome: DeliveryOutcome) -> bool:
        """L-3: the subscriber answers; True when that was in the middle, and so the abort settles it."""
        body = entry.large
        assert body is not None
        if entry is self.current:
            if body.is_whole:
                self._finish(entry, body)
                return False
            self._forget(entry)
            self._abort(entry)
            self._notify_not_wanted(entry, body)
            return True
        if not body.is_place:
            # Not kept as the next attempt: the ingress sends that from its first part, and this one would go on (L-2).
            self._notify_not_wanted(entry, body)
            self._forget(entry)
            if not outcome.is_done:
                self._leave(entry, is_begun=False)
        elif outcome.is_done:
            if entry.sync is not None:
                self._queue.bring_back(entry.sync, entry)
            self._forget(entry)
        return False

    def look(self) -> None:
        """L-4: state what is not stated yet. L-5: all that came has gone, and nothing more has come for long."""
        entry = self.current
        body = None if entry is None else entry.large
        if entry is None or body is None:
            return
        if not body.is_whole and body.taken >= body.handed and body.since + SILENCE_S <= self._turn.now:
            self._notify_not_wanted(entry, body)
            self._revert(entry, body, is_owed=True)
            self.line.pump()
            return
        if body.taken > body.reported:  # L-6: less than a step, and not all that is here: it takes something
            self._notify(entry, body)
        self._look_again()

    def _look_again(self) -> None:
        self._turn.timers.set(Timer.PARTS, self._key, self._turn.now + LARGE_STALL_S / LARGE_LOOKS)

    def end(self) -> None:
        """The link is gone: nothing more is wanted for it (L-2)."""
        for entry in list(self._entries):
            if entry.large is not None and not entry.large.is_place:
                self._notify_not_wanted(entry, entry.large)
            self._forget(entry)
        self._line = None  # each refers to the other

    # ------------------------------------------------------------------ without a body

    def _do_without(self, entry: Entry) -> None:
        """L-7: it waits behind a place, so its own parts would wait here while the publisher cannot send again."""
        if entry.large is not None:
            self._notify_not_wanted(entry, entry.large)
        self._forget(entry)
        entry.message = b""
        entry.large = LargeBody(is_place=True)

    def ask(self, entry: Entry) -> None:
        """L-7: it is its turn, and its body is not here; what follows of its publisher waits."""
        assert entry.sync is not None
        self._turn.counts[Decision.LARGE_NEEDED] += 1
        self._queue.set_aside(entry.sync, entry)
        for waiting in self._queue.of(entry.sync):
            if (
                waiting.number > entry.number
                and waiting.large is not None
                and not waiting.large.is_place
                and not waiting.large.is_whole
            ):
                self._do_without(waiting)
        self._answer(entry.sync, Need(entry.sync.epoch, entry.sync.named, entry.number))
