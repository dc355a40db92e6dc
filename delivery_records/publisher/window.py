"""A publisher's window at its ingress: its unsettled deliveries, in order (rules I-1 to I-6).

The window is this router's side of the publisher's unsettled map. Deliveries are named by running numbers that start
at 0 in each publisher epoch (T-7). Tags of the map that the publisher presents get the first numbers, in the map's
order. They are *awaited*: only the tag is here, and the message comes again (P-1). What the publisher sends for the
first time is appended behind them. A number stays until its delivery is settled, given up or abandoned; the states in
between, and which may follow which, are the table `SLOT_NEXT`.

Numbers stand for tags because subscriptions answer for runs of them. A `Cursor` holds what one subscription has
acknowledged: all below a number, and some above it. What the publisher settles out of order leaves a hole, so the
slots are in a dict, whose order is theirs. `base` is the first number that is still in it, and `end` the next one to
be given. There is nearly always no hole, and then to count a run is to subtract.

Outcomes are reported in order (I-3): `next_accept` is the first number that has none yet, and what has its outcome
earlier waits for it. `unreceived` counts the awaited ones. `passed_over` finds those that the publisher has gone past
without sending them; it starts where it ended the last time, so that all calls together look at each number once.

The window knows the bytes of its bodies. It adds them, and a constant for each entry, to the budget of the router.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final

from delivery_records.model.budget import Budget
from delivery_records.model.limits import ENTRY_BYTES, ROUTER_BYTES
from delivery_records.model.outcomes import DeliveryOutcome


class SlotState(Enum):
    """Where one delivery of the window is."""

    __hash__ = object.__hash__  # as in DeliveryOutcome: each step looks its table up

    AWAITED = "awaited"
    """Known by its tag only, as from a presented map."""
    ARRIVING = "arriving"
    """A large one, whose last part has not come (L-1)."""
    RECEIVED = "received"
    """Stored whole, or a large one that has passed whole; its outcome is open, or has not been reported."""
    REPORTED = "reported"
    """The publisher got the outcome, whichever it is (accP); it has not settled."""
    GONE = "gone"
    """Settled, given up or abandoned: out of the window."""


SLOT_NEXT: Final = {
    SlotState.AWAITED: (SlotState.ARRIVING, SlotState.RECEIVED, SlotState.GONE),
    SlotState.ARRIVING: (SlotState.AWAITED, SlotState.RECEIVED, SlotState.GONE),
    SlotState.RECEIVED: (SlotState.REPORTED, SlotState.GONE),
    SlotState.REPORTED: (SlotState.GONE,),
    SlotState.GONE: (),
}
"""I-1: received; L-1: arriving; L-5: awaited again; I-3: reported; I-4: settled; I-4a: given up; I-9: abandoned.
docs/protocol.md draws it."""

# For what is done with every delivery: to look a member up in its class costs as much as a call.
AWAITED: Final = SlotState.AWAITED
ARRIVING: Final = SlotState.ARRIVING
RECEIVED: Final = SlotState.RECEIVED
REPORTED: Final = SlotState.REPORTED
GONE: Final = SlotState.GONE


class Slot:
    """One delivery of the window."""

    __slots__ = (
        "delivery_id",
        "failure",
        "has_no_letter",
        "is_large",
        "is_special",
        "message",
        "message_format",
        "number",
        "pending",
        "processed",
        "receiver_settles",
        "rejected_by",
        "repeated",
        "state",
        "tag",
        "verdict",
    )

    def __init__(self, number: int, tag: bytes) -> None:
        """A delivery that is known by its tag only, as from a presented map."""
        self.number = number
        self.tag = tag
        self.message = b""
        """Whole, or the head of a large one."""
        self.is_large = False
        self.message_format = 0
        self.state = AWAITED
        self.pending = 0
        """Subscriptions that still owe this delivery."""
        self.processed = False
        """A subscription is done with it, or it went to one that answers nothing (c.3)."""
        self.delivery_id = -1
        self.receiver_settles = False
        """Its outcome goes out settled, and I-4 follows at once (c.3)."""
        self.is_special = False
        """Not simply sent to all that get what is new."""
        self.repeated = False
        """It was in the presented map: a subscriber may have seen it before."""
        self.verdict: DeliveryOutcome | None = None
        """Outcome that no subscription stated: malformed, rejected; nobody had it, released (I-3)."""
        self.failure = ""
        self.has_no_letter = False
        """A subscription failed it while it was large: nobody had the body for a letter (I-3e)."""
        self.rejected_by: list[str] | None = None

    def step(self, state: SlotState) -> None:
        """Go on to a state. Only the steps of SLOT_NEXT are taken: another one is a fault of ours.

        What comes with every delivery is done in place, behind a look at the former state: a call costs too much there.
        """
        assert state in SLOT_NEXT[self.state], f"{self.state} -> {state}"
        self.state = state


class Cursor:
    """What one subscription has acknowledged of the window.

    Everything below `through` is acknowledged or not owed; `beyond` holds acknowledged numbers above it.
    """

    __slots__ = ("beyond", "start", "through")

    def __init__(self, start: int) -> None:
        """The subscription owes numbers from `start` on (I-6)."""
        self.start = start
        self.through = start
        self.beyond: set[int] = set()

    def owes(self, number: int) -> bool:
        """True while the subscription has not acknowledged `number`."""
        return number >= self.through and number not in self.beyond

    def acknowledge(self, first: int, stop: int, base: int) -> Iterable[int]:
        """Mark numbers first..stop-1; return those that were owed until now.

        `base` is the window's first number: what lies below it is settled and no longer counted.
        """
        if self.through < base:
            if self.beyond:
                for number in range(self.through, base):  # each number once, however often this is called
                    self.beyond.discard(number)
            self.through = base
            self._absorb()
        first = max(first, self.through)
        if first >= stop:
            return ()
        if first == self.through and not self.beyond:
            self.through = stop
            return range(first, stop)
        new = [number for number in range(first, stop) if number not in self.beyond]
        self.beyond.update(new)
        self._absorb()
        return new

    def _absorb(self) -> None:
        while self.through in self.beyond:
            self.beyond.remove(self.through)
            self.through += 1


class Window:
    """Slots by number and by tag. Invariant: base <= every number in it < end; base is in it unless it is empty."""

    __slots__ = (
        "_awaited",
        "_budget",
        "_by_number",
        "_by_tag",
        "base",
        "body_bytes",
        "end",
        "next_accept",
        "reported",
        "unreceived",
    )

    def __init__(self, tags: Iterable[bytes] = (), budget: Budget | None = None) -> None:
        """Start with the non-terminal tags of the presented map, in its order (A-4); count all of it in `budget`."""
        self._budget = budget if budget is not None else Budget(ROUTER_BYTES)
        self._by_number: dict[int, Slot] = {}
        self._by_tag: dict[bytes, Slot] = {}
        self.base = 0
        self.end = 0
        self.next_accept = 0
        """First number whose outcome was not reported to the publisher: acceptances are in order (I-3)."""
        self.unreceived = 0
        self._awaited = 0
        """No number below this one is still unreceived: what was presented comes again in order (P-1)."""
        self.reported = 0
        """Deliveries whose outcome was reported and that are not settled yet."""
        self.body_bytes = 0
        for tag in tags:
            slot = self.append(tag)
            slot.repeated = slot.is_special = True
            self.unreceived += 1

    def __len__(self) -> int:
        """Deliveries in the window."""
        return len(self._by_number)

    def append(self, tag: bytes) -> Slot:
        """Add a delivery behind all others."""
        number = self.end
        slot = Slot(number, tag)
        known = self._by_tag.setdefault(tag, slot)
        assert known is slot, "one tag names one unsettled delivery"
        self._by_number[number] = slot
        self.end = number + 1
        self._budget.held += ENTRY_BYTES
        return slot

    def find(self, tag: bytes) -> Slot | None:
        """The slot of a tag, if it is unsettled."""
        return self._by_tag.get(tag)

    @property
    def newest(self) -> Slot:
        """The last delivery of the window, which is not empty."""
        return self._by_number[next(reversed(self._by_number))]

    def at(self, number: int) -> Slot | None:
        """The slot of a running number, if it is unsettled."""
        return self._by_number.get(number)

    def count(self, first: int, stop: int) -> int:
        """How many of the numbers first..stop-1 are unsettled."""
        if len(self._by_number) == self.end - self.base:  # no holes, as nearly always
            return max(0, min(stop, self.end) - max(first, self.base))
        return sum(1 for number in self._by_number if first <= number < stop)

    def within(self, first: int, count: int) -> list[Slot]:
        """The unsettled slots of a run of numbers, however long it claims to be."""
        return self.found(range(max(first, self.base), min(first + count, self.end)))

    def found(self, numbers: Iterable[int]) -> list[Slot]:
        """The slots of those running numbers that are unsettled."""
        by_number = self._by_number
        return [slot for number in numbers if (slot := by_number.get(number)) is not None]

    def fill(self, slot: Slot, message: bytes, delivery_id: int) -> None:
        """Store the message of a slot whole (I-1a)."""
        assert slot.state is AWAITED
        if slot.repeated:
            self.unreceived -= 1
        slot.state = RECEIVED  # in place: see `Slot.step`
        slot.message = message
        slot.delivery_id = delivery_id
        self.body_bytes += len(message)
        self._budget.held += len(message)

    def begin_large(self, slot: Slot, head: bytes, delivery_id: int) -> None:
        """L-1: a large delivery begins to come; its head stays."""
        assert slot.state is AWAITED
        if slot.repeated:
            self.unreceived -= 1
        slot.step(ARRIVING)
        slot.is_large = True
        slot.message = head
        slot.delivery_id = delivery_id
        self.hold(len(head))

    def end_large(self, slot: Slot) -> None:
        """L-1: the last part of a large delivery has come."""
        assert slot.state is ARRIVING
        slot.step(RECEIVED)

    def take_back_large(self, slot: Slot) -> None:
        """L-5: it was aborted, and may be sent again: it stands in the publisher's map."""
        assert slot.state is ARRIVING
        assert slot.repeated
        self.hold(-len(slot.message))
        slot.message = b""
        slot.is_large = False
        slot.message_format = 0
        slot.step(AWAITED)
        self.unreceived += 1

    def hold(self, size: int) -> None:
        """So many more bytes of large deliveries wait here (L-4); negative: fewer."""
        self.body_bytes += size
        self._budget.held += size

    def passed_over(self, before: int) -> list[Slot]:
        """The unreceived slots below number `before`, which is never smaller than the last time."""
        found: list[Slot] = []
        while self._awaited < before and self.unreceived > len(found):
            slot = self._by_number.get(self._awaited)
            if slot is not None and slot.state is AWAITED:
                found.append(slot)
            self._awaited += 1
        return found

    def remove(self, slot: Slot) -> None:
        """Forget a delivery: the publisher settled it or gave it up (I-4)."""
        del self._by_number[slot.number]
        del self._by_tag[slot.tag]
        self.body_bytes -= len(slot.message)
        self._budget.held -= len(slot.message) + ENTRY_BYTES
        if slot.state is AWAITED:
            self.unreceived -= 1
        elif slot.state is REPORTED:
            self.reported -= 1
        assert slot.state is not GONE
        slot.state = GONE
        if slot.number == self.base:
            base = slot.number + 1
            while base < self.end and base not in self._by_number:
                base += 1
            self.base = base
            if self.next_accept < base:
                self.next_accept = base

    def release(self) -> None:
        """Nobody will ask for this window any more: it does not count in the budget (C-6)."""
        self._budget.add(-self.body_bytes - ENTRY_BYTES * len(self))
        self._by_number = {}
        self._by_tag = {}
        self.body_bytes = self.unreceived = self.reported = 0

    def slots(self) -> Iterator[Slot]:
        """All slots in order. The window may not change meanwhile."""
        return iter(self._by_number.values())
