"""What goes out to one subscriber: transfers in order, as its credit and map allow, and settlements (C-3 to C-5, A-7).

An egress decides what its subscriber is to have; this sends it. Settled resumes go first, then other resumes, then new
deliveries.

The order of the three lines is what keeps the link from blocking itself. A settled resume frees a place in the
subscriber's map, so it goes ahead of all that takes one. A resume has a place already. New deliveries wait for a place
(C-4), each publisher's in order. A full map still takes one delivery of each publisher that has none in it: else two
maps, each full of one publisher, would wait for each other.

`limit` and `sent` count from the attach on, so a flow that crosses transfers needs no correction. An entry is sent at
once where nothing older waits; otherwise it is held, and `pump` looks again after each flow, settlement, SYNC, and the
reply. Nothing is sent before the attach reply, while the link closes, or in the middle of a large delivery (L-3). While
only a part of the map was presented, only what stands in that part is resumed (C-4). A draining router sends nothing
new of other routers' publishers (K-8a).

Settlements by disposition need no credit. They are collected, and leave as one at the end of the turn, or ahead of a
transfer that uses the same tag again (E-3).
"""

from __future__ import annotations

from collections import deque
from itertools import chain
from typing import Final

from delivery_records.model import effects
from delivery_records.model.outcomes import Decision, DeliveryOutcome
from delivery_records.model.trace import Rule
from delivery_records.model.turn import Turn
from delivery_records.model.view import SubscriptionMode
from delivery_records.subscriber.entries import (
    DONE,
    GONE,
    HAS_BODY,
    HELD,
    IN_REPLY,
    MAPPED,
    NO_BODY,
    SENT,
    WANTED,
    Entry,
    State,
    SyncState,
)
from delivery_records.subscriber.held import HeldQueue
from delivery_records.subscriber.large_deliveries import LargeDeliveries
from delivery_records.subscriber.presettled import HeldPresettled
from delivery_records.subscriber.progress import Progress
from delivery_records.subscriber.reduction import Reduction

NO_BOUND: Final = 0xFFFFFFFF
"""Places of a map without a bound: as many as there can be credit for (AMQP 1.0 section 2.7.4)."""
# What comes with every delivery, as module names: to look a member up in its class costs as much as a call.
_AT_MOST_ONCE: Final = SubscriptionMode.AT_MOST_ONCE


