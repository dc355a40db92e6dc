"""A simulated subscriber that keeps to rule S-a, speaking the record core's inputs and effects directly."""

from __future__ import annotations

from dataclasses import dataclass, field

from chaos.simulator.connections import OpenLink, SimulatedConnection
from chaos.simulator.filters import NOTHING, filter_at
from chaos.simulator.judge import Judge
from chaos.simulator.marks import OUTCOMES, Mark
from chaos.simulator.roles import Keeps
from chaos.simulator.state import WorldState
from chaos.simulator.steps import Choice
from delivery_records.model import effects, inputs
from delivery_records.model.outcomes import DeliveryOutcome
from delivery_records.model.view import SubscriptionMode

_IN_OTHER_WORDS = {Mark.RELEASED: DeliveryOutcome.MODIFIED, Mark.UNDELIVERABLE: DeliveryOutcome.UNDELIVERABLE_FAILED}
"""What is said of every second message in the place of these: the same with annotations, or with delivery-failed."""
_AGAIN = (Mark.RELEASED, Mark.FAILED)
_REFUSALS = 4
"""Times a subscriber wants one delivery again: more often than some policies allow (I-3d)."""


@dataclass(slots=True)
class Arrived:
    """An entry of a subscriber's map."""

    publisher: int
    number: int
    mark: Mark
    incarnation: int
    redelivered: bool = field(default=False, repr=False)


def _outcome(entry: Arrived, mark: Mark) -> DeliveryOutcome:
    return _IN_OTHER_WORDS.get(mark, OUTCOMES[mark]) if entry.number % 2 else OUTCOMES[mark]


