"""What the stateful tests of the record core share: nets of edited cores, a router played by the test, settings.

The models themselves stand in the tests, so that each can be read next to the rules it states.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import cast

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from chaos.mutants.edits import Edit, load
from delivery_records.model import effects, inputs
from delivery_records.model.limits import Limits
from delivery_records.model.message_format import NO_FORMAT, MessageFormat
from delivery_records.model.messages import Ack, Hello, RouterMessage, Run
from delivery_records.model.outcomes import DeliveryOutcome
from delivery_records.model.view import Kind, RouterRecord, SubscriptionMode, SubscriptionRecord
from delivery_records.records import Records
from tests.delivery_records.harness import NONCE, Net
from tests.delivery_records.links import TOPIC, PublisherLink, SubscriberLink
from tests.delivery_records.nodes import Node

Core = Callable[..., Records]
"""What makes a record core: the shipped class, or one with rules edited out."""
MachineFactory = Callable[[Core], RuleBasedStateMachine]


def machine_settings(examples: int, steps: int) -> settings:
    """The same runs everywhere, and no verdict on speed."""
    return settings(
        derandomize=True,
        deadline=None,
        max_examples=examples,
        stateful_step_count=steps,
        suppress_health_check=list(HealthCheck),
    )


def run_machine(factory: MachineFactory, examples: int, steps: int, *edits: Edit) -> None:
    """Run a machine on a core with these edits; without any, on the shipped one."""
    core = load(edits).records if edits else Records
    run_state_machine_as_test(_made_from(factory, core), settings=machine_settings(examples, steps))


def _made_from(factory: MachineFactory, core: Core) -> type[RuleBasedStateMachine]:
    """Hypothesis wants something to call, whatever its types say."""
    return cast("type[RuleBasedStateMachine]", lambda: factory(core))


FAULT_EXAMPLES = 3_000
"""Tries until a fault is seen. A few dozen are enough, but which are drawn depends on the version of Hypothesis."""


def assert_fault_is_seen(factory: MachineFactory, steps: int, claim: str, *edits: Edit) -> None:
    """Run a machine on a core without a rule: a check whose message matches `claim` must fail.

    The machine is as it is for the shipped core; only the failure is not made smaller, which takes the most time.
    """
    core = load(edits).records
    short = settings(
        machine_settings(FAULT_EXAMPLES, steps), phases=[Phase.generate], report_multiple_bugs=False, print_blob=False
    )
    with pytest.raises(Exception) as raised:  # noqa: PT011 - what is raised first is looked at below
        run_state_machine_as_test(_made_from(factory, core), settings=short)
    seen: BaseException | None = raised.value
    while seen is not None and not (isinstance(seen, AssertionError) and re.search(claim, str(seen))):
        seen = seen.__context__  # a broken core may break again while the machine winds up
    assert seen is not None, f"{claim!r} is not what failed: {raised.value!r}"


class CoreNet(Net):
    """A net whose routers run a given core."""

    def __init__(
        self, core: Core, routers: int = 1, *, limits: Limits | None = None, message_format: MessageFormat = NO_FORMAT
    ) -> None:
        self.core_class = core
        super().__init__(routers, limits=limits, message_format=message_format)

    def _core(self, rid: int) -> Records:
        return self.core_class(
            rid=rid, node_id=f"r{rid - 7001}", nonce=NONCE, limits=self.limits, message_format=self.message_format
        )


class Publisher:
    """P-a: the map first, then the frame; after an attach what is unsettled, in order."""

    def __init__(self, net: Net, node: Node, name: str) -> None:
        self.net, self.name = net, name
        self.map: dict[bytes, DeliveryOutcome | None] = {}
        self.sent: list[bytes] = []
        self.given_up: set[bytes] = set()
        self.attach(node)

    def attach(self, node: Node) -> None:
        self.link: PublisherLink = self.net.publisher(node, self.name, unsettled=dict(self.map))
        self.tags: dict[int, bytes] = {}
        self._read = 0
        self.map = {tag: None for tag, outcome in self.map.items() if outcome is None}
        for tag in self.map:
            self._transfer(tag)

    def _transfer(self, tag: bytes) -> None:
        assert self.link.credit > 0, "C-1: there is credit for it"
        self.tags[self.link.send(tag, body_under(tag))] = tag

    def send(self, size: int) -> None:
        if self.link.credit > 0:
            tag = b"%s/%d/%d" % (self.name.encode(), len(self.sent), size)  # its last part is what body_under reads
            self.map[tag] = None
            self.sent.append(tag)
            self._transfer(tag)

    def settle(self, tag: bytes) -> None:
        if self.map.pop(tag) is None:
            self.given_up.add(tag)  # I-4a
        self.link.settle(tag)

    def read(self) -> list[bytes]:
        """Record new outcomes (I-3: in order)."""
        outcomes = self.link.outcomes[self._read :]
        self._read += len(outcomes)
        reported = [self.tags[number] for number, _ in outcomes]
        assert reported == [tag for tag in self.map if tag in reported], "I-3: outcomes come in order"
        self.map.update(dict.fromkeys(reported, DeliveryOutcome.ACCEPTED))
        return reported


class Subscriber:
    """S-a: a tag is processed once while it is in the map, in order of arrival."""

    def __init__(self, net: Net, node: Node, name: str, map_bound: int = 0) -> None:
        self.net, self.name, self.map_bound = net, name, map_bound
        self.map: dict[bytes, bool] = {}
        """Network tag -> processed."""
        self.queue: list[bytes] = []
        """Network tags of what has arrived and is not processed, settled or not."""
        self.processed: list[bytes] = []
        """The publishers' tags."""
        self.attach(node)

    def attach(self, node: Node) -> None:
        self.link = SubscriberLink(self.net, node)
        unsettled = {tag: DeliveryOutcome.ACCEPTED if done else None for tag, done in self.map.items()}
        self._read = len(node.done)
        mode = SubscriptionMode.EXACTLY_ONCE
        self.link.attach(self.name, unsettled=unsettled, exactly_once=True, mode=mode, map_bound=self.map_bound)
        kept = self.link.last(effects.SubscriberReply).kept
        assert kept is not None
        for tag in [tag for tag in self.map if tag not in kept]:
            self._forget(tag)

    def take(self) -> list[effects.Effect]:
        """What has come on this link since."""
        done = self.link.node.done[self._read :]
        self._read += len(done)
        return [effect for effect in done if getattr(effect, "link", None) == self.link.number]

    def read(self) -> None:
        """Act on what has come, in order."""
        for effect in self.take():
            if isinstance(effect, effects.SettleAtSubscriber):
                for tag in effect.tags:
                    self._forget(tag)
            elif isinstance(effect, effects.Deliver):
                self._on_transfer(effect)

    def _on_transfer(self, delivery: effects.Deliver) -> None:
        if delivery.resume and delivery.settled:
            self._forget(delivery.tag)
            return
        assert delivery.message == body_under(delivery.tag[11:]), "I-1a: a body arrives whole"
        if self.map.get(delivery.tag):
            self._accept([delivery.tag])
        elif delivery.tag not in self.map:
            self.map[delivery.tag] = False
            self.queue.append(delivery.tag)

    def _forget(self, tag: bytes) -> None:
        """What is settled before its turn is still processed in its turn."""
        self.map.pop(tag)

    def process(self, count: int) -> None:
        """Process the oldest and accept what is not settled yet, all in one disposition."""
        tags, self.queue = self.queue[:count], self.queue[count:]
        for tag in tags:
            assert tag[11:] not in self.processed, f"G2: {tag[11:]!r} is processed twice"
            self.processed.append(tag[11:])
        unsettled = [tag for tag in tags if tag in self.map]
        self.map.update(dict.fromkeys(unsettled, True))
        if unsettled:
            self._accept(unsettled)

    def _accept(self, tags: list[bytes]) -> None:
        self.link.feed(inputs.SubscriberDisposition(self.link.number, tags, DeliveryOutcome.ACCEPTED, False))


