"""What members of a shared subscription are promised (SH-1 to SH-6): together they process each message once.

A message may be processed twice only where a member had it whose key was deleted before an outcome was reported, or
that keeps no map; and one of the two must have been flagged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias

from chaos.simulator import coverage
from chaos.simulator.etcd import Held
from chaos.simulator.filters import group_of
from chaos.simulator.promises import FASTEST_CLOCK
from chaos.simulator.routers import Router
from chaos.simulator.state import WorldState
from chaos.simulator.violation import Violation
from delivery_records.model import inputs
from delivery_records.model.limits import PROVISIONAL_TIMEOUT_S
from delivery_records.model.view import Kind, SubscriptionRecord
from delivery_records.publisher.sharing import Share
from delivery_records.subscriber.entries import SyncState

Message: TypeAlias = tuple[int, int]


class SharedJudge:
    """Watches the members as one subscriber."""

    def __init__(self, world: WorldState, new_again: Counter[Message]) -> None:
        """Nothing has happened. `new_again`: how often publishers sent a message again as a new one."""
        self._world = world
        self._new_again = new_again
        self._confirmed = 0
        self._owed: dict[Message, int] = {}
        """The life of the shared subscription that a message was owed to when it was sent."""
        self._lives: dict[int, int] = {}
        """Member -> create revision of its key, as of its last attach."""
        self._receipts: dict[Message, list[tuple[int, int]]] = {}
        """(member, its life) of everybody that a message has arrived at."""
        self._done: dict[Message, int] = {}
        self._declined: dict[Message, set[int]] = {}
        """Members that never do it (*undeliverable-here*)."""
        self._asked: dict[Message, list[tuple[int, int]]] = {}
        """(member, its life) of those that all routers knew as members when it was sent."""
        self._flagged: set[Message] = set()
        self._last: dict[tuple[int, int, int], int] = {}
        """(publisher, group, life) -> the last of its messages that was processed for the first time (SH-6)."""
        self._open: dict[tuple[int, int], dict[int, tuple[int, int]]] = {}
        """(publisher, group) -> what was received and is not processed: number -> (member, its life) (SH-6)."""
        self._left_at = 0.0
        """When the last member's key was deleted."""

    def _created(self, key: str) -> int:
        held = self._world.etcd.keys.get((Kind.SUBSCRIPTION, key))
        return 0 if held is None else held.create_revision

    @property
    def _life(self) -> int:
        return self._created(self._world.life_key(len(self._world.subscribers) - 1))

    def on_attached(self, member: int) -> None:
        """It has been answered."""
        self._lives[member] = self._created(self._world.subscription_key(member))

    def on_confirmed(self, incarnation: int) -> None:
        """A member was notified that the shared subscription counts."""
        self._confirmed = incarnation

    def on_first_send(self, message: Message) -> None:
        """G1 is about what was confirmed before."""
        if self._confirmed and self._confirmed == self._life:  # members never change their topic
            self._owed[message] = self._confirmed
        self._asked[message] = [(member, life) for member, life in self._lives.items() if self._is_known(member, life)]

    def _is_known(self, member: int, life: int) -> bool:
        """It is a member, and the view of every router says so."""
        key = self._world.subscription_key(member)
        views = [router.records.view.subscriptions for router in self._world.routers if router.records is not None]
        is_in_views = all(key in view and view[key].created == life for view in views)
        return bool(life) and self._created(key) == life and is_in_views

    def look(self, router: Router, batch: Sequence[inputs.Input]) -> None:
        """A router has read this: where nothing has failed, no message waits longer for credit that has come (SH-2).

        Only where members give credit for one at a time: what is beyond that, an ingress may hear of later.

        Raises:
            Violation: one waits, and a member has given credit for it.
        """
        granting = {item.link for item in batch if isinstance(item, inputs.ClientFlow)}
        world = self._world
        is_other = world.faults or world.traits.groups or world.traits.refuses
        if is_other or router.records is None or any(each.prefetch > 1 for each in world.subscribers):
            return
        for egress in router.records.egresses.values():
            outgoing = egress.outgoing
            if egress.link not in granting or not outgoing.free_credit or not outgoing.has_room:
                continue
            for sync in egress.syncs.values():
                share = self._share_of(router, sync)
                waiting = share.waiting_for(egress.key) if share is not None and share.knows(egress.key) else ()
                if waiting:
                    raise Violation(f"IDLE: {egress.name} has credit, and {len(waiting)} messages wait for some")

    def _share_of(self, router: Router, sync: SyncState) -> Share | None:
        """What the ingress of a stream has for the members; None while something is on its way between the two."""
        for other in self._world.routers:
            ways = (router.rid, other.rid), (other.rid, router.rid)
            if other.rid != sync.ingress_rid or other.records is None or any(map(self._world.frames.get, ways)):
                continue
            for ingress in other.records.ingresses.values():
                if ingress.epoch == sync.epoch:
                    return next(iter(ingress.fanout.shares.values()), None)
        return None

    def is_owed(self, message: Message) -> bool:
        """Nobody has processed it, and it was owed to the life that still is."""
        if message in self._done or self.is_declined(message):
            return False
        return message in self._owed and self._owed[message] == self._life

    def on_declined(self, member: int, message: Message) -> None:
        """SH-5: a member never does it."""
        self._declined.setdefault(message, set()).add(member)

    def is_declined(self, message: Message) -> bool:
        """SH-5: all that were known as members when it was sent, and still are, have declined it; or one of a group."""
        declined = self._declined.get(message, set())
        if not declined or group_of(message[1], self._world.traits.groups) is not None:
            return bool(declined)
        return all(
            member in declined or self._created(self._world.subscription_key(member)) != life
            for member, life in self._asked.get(message, ())
        )

    def declined_by(self, message: Message) -> set[int]:
        """Members that have declined what counts as rejected for that."""
        return self._declined.get(message, set()) if self.is_declined(message) else set()

    def check_accepted(self, message: Message) -> None:
        """G1.

        Raises:
            Violation: no member has processed what the shared subscription is owed.
        """
        if self.is_owed(message):
            raise Violation(f"LOST: p{message[0]}/{message[1]} accepted, and no member has processed it")

    def on_received(self, member: int, message: Message) -> None:
        """It has arrived at a member."""
        self._receipts.setdefault(message, []).append((member, self._lives.get(member, 0)))
        if self._judges_groups(message):
            self._check_alone(member, message)

    def on_forgot(self, member: int) -> None:
        """G7: a member has lost its map: whatever it had may go to another."""
        for receipts in self._receipts.values():
            receipts[:] = [(index, 0 if index == member else life) for index, life in receipts]
        self.on_restart(member)

    def on_restart(self, member: int) -> None:
        """What it had received and was not done with may be lost with its process (S-a), and go to another."""
        for received in self._open.values():
            for number in [number for number, (index, _) in received.items() if index == member]:
                del received[number]

    def on_restore(self) -> None:
        """K-9: nothing of before is owed, and whatever comes again is not judged."""
        self._owed.clear()
        self._confirmed = 0
        self._last.clear()
        self._open.clear()
        for member in self._lives:
            self.on_forgot(member)
        self._flagged.update(self._receipts)

    def on_processed(self, member: int, message: Message, redelivered: bool) -> None:
        """SH-5.

        Raises:
            Violation: another one has, and nobody's end excuses that.
        """
        if redelivered:
            self._flagged.add(message)
        times = self._done[message] = self._done.get(message, 0) + 1
        if times == 1 and self._judges_groups(message):
            self._check_order(member, message)
        if times <= 1 + self._new_again[message]:
            return
        if not any(self._is_over(index, life) for index, life in self._receipts.get(message, ())):
            raise Violation(f"DUP: p{message[0]}/{message[1]} is processed by s{member} and by another member")
        if message not in self._flagged:
            raise Violation(f"UNFLAGGED: p{message[0]}/{message[1]} is processed twice, and was not flagged")
        self._world.coverage[coverage.SHARED_TWICE] += 1

    def _judges_groups(self, message: Message) -> bool:
        """SH-6, for whoever never answers Again and has the application finish in order."""
        publisher, number = message
        world, traits = self._world, self._world.traits
        if group_of(number, traits.groups) is None or self._new_again[message] or world.has_no_session(publisher):
            return False
        return not (traits.refuses or (traits.shipped and traits.out_of_order))

    def _place(self, message: Message) -> tuple[int, int]:
        group = group_of(message[1], self._world.traits.groups)
        assert group is not None
        return message[0], group

    def _check_alone(self, member: int, message: Message) -> None:
        publisher, number = message
        if self._is_over(member, self._lives.get(member, 0)):
            return  # what it reads was sent before its key was deleted
        received = self._open.setdefault(self._place(message), {})
        for other, (holder, life) in received.items():
            if holder == member or other == number or self._is_over(holder, life):
                continue
            if other not in self._world.publishers[publisher].given_up and self.is_owed((publisher, other)):
                raise Violation(f"ORDER: s{member} gets p{publisher}/{number} while s{holder} has {other} of its group")
        received[number] = member, self._lives.get(member, 0)

    def _check_order(self, member: int, message: Message) -> None:
        publisher, number = message
        group = self._place(message)[1]
        self._open.get((publisher, group), {}).pop(number, None)
        place = publisher, group, self._life
        last = self._last.get(place, -1)
        is_given_up = number in self._world.publishers[publisher].given_up
        # What is not owed to this life was sent before it was confirmed.
        if number < last and self._owed.get(message) == self._life and not is_given_up:
            raise Violation(f"ORDER: s{member} processes p{publisher}/{number} of group {group}, after {last} was")
        self._world.coverage[coverage.GROUPED] += last >= 0
        self._last[place] = number

    def _is_over(self, member: int, life: int) -> bool:
        return (
            not life
            or self._world.is_stock_subscriber(member)
            or self._created(self._world.subscription_key(member)) != life
        )

    def on_deleted(self, key: str, held: Held) -> None:
        """A member's key, or that of the shared subscription, is deleted.

        Raises:
            Violation: it has members, or its time is not over.
        """
        world, record = self._world, held.record
        assert isinstance(record, SubscriptionRecord)
        if record.member_of:
            self._left_at = world.now
            world.coverage[coverage.MEMBER_ENDED] += 1
            return
        world.coverage[coverage.SHARED_ENDED] += 1
        if world.restores:
            return
        for other in world.etcd.keys.values():
            if isinstance(other.record, SubscriptionRecord) and other.record.member_of == key:
                raise Violation(f"LOST: the shared subscription is deleted, {other.record.container_id} is a member")
        timeout_s = min(record.timeout_s, PROVISIONAL_TIMEOUT_S) if record.provisional else record.timeout_s
        if world.now - self._left_at < timeout_s / FASTEST_CLOCK - 1e-6:
            waited = world.now - self._left_at
            raise Violation(f"LOST: the shared subscription is deleted after {waited:.0f} of {timeout_s:.0f} s")