class Subscriber:
    """A subscriber with an unsettled map, processing in arrival order (S-a)."""

    keeps = Keeps.MAP

    def __init__(self, world: WorldState, judge: Judge, open_link: OpenLink, index: int, prefetch: int) -> None:
        """Allow `prefetch` deliveries that are not accepted yet (C-3)."""
        self.world = world
        self.judge = judge
        self.open_link = open_link
        self.index = index
        self.prefetch = prefetch
        self.topic = world.asked(index)
        self.filter = filter_at(world.traits.filters, index)
        self.map: dict[bytes, Arrived] = {}
        self.connection: SimulatedConnection | None = None
        self.is_replied = False
        self.is_wanted = True
        self.incarnation = 0
        self.limit = 0
        self.is_closing = False
        self._renews = False
        self.again: set[tuple[int, int]] = set()
        """Messages it wanted again and that have not come again."""
        self._refusals: dict[tuple[int, int], int] = {}
        self._here: set[bytes] = set()
        """Tags that were transferred on this link: an outcome names a delivery-id, so another cannot be answered."""
        self._stated: set[bytes] = set()
        """Tags whose failure a router may have heard of (E-4a)."""

    def connect(self, router: int) -> None:
        """Attach with the map."""
        outcomes = {
            tag: _outcome(entry, entry.mark) if entry.mark in OUTCOMES else None
            for tag, entry in self.map.items()
            if entry.mark is not Mark.SETTLED
        }
        self.connection = self.open_link(f"s{self.index}", router)
        self.is_replied = False
        self._here.clear()
        self._up(
            inputs.SubscriberAttach(
                self.connection.link,
                *self.world.names("s", self.index),
                self.topic,
                outcomes,
                True,
                SubscriptionMode.EXACTLY_ONCE,
                "never" if self.world.traits.never else self.world.policy,
                float(self.world.traits.timeout_s),
                self.world.traits.map_bound,
                peer=f"s{self.index}",
                place=self.connection.place,
                owner=self.world.owner(self.index),
                patience=self.world.patience,
                share=self.world.share_of(self.index),
                filter=self.filter,
                stores=self.world.stores(self.index),
            )
        )
        self._note_presented(self.connection.link)
        if self.world.traits.pipelines:
            self._up(inputs.ClientFlow(self.connection.link))  # allowed (section 2.4.2); it proves nothing

    def _note_presented(self, link: int) -> None:
        for tag, entry in self.map.items():
            if entry.mark is Mark.FAILED:
                message = (entry.publisher, entry.number)
                self.judge.policies.on_failure_presented(self.index, message, link, is_stated=tag in self._stated)
                self._stated.add(tag)

    def _up(self, item: inputs.Input) -> None:
        assert self.connection is not None
        self.connection.up.append(item)

    def disconnect(self) -> None:
        """The connection drops, and with it what the router knew of deliveries that are in no map (E-4a)."""
        self.judge.on_left(self)
        if self.connection is not None:
            self.connection.drop()
        self.connection = None
        self.is_replied = False
        presented = {(entry.publisher, entry.number) for entry in self.map.values() if entry.mark in _AGAIN}
        self.judge.on_retry_lost(self.index, self.again - presented)
        self.again &= presented

    def crash(self, *, is_durable: bool = False) -> None:
        """Lose the map (G7)."""
        self.disconnect()
        self.again.clear()
        self.judge.on_amnesia(self.index, ((entry.publisher, entry.number) for entry in self.map.values()))
        self.map = {}

    def close(self, *, renews: bool = False) -> None:
        """Unsubscribe: detach(closed=true) again and again until it is answered without error (E-8).

        Args:
            renews: then subscribe again, under the same name. What it is done with stays in its map (S-1). Not where
                it is ending for good, and has forgotten that.
        """
        renews = renews and not (self.is_closing and not self._renews)
        self.is_closing, self._renews = True, renews
        self.judge.on_leaving(self.index)
        done = {tag: entry for tag, entry in self.map.items() if entry.mark in OUTCOMES}
        self.map = done if renews else {}
        if self.is_replied and self.connection is not None:
            self._up(inputs.LinkDetach(self.connection.link, True))

    def change_topic(self, topic: str) -> None:
        """It comes back with another topic, which is another subscription, and presents its map (A-2)."""
        self.disconnect()
        self.topic = topic
        self.judge.on_leaving(self.index)

    def change_filter(self, text: str) -> None:
        """It comes back with another filter, which is another subscription, and presents its map (E-9)."""
        self.disconnect()
        self.filter = text
        self.judge.promises.on_refiltered(self.index)
        self.judge.on_leaving(self.index)

    def receive(self, effect: effects.Effect) -> None:
        """One frame of the router."""
        assert self.connection is not None
        if isinstance(effect, effects.SubscriberReply):
            self.is_replied = True
            self.incarnation = effect.incarnation
            self.judge.on_incarnation(self.index, effect.incarnation)
            self.judge.promises.on_stated(self.index, effect.incarnation, effect.timeout_s)
            kept = set(effect.kept or ())
            for tag in [tag for tag in self.map if tag not in kept]:
                self._settle(tag)
            if self.is_closing:
                self._up(inputs.LinkDetach(self.connection.link, True))
                return
            self.limit = len(kept) + (0 if self.filter == NOTHING else self.prefetch)
            self._flow()
        elif self.is_closing and not isinstance(effect, (effects.DetachLink, effects.CloseConnection)):
            return  # what still comes is not ours any more
        elif isinstance(effect, effects.AskEcho):
            self._up(inputs.ClientFlow(self.connection.link, limit=self.limit, echoed_epoch=effect.epoch))
        elif isinstance(effect, effects.Confirm):
            self.judge.on_incarnation(self.index, effect.incarnation)
            self.judge.promises.on_stated(self.index, effect.incarnation, effect.timeout_s)
            self.judge.on_confirmed(self.index, effect.incarnation)
        elif isinstance(effect, effects.Deliver):
            self._on_delivery(effect)
        elif isinstance(effect, effects.DeliverPart):
            self._replenish()  # it was aborted: nothing of it came (L-5), and it has used credit (C-3)
        elif isinstance(effect, effects.SettleAtSubscriber):
            for tag in effect.tags:
                self._settle(tag)
        elif isinstance(effect, (effects.DetachLink, effects.CloseConnection)):
            if self.is_closing and isinstance(effect, effects.DetachLink) and effect.closed and not effect.condition:
                self.is_wanted, self.is_closing = self._renews, not self._renews
            self.disconnect()

    def _flow(self) -> None:
        assert self.connection is not None
        self._up(inputs.ClientFlow(self.connection.link, limit=self.limit))

    def _on_delivery(self, delivery: effects.Deliver) -> None:
        entry = self.map.get(delivery.tag)
        self._here.add(delivery.tag)
        if delivery.settled and delivery.resume:
            self._settle(delivery.tag)
            self._replenish()
        elif delivery.settled:
            self._on_settled_delivery(delivery)
        elif entry is None:
            publisher, number = delivery.message[0], int.from_bytes(delivery.message[1:5], "big")
            self.again.discard((publisher, number))
            self.judge.on_received(self.index, publisher, number, self.incarnation, delivery.message)
            if self.connection is not None:
                self.judge.on_attempt(self.index, (publisher, number), delivery)
            self.map[delivery.tag] = Arrived(publisher, number, Mark.NONE, self.incarnation, delivery.redelivered)
            self.judge.on_map(self.index, sum(entry.mark is not Mark.SETTLED for entry in self.map.values()))
            if self.world.traits.pulls:
                self._replenish()
        elif entry.mark in OUTCOMES:
            self._answer(delivery.tag, entry.mark)
        else:
            self._replenish()

    def _on_settled_delivery(self, delivery: effects.Deliver) -> None:
        """At most once: processed as it is read."""
        publisher, number = delivery.message[0], int.from_bytes(delivery.message[1:5], "big")
        self.judge.on_received(self.index, publisher, number, self.incarnation, delivery.message)
        self.judge.on_processed(self.index, publisher, number, self.incarnation, delivery.redelivered)
        self._replenish()

    def _replenish(self) -> None:
        if self.connection is not None:
            self.limit += 1
            self._flow()

    def _answer(self, tag: bytes, mark: Mark) -> None:
        if mark in _AGAIN and tag not in self._here:
            return  # when it is resumed; to say done early does no harm
        if self.connection is not None and self.is_replied:
            if mark is Mark.FAILED:
                self._stated.add(tag)
            self._up(self._disposition(tag, self.map[tag], mark, settled=False))
            if not self.world.traits.pulls:
                self._replenish()

    def _disposition(self, tag: bytes, entry: Arrived, mark: Mark, *, settled: bool) -> inputs.Input:
        assert self.connection is not None
        link, outcome, added = self.connection.link, _outcome(entry, mark), None
        if mark in _AGAIN or mark is Mark.UNDELIVERABLE:
            message = (entry.publisher, entry.number)
            added = self.judge.annotations.state(self.index, message, link, outcome, is_flagged=entry.redelivered)
        return inputs.SubscriberDisposition(link, [tag], outcome, settled, added, self._wish(mark))

    def _wish(self, mark: Mark) -> int | None:
        """When it wants the next attempt (E-4a)."""
        return (self.world.traits.delay_ms or None) if mark is Mark.FAILED else None

    def _settle(self, tag: bytes) -> None:
        entry = self.map.get(tag)
        if entry is None:
            return
        if entry.mark in OUTCOMES:
            del self.map[tag]
            self._stated.discard(tag)
        else:
            entry.mark = Mark.SETTLED

    def may_connect(self) -> bool:
        """It wants its subscription."""
        return self.is_wanted

    def leftover(self) -> str:
        """What is unfinished, in words; empty when it is done."""
        mine = {tag: entry for tag, entry in self.map.items() if tag[1:5] == self.world.nonce}
        return f"keeps {mine}" if mine else ""

    def choices(self) -> list[Choice]:
        """It may process its oldest delivery, or refuse it."""
        found: list[Choice] = []
        if self.world.declines(self.index) and self.can_process() and self.can_refuse():
            return [("s.decline", self.index)]
        if self.can_process():
            found.append(("s.process", self.index))
        if self.world.traits.refuses and self.can_refuse():
            found += [("s.reject", self.index), ("s.release", self.index), ("s.fail", self.index)]
            if self.world.is_member(self.index):
                found.append(("s.decline", self.index))
        return found

    def _oldest(self) -> tuple[bytes, Arrived] | None:
        """The oldest delivery without an outcome."""
        return next(((tag, entry) for tag, entry in self.map.items() if entry.mark not in OUTCOMES), None)

    def can_process(self) -> bool:
        """Something arrived and is not processed."""
        return self._oldest() is not None

    def can_refuse(self) -> bool:
        """It may be rejected, or wanted again: not too often, and not when it is settled already."""
        found = self._oldest()
        if found is None or found[1].mark is Mark.SETTLED:
            return False
        return self._refusals.get((found[1].publisher, found[1].number), 0) < _REFUSALS

    def process(self, mark: Mark = Mark.ACCEPTED) -> None:
        """S-a: take the oldest unprocessed delivery, process it once, then answer."""
        found = self._oldest()
        assert found is not None
        tag, entry = found
        message = (entry.publisher, entry.number)
        link = 0
        if entry.mark is Mark.SETTLED:
            del self.map[tag]
            self._replenish()  # C-3: nobody will ask for this credit again
        else:
            entry.mark = mark
            link = self.connection.link if self.connection is not None and tag in self._here else 0
            self._answer(tag, mark)
        if mark in _AGAIN:
            self._refusals[message] = self._refusals.get(message, 0) + 1
            if mark is Mark.FAILED:
                self.judge.policies.on_failed(self.index, message, link)
            self.judge.letters.on_failed(self.index, message)
            self.again.add(message)
        elif mark is Mark.UNDELIVERABLE:
            if _outcome(entry, mark) is DeliveryOutcome.UNDELIVERABLE_FAILED:
                self.judge.policies.on_failed_for_good(self.index, message)
            self.judge.letters.on_failed(self.index, message)
            self.judge.shared.on_declined(self.index, message)
        else:
            if entry.mark is Mark.REJECTED:
                self.judge.letters.on_failed(self.index, message, entry.incarnation)
            self.judge.on_processed(self.index, entry.publisher, entry.number, entry.incarnation, entry.redelivered)
