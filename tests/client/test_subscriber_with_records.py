"""The subscriber's core with its journal against the routers' own record core: out of order, killed, started again.

E-2 lets a router take a tag that is missing before one the subscriber has for a tag it was never owed. Here the real
rule meets the real core (S-a).
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from delivery_records.model import effects
from delivery_records.model.inputs import SubscriberDisposition
from delivery_records.model.outcomes import Decision, DeliveryOutcome
from delivery_records.model.view import SubscriptionMode
from oncewire.client.core_effects import DeliverMessage, DisposeDeliveries, GrantCredit, ReportGivenUp, SubscriberEffect
from oncewire.client.outcomes import ACCEPTED
from oncewire.client.subscriber_core import SubscriberCore, _Entry
from tests.client.core_driver import SubscriberDisk
from tests.delivery_records.harness import Net
from tests.delivery_records.links import PublisherLink, SubscriberLink
from tests.delivery_records.nodes import Node


class Forgetful(SubscriberCore):
    """What a client would be that stores done entries alone."""

    def _earlier_unfinished(self, done: Sequence[_Entry]) -> list[_Entry]:
        return []


class Process:
    """A subscriber's process, killed and started at will; `processed` is in one transaction with the acceptance."""

    def __init__(self, net: Net, core_class: type[SubscriberCore] = SubscriberCore) -> None:
        self.net = net
        self.core_class = core_class
        self.disk = SubscriberDisk()
        self.processed: list[bytes] = []
        self.given_up: list[bytes] = []
        self.link: SubscriberLink | None = None

    def start(self, node: Node) -> None:
        """Kill the process if there is one; start it from its journal and attach at this router."""
        if self.link is not None and not self.link.node.is_gone:
            self.link.drop()
        self.core = self.core_class(prefetch=20, recovered=self.disk.state())
        self.handed: list[DeliverMessage] = []
        self.tags: list[bytes] = []
        self.read = 0
        link = self.link = SubscriberLink(self.net, node)
        presented = self.core.begin_attach(1000)
        assert presented is not None
        states = {
            tag: None if outcome is None else DeliveryOutcome.ACCEPTED for tag, outcome in presented.unsettled.items()
        }
        link.attach("s", unsettled=states, exactly_once=True, mode=SubscriptionMode.EXACTLY_ONCE)
        self.net.advance(0.05)
        self.work()

    def work(self) -> None:
        """Read all the router sent, and what that leads to."""
        assert self.link is not None
        while self.read < len(self.link.got):
            effect = self.link.got[self.read]
            self.read += 1
            if isinstance(effect, effects.SubscriberReply):
                self.perform(self.core.attached(effect.kept or (), capable=True, incarnation=effect.incarnation))
            elif isinstance(effect, effects.Deliver):
                self.tags.append(effect.tag)
                self.perform(
                    self.core.transfer(
                        len(self.tags), effect.tag, effect.message, settled=effect.settled, resume=effect.resume
                    )
                )
            elif isinstance(effect, effects.SettleAtSubscriber):
                self.perform(self.core.settled([(0, tag) for tag in effect.tags]))

    def perform(self, asked: Sequence[SubscriberEffect]) -> None:
        assert self.link is not None
        for effect in asked:
            if isinstance(effect, DeliverMessage):
                self.handed.append(effect)
            elif isinstance(effect, ReportGivenUp):
                self.given_up.append(effect.tag[11:])
            elif isinstance(effect, GrantCredit):
                self.link.flow(len(self.tags) + effect.credit, delivery_count=len(self.tags))
            elif isinstance(effect, DisposeDeliveries):
                tags = [self.tags[number - 1] for number in effect.delivery_ids]
                self.link.feed(SubscriberDisposition(self.link.number, tags, DeliveryOutcome.ACCEPTED, False))

    def finish(self, place: int) -> None:
        """The application finishes one delivery; effect and acceptance are committed."""
        delivery = self.handed.pop(place)
        self.core.complete(delivery.serial, ACCEPTED)
        self.processed.append(delivery.payload)
        self.perform(self.disk.commit(self.core))
        self.work()


