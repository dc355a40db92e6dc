"""A shared subscription at the ingress of one publisher: which member has which delivery (rules SH-2 to SH-5).

The publisher owes a delivery to the shared subscription, whose cursor says so. This says who is to do it: each delivery
goes to one member, and to another only when it is certain that the first does not have it, or when its key is deleted.

A delivery that is owed and received is with one member, or waits in the line for any of them, or waits for the members
that have not stated their maps since the activation (SH-4), or for the end of a retry's delay (E-4a). A lost link or a
crashed router by itself moves nothing: a member keeps its deliveries until its key is deleted (SH-3).

What is assigned is our belief; a member's map is the truth, and only its egress knows that. So each SYNC to a member
makes its map unknown, and nothing goes to it until the CLAIM that answers this very SYNC. What the CLAIM names is that
member's, unless another one was assigned it meanwhile; what it does not name and we had assigned is taken back. Between
CLAIMs a RETURN states that something was not sent, and a NACK that it is handed back (SH-5).

Room is what a member states, and may be too much: ingresses do not know of each other, and share its credit. Whoever
finds it used up gets a RETURN, and offers that member nothing more before it states room again (SH-2). What a member
may have processed is flagged for the next one. Egresses at this router answer within the call, so `assign` guards
itself against being called while it assigns.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Final, Protocol

from delivery_records.model.assigned import Assigned
from delivery_records.model.messages import Run
from delivery_records.model.outcomes import Decision
from delivery_records.model.trace import Rule
from delivery_records.model.turn import Turn
from delivery_records.model.view import Subscription
from delivery_records.publisher.members import Member
from delivery_records.publisher.policy import Policy
from delivery_records.publisher.window import AWAITED, Cursor, Slot, Window

MAX_SERIAL: Final = 0xFFFFFFFF
"""What a SYNC and a CLAIM can say."""
SLACK: Final = 64
"""Numbers that do not wait any more are taken out of a heap when there are so many more than those that do."""


class Way(Protocol):
    """How a share reaches a member."""

    def to_member(self, slot: Slot, member: str, redelivered: bool, attempt: int, assigned: Assigned) -> None:
        """Send a MSG to this member alone."""

    def stop_sending(self, number: int, member: str) -> None:
        """L-2: no more of a large delivery to this member; assigned again, it begins with its first part."""

    def sync_member(self, key: str) -> None:
        """SH-4: begin anew with this member, whose CLAIM follows."""

    def trace(self, slot: Slot, rule: Rule, *fields: object) -> None:
        """A step of a delivery, while an operator wants to see them."""


class Share(Policy):
    """Members and assignments of one shared subscription, for one publisher."""

    __slots__ = (
        "_again",
        "_also",
        "_assigned",
        "_at",
        "_attempts",
        "_blocking",
        "_cursor",
        "_is_assigning",
        "_members",
        "_open",
        "_order",
        "_refused",
        "_turn",
        "_unclaimed",
        "_untried",
        "_waiting",
        "_way",
        "_window",
        "key",
    )

    def __init__(self, turn: Turn, key: str, cursor: Cursor, window: Window, way: Way) -> None:
        """No member is known, and nothing is assigned.

        Args:
            turn: of this router.
            key: of the shared subscription.
            cursor: what it has acknowledged of the window.
            window: of the publisher.
            way: to the members.
        """
        self._turn = turn
        self.key = key
        self._cursor = cursor
        self._window = window
        self._way = way
        self._members: dict[str, Member] = {}
        self._at: dict[int, Member] = {}
        """Who has each delivery."""
        self._waiting: set[int] = set()
        """Nobody has it, and it may be assigned."""
        self._order: list[int] = []
        """A heap of these numbers, and of some that do not wait any more."""
        self._is_assigning = False
        self._assigned = 0
        """Assignments so far."""
        self._open: dict[str, Member] = {}
        """All members that take more, and some that do not any more: who has no room costs others nothing (SH-2)."""
        self._untried: dict[str, Member] = {}
        """Those that may be offered the head of the window though they have no room for others (C-4, SH-2)."""
        self._unclaimed: dict[int, None] = {}
        """Of the presented map: a member that has not answered yet may have it (SH-4)."""
        self._blocking: set[str] = set()
        """Members that were there at the activation and have neither answered nor ended (SH-4)."""
        self._again: set[int] = set()
        """What somebody may have processed: it is flagged (SH-5)."""
        self._also: dict[int, dict[str, None]] = {}
        """Members that claim what another one claimed before: one of the two refused it for good (SH-5)."""
        self._attempts: dict[int, int] = {}
        self._refused: dict[int, set[str]] = {}
        """Members that must not get it any more, or not at once (SH-5)."""

    # ------------------------------------------------------------------ members

    def begin(self, members: Iterable[Subscription]) -> None:
        """SH-4: at activation, each member may have any delivery of the presented map."""
        for member in members:
            self._members[member.key] = Member(member)
            self._blocking.add(member.key)

    def on_synced(self, member: Subscription) -> int:
        """A SYNC goes to its egress: nothing is known of its map before it answers. Returns the serial of that SYNC."""
        known = self._members.get(member.key)
        if known is None:
            known = self._members[member.key] = Member(member)
        known.epoch, known.rid = member.epoch, member.record.rid
        known.answered = False
        known.serial = known.serial % MAX_SERIAL + 1
        return known.serial

    def on_claim(self, key: str, epoch: int, room: int, runs: Iterable[Run], serial: int = 0) -> None:
        """SH-4: what the member has is assigned to it; what it was assigned and has not, is not."""
        member = self._members.get(key)
        if member is None or member.epoch != epoch:
            return
        if serial and serial != member.serial:
            return  # it answers a former SYNC, and the answer to the last one is to come
        member.answered = True
        named = (slot for first, count in runs for slot in self._window.within(first, count))
        claimed = {slot.number for slot in named if slot.verdict is None}
        for number in [number for number in member.has if number not in claimed]:
            self._take_back(number)
        member.handed_back.clear()
        member.claimed.clear()
        for others in self._also.values():
            others.pop(key, None)
        for number in sorted(claimed):
            self._on_claimed(member, number)
        self._state_room(member, room)
        self._blocking.discard(key)
        self._release_unclaimed()
        self.assign()

    def _on_claimed(self, member: Member, number: int) -> None:
        holder = self._at.get(number)
        if not self._cursor.owes(number):
            return  # done: it keeps its copy till P settles
        if holder is not None and holder is not member:  # or assigned anew since that member's key was deleted
            if number in holder.claimed:
                self._also.setdefault(number, {})[member.key] = None
            return
        self._hold(member, number)

    def _hold(self, member: Member, number: int) -> None:
        self._unclaimed.pop(number, None)
        self._waiting.discard(number)
        self._at[number] = member
        member.has[number] = None
        member.claimed.add(number)
        slot = self._window.at(number)
        if slot is not None and slot.state is not AWAITED:
            self._send(slot, member)  # it may need the body (E-3)

    def on_room(self, key: str, epoch: int, room: int) -> None:
        """SH-2: the member takes more, or its link is gone."""
        member = self._members.get(key)
        if member is not None and member.epoch == epoch:
            self._state_room(member, room)
            if room:
                self.assign()

    def _state_room(self, member: Member, room: int) -> None:
        """SH-2: what it states reopens itself and nobody else, and only if it has room."""
        member.room, member.is_full = room + len(member.has), not room
        if room:
            self._reopen(member)
        else:
            self._open.pop(member.key, None)
            self._untried.pop(member.key, None)

    def _reopen(self, member: Member) -> None:
        self._open[member.key] = member
        self._untried[member.key] = member

    def on_returned(self, key: str, epoch: int, number: int) -> None:
        """SH-2: the member was not sent it; nobody has it."""
        member = self._members.get(key)
        if member is None:
            return
        if member.epoch != epoch:
            if number not in member.claimed:
                self.on_handed_back(key, number)
            return
        member.is_full = True
        self._turn.counts[Decision.RETURNED_BY_MEMBER] += 1
        if number in member.has and number not in member.claimed:
            self._take_back(number, was_sent=False)
            self.assign()

    def on_deleted(self, key: str) -> None:
        """SH-3: only now goes what it had to others."""
        member = self._members.pop(key, None)
        self._open.pop(key, None)
        self._untried.pop(key, None)
        self._blocking.discard(key)
        for refused in self._refused.values():
            refused.discard(key)  # whoever comes under that key is another member
        if member is not None:
            for number in list(member.has):
                self._take_back(number)
        self._release_unclaimed()
        self.assign()

    def _take_back(self, number: int, *, was_sent: bool = True) -> None:
        member = self._at.pop(number)
        del member.has[number]
        member.claimed.discard(number)
        self._way.stop_sending(number, member.key)
        if number in member.handed_back:
            member.handed_back.remove(number)
        elif was_sent:
            self._again.add(number)
            self._turn.counts[Decision.ASSIGNED_AGAIN] += 1
        slot = self._window.at(number)
        if slot is not None and self._turn.tracing is not None:
            self._way.trace(slot, Rule.TAKEN_BACK, member.name)
        if not self._pass_on(number):
            self._let_wait(number)

    def _pass_on(self, number: int) -> bool:
        """SH-5: to the next that has it in its map, and may be done with it."""
        others = self._also.pop(number, {})
        keys = [key for key in others if key in self._members and key not in self._refused.get(number, ())]
        if not keys:
            return False
        if len(keys) > 1:
            self._also[number] = dict.fromkeys(keys[1:])
        self._hold(self._members[keys[0]], number)
        return True

    def _let_wait(self, number: int) -> None:
        slot = self._window.at(number)
        # What is not received yet is offered when it comes; what is malformed is nobody's (I-1b).
        if slot is not None and slot.state is not AWAITED and slot.verdict is None:
            self._waiting.add(number)
            self._line_up(number)

    def _line_up(self, number: int) -> None:
        """It waits for any member."""
        heappush(self._order, number)
        if len(self._order) > 2 * len(self._waiting) + SLACK:
            self._order[:] = sorted(self._waiting.intersection(self._order))

    def _release_unclaimed(self) -> None:
        if not self._blocking:
            for number in self._unclaimed:
                self._let_wait(number)
            self._unclaimed = {}

    # ------------------------------------------------------------------ deliveries

    def offer(self, slot: Slot) -> None:
        """I-1: a delivery was received: to the member that has it, or to one that takes it."""
        number = slot.number
        holder = self._at.get(number)
        if holder is not None:
            self._send(slot, holder)
            return
        if slot.repeated:
            self._again.add(number)
            if self._blocking:
                self._unclaimed[number] = None
                return
        self._let_wait(number)
        self.assign()

    def on_large_repeated(self) -> None:
        """L-1: the publisher may have no room for what follows in its map, before somebody takes the large one."""

    def assign(self) -> None:
        """SH-2: in order, each to the member with the fewest unanswered ones that takes more."""
        if self._is_assigning:  # what is sent may come back at once
            return
        self._is_assigning = True
        try:
            self._hand_out()
        finally:
            self._is_assigning = False

    def _hand_out(self) -> None:
        aside: list[int] = []
        try:
            while self._order:
                number = heappop(self._order)
                slot = self._next_waiting(number)
                if slot is None:
                    continue
                member = self._choose(number)
                is_head = member is None
                member = member or self._choose_for_head(number, self._untried.values())
                if member is not None:
                    self._give(slot, member, is_head=is_head)
                    continue
                aside.append(number)
                if number not in self._refused:
                    break  # else those that take more have refused it
        finally:
            for number in aside:
                heappush(self._order, number)

    def _next_waiting(self, number: int) -> Slot | None:
        """What a number out of a heap stands for, if it may be assigned."""
        slot = self._window.at(number)
        if number not in self._waiting or slot is None or slot.state is AWAITED:
            self._waiting.discard(number)  # what is not received yet is offered when it comes
            return None
        return slot

    def _give(self, slot: Slot, member: Member, *, is_head: bool = False) -> None:
        number = slot.number
        self._waiting.discard(number)
        self._at[number] = member
        member.has[number] = None
        self._assigned += 1
        member.last = self._assigned
        self._send(slot, member, is_head)

    def _choose(self, number: int) -> Member | None:
        for key in [member.key for member in self._open.values() if member.is_out_of_room]:
            del self._open[key]
        able = [member for member in self._open.values() if member.is_there(self._turn)]
        refused = self._refused.get(number)
        if refused:
            able = [member for member in able if member.key not in refused]
        return min(able, key=lambda member: (len(member.has), member.last, member.key), default=None)

    def _choose_for_head(self, number: int, members: Iterable[Member]) -> Member | None:
        """C-4: maps that are full of what comes after the oldest delivery wait for it: each is asked once.

        Who returns it is asked again when it has stated room, or is done with something that it had (SH-2).
        """
        if number != self._window.next_accept:
            return None
        for member in members:
            may_be_asked = member.key in self._untried and member.key not in self._refused.get(number, ())
            if may_be_asked and member.is_there(self._turn):
                del self._untried[member.key]
                return member
        return None

    def after_settling(self) -> None:
        """C-4: the head of the window may be another one; whose map has room again states it (SH-2)."""
        self.assign()

    def _send(self, slot: Slot, member: Member, is_head: bool = False) -> None:
        if not member.answered:
            return  # its CLAIM, which is under way, has it sent, behind what precedes it
        assert slot.state is not AWAITED, "it has no body"
        number = slot.number
        if self._turn.tracing is not None:
            self._way.trace(slot, Rule.ASSIGNED, member.name)
        assigned = Assigned.AS_HEAD if is_head else Assigned.ANEW
        if number in member.claimed:
            assigned = Assigned.BY_ITS_MAP
        self._way.to_member(slot, member.key, number in self._again, self._attempts.get(number, 0), assigned)

    def next_member(self, message: bytes, message_format: int) -> str | None:
        """I-1c: who gets what is sent once and kept by nobody; None: nobody takes more."""
        member = self._choose(-1)
        return None if member is None else member.key

    def on_stored(self, slot: Slot) -> None:
        """I-1: a delivery was received: to a member, if the shared subscription owes it."""
        if self._cursor.owes(slot.number):
            self.offer(slot)
        if slot.is_large and slot.repeated:
            self.on_large_repeated()

    def forget(self, slot: Slot) -> None:
        """It has left the window: no member has it any more."""
        self.let_go(slot.number)

    def sync_router(self, rid: int) -> None:
        """T-4: to its members there U is declared anew (SH-4)."""
        for member in list(self._turn.view.members_of.get(self.key, {}).values()):
            if member.record.rid == rid:
                self._way.sync_member(member.key)

    def let_go(self, number: int) -> None:
        """The shared subscription is done with it, or it has left the window."""
        holder = self._at.pop(number, None)
        if holder is not None:
            del holder.has[number]
            holder.claimed.discard(number)
            holder.handed_back.discard(number)
            self._reopen(holder)
        self._waiting.discard(number)
        self._unclaimed.pop(number, None)
        self._again.discard(number)
        self._also.pop(number, None)
        self._attempts.pop(number, None)
        self._refused.pop(number, None)

    def may_expire(self, number: int) -> bool:
        """E-10: nobody has it, nobody had it, and no map that is not known may hold it."""
        was_had = number in self._again or number in self._attempts or number in self._refused
        return number in self._waiting and not was_had and not self._blocking

    # ------------------------------------------------------------------ wanted again

    def is_former(self, key: str, epoch: int) -> bool:
        """SH-5: a NACK takes nothing away: the CLAIM to the SYNC of the member's present epoch does not name it."""
        member = self._members.get(key)
        return member is None or member.epoch != epoch

    def on_handed_back(self, key: str, number: int) -> None:
        """SH-5: so by an answer of a former epoch; if the CLAIM does not name it, nobody may have processed it."""
        member = self._members.get(key)
        if member is not None and not member.answered and number in member.has:
            member.handed_back.add(number)

    def count_attempts(self, number: int, attempts: int) -> None:
        """E-4a: so often it has failed; the next MSG of it says so."""
        self._attempts[number] = attempts

    def on_refused(self, key: str, number: int) -> bool:
        """E-4a: the member does not do it now; True: it had it, and `retry` follows."""
        member = self._members[key]
        self._also.get(number, {}).pop(key, None)
        if self._at.get(number) is not member:
            return False
        self._give_up(member, number)
        self._pass_on(number)
        return True

    def has_refused(self, key: str, number: int) -> bool:
        """SH-5: the member has said before that it never does it."""
        return key in self._refused.get(number, ())

    def on_refused_for_good(self, key: str, number: int) -> bool:
        """SH-5: undeliverable-here: never that member again; True when no other is left."""
        refused = self._refused.setdefault(number, set())
        refused.add(key)
        self._turn.counts[Decision.REFUSED_BY_MEMBER] += 1
        member = self._at.get(number)
        if member is not None and member.key != key:
            return False  # another one has it
        if member is not None:
            self._give_up(member, number)
        if refused >= self._members.keys():
            return True
        if self._pass_on(number):
            return False
        if self._blocking:
            self._unclaimed[number] = None  # SH-4: a member that has not answered yet may have got it since then
        else:
            self._let_wait(number)
        return False

    def refused_by_all(self) -> list[int]:
        """SH-5: what all that are members now have refused for good, after one of the others has ended."""
        return [
            number
            for number, refused in self._refused.items()
            if self._members and number not in self._at and refused >= self._members.keys()
        ]

    def _give_up(self, member: Member, number: int) -> None:
        del self._at[number]
        del member.has[number]
        member.claimed.discard(number)
        member.handed_back.discard(number)
        self._reopen(member)
        self._way.stop_sending(number, member.key)  # its egress drops what is on the way (SH-5)

    def retry(self, number: int, attempt: int) -> None:
        """E-4a: the delay is over."""
        self._attempts[number] = attempt
        if number in self._unclaimed:
            return  # SH-4: it was sent again meanwhile, and waits for those that have not answered
        if number not in self._at and self._cursor.owes(number):
            self._let_wait(number)
            self.assign()

    # ------------------------------------------------------------------ for people

    @property
    def lined_up(self) -> int:
        """Numbers in heaps, those that do not wait any more included."""
        return len(self._order)

    def waiting_for(self, key: str) -> frozenset[int]:
        """Nobody has these, and they may be assigned to this member when they are here: it has not refused them."""
        return frozenset(number for number in self._waiting if key not in self._refused.get(number, ()))

    def knows(self, key: str) -> bool:
        """SH-4: a member has answered which deliveries it has."""
        member = self._members.get(key)
        return member is not None and member.answered

    def holder(self, number: int) -> str | None:
        """Key of the member that has a delivery."""
        member = self._at.get(number)
        return None if member is None else member.key

    def assignments(self) -> dict[str, int]:
        """How many deliveries each member has."""
        return {key: len(member.has) for key, member in self._members.items()}
