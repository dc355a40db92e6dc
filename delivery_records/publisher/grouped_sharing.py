"""A shared subscription that keeps groups in order, at the ingress of one publisher (rule SH-6).

All that a publisher has sent of one group and that is not done belongs to one member, and goes to it in order.
"""

from __future__ import annotations

from hashlib import blake2b
from heapq import heappop, heappush

from delivery_records.model.groups import GROUP_BYTES, ReadGroup, group_hash
from delivery_records.model.outcomes import Decision
from delivery_records.model.turn import Turn
from delivery_records.publisher.members import Member
from delivery_records.publisher.sharing import SLACK, Share, Way
from delivery_records.publisher.window import AWAITED, Cursor, Slot, Window


class _Group:
    """A group with deliveries that are not done."""

    __slots__ = ("digest", "given_up", "held_back", "is_split", "member", "numbers")

    def __init__(self, digest: bytes) -> None:
        self.digest = digest
        self.member: str | None = None
        """Key of whom it belongs to; None: that is not decided."""
        self.numbers: dict[int, None] = {}
        """What is received and not done, as it came."""
        self.is_split = False
        """Several members claim some of it; one of them had it before its key was deleted. Nothing more is assigned."""
        self.given_up: dict[int, str] = {}
        """Of these, what its member wanted again, and who that is: what follows goes to it meanwhile (E-4a)."""
        self.held_back: set[int] = set()
        """Of these, what a member claims while another one has what precedes it."""