class Source:
    """A publisher that keeps its map (P-a)."""

    def __init__(self, net: Net, node: Node) -> None:
        self.net = net
        self.map: list[bytes] = []
        self.accepted: list[bytes] = []
        self.number = 0
        self.link: PublisherLink | None = None
        self.attach(node)

    def attach(self, node: Node) -> None:
        """Attach (again), and send again what is unsettled."""
        if self.link is not None and not self.link.node.is_gone:
            self.link.drop()
        self.link = self.net.publisher(node, unsettled=dict.fromkeys(self.map))
        self.sent = {self.link.send(tag): tag for tag in self.map}
        self.reported = 0

    def send(self) -> None:
        self.number += 1
        tag = b"%d" % self.number
        self.map.append(tag)
        assert self.link is not None
        self.sent[self.link.send(tag)] = tag

    def hear(self) -> None:
        """Note what is accepted, and settle it."""
        assert self.link is not None
        new = [self.sent[number] for number in self.link.accepted[self.reported :]]
        self.reported += len(new)
        self.accepted += new
        self.map = [tag for tag in self.map if tag not in new]
        if new:
            self.link.settle(*new)


def second_done_first_not(
    core_class: type[SubscriberCore] = SubscriberCore, routers: int = 3
) -> tuple[Net, Process, Source]:
    """Two messages have arrived at router 0 from router 1, the application has finished the second."""
    net = Net(routers)
    process = Process(net, core_class)
    process.start(net.nodes[0])
    source = Source(net, net.nodes[1])
    source.send()
    source.send()
    process.work()
    process.finish(1)
    source.hear()
    assert source.accepted == []
    return net, process, source


@pytest.mark.parametrize("subscriber_at", [0, 1, 2])
@pytest.mark.parametrize("publisher_at", [None, 1, 2])
def test_what_was_not_finished_before_a_kill_is_delivered_once_at_its_place(
    subscriber_at: int, publisher_at: int | None
) -> None:
    net, process, source = second_done_first_not()
    process.start(net.nodes[subscriber_at])
    if publisher_at is not None:
        source.attach(net.nodes[publisher_at])
    source.send()
    process.work()
    assert [delivery.payload for delivery in process.handed] == [b"1", b"3"]
    source.hear()
    assert source.accepted == []
    process.finish(0)
    process.finish(0)
    source.hear()
    process.work()
    assert process.processed == [b"2", b"1", b"3"]
    assert source.accepted == [b"1", b"2", b"3"]
    assert process.core.unfinished == 0
    assert sum(node.count(Decision.SKIPPED) for node in net.nodes) == 0


def test_the_publishers_router_may_die_together_with_the_subscribers_process() -> None:
    net, process, source = second_done_first_not()
    net.kill(net.nodes[1])
    process.start(net.nodes[2])
    source.attach(net.nodes[0])
    net.advance(2.0)
    process.work()
    assert [delivery.payload for delivery in process.handed] == [b"1"]
    process.finish(0)
    source.hear()
    assert source.accepted == [b"1", b"2"]


def test_a_client_that_stored_done_entries_alone_would_lose_the_message() -> None:
    net, process, source = second_done_first_not(Forgetful)
    process.start(net.nodes[0])
    source.hear()
    assert source.accepted == [b"1", b"2"]
    assert process.handed == []
    assert process.processed == [b"2"]
    assert net.nodes[0].count(Decision.SKIPPED) == 1


def test_a_message_that_its_publisher_gave_up_meanwhile_is_forgotten_and_reported() -> None:
    net, process, source = second_done_first_not()
    source.map = []
    source.attach(net.nodes[1])  # with an empty map: a new session
    process.start(net.nodes[0])
    source.send()
    process.work()
    assert process.given_up == [b"1"]
    assert [delivery.payload for delivery in process.handed] == [b"3"]
    assert process.core.unfinished == 1


def test_any_order_of_finishing_with_kills_and_moves_in_between_loses_nothing() -> None:
    for seed in range(30):
        rng = random.Random(seed)
        net = Net(2)
        process = Process(net)
        process.start(net.nodes[0])
        source = Source(net, net.nodes[1])
        for _ in range(80):
            what = rng.randrange(12)
            if what == 0:
                process.start(rng.choice(net.nodes))
            elif what == 1:
                source.attach(rng.choice(net.nodes))
            elif what < 6 and len(source.map) < 8:
                source.send()
            elif what < 10 and process.handed:
                process.finish(rng.randrange(len(process.handed)))
            else:
                source.hear()
            process.work()
            assert set(source.accepted) <= set(process.processed), f"lost (seed {seed})"
            numbers = [int(delivery.payload) for delivery in process.handed]
            assert numbers == sorted(numbers)
        while process.handed:
            process.finish(0)
        source.hear()
        process.work()
        assert sorted(map(int, process.processed)) == list(range(1, source.number + 1))
        assert len(source.accepted) == source.number
        assert process.core.unfinished == 0
        assert process.given_up == []