class Outgoing:
    """The link to one subscriber, from its attach on."""

    __slots__ = (
        "_dirty",
        "_held",
        "_is_member",
        "_map_bound",
        "_mode",
        "_name",
        "_presettled",
        "_progress",
        "_reduction",
        "_resumes",
        "_resumes_aside",
        "_settle_queue",
        "_turn",
        "drain",
        "held_since",
        "is_closing",
        "is_replied",
        "large",
        "limit",
        "link",
        "mapped",
        "reserve",
        "sent",
        "settling",
    )

    def __init__(
        self,
        turn: Turn,
        name: str,
        link: int,
        mode: SubscriptionMode,
        map_bound: int,
        mapped: int,
        reduction: Reduction | None,
        progress: Progress | None,
        dirty: list[Outgoing],
        large: LargeDeliveries,
        *,
        is_member: bool = False,
    ) -> None:
        """Nothing is sent before the attach is answered.

        Args:
            turn: of this router.
            name: of the subscription, for people.
            link: its number.
            mode: of the subscription.
            map_bound: entries that fit the subscriber's map (C-4); 0 = no bound.
            mapped: entries of the map it presented.
            reduction: set while only a part of the map is presented (C-4).
            progress: set where a policy wants answers in time (K-5b).
            dirty: links with settlements to send at the end of this turn.
            large: its large deliveries (L-3).
            is_member: what comes was asked for by `takes_at_once` (SH-2).
        """
        self._is_member = is_member
        self._turn = turn
        self._name = name
        self.link = link
        self._mode = mode
        # What goes out settled takes no place in a map.
        self._map_bound = 0 if mode is _AT_MOST_ONCE else map_bound
        self._reduction = reduction
        self._progress = progress
        self._dirty = dirty
        self.large = large
        self.mapped = mapped
        """Entries the subscriber's own map holds, or is to hold again (C-4)."""
        self.reserve = 0
        """Places of the map that a member keeps for one more delivery of each publisher (SH-2)."""
        self.limit = 0
        self.sent = 0
        self.drain = False
        self.is_closing = False
        self.is_replied = False
        """The attach is answered (A-6b)."""
        self.held_since = turn.now
        """Since when none of the held deliveries was sent."""
        self._held = HeldQueue()
        self._presettled = HeldPresettled(turn)
        """Of these, what its publisher sent settled (I-1c)."""
        large.join(self, self._held)
        self._resumes: deque[Entry] = deque()
        """Held entries that have a place in the map: of the reply map (A-7), or wanted again (E-4a). They go ahead of
        new ones, which may wait for room in that very map (C-4); those of the reply map are older than any new one."""
        self._resumes_aside: dict[SyncState, deque[Entry]] = {}
        """Of these, what follows a delivery that its publisher is to send again (L-7)."""
        self._settle_queue: deque[Entry] = deque()
        self.settling: dict[bytes, None] = {}
        """Tags that the end of this turn settles."""

    def send(self, entry: Entry, message: bytes) -> None:
        """E-3: at once, or behind what waits."""
        if entry.large is not None and entry.large.is_place:
            self._hold(entry, b"")  # L-7
            self.pump()
            return
        waits = self._resumes or (self._held.is_moving and not entry.has_place)
        if self._held.aside and self._held.waits_for_publisher(entry):
            waits = True  # L-7
        if self.sent < self.limit and not waits and not self._settle_queue and self._may_send(entry):
            self._transfer(entry, message)
            return
        self._hold(entry, message)
        if self.sent < self.limit and self._is_full and self._is_locked_out(entry):
            self.pump()  # it goes ahead of other publishers' (C-4)

    @property
    def free_credit(self) -> int:
        """Deliveries that may be sent at once; none before the reply, or while older ones wait."""
        if not self.is_replied or self.is_closing or self._turn.is_draining or self.is_waiting:
            return 0
        if self.large.current is not None:  # L-3
            return 0
        return max(0, self.limit - self.sent)

    @property
    def has_room(self) -> bool:
        """C-4: a new delivery fits the subscriber's map."""
        return not self._is_full

    @property
    def places(self) -> int:
        """C-4: new deliveries that fit the subscriber's map."""
        return self._map_bound - self.mapped - self.reserve if self._map_bound else NO_BOUND

    def take_presettled(self, tag: bytes, message: bytes, message_format: int) -> Entry | None:
        """I-1c: at once, or behind all that is held; None where there is no room for it."""
        entry = Entry(tag, HELD)
        entry.presettled = True
        entry.message_format = message_format
        if not self._held and not self._resumes and self.sent < self.limit and self._may_send(entry):
            self._transfer(entry, message)
            return entry
        if not self._presettled.has_room(len(message), is_credit_known=self.limit > 0):
            return None
        self._presettled.add(len(message))
        self._hold(entry, message)
        if self._held.aside:
            self.pump()  # L-7: what was asked for waits for its publisher, and other publishers' do not
        return entry

    def settle(self, entry: Entry) -> None:
        """Settle one entry at S in the way AMQP asks for; the caller forgets it (E-5, A-7)."""
        state = entry.state
        is_large = entry.large is not None
        if is_large:
            state = self.large.on_settled(entry)  # decides alone: S may have settled what is in the middle itself (c.3)
        if state is SENT and self._progress is not None:
            self._progress.on_done(entry)
        if state is HELD:
            if self._mode is _AT_MOST_ONCE and not is_large and self._outlives_its_stream(entry):
                return  # of a large one only the beginning may be here
            self._held.remove(entry)
        entry.state = GONE  # in place: see `Entry.step`
        entry.message = b""
        if state is DONE or state in MAPPED:
            self._count_place(entry, -1)
            self._turn.settled_at_subscriber += 1
            if state is not DONE and state in IN_REPLY:
                if self.is_replied:  # else it is left out of the reply, and that settles it
                    self._settle_queue.append(entry)  # costs credit, goes ahead of held deliveries
            elif state is not State.DONE_SETTLED:
                if not self.settling:
                    self._dirty.append(self)
                self.settling[entry.tag] = None
            if self._reduction is not None and self.is_replied and state not in IN_REPLY:
                self._reduction.on_gone()
        elif state in WANTED:
            self._count_place(entry, -1)

    def drop_held(self, sync: SyncState) -> None:
        """E-2: held copies of this publisher are repeated behind the SYNC."""
        self.large.drop(sync)
        for entry in (*self._resumes, *self._resumes_aside.pop(sync, ())):
            if entry.sync is sync:
                entry.step(NO_BODY.get(entry.state, entry.state))
                entry.message = b""
                if entry.large is not None:
                    self.large.drop_held(entry)
        self._resumes = deque(entry for entry in self._resumes if entry.sync is not sync)
        for entry in self._held.of(sync):
            if self._mode is _AT_MOST_ONCE and self._outlives_its_stream(entry):
                sync.entries.pop(entry.tag, None)
                continue
            self._held.remove(entry)
            entry.message = b""
            entry.step(GONE)
            sync.entries.pop(entry.tag, None)
            if entry.large is not None:
                self.large.drop_held(entry)
        for entry in self._held.forget_aside(sync):
            self.large.drop_held(entry)  # L-1: it may come whole, if it is just so large

    def _outlives_its_stream(self, entry: Entry) -> bool:
        """c.3: nobody sends it again, so it waits on, as what was sent settled does (I-1c)."""
        has_room = self._presettled.has_room(len(entry.message), is_credit_known=self.limit > 0)
        if entry.large is not None or self._held.aside or not has_room:
            return False
        entry.presettled = True
        self._held.let_go(entry)
        self._presettled.add(len(entry.message))
        return True

    def park(self) -> None:
        """K-8a: the router begins to drain."""
        self._held.park(self._is_held_back)

    def pump(self) -> None:
        """Send what credit allows: settled resumes first, then other resumes, then held deliveries, in order."""
        if not self.is_replied or self.is_closing or self.large.current is not None:
            return
        while self._settle_queue and self.sent < self.limit:
            entry = self._settle_queue.popleft()
            self.sent += 1
            if self._reduction is not None:
                self._reduction.on_gone()
            self._turn.out.append(
                effects.Deliver(self.link, entry.tag, b"", resume=True, settled=True, outcome=entry.outcome)
            )
        if self._held.is_freed:
            self._bring_back_resumes()
        self._release_resumes()
        if not self._resumes:
            self._release_held()
        if self.drain:
            self._answer_drain()

    def flush(self) -> None:
        """One disposition for everything this turn settled."""
        if self.settling:
            tags, self.settling = list(self.settling), {}
            self._turn.out.append(effects.SettleAtSubscriber(self.link, tags))

    def expire(self, entry: Entry) -> None:
        """E-10: a held delivery is not sent any more."""
        if entry.presettled:
            self._presettled.remove(len(entry.message))
        self._held.remove(entry)
        entry.message = b""
        entry.step(GONE if entry.presettled else State.EXPIRED)

    @property
    def held_new(self) -> int:
        """Of the deliveries that wait, those that the subscriber was never sent."""
        return len(self._held)

    @property
    def held(self) -> int:
        """Deliveries that wait for credit."""
        resumes = sum(
            1 for entry in chain(self._resumes, *self._resumes_aside.values()) if entry.state is not State.GONE
        )
        return resumes + len(self._held)

    @property
    def is_out_of_credit(self) -> bool:
        """K-5b: the subscriber's credit alone keeps something back that it owes."""
        waits = self._resumes or self._held.moving > self._presettled.count
        return self.is_replied and self.sent >= self.limit and bool(waits)

    def release(self) -> None:
        """The link is gone: what waits does not count in the budget (C-6)."""
        self._presettled.release()

    @property
    def is_waiting(self) -> bool:
        """Something waits for credit or room."""
        return bool(self._held.is_moving or self._resumes or self._settle_queue)

    def trace(self, entry: Entry, rule: Rule, *fields: object) -> None:
        """A step of a delivery, while an operator wants to see them."""
        if self._turn.tracing is not None:
            self._turn.tracing.seen(entry.tag, rule, self._name, *fields)

    def _may_send(self, entry: Entry) -> bool:
        """Reply first (A-6), no new delivery while a map is incomplete (2.6.13) or full (C-4)."""
        if not self.is_replied or self.is_closing or self.large.current is not None:
            return False  # L-3: in the middle of a large delivery
        if self._turn.is_draining and self._is_held_back(entry):
            return False
        if self._reduction is not None:
            return entry.state in IN_REPLY
        if not self._is_full or entry.presettled or entry.has_place or self._is_member:
            return True
        return self._is_locked_out(entry)

    @property
    def _is_full(self) -> bool:
        """C-4: the subscriber's map holds as much as fits its frame."""
        return self._map_bound > 0 and self.mapped + self.reserve >= self._map_bound

    def _is_locked_out(self, entry: Entry) -> bool:
        """C-4: a full map takes one entry of a publisher that has none in it.

        Else two maps, each full of one publisher, would wait for each other. The oldest delivery of each publisher thus
        reaches every subscriber, which is enough for it to be settled.
        """
        assert entry.sync is not None
        return entry.sync.is_locked_out(entry)

    def _is_held_back(self, entry: Entry) -> bool:
        """K-8a: a draining router sends nothing new but what its own publishers have sent, which is finite."""
        if entry.sync is None:
            return False  # pre-settled: it leaves nothing unsettled
        return entry.sync.ingress_rid != self._turn.rid and not entry.has_place

    def _hold(self, entry: Entry, message: bytes) -> None:
        """C-3: no credit; keep the order."""
        self._turn.counts[Decision.HELD] += 1
        entry.step(HAS_BODY.get(entry.state, HELD))
        entry.message = message
        if self._turn.tracing is not None:
            self.trace(entry, self._why_held(entry))
        if not self._held and not self._resumes:
            self.held_since = self._turn.now
            if self._progress is not None:
                self._progress.watch()
        if entry.has_place:
            self._append_resume(entry)
        else:
            self._held.append(entry, self._turn.is_draining and self._is_held_back(entry))

    def _append_resume(self, entry: Entry) -> None:
        if self._held.aside and entry.sync is not None and self._held.waits_for_publisher(entry):
            self._resumes_aside.setdefault(entry.sync, deque()).append(entry)  # L-7
        else:
            self._resumes.append(entry)

    def _why_held(self, entry: Entry) -> Rule:
        """The first reason why a delivery waits here."""
        if not self.is_replied:
            return Rule.NO_REPLY_YET
        if self._turn.is_draining and self._is_held_back(entry):
            return Rule.HELD_BY_DRAIN
        if self.sent >= self.limit or self._settle_queue:
            return Rule.NO_CREDIT
        return Rule.IN_ORDER if self._may_send(entry) else Rule.MAP_FULL

    def _transfer(self, entry: Entry, message: bytes) -> None:
        if self.settling and self._map_bound and self.mapped + len(self.settling) >= self._map_bound:
            self.flush()  # C-4: the place is free at S only when it has been notified so
        before = entry.state
        is_new = before is HELD
        resume = not is_new and entry.state in IN_REPLY  # an entry of the reply map is resumed exactly once
        if is_new:
            entry.state = SENT
        else:
            entry.step(SENT)
        if is_new and not entry.presettled:
            self._count_place(entry, 1)
        if self._progress is not None:
            self._progress.on_sent(entry)
        self.sent += 1
        if self._reduction is not None:
            self._reduction.on_resumed()
        once = self._mode is _AT_MOST_ONCE or entry.presettled
        if self._turn.tracing is not None:
            self.trace(entry, Rule.RESUMED if resume else Rule.DELIVERED)
        if entry.redelivered:
            self._turn.counts[Decision.DELIVERED_AGAIN] += 1
        else:
            self._turn.delivered += 1
        if entry.large is not None:
            self.large.begin(entry, message, before, resume=resume, once=once)
        else:
            self._turn.out.append(
                effects.Deliver(
                    self.link,
                    entry.tag,
                    message,
                    resume,
                    once,
                    None,
                    entry.redelivered,
                    entry.attempt,
                    entry.annotations,
                    entry.message_format,
                )
            )
        if once:
            if self._progress is not None:
                self._progress.on_done(entry)
            entry.step(State.DONE_SETTLED)  # c.3: no ACK, for nothing is owed
            entry.outcome = DeliveryOutcome.ACCEPTED

    def resume_first(self, entry: Entry) -> None:
        """L-6: it goes back to where it was."""
        self._resumes.appendleft(entry)

    def count_place(self, entry: Entry, change: int) -> None:
        """L-5: it takes a place in the subscriber's map no longer."""
        self._count_place(entry, change)

    def resume_no_more(self, entry: Entry) -> None:
        """L-5: its body does not come."""
        for waiting in (self._resumes, *self._resumes_aside.values()):
            if entry in waiting:
                waiting.remove(entry)

    def _count_place(self, entry: Entry, change: int) -> None:
        """C-4: it takes a place in the subscriber's map, or gives it back."""
        self.mapped += change
        if entry.sync is not None:
            entry.sync.places += change
            if entry.sync.held:
                self._held.look_at(entry.sync)

    def _bring_back_resumes(self) -> None:
        """L-7: the publisher need not send again what some of these waited for; others wait for another one."""
        self._held.is_freed = False
        aside, self._resumes_aside = self._resumes_aside, {}
        freed: list[Entry] = []
        for entry in chain.from_iterable(aside.values()):
            if self._held.waits_for_publisher(entry):
                self._append_resume(entry)
            else:
                freed.append(entry)
        self._resumes.extendleft(reversed(freed))

    def _release_resumes(self) -> None:
        waiting = self._resumes
        while waiting and not self._settle_queue and self.sent < self.limit:
            entry = waiting[0]
            if self._held.aside and self._held.waits_for_publisher(entry):
                self._append_resume(waiting.popleft())
                continue
            if entry.state in NO_BODY:
                if not self._may_send(entry):
                    break
                self.held_since = self._turn.now
                if entry.large is not None and entry.large.is_place:
                    waiting.popleft()
                    entry.step(NO_BODY[entry.state])
                    self.large.ask(entry)
                    continue
                message, entry.message = entry.message, b""
                self._transfer(entry, message)
            waiting.popleft()

    def _release_held(self) -> None:
        """In order; in a full map only the oldest of each publisher that has nothing there (C-4)."""
        while (entry := self._held.first) and not self._settle_queue and self.sent < self.limit:
            if not self._may_send(entry):
                entry = self._held.first_locked_out
                if entry is None or not self._may_send(entry):
                    return
            if entry.large is not None and entry.large.is_place:
                self.large.ask(entry)
                continue
            self._held.remove(entry)
            message, entry.message = entry.message, b""
            if entry.presettled:
                self._presettled.remove(len(message))
            self.held_since = self._turn.now
            self._transfer(entry, message)

    def _answer_drain(self) -> None:
        """C-5: nothing more is here that may be sent, and no large delivery is under way."""
        if self.large.current is not None:  # asked here: mypy and so mypyc take it for None to the end of `pump`
            return
        self.drain = False
        self.sent = max(self.sent, self.limit)
        self._turn.out.append(effects.CompleteDrain(self.link))