class GroupedShare(Share):
    """As `Share`; what has no group goes by SH-2."""

    __slots__ = ("_ahead", "_group_of", "_groups", "_has_large", "_queues", "_read_group", "_undecided", "_went_back")

    def __init__(self, turn: Turn, key: str, cursor: Cursor, window: Window, way: Way, read_group: ReadGroup) -> None:
        """As `Share`, and how the group of a message is read."""
        super().__init__(turn, key, cursor, window, way)
        self._read_group = read_group
        self._groups: dict[bytes, _Group] = {}
        self._group_of: dict[int, _Group] = {}
        self._queues: dict[str, list[int]] = {}
        """Member -> a heap of what waits for it, and of numbers that do not any more."""
        self._ahead: set[int] = set()
        """What members claim and the publisher has not repeated yet: of which group it is is not known."""
        self._went_back: dict[int, str] = {}
        """What was returned and has not come again -> the member whose egress has others of its group wait for it."""
        self._has_large = False
        """Some of what was repeated was large (L-1)."""
        self._undecided: dict[bytes, _Group] = {}
        """Whose member is chosen when it is known who has their deliveries, or when a member comes."""

    @property
    def lined_up(self) -> int:
        """See Share."""
        return super().lined_up + sum(len(queue) for queue in self._queues.values())

    @property
    def groups(self) -> int:
        """How many have deliveries that are not done."""
        return len(self._groups)

    # ------------------------------------------------------------------ whom a group belongs to

    def _decide(self, group: _Group) -> None:
        """Who claims the last of its deliveries; else the highest in a hash that is the same at each ingress.

        Not before the publisher has repeated what is claimed, which has a group only then; for the rest of its map
        there may be no room before some of it is done (C-6). Behind a large one it may be unable to repeat even
        that (L-2): what somebody claims of the group and comes later waits for what precedes it (`_must_wait`).
        """
        is_early = self._waits_for_map or any(number in self._unclaimed for number in group.numbers)
        if not self._members or is_early:
            self._let_go(group)
            return
        self._undecided.pop(group.digest, None)
        held = [number for number in group.numbers if number in self._at]
        group.is_split = len({self._at[number].key for number in held}) > 1
        self._bind(group, self._at[max(held)].key if held else self._best(group.digest))

    @property
    def _waits_for_map(self) -> bool:
        return bool(self._ahead) and not self._has_large

    def _best(self, digest: bytes) -> str:
        return max(self._members, key=lambda key: blake2b(digest + key.encode(), digest_size=GROUP_BYTES).digest())

    def _bind(self, group: _Group, key: str) -> None:
        if group.member != key:
            group.member = key
            self._queues.setdefault(key, [])
            self._line_up_all(group)

    def _line_up_all(self, group: _Group) -> None:
        for number in group.numbers:
            if number in self._waiting:
                self._line_up(number)

    def _let_go(self, group: _Group) -> None:
        """It belongs to nobody until `_decide_all`."""
        group.member = None
        self._undecided[group.digest] = group

    def _release_unclaimed(self) -> None:
        super()._release_unclaimed()
        self._decide_all()

    def _decide_all(self) -> None:
        for group in list(self._undecided.values()):
            self._decide(group)

    def on_deleted(self, key: str) -> None:
        """SH-3: its groups go to others, with all that waits."""
        self._queues.pop(key, None)
        for group in self._groups.values():
            if group.member == key or group.is_split:
                self._let_go(group)
        super().on_deleted(key)

    # ------------------------------------------------------------------ deliveries

    def offer(self, slot: Slot) -> None:
        """I-1: received: to the member of its group."""
        digest = group_hash(self._read_group, slot.message, slot.message_format)
        number = slot.number
        was_ahead = number in self._ahead
        self._ahead.discard(number)
        former = self._group_of.get(number)
        if former is not None and former.digest != digest:
            self._leave_group(number)  # L-5: its publisher has aborted it, and sends something else
        if digest is not None:
            group = self._groups.get(digest)
            if group is None:
                group = self._groups[digest] = _Group(digest)
            group.numbers[number] = None
            self._group_of[number] = group
            if slot.repeated and (self._blocking or self._waits_for_map):
                self._let_go(group)
            elif digest not in self._undecided and (slot.repeated or group.member is None):
                self._decide(group)
        super().offer(slot)
        if was_ahead:
            self._look_ahead()

    def on_large_repeated(self) -> None:
        """See Share: no group waits any more for what is claimed (SH-6)."""
        self._has_large = True
        self._look_ahead()

    def _look_ahead(self) -> None:
        """Something that is claimed has come, or is claimed no longer; or it may not come soon."""
        if self._undecided and self._members and not (self._blocking or self._waits_for_map):
            self._decide_all()
            self.assign()

    def _hold(self, member: Member, number: int) -> None:
        if number in self._group_of:
            self._group_of[number].given_up.pop(number, None)
        super()._hold(member, number)
        slot = self._window.at(number)
        if slot is not None and slot.state is AWAITED and number not in self._group_of:
            self._ahead.add(number)

    def _give_up(self, member: Member, number: int) -> None:
        super()._give_up(member, number)
        self._ahead.discard(number)
        group = self._group_of.get(number)
        if group is not None:
            group.given_up[number] = member.key
            if group.is_split or group.held_back:
                self._look_at_split(group)
        self._look_ahead()

    def _line_up(self, number: int) -> None:
        group = self._group_of.get(number)
        if group is None:
            super()._line_up(number)
        elif group.member is not None and not group.is_split:
            queue = self._queues[group.member]
            heappush(queue, number)
            if len(queue) > 2 * len(self._waiting) + SLACK:
                queue[:] = sorted(self._waiting.intersection(queue))

    def _on_claimed(self, member: Member, number: int) -> None:
        group = self._group_of.get(number)
        if group is not None and number in self._waiting and group.member != member.key:
            return  # it waits for another one: what this one had it had before its key was deleted
        super()._on_claimed(member, number)

    def _send(self, slot: Slot, member: Member, is_head: bool = False) -> None:
        """A body that a member claims waits while what precedes it in its group is another one's."""
        number = slot.number
        group = self._group_of.get(number)
        if group is not None and number in member.claimed and self._must_wait(group, number, member):
            group.held_back.add(number)
        else:
            super()._send(slot, member, is_head)

    def _must_wait(self, group: _Group, number: int, member: Member) -> bool:
        for earlier in reversed(group.numbers):
            if earlier < number and group.given_up.get(earlier) != member.key:
                return self._at.get(earlier) is not member or earlier in group.held_back
        return False

    def _look_at_split(self, group: _Group) -> None:
        """A member is done with some of a group that several claim, or has it no more."""
        for number in sorted(group.held_back):
            member, slot = self._at.get(number), self._window.at(number)
            if member is None or slot is None or slot.state is AWAITED:  # L-5: aborted, it has no body
                group.held_back.discard(number)
            elif not self._must_wait(group, number, member):
                group.held_back.discard(number)
                super()._send(slot, member)
        if group.is_split and group.digest not in self._undecided:
            self._decide(group)
            self._line_up_all(group)

    def _take_back(self, number: int, *, was_sent: bool = True) -> None:
        self._ahead.discard(number)
        super()._take_back(number, was_sent=was_sent)
        group = self._group_of.get(number)
        if group is not None and (group.is_split or group.held_back):
            self._look_at_split(group)

    def _pass_on(self, number: int) -> bool:
        """A group's deliveries stay its member's (SH-6)."""
        return number not in self._group_of and super()._pass_on(number)

    def _give(self, slot: Slot, member: Member, *, is_head: bool = False) -> None:
        group = self._group_of.get(slot.number)
        if group is not None:
            group.given_up.pop(slot.number, None)
        if self._went_back.get(slot.number) == member.key:
            del self._went_back[slot.number]
        super()._give(slot, member, is_head=is_head)
        if group is not None and group.held_back:
            self._look_at_split(group)

    def _hand_out(self) -> None:
        for key, queue in list(self._queues.items()):
            member = self._members.get(key)
            while queue and member is not None:
                number = queue[0]
                group = self._group_of.get(number)
                is_due = group is not None and group.member == key and not group.is_split
                slot = self._next_waiting(number) if is_due else None
                takes = slot is None or member.takes_more(self._turn)
                if not takes and self._choose_for_head(number, (member,)) is None:
                    break
                heappop(queue)
                if slot is not None:
                    self._give(slot, member, is_head=not takes)
        super()._hand_out()

    def on_returned(self, key: str, epoch: int, number: int) -> None:
        """See Share."""
        is_former = self.is_former(key, epoch)
        is_done = not is_former and not self._cursor.owes(number)
        if not is_former and (is_done or number in self._group_of):
            self._went_back[number] = key
        super().on_returned(key, epoch, number)
        if is_done:
            self._forget_return(number)

    def _forget_return(self, number: int) -> None:
        """SH-6: the egress that returned it would have others wait for what does not come, till it is settled."""
        key = self._went_back.pop(number, None)
        if key is not None and self._window.at(number) is not None:
            self._way.sync_member(key)

    def let_go(self, number: int) -> None:
        """See Share."""
        super().let_go(number)
        self._leave_group(number)
        self._ahead.discard(number)
        self._look_ahead()
        self._forget_return(number)

    def _leave_group(self, number: int) -> None:
        group = self._group_of.pop(number, None)
        if group is None:
            return
        del group.numbers[number]
        group.given_up.pop(number, None)
        group.held_back.discard(number)
        if group.is_split or group.held_back:
            self._look_at_split(group)
        if not group.numbers:
            del self._groups[group.digest]
            self._undecided.pop(group.digest, None)

    def next_member(self, message: bytes, message_format: int) -> str | None:
        """I-1c: the member of its group, unless others of the group wait for it."""
        digest = group_hash(self._read_group, message, message_format)
        if digest is None:
            return super().next_member(message, message_format)
        group = self._groups.get(digest)
        if not self._members or (group is not None and next(reversed(group.numbers)) not in self._at):
            return None
        key = self._best(digest) if group is None or group.member is None else group.member
        return key if self._members[key].takes_more(self._turn) else None

    def may_expire(self, number: int) -> bool:
        """E-10: not what has a group. The publisher's next ingress would assign it behind what followed it."""
        return number not in self._group_of and super().may_expire(number)

    # ------------------------------------------------------------------ wanted again

    def has_refused(self, key: str, number: int) -> bool:
        """SH-6: what one refuses for good nobody is sent again, so its failures are not counted on."""
        return number in self._group_of or super().has_refused(key, number)

    def on_refused_for_good(self, key: str, number: int) -> bool:
        """SH-6: nobody else may do it, so it is done: True."""
        slot = self._window.at(number)
        if slot is None or slot.state is AWAITED:
            return False  # its group is not known; when it is repeated the member says so again (E-3)
        if number not in self._group_of:
            return super().on_refused_for_good(key, number)
        self._turn.counts[Decision.REFUSED_BY_MEMBER] += 1
        member = self._at.get(number)
        if member is None or member.key != key:
            return False
        self._give_up(member, number)
        return True
