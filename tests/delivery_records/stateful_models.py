"""What the stateful tests of the record core share: nets of edited cores, a router played by the test, settings.

The models themselves stand in the tests, so that each can be read next to the rules it states.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from chaos.mutants.edits import Edit, load
from delivery_records import effects, inputs
from delivery_records.limits import Limits
from delivery_records.outcomes import Outcome
from delivery_records.peer_messages import Ack, Hello, PeerMessage, Run
from delivery_records.records import Annotate, Records, keep_message
from delivery_records.view import Kind, RouterRecord, SubscriptionMode, SubscriptionRecord
from tests.delivery_records.harness import NONCE, TOPIC, Net, Node

Core = Callable[..., Records]
"""What makes a record core: the shipped class, or one with rules edited out."""
MachineFactory = Callable[[Core], RuleBasedStateMachine]


def machine_settings(examples: int, steps: int) -> settings:
    """The same runs everywhere, and no verdict on speed."""
    return settings(
        derandomize=True, deadline=None, max_examples=examples, stateful_step_count=steps,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip


def run_machine(factory: MachineFactory, examples: int, steps: int, *edits: Edit) -> None:
    """Run a machine on a core with these edits; without any, on the shipped one."""
    core = load(edits).records if edits else Records
    run_state_machine_as_test(lambda: factory(core), settings=machine_settings(examples, steps))


def assert_fault_is_seen(factory: MachineFactory, examples: int, steps: int, claim: str, *edits: Edit) -> None:
    """Run a machine on a core without a rule: a check whose message matches `claim` must fail.

    The machine is as it is for the shipped core; only the failure is not made smaller, which takes the most time.
    """
    core = load(edits).records
    short = settings(
        machine_settings(examples, steps), phases=[Phase.generate], report_multiple_bugs=False, print_blob=False
    )
    with pytest.raises(AssertionError, match=claim):
        run_state_machine_as_test(lambda: factory(core), settings=short)


class CoreNet(Net):
    """A net whose routers run a given core."""

    def __init__(
        self, core: Core, routers: int = 1, *, limits: Limits | None = None, annotate: Annotate = keep_message
    ) -> None:
        self.core_class = core
        super().__init__(routers, limits=limits, annotate=annotate)

    def _core(self, rid: int) -> Records:
        return self.core_class(
            rid=rid, node_id=f"r{rid - 7001}", nonce=NONCE, limits=self.limits, annotate=self.annotate
        )


class PlayedEgress:
    """Another router as seen from the router under test: the test says what it acknowledges, and reads what it gets.

    Its channel loses nothing: what is tested here is what the ingress sends and counts.
    """

    def __init__(self, net: Net, node: Node, rid: int = 7999) -> None:
        """Put the router's key and open its channel (T-4)."""
        self.net, self.node, self.rid = net, node, rid
        self.got: list[PeerMessage] = []
        """Sequenced messages it received and the test has not read yet."""
        self._read = 0
        self._generation = 1
        self._received = 0
        self._sent = 0
        net.etcd.start_router(RouterRecord("played", rid))
        net.run()
        self._say(Hello(1, False, 0, 0, net.etcd.revision))

    def _say(self, hello: Hello) -> None:
        self.net.feed(self.node, inputs.PeerDatagram(self.rid, hello))

    def read(self) -> list[PeerMessage]:
        """Take what has come since; every HELLO is answered (T-4, T-9)."""
        while self._read < len(self.node.done):
            effect = self.node.done[self._read]
            self._read += 1
            if isinstance(effect, effects.PeerSend):
                for rid, generation, sequence in effect.targets:
                    assert (rid, generation, sequence) == (self.rid, self._generation, self._received + 1)
                    self._received = sequence
                self.got.append(effect.message)
            elif isinstance(effect, effects.PeerSendDatagram) and isinstance(effect.message, Hello):
                hello = effect.message
                assert hello.generation == self._generation, "the channel started over although nothing was lost"
                if not hello.is_reply:
                    self._say(Hello(self._generation, True, self._sent, self._received, self.net.etcd.revision))
        taken, self.got = self.got, []
        return taken

    def acknowledge(self, publisher_epoch: int, subscription_epoch: int, outcome: Outcome, *runs: Run) -> None:
        """Send an ACK, whether it is true or not."""
        self._sent += 1
        ack = Ack(publisher_epoch, subscription_epoch, outcome, runs)
        self.net.feed(self.node, inputs.PeerFrame(self.rid, self._generation, self._sent, ack))

    def attach(self, key: str, name: str, mode: SubscriptionMode = SubscriptionMode.EXACTLY_ONCE) -> int:
        """Attach a subscription at this router, or move its link (A-6); returns its epoch."""
        record = SubscriptionRecord(name, "link", TOPIC, self.rid, "played", 60.0, mode=mode)
        epoch = self.net.etcd.put(Kind.SUBSCRIPTION, key, record)
        self.net.run()
        return epoch
