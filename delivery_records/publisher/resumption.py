"""A publisher without the capability comes back with unfinished deliveries, and resumes them (rules A-3b, A-3c).

Its router still has them: their bodies, their order, and what subscriptions have said of them. So the reply's map is
true, nothing is sent a second time, and it does not matter in which order the publisher resumes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate

from delivery_records.model.inputs import PublisherTransfer
from delivery_records.model.limits import RESUME_FLAGS_IGNORED
from delivery_records.model.outcomes import Decision, Reported
from delivery_records.model.turn import Turn
from delivery_records.publisher.fanout import Fanout
from delivery_records.publisher.owner import Owner
from delivery_records.publisher.publisher_outcomes import PublisherOutcomes
from delivery_records.publisher.starts import Start
from delivery_records.publisher.window import AWAITED, GONE, RECEIVED, REPORTED, Slot, Window

NOT_RESUMED = -1
"""The delivery-id of what the publisher has not named on this link."""


@dataclass(frozen=True, slots=True)
class Held:
    """The deliveries that this router holds of a publisher, in the order of its window."""

    decided: Mapping[bytes, Reported]
    """Their outcome is known; the publisher may not have read it. They are the first of the window (I-3)."""
    undecided: tuple[Slot, ...]
    starts: tuple[Start, ...]
    """So many of them were sent before that revision (I-6a)."""

    @property
    def tags(self) -> list[bytes]:
        """All of them, in order."""
        return [*self.decided, *(slot.tag for slot in self.undecided)]

    @property
    def body_bytes(self) -> int:
        """Of the bodies that go out again."""
        return sum(len(slot.message) for slot in self.undecided)

    def among(self, presented: Iterable[bytes]) -> Held | None:
        """Those of a presented map; None: a body is not here (L-1)."""
        tags = frozenset(presented)
        undecided = tuple(slot for slot in self.undecided if slot.tag in tags)
        if any(slot.state is not RECEIVED or slot.is_large for slot in undecided):
            return None
        decided = {tag: reported for tag, reported in self.decided.items() if tag in tags}
        kept = [0, *accumulate(tag in tags for tag in self.tags)]
        return Held(decided, undecided, tuple((kept[stop], revision) for stop, revision in self.starts))


class Resumption:
    """What one publisher may resume on its link. One that presents nothing, or has the capability, resumes nothing."""

    __slots__ = (
        "_decided",
        "_fanout",
        "_former",
        "_held",
        "_ignored",
        "_open",
        "_outcomes",
        "_owner",
        "_turn",
        "_window",
    )

    def __init__(
        self, turn: Turn, owner: Owner, window: Window, fanout: Fanout, outcomes: PublisherOutcomes, held: Held | None
    ) -> None:
        """`held`: all that is here of the publisher. The window has what it presents of that."""
        self._turn = turn
        self._owner = owner
        self._window = window
        self._fanout = fanout
        self._outcomes = outcomes
        self._former = held
        self._held = None if held is None else held.among(slot.tag for slot in window.slots())
        """Both until the publisher has shown life."""
        self._decided: Mapping[bytes, Reported] = {} if self._held is None else self._held.decided
        self._open: dict[bytes, Slot] = {}
        """Those that the publisher has not resumed: it counts in their `pending`."""
        self._ignored = 0
        window.hold(self.held_bytes)

    @property
    def starts(self) -> list[Start]:
        """I-6a: of what it presents. An outcome that is known was reported, and is owed to nobody."""
        held = self._held
        return [] if held is None else [*held.starts, (len(held.decided), 0)]

    @property
    def reply(self) -> dict[bytes, Reported | None]:
        """A-3b: the map of the attach reply; None: no outcome yet. Without anything held it is empty (A-3a)."""
        held = self._held
        return {} if held is None else {tag: held.decided.get(tag) for tag in held.tags}

    @property
    def held_bytes(self) -> int:
        """C-6: bodies that are here and in no slot of the window."""
        return 0 if self._former is None else self._former.body_bytes

    @property
    def must_show_life(self) -> bool:
        """There is something to resume or to send again within T_life (A-4). Outcomes may just be read."""
        return self._held is None or bool(self._held.undecided)

    def held(self) -> Held | None:
        """What the next attach of the publisher finds here; None: nothing is known."""
        if self._former is not None:
            return self._former  # what this attach presented may be older than the next one's map
        return self._held_now() if self._fanout.is_active else None

    def _held_now(self) -> Held:
        """I-3: outcomes are decided in order, so those that are lie at the head of the window."""
        decided: dict[bytes, Reported] = {}
        undecided: list[Slot] = []
        for slot in self._window.slots():
            owed = slot.pending - (slot.tag in self._open)
            if undecided or owed or slot.state not in (RECEIVED, REPORTED):
                undecided.append(slot)
            else:
                decided[slot.tag] = self._decided.get(slot.tag) or self._outcomes.outcome_of(slot)
        return Held(decided, tuple(undecided), tuple(self._starts(len(self._window))))

    def _starts(self, tags: int) -> Iterable[Start]:
        """I-6: a subscription that joined later is not owed what was here before it."""
        subscriptions = self._turn.view.subscriptions
        for key, cursor in self._fanout.cursors.items():
            if key in subscriptions:
                later = self._window.count(cursor.start, self._window.end)
                yield tags - later, subscriptions[key].created

    # ------------------------------------------------------------------ the link is active

    def begin(self) -> None:
        """The publisher lives, and has read the map: what is undecided goes out again, as after a failover (I-5)."""
        window = self._window
        window.hold(-self.held_bytes)
        held, self._held, self._former = self._held, None, None
        if held is None:
            return
        for tag in held.decided:
            slot = window.find(tag)
            if slot is not None:
                window.fill(slot, b"", NOT_RESUMED)
                slot.pending = 0
                self._outcomes.on_stated(slot)
                window.next_accept = slot.number + 1
        for old in held.undecided:
            slot = window.find(old.tag)
            if slot is not None:
                self._store_again(slot, old)

    def _store_again(self, slot: Slot, old: Slot) -> None:
        slot.message_format, slot.processed, slot.has_no_letter = old.message_format, old.processed, old.has_no_letter
        slot.verdict, slot.failure = old.verdict, old.failure
        self._window.fill(slot, old.message, NOT_RESUMED)
        self._open[slot.tag] = slot
        if slot.verdict is not None:  # malformed, or nobody's (I-1b, I-3): it is owed to nobody
            slot.pending = 1
            return
        self._owner.limit_life(slot)
        if not slot.pending or self._fanout.listeners:
            self._outcomes.on_no_answer_due(slot, bool(self._fanout.listeners))
        slot.pending += 1
        self._fanout.forward(slot)

    def takes(self, transfer: PublisherTransfer) -> bool:
        """Whether a transfer with resume=true names what the publisher has not resumed yet; if not, it is dealt with.

        One that is not in the reply's map is ignored (AMQP 1.0 section 2.6.13).
        """
        slot = self._window.find(transfer.tag)
        if slot is None or slot.state is AWAITED or slot.delivery_id != NOT_RESUMED:
            if not transfer.aborted:
                self._ignore()
            return False
        if transfer.settled or transfer.aborted:  # 3.4.6: it has an outcome, or cannot resume it
            self._owner.on_settled([transfer.tag])
            return False
        return True

    def _ignore(self) -> None:
        self._turn.counts[Decision.TRANSFER_RESUME_IGNORED] += 1
        self._ignored += 1
        if self._ignored >= RESUME_FLAGS_IGNORED:
            self._owner.detach("amqp:not-allowed", "resend without resume: the reply's unsettled map has no such tag")

    def take(self, slot: Slot, transfer: PublisherTransfer) -> bool:
        """The publisher names what is here, body and all: its outcome can be reported. False: the tag is in use."""
        if slot.delivery_id != NOT_RESUMED:
            return False
        self._turn.counts[Decision.TRANSFER_RESUMED] += 1
        slot.delivery_id = transfer.delivery_id
        slot.receiver_settles = transfer.receiver_settles
        if self._open.pop(slot.tag, None) is not None:
            slot.pending -= 1
        else:
            self._outcomes.notify_again(slot, self._decided[slot.tag])
        return True

    @property
    def is_due(self) -> bool:
        """I-9: there is something that the publisher has not resumed."""
        self._open = {tag: slot for tag, slot in self._open.items() if slot.state is not GONE}
        return bool(self._open)

    def settle_stated(self) -> None:
        """T_settle: a source that has read an outcome in the map need not say so (3.4.6)."""
        found = [slot for tag in self._decided if (slot := self._window.find(tag)) is not None]
        tags = [slot.tag for slot in found if slot.state is REPORTED and slot.delivery_id == NOT_RESUMED]
        if tags:
            self._owner.on_settled(tags)