def body_under(tag: bytes) -> bytes:
    """The message a tag stands for; its size is the tag's last part."""
    size = int(tag.rpartition(b"/")[2])
    return (tag * (size // len(tag) + 1))[:size]


class FrugalSubscriber(Subscriber):
    """S-a and C-3: credit for `prefetch` deliveries that are not accepted, and for each presented one to be resumed."""

    def __init__(self, net: Net, node: Node, name: str, map_bound: int, prefetch: int) -> None:
        self.prefetch = prefetch
        self.again: set[bytes] = set()
        """What it asked for again: settled here, with a place of its own in the map until it comes (C-4)."""
        self.lost: set[bytes] = set()
        """Asked for again and in nobody's map when the link was lost (E-4a)."""
        self.refused: set[bytes] = set()
        super().__init__(net, node, name, map_bound)

    def attach(self, node: Node) -> None:
        self.count = self.limit = 0
        """delivery-count, and the sum of it and the credit."""
        self.lost |= self.again
        self.again = set()
        super().attach(node)
        self.to_resume = set(self.map)
        """Entries of the reply map that have not been resumed (A-7)."""
        self.most = max(self.map_bound, len(self.map))
        self.read()

    @property
    def credit(self) -> int:
        return self.limit - self.count

    def replenish(self, *, drain: bool = False) -> None:
        """C-3: accepted ones cost nothing; credit is not taken back."""
        fresh = [tag for tag in self.queue if tag in self.map and tag not in self.to_resume]
        self.limit = max(self.limit, self.count + self.prefetch + len(self.to_resume) - len(fresh))
        self.link.flow(self.limit, delivery_count=self.count, drain=drain)
        self.read()

    def refuse(self, outcome: DeliveryOutcome) -> bytes | None:
        """E-4a: the oldest is wanted again; returns the publisher's tag."""
        tag = next((tag for tag in self.queue if tag in self.map and tag not in self.to_resume), None)
        if tag is not None:
            self.refused.add(tag)
            self.queue.remove(tag)
            self.again.add(tag)
            self.link.feed(inputs.SubscriberDisposition(self.link.number, [tag], outcome, False))
            self.read()
        return None if tag is None else tag[11:]

    def read(self) -> None:
        """C-4: a new delivery may come while the map has room, or when it has none of that publisher.

        What a turn settles is counted out first: it frees the places that the deliveries of this turn take.
        """
        new = self.take()
        settled = {tag for e in new if isinstance(e, effects.SettleAtSubscriber) for tag in e.tags}
        for effect in new:
            if isinstance(effect, effects.Deliver):
                self.count += 1
                assert self.count <= self.limit, f"C-3: {self.count} deliveries on credit for {self.limit}"
                self._check_room(effect, settled)
                self.to_resume.discard(effect.tag)
                self.again.discard(effect.tag)
                self._on_transfer(effect)
            elif isinstance(effect, effects.SettleAtSubscriber):
                for tag in effect.tags:
                    self._forget(tag)
            elif isinstance(effect, effects.CompleteDrain):
                assert self.count <= self.limit
                self.count = self.limit

    def _check_room(self, delivery: effects.Deliver, settled: set[bytes]) -> None:
        assert delivery.resume == (delivery.tag in self.to_resume), "A-7: what was presented is resumed, and once"
        if delivery.resume or delivery.tag in self.refused:
            return
        held = [tag for tag in (*self.map, *self.again) if tag not in settled]
        of_publisher = [tag for tag in held if tag[5:11] == delivery.tag[5:11]]
        has_room = not self.map_bound or len(held) < self.map_bound
        assert has_room or not of_publisher, f"C-4: {delivery} came into a full map of {len(held)}"


class PlayedEgress:
    """Another router as seen from the router under test: the test says what it acknowledges, and reads what it gets.

    Its channel loses nothing: what is tested here is what the ingress sends and counts.
    """

    def __init__(self, net: Net, node: Node, rid: int = 7999) -> None:
        """Put the router's key and open its channel (T-4)."""
        self.net, self.node, self.rid = net, node, rid
        self.got: list[RouterMessage] = []
        """Sequenced messages it received and the test has not read yet."""
        self._read = 0
        self._generation = 1
        self._received = 0
        self._sent = 0
        net.etcd.start_router(RouterRecord("played", rid))
        net.run()
        self._say(Hello(1, False, 0, 0, net.etcd.revision))

    def _say(self, hello: Hello) -> None:
        self.net.feed(self.node, inputs.RouterDatagram(self.rid, hello))

    def read(self) -> list[RouterMessage]:
        """Take what has come since; every HELLO is answered (T-4, T-9)."""
        while self._read < len(self.node.done):
            effect = self.node.done[self._read]
            self._read += 1
            if isinstance(effect, effects.SendToRouters):
                for rid, generation, sequence in effect.targets:
                    assert (rid, generation, sequence) == (self.rid, self._generation, self._received + 1)
                    self._received = sequence
                self.got.append(effect.message)
            elif isinstance(effect, effects.SendDatagram) and isinstance(effect.message, Hello):
                hello = effect.message
                assert hello.generation == self._generation, "the channel started over although nothing was lost"
                if not hello.is_reply:
                    self._say(Hello(self._generation, True, self._sent, self._received, self.net.etcd.revision))
        taken, self.got = self.got, []
        return taken

    def acknowledge(self, publisher_epoch: int, subscription_epoch: int, outcome: DeliveryOutcome, *runs: Run) -> None:
        """Send an ACK, whether it is true or not."""
        self._sent += 1
        ack = Ack(publisher_epoch, subscription_epoch, outcome, runs)
        self.net.feed(self.node, inputs.RouterFrame(self.rid, self._generation, self._sent, ack))

    def attach(self, key: str, name: str, mode: SubscriptionMode = SubscriptionMode.EXACTLY_ONCE) -> int:
        """Attach a subscription at this router, or move its link (A-6); returns its epoch."""
        record = SubscriptionRecord(name, "link", TOPIC, self.rid, "played", 60.0, mode=mode)
        epoch = self.net.etcd.put(Kind.SUBSCRIPTION, key, record)
        self.net.run()
        return epoch
