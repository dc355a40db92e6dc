"""A shared subscription that keeps groups in order, at the ingress of one publisher (rule SH-6).

All that a publisher has sent of one group and that is not done belongs to one member, and goes to it in order.
"""

from __future__ import annotations

from hashlib import blake2b
from heapq import heappop, heappush

from delivery_records.groups import GROUP_BYTES, ReadGroup, group_hash
from delivery_records.outcomes import Decision
from delivery_records.sharing import Member, Share, Way
from delivery_records.turn import Turn
from delivery_records.window import Cursor, Slot, Window


class _Group:
    """A group with deliveries that are not done."""

    __slots__ = ("digest", "member", "numbers")

    def __init__(self, digest: bytes) -> None:
        self.digest = digest
        self.member: str | None = None
        """Key of whom it belongs to; None: that is not decided."""
        self.numbers: dict[int, None] = {}
        """What is received and not done, as it came."""


class GroupedShare(Share):
    """As `Share`; what has no group goes by SH-2."""

    __slots__ = ("_group_of", "_groups", "_queues", "_read_group", "_undecided")

    def __init__(
        self, turn: Turn, key: str, cursor: Cursor, window: Window, way: Way, read_group: ReadGroup
    ) -> None:
        """As `Share`, and how the group of a message is read."""
        super().__init__(turn, key, cursor, window, way)
        self._read_group = read_group
        self._groups: dict[bytes, _Group] = {}
        self._group_of: dict[int, _Group] = {}
        self._queues: dict[str, list[int]] = {}
        """Member -> a heap of what waits for it, and of numbers that do not any more."""
        self._undecided: dict[bytes, _Group] = {}
        """Whose member is chosen when it is known who has their deliveries, or when a member comes."""

    @property
    def groups(self) -> int:
        """How many have deliveries that are not done."""
        return len(self._groups)

    # ------------------------------------------------------------------ whom a group belongs to

    def _decide(self, group: _Group) -> None:
        """Who claims the last of its deliveries; else the highest in a hash that is the same at each ingress."""
        if not self._members or any(number in self._unclaimed for number in group.numbers):
            self._undecided[group.digest] = group
            return
        self._undecided.pop(group.digest, None)
        holder = next((self._at[number] for number in reversed(group.numbers) if number in self._at), None)
        self._bind(group, self._best(group.digest) if holder is None else holder.key)

    def _best(self, digest: bytes) -> str:
        return max(self._members, key=lambda key: blake2b(digest + key.encode(), digest_size=GROUP_BYTES).digest())

    def _bind(self, group: _Group, key: str) -> None:
        if group.member != key:
            group.member = key
            queue = self._queues.setdefault(key, [])
            for number in group.numbers:
                if number in self._waiting:
                    heappush(queue, number)

    def _let_go(self, group: _Group) -> None:
        """It belongs to nobody until `_release_unclaimed`."""
        group.member = None
        self._undecided[group.digest] = group

    def _release_unclaimed(self) -> None:
        super()._release_unclaimed()
        for group in list(self._undecided.values()):
            self._decide(group)

    def on_deleted(self, key: str) -> None:
        """SH-3: its groups go to others, with all that waits."""
        self._queues.pop(key, None)
        for group in self._groups.values():
            if group.member == key:
                self._let_go(group)
        super().on_deleted(key)

    # ------------------------------------------------------------------ deliveries

    def offer(self, slot: Slot) -> None:
        """I-1: received: to the member of its group."""
        digest = group_hash(self._read_group, slot.message, slot.message_format)
        number = slot.number
        if digest is not None:
            group = self._groups.get(digest)
            if group is None:
                group = self._groups[digest] = _Group(digest)
            group.numbers[number] = None
            self._group_of[number] = group
            holder = self._at.get(number)
            if holder is None and slot.repeated and self._blocking:
                self._let_go(group)  # a member that has not answered may have it
            elif digest not in self._undecided:
                if holder is not None:
                    self._bind(group, holder.key)  # repeats come in order: it is the last so far
                elif group.member is None:
                    self._decide(group)
        super().offer(slot)

    def _let_wait(self, number: int) -> None:
        group = self._group_of.get(number)
        if group is None:
            super()._let_wait(number)
            return
        self._waiting.add(number)
        if group.member is not None:
            heappush(self._queues[group.member], number)

    def _on_claimed(self, member: Member, number: int) -> None:
        group = self._group_of.get(number)
        if group is not None and number in self._waiting and group.member != member.key:
            return  # it waits for another one: what this one had it had before its key was deleted
        super()._on_claimed(member, number)

    def _hand_out(self) -> None:
        for key, queue in list(self._queues.items()):
            member = self._members.get(key)
            while queue and member is not None:
                number = queue[0]
                group = self._group_of.get(number)
                slot = self._next_waiting(number) if group is not None and group.member == key else None
                takes = slot is None or member.takes_more(self._turn)
                if not takes and self._choose_for_head(number, (member,)) is None:
                    break
                heappop(queue)
                if slot is not None:
                    self._give(slot, member, is_head=not takes)
        super()._hand_out()

    def forget(self, number: int) -> None:
        """See Share."""
        super().forget(number)
        group = self._group_of.pop(number, None)
        if group is not None:
            del group.numbers[number]
            if not group.numbers:
                del self._groups[group.digest]
                self._undecided.pop(group.digest, None)

    def next_member(self, message: bytes, message_format: int) -> str | None:
        """I-1c: the member of its group, unless others of the group wait for it."""
        digest = group_hash(self._read_group, message, message_format)
        if digest is None:
            return super().next_member(message, message_format)
        group = self._groups.get(digest)
        if not self._members or (group is not None and any(number not in self._at for number in group.numbers)):
            return None
        key = self._best(digest) if group is None or group.member is None else group.member
        return key if self._members[key].takes_more(self._turn) else None

    # ------------------------------------------------------------------ wanted again

    def on_refused_for_good(self, key: str, number: int) -> bool:
        """SH-6: nobody else may do it, so it is done: True."""
        if number not in self._group_of:
            return super().on_refused_for_good(key, number)
        self._turn.counts[Decision.REFUSED_BY_MEMBER] += 1
        member = self._at.get(number)
        if member is None or member.key != key:
            return False
        self._give_up(member, number)
        return True
