"""An ingress' way to its subscriptions: who owes what, SYNC, MSG and SETTLE (rules I-1, I-5, I-6).

Obligations are owed to subscriptions, never to routers, so nothing is handed over when an egress crashes (I-3). Each
subscription that has joined has a cursor: where its stream starts, and what it has acknowledged. A slot's `pending`
counts the cursors that owe it, and what else keeps its outcome open: its dead letter, its publisher's resume.

The stream to a subscription is a SYNC with U, the repeats behind it, then each new delivery once, and SETTLEs. A SYNC
is sent at activation, when a subscription joins or moves, and when the channel to its router is up again (T-4). It
makes all that was sent before it irrelevant, so a lost frame needs no repair of its own.

A plain new delivery behind all starts is owed by all: one MSG without targets goes to each router that has a
subscription. It names the last deletion of a subscription seen here, and waits for that where the view is older (T-3).
Repeats, retries and all else that differs between subscriptions name their targets. At-most-once subscriptions get each
new delivery and owe nothing (c.3). An egress at this router is called in place, and may answer before the call returns.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from math import inf
from typing import Final

from delivery_records.channels.channel import Channels, Line
from delivery_records.model.annotated import Annotated
from delivery_records.model.assigned import Assigned
from delivery_records.model.endpoint import Endpoint
from delivery_records.model.expiry_times import remaining_ms
from delivery_records.model.groups import ReadGroup
from delivery_records.model.messages import ExpiringMsg, FormerAnnotations, Msg, Run, Settle, Sync
from delivery_records.model.trace import Rule
from delivery_records.model.turn import Turn
from delivery_records.model.view import Subscription, SubscriptionMode
from delivery_records.publisher.dead_letters import DeadLetters
from delivery_records.publisher.destinations import Destinations
from delivery_records.publisher.grouped_sharing import GroupedShare
from delivery_records.publisher.large_streams import LargeStreams
from delivery_records.publisher.policy import Policy
from delivery_records.publisher.sharing import Share
from delivery_records.publisher.starts import Start, Starts
from delivery_records.publisher.window import AWAITED, Cursor, Slot, Window
from delivery_records.subscriber.to_egresses import ToEgresses

REPLACED: Final = inf
"""When an attempt is due in whose place the delivery was repeated: never (E-4a)."""


class Fanout:
    """The subscriptions of one publisher, with a cursor each, and where to send."""

    __slots__ = (
        "_channels",
        "_destinations",
        "_endpoint",
        "_last_start",
        "_left_at",
        "_left_reported",
        "_read_group",
        "_to_egresses",
        "_turn",
        "_window",
        "annotated",
        "cursors",
        "expiries",
        "failed",
        "is_active",
        "letters",
        "listeners",
        "policies",
        "scheduled",
        "shares",
        "streams",
    )

    def __init__(
        self,
        turn: Turn,
        endpoint: Endpoint,
        window: Window,
        to_egresses: ToEgresses,
        channels: Channels,
        read_group: ReadGroup,
    ) -> None:
        """No subscription has joined; nothing may be sent before activation.

        Args:
            turn: of this router.
            endpoint: the ingress; its epoch names the publisher in every frame.
            window: of the publisher.
            to_egresses: the egresses of this router.
            channels: the way to those of other routers.
            read_group: of a message, for shared subscriptions that keep groups in order (SH-6).
        """
        self.streams = LargeStreams(turn, endpoint, window, to_egresses, channels)
        """Large deliveries, which go out in parts (L-2)."""
        self._turn = turn
        self._endpoint = endpoint
        self._window = window
        self._to_egresses = to_egresses
        self._channels = channels
        self._read_group = read_group
        self.cursors: dict[str, Cursor] = {}
        self.listeners: dict[str, None] = {}
        """At-most-once subscriptions: they get what comes and owe nothing (c.3)."""
        self.shares: dict[str, Share] = {}
        """Of the cursors, those of shared subscriptions: which member has what (SH-2)."""
        self.failed: dict[tuple[str, int], int] = {}
        """Failed attempts by subscription and number, where there are any (E-4a)."""
        self.annotated = Annotated()
        """What subscriptions have added to deliveries, members to those of the shared one (E-4b)."""
        self.letters: DeadLetters | None = None
        """Where a policy names a dead-letter topic, or a subscription has failed a delivery (I-3e)."""
        self.scheduled: dict[tuple[str, int], float] = {}
        """When the next attempt of each is due (E-4a); `REPLACED`: a repeat has taken its place."""
        self.expiries: dict[int, float] = {}
        """When each delivery of the window expires, where that is so (E-10)."""
        self.policies: list[Policy] = []
        """The optional rules at work: what has something to remember of these deliveries."""
        self.is_active = False
        self._last_start = 0
        self._left_at = 0
        """T-3: an egress that has not applied this revision may still count a subscription that is deleted."""
        self._left_reported = 0
        """The revision of that kind that SETTLEs wait for at other routers."""
        self._destinations = Destinations(turn, to_egresses, channels)

    def use(self, policy: Policy) -> None:
        """An optional rule has something to remember: it gets what its hooks ask for from now on."""
        if policy not in self.policies:
            self.policies.append(policy)

    # ------------------------------------------------------------------ membership

    def join_all(self, subscriptions: Iterable[Subscription], starts: Sequence[Start]) -> None:
        """At activation every subscription in view owes the map (I-3), from where its own stream starts (I-6a)."""
        self.is_active = True
        self._turn.activations += 1
        known = Starts(starts)
        for subscription in subscriptions:
            self._admit(subscription, known.of(subscription.created))
        for key, share in self.shares.items():
            share.begin(self._turn.view.members_of.get(key, {}).values())

    def join(self, subscription: Subscription) -> None:
        """I-6: a new subscription owes only what is received from now on."""
        start = self._window.end
        self._admit(subscription, start)

    def _admit(self, subscription: Subscription, start: int) -> None:
        self._last_start = max(self._last_start, start)
        if subscription.record.mode is SubscriptionMode.AT_MOST_ONCE:
            self.listeners[subscription.key] = None
        else:
            cursor = self.cursors[subscription.key] = Cursor(start)
            if subscription.record.shared:
                of = self._turn, subscription.key, cursor, self._window, self
                grouped = subscription.record.grouped
                share = self.shares[subscription.key] = GroupedShare(*of, self._read_group) if grouped else Share(*of)
                self.use(share)

    def has_other_mode(self, subscription: Subscription) -> bool:
        """True when it came back at-most-once and owed before, or the other way round."""
        is_listener = subscription.record.mode is SubscriptionMode.AT_MOST_ONCE
        return subscription.key in (self.cursors if is_listener else self.listeners)

    def owed(self, slots: Iterable[Slot]) -> Iterator[tuple[Slot, int]]:
        """At activation, before anything is acknowledged: each delivery, and how many subscriptions owe it."""
        begun = sorted(cursor.start for cursor in self.cursors.values())
        return ((slot, bisect_right(begun, slot.number)) for slot in slots)

    def begin_large(self, slot: Slot, first: bytes, delivery_id: int) -> None:
        """L-1: a large delivery was entered; `first` is its first part, as it goes out."""
        self.use(self.streams)
        self.streams.begin(slot, first, delivery_id)

    def discard_letter(self, slot: Slot) -> None:
        """I-3e: it was failed before it came again, and now there is no message."""
        if self.letters is not None:
            self.letters.discard(slot)

    def leave(self, key: str) -> Slot | None:
        """Take a subscription out; what it owed is owed no longer. Returns the oldest delivery that it owed."""
        for policy in self.policies:
            policy.leave(key)
        self.listeners.pop(key, None)
        if key in self.shares:
            self.policies.remove(self.shares.pop(key))
        cursor = self.cursors.pop(key, None)
        if cursor is None:
            return None
        self._left_at = self._turn.view.applied
        oldest: Slot | None = None
        for slot in self._window.slots():
            if slot.verdict is None and cursor.owes(slot.number):
                slot.pending -= 1
                assert slot.pending >= 0
                self.trace(slot, Rule.OWED_NO_LONGER, slot.pending)
                oldest = oldest or slot
        return oldest

    def owing(self, number: int) -> list[str]:
        """Names of the subscriptions that owe a delivery; one with a fixed outcome is owed by nobody."""
        owing: list[str] = []
        slot = self._window.at(number)
        if slot is None or slot.verdict is not None:
            return owing
        for key, cursor in self.cursors.items():
            subscription = self._turn.view.subscriptions.get(key)
            if subscription is not None and cursor.owes(number):
                owing.append(subscription.name)
        return owing if self.letters is None else [*owing, *self.letters.owing(number)]

    def owes(self, key: str, number: int) -> bool:
        """Whether a subscription owes a delivery, or its letter."""
        cursor = self.cursors.get(key)
        if cursor is not None:
            return cursor.owes(number)
        return self.letters is not None and self.letters.owes(key, number)

    @property
    def last_start(self) -> int:
        """Every subscription that has joined owes what is received from this number on."""
        return self._last_start

    def joined_before(self, number: int) -> tuple[Subscription, ...]:
        """The subscriptions that a delivery is or was owed to, but for those that have ended (I-3c)."""
        found = self._turn.view.subscriptions
        return tuple(found[key] for key, cursor in self.cursors.items() if cursor.start <= number)

    @property
    def has_released(self) -> bool:
        """I-3c: a message that too few subscriptions were there for is not settled yet."""
        return False

    # ------------------------------------------------------------------ sending

    def forward(self, slot: Slot) -> None:
        """I-1: one MSG to each egress with a subscription that owes the delivery."""
        for policy in self.policies:
            policy.on_stored(slot)
        if slot.is_special or slot.number < self._last_start:
            self._forward_special(slot)
            return
        to = self._destinations
        if to.version != self._turn.plan_version:
            self._find_destinations()
        epoch = self._endpoint.epoch
        if to.weight > self._turn.limits.piece or self._to_egresses.pieces.lines:
            self._to_all(Msg(epoch, slot.number, slot.tag, slot.message, after=self._left_at))
            return
        for egress in to.local:
            try:
                egress.on_msg(epoch, slot.number, slot.tag, slot.message)
            except Exception as error:  # noqa: BLE001  (K-3b)
                self._to_egresses.on_fault(egress, error)
        if to.remote:
            message = Msg(epoch, slot.number, slot.tag, slot.message, after=self._left_at)
            self._channels.broadcast(to.remote, message)

    def _forward_special(self, slot: Slot) -> None:
        if slot.number < self._last_start or slot.repeated or slot.message_format or slot.is_large:
            named = [key for key, cursor in self.cursors.items() if cursor.owes(slot.number) and key not in self.shares]
            if not slot.repeated:  # else they may have had it: at most once (c.3)
                named += self.listeners
            elif self.scheduled:
                self.replace_attempts(slot.number, named)
            self._send_to(slot, named)
        else:
            epoch = self._endpoint.epoch
            self._to_all(self._expiring(Msg(epoch, slot.number, slot.tag, slot.message, after=self._left_at)))

    def _to_all(self, message: Msg) -> None:
        to = self._find_destinations()
        if to.local:
            self._to_egresses.to_these(message, to.local)
        if to.remote:
            self._channels.broadcast(to.remote, message)

    def _expiring(self, message: Msg) -> Msg:
        """E-10: as it is sent now, with the time that is left to it, where it expires."""
        deadline = self.expiries.get(message.number)
        if deadline is None:
            return message
        return ExpiringMsg(message, remaining_ms(deadline, self._turn.now), deadline)

    def forward_presettled(
        self, tag: bytes, message: bytes, message_format: int, expires_at: float | None = None
    ) -> None:
        """I-1c: forwarded once to what is synced; never repeated."""
        presettled = Msg(
            self._endpoint.epoch, 0, tag, message, settled=True, after=self._left_at, message_format=message_format
        )
        if expires_at is None:
            self._to_all(presettled)
        else:
            self._to_all(ExpiringMsg(presettled, remaining_ms(expires_at, self._turn.now), expires_at))
        for share in self.shares.values():
            member = share.next_member(message, message_format)
            if member is not None:
                epochs = (self._turn.view.subscriptions[member].epoch,)
                rid = self._turn.view.subscriptions[member].record.rid
                once = Msg(self._endpoint.epoch, 0, tag, message, epochs, settled=True, message_format=message_format)
                self._send(rid, once)

    def send_again(self, key: str, number: int, attempt: int) -> None:
        """E-4a: one more attempt for one subscription."""
        if self.letters is not None and self.letters.owes(key, number):
            self.letters.send_again(key, number)
            return
        slot = self._window.at(number)
        cursor = self.cursors.get(key)
        # One that the publisher has not repeated yet has no body; it is forwarded when it comes (I-1).
        has_body = slot is not None and slot.state is not AWAITED and slot.verdict is None
        if slot is not None and has_body and cursor is not None and cursor.owes(number):
            if key in self.shares:
                self.shares[key].retry(number, attempt)
                return
            self.trace(slot, Rule.SENT_AGAIN_RETRY, self._turn.view.subscriptions[key].name, attempt)
            self._send_to(slot, [key], attempt)

    def settle(self, runs: tuple[Run, ...]) -> None:
        """I-4: the SETTLE to every egress with a subscription of the topic."""
        if not self.is_active:
            return
        to = self._find_destinations()
        if to.all_local:
            self._to_egresses.settle_these(self._endpoint.epoch, runs, to.all_local)
        if to.all_remote:
            self._make_settles_wait()
            self._channels.broadcast(to.all_remote, Settle(self._endpoint.epoch, runs))
        for policy in self.policies:
            policy.after_settling()

    def _make_settles_wait(self) -> None:
        """T-3: what is settled now may be held for a subscription that is deleted: its stream must end before that.

        A SETTLE names no revision, so a MSG to nobody does; what follows it waits behind it.
        """
        if self._left_reported < self._left_at:
            self._left_reported = self._left_at
            epoch = self._endpoint.epoch  # names no subscription: no two keys have one epoch
            self._channels.broadcast(self._destinations.remote, Msg(epoch, 0, b"", b"", (epoch,), after=self._left_at))

    def sync_all(self) -> None:
        """I-5 at activation: SYNC to every subscription, and to every member of those that are shared."""
        self.sync([self._turn.view.subscriptions[key] for key in self._joined()])
        for key in self.shares:
            self.sync_members(list(self._turn.view.members_of.get(key, {}).values()))

    def _joined(self) -> list[str]:
        if not self.shares:
            return [*self.cursors, *self.listeners]
        return [key for key in (*self.cursors, *self.listeners) if key not in self.shares]

    def sync_members(self, members: Iterable[Subscription]) -> None:
        """SH-4: declare U; what is repeated depends on the answer."""
        for member in members:
            share = self.shares.get(member.record.member_of)
            if share is None:
                continue
            serial = share.on_synced(member)
            self.streams.leave(member.key)
            numbers, tags = self._unsettled()
            sync = Sync(self._endpoint.epoch, (member.epoch,), numbers, tags, serial=serial)
            self._send(member.record.rid, sync)

    def sync_member(self, key: str) -> None:
        """See Way."""
        member = self._turn.view.subscriptions.get(key)
        if member is not None:
            self.sync_members([member])

    def sync_holders(self, number: int) -> None:
        """L-5: what a member has said of the parts that were aborted must not count for those that come next."""
        found = self._turn.view.subscriptions
        holders = (share.holder(number) for share in self.shares.values())
        self.sync_members([found[key] for key in holders if key is not None and key in found])

    def _unsettled(self) -> tuple[tuple[int, ...], tuple[bytes, ...]]:
        """U, and the numbers of its tags."""
        unsettled = [slot for slot in self._window.slots() if slot.verdict is None]
        return tuple(slot.number for slot in unsettled), tuple(slot.tag for slot in unsettled)

    def sync(self, subscriptions: Iterable[Subscription]) -> None:
        """I-5: declare U, then repeat in order what is received and not acknowledged."""
        by_router: dict[int, list[Subscription]] = {}
        for subscription in subscriptions:
            if subscription.key in self.shares:
                continue  # it has no link; `sync_members` reaches those that have
            if subscription.key in self.cursors or subscription.key in self.listeners:
                by_router.setdefault(subscription.record.rid, []).append(subscription)
        if not by_router:
            return
        unsettled = [slot for slot in self._window.slots() if slot.verdict is None]
        numbers = tuple(slot.number for slot in unsettled)
        tags = tuple(slot.tag for slot in unsettled)
        for rid, group in by_router.items():
            epochs = tuple(subscription.epoch for subscription in group)
            for subscription in group:
                self.streams.leave(subscription.key)
            self._send(rid, Sync(self._endpoint.epoch, epochs, numbers, tags))
            for slot in unsettled:
                if slot.state is not AWAITED:
                    self._repeat(slot, rid, group)

    def sync_router(self, rid: int) -> None:
        """T-4: the channel to that router restarted; repeat I-5 for its subscriptions."""
        self._left_reported = 0
        if self.is_active:
            found = (self._turn.view.subscriptions[key] for key in self._joined())
            self.sync([subscription for subscription in found if subscription.record.rid == rid])
            for policy in self.policies:
                policy.sync_router(rid)

    def _repeat(self, slot: Slot, rid: int, group: list[Subscription]) -> None:
        owing = [s for s in group if s.key in self.cursors and self.cursors[s.key].owes(slot.number)]
        if not owing:
            return
        router = self._turn.view.routers.get(rid)
        if router is not None:  # else nothing is sent: it is gone, and its subscriptions must attach elsewhere
            self.trace(slot, Rule.SENT_AGAIN_SYNC, router.record.node_id, len(owing))
        if self.scheduled:
            self.replace_attempts(slot.number, [subscription.key for subscription in owing])
        by_attempt: dict[int, list[Subscription]] = {}
        for subscription in owing:  # E-4a: one that has moved is sent what it has failed
            failed = self.failed.get((subscription.key, slot.number), 0) if self.failed else 0
            by_attempt.setdefault(failed, []).append(subscription)
            if self.annotated.added:
                self.state_annotations(slot.number, subscription)
        for attempt, again in by_attempt.items():
            if slot.is_large:
                self.streams.offer(slot, again, (True, attempt, Assigned.ANEW))
                continue
            epochs = tuple(subscription.epoch for subscription in again)
            message = Msg(
                self._endpoint.epoch,
                slot.number,
                slot.tag,
                slot.message,
                epochs,
                redelivered=True,
                attempt=attempt,
                message_format=slot.message_format,
            )
            self._send(rid, self._expiring(message) if self.expiries else message)

    def replace_attempts(self, number: int, keys: Iterable[str]) -> None:
        """E-4a: what is repeated now takes the place of the attempt that was scheduled."""
        for key in keys:
            if (key, number) in self.scheduled:
                self.scheduled[(key, number)] = REPLACED

    def state_annotations(self, number: int, subscription: Subscription) -> None:
        """E-4b: ahead of a MSG to a subscription or a member: what was added to it before, also elsewhere."""
        added = self.annotated.of(subscription.record.member_of or subscription.key, number)
        rid = subscription.record.rid
        if added is not None:
            self._send(rid, FormerAnnotations(self._endpoint.epoch, subscription.epoch, number, added))

    def _send_to(self, slot: Slot, keys: list[str], attempt: int = 0) -> None:
        if self.annotated.added:
            for key in keys:
                self.state_annotations(slot.number, self._turn.view.subscriptions[key])
        if slot.is_large:
            found = [self._turn.view.subscriptions[key] for key in keys]
            self.streams.offer(slot, found, (slot.repeated, attempt, Assigned.ANEW))
            return
        by_router: dict[int, list[int]] = {}
        for key in keys:
            subscription = self._turn.view.subscriptions[key]
            by_router.setdefault(subscription.record.rid, []).append(subscription.epoch)
        for rid, epochs in by_router.items():
            message = Msg(
                self._endpoint.epoch,
                slot.number,
                slot.tag,
                slot.message,
                tuple(epochs),
                redelivered=slot.repeated,
                attempt=attempt,
                message_format=slot.message_format,
            )
            self._send(rid, self._expiring(message) if self.expiries else message)

    def to_member(self, slot: Slot, member: str, redelivered: bool, attempt: int, assigned: Assigned) -> None:
        """See Way."""
        found = self._turn.view.subscriptions[member]
        if self.annotated.added:
            self.state_annotations(slot.number, found)
        if slot.is_large:
            self.streams.offer(slot, [found], (redelivered, attempt, assigned))
            return
        message = Msg(
            self._endpoint.epoch,
            slot.number,
            slot.tag,
            slot.message,
            (found.epoch,),
            redelivered=redelivered,
            attempt=attempt,
            message_format=slot.message_format,
            assigned=assigned,
        )
        self._send(found.record.rid, message)  # E-10: it expires before it is assigned, or not at all

    def stop_sending(self, number: int, member: str) -> None:
        """See Way."""
        self.streams.leave_one(number, member)

    def longest_line(self) -> Line | None:
        """C-1: what waits at the channel where most waits; what waits at another one is its end."""
        if self._destinations.version != self._turn.plan_version:
            self._find_destinations()
        return self._destinations.longest_line(self._endpoint.epoch)

    def _send(self, rid: int, message: Msg | Sync | FormerAnnotations) -> None:
        """To the egresses at one router, which may be this one."""
        if rid == self._turn.rid:
            self._to_egresses.deliver(rid, message)
        else:
            self._channels.send_stream(rid, message)

    def trace(self, slot: Slot, rule: Rule, *fields: object) -> None:
        """A step of a delivery, while an operator wants to see them."""
        if self._turn.tracing is not None:
            self._turn.tracing.of_epoch(self._endpoint.epoch, slot.tag, rule, *fields)

    @property
    def is_changed(self) -> bool:
        """What a message costs is not known, and takes a look at each subscription."""
        return self.is_active and self._destinations.version != self._turn.plan_version

    def weight(self) -> int:
        """What one message costs this router, in deliveries and in messages to other routers."""
        return (self._find_destinations() if self.is_active else self._destinations).weight

    def _find_destinations(self) -> Destinations:
        """Where all subscriptions are; found anew only when a subscription or an egress changed."""
        if self._destinations.version != self._turn.plan_version:
            self._destinations.find(self._joined(), self.shares)
        return self._destinations
