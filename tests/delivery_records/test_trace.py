"""What an operator sees of a delivery's life when tracing is on, and that nothing happens when it is off."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from chaos.simulator.cores import SHIPPED
from chaos.simulator.schedule import Result, run_seed
from delivery_records import Records
from delivery_records.model.limits import Limits, TopicPolicy
from delivery_records.model.message_format import MessageFormat
from delivery_records.model.outcomes import DeliveryOutcome
from delivery_records.model.trace import TRACE_STEPS, TRACE_TIME_CAP_S, TRACE_TIME_S, Choice, Rule, Trace, TraceStep
from tests.delivery_records.harness import NONCE, Net
from tests.delivery_records.links import PublisherLink
from tests.delivery_records.nodes import Node
from tests.docs.test_protocol_rules import defined_rules
from tests.support.protocol import protocol_text

BODY = b"x" * 100


def _trace_everything(net: Net) -> None:
    for node in net.nodes:
        node.core.trace.start(Choice(), net.now)


def _rules(node: Node, tag: bytes) -> list[str]:
    return [step.rule for step in node.core.trace.steps_of(tag)]


def _texts(node: Node, tag: bytes) -> list[str]:
    return [step.text for step in node.core.trace.steps_of(tag)]


def _lives(net: Net, publisher: PublisherLink, count: int = 1) -> None:
    for number in range(count):
        publisher.send(number.to_bytes(4, "big"), BODY)


def test_a_delivery_is_followed_from_its_publisher_to_its_settlement_through_two_routers() -> None:
    net = Net(2)
    subscriber, publisher = net.subscriber(net.nodes[1]), net.publisher(net.nodes[0])
    _trace_everything(net)
    publisher.send(b"1", BODY)
    tag = subscriber.network_tag(b"1")
    subscriber.accept(b"1")
    publisher.settle(b"1")
    ingress, egress = net.nodes
    assert _rules(ingress, tag) == ["I-1", "T-2", "I-2", "I-3", "I-4"]
    assert _rules(egress, tag) == ["E-3", "E-4", "E-5"]
    assert _texts(ingress, tag) == [
        "received whole, 100 bytes: number 0 of its publisher's window, owed by 1 subscriptions",
        "sent to router r1",
        "subscription s/link is done with it (accepted): 0 still owe it",
        "its publisher gets accepted",
        "settled by its publisher, and forgotten",
    ]
    assert {step.at for step in ingress.core.trace.steps_of(tag)} == {net.now}


def test_a_delivery_can_be_asked_for_by_its_publishers_own_tag() -> None:
    net = Net()
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    _trace_everything(net)
    publisher.send(b"1")
    publisher.send(b"2")
    by_own = net.nodes[0].core.trace.steps_of(b"1")
    assert by_own == net.nodes[0].core.trace.steps_of(subscriber.network_tag(b"1"))
    assert {step.tag[-1:] for step in by_own} == {b"1"}


def test_a_delivery_with_a_hashed_tag_is_found_by_its_network_tag() -> None:
    net = Net(2)
    net.subscriber(net.nodes[1])
    publisher = net.publisher(net.nodes[0])
    _trace_everything(net)
    publisher.send(b"a tag of more than one and twenty", BODY)
    (sent,) = [step for step in net.nodes[1].core.trace.newest(10) if step.rule == "E-3"]
    assert _rules(net.nodes[0], sent.tag) == ["I-1", "T-2"]


def test_why_a_delivery_waits_is_reported() -> None:
    net = Net()
    subscriber = net.subscriber(net.nodes[0], limit=1)
    publisher = net.publisher(net.nodes[0])
    _trace_everything(net)
    publisher.send(b"1")
    publisher.send(b"2")
    assert _rules(net.nodes[0], b"2") == ["I-1", "C-3"]
    assert _texts(net.nodes[0], b"2")[-1] == "waits for credit of subscription s/link"
    subscriber.flow(2)
    assert _rules(net.nodes[0], b"2") == ["I-1", "C-3", "E-3"]


def test_a_failover_of_the_publisher_is_reported_by_its_new_router() -> None:
    net = Net(2)
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    publisher.send(b"1")
    publisher.send(b"2")
    _trace_everything(net)
    subscriber.accept(b"1")
    again = net.publisher(net.nodes[1], unsettled={b"1": None, b"2": None})
    again.send(b"1")
    assert _rules(net.nodes[0], b"1") == ["E-4", "I-2", "I-3", "E-2"]
    assert _rules(net.nodes[1], b"1") == ["A-4", "I-2", "I-1", "I-3"]
    assert _texts(net.nodes[1], b"1")[0].startswith("stands in the map its publisher presented")


def test_a_subscriber_that_comes_back_is_repeated_what_it_owes() -> None:
    net = Net(2)
    subscriber, publisher = net.subscriber(net.nodes[1]), net.publisher(net.nodes[0])
    _trace_everything(net)
    publisher.send(b"1")
    subscriber.drop()
    assert _rules(net.nodes[1], b"1")[-1] == "A-9"
    net.subscriber(net.nodes[0])
    assert "I-5" in _rules(net.nodes[0], b"1")


def test_another_attempt_and_its_reason_are_reported() -> None:
    net = Net()
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    _trace_everything(net)
    publisher.send(b"1")
    subscriber.answer(DeliveryOutcome.MODIFIED_FAILED, b"1")
    net.advance(1.0)
    assert _rules(net.nodes[0], b"1") == ["I-1", "E-3", "E-4a", "E-4a", "E-4a", "E-3"]


def test_a_new_subscription_is_not_owed_what_came_before_it() -> None:
    net = Net()
    net.subscriber(net.nodes[0])
    publisher = net.publisher(net.nodes[0])
    _trace_everything(net)
    publisher.send(b"1")
    net.subscriber(net.nodes[0], "late")
    assert _texts(net.nodes[0], b"1")[-1] == "not owed to subscription late/link, which came after it"


def test_only_chosen_publishers_and_topics_are_traced() -> None:
    net = Net()
    for topic in ("orders", "bills"):
        net.subscriber(net.nodes[0], f"s-{topic}", topic=topic)
    orders, bills = net.publisher(net.nodes[0], "p1"), net.publisher(net.nodes[0], "p2", topic="bills")
    trace = net.nodes[0].core.trace
    for choice in (Choice(topics=frozenset({"bills"})), Choice(publishers=frozenset({"p2/link"}))):
        trace.start(choice, net.now)
        tag = str(len(choice.topics)).encode()
        orders.send(b"o" + tag)
        bills.send(b"b" + tag)
        assert {step.tag[11:12] for step in trace.newest(100)} == {b"b"}


def test_every_router_chooses_the_same_deliveries_of_a_sample() -> None:
    net = Net(2)
    net.subscriber(net.nodes[1])
    publisher = net.publisher(net.nodes[0])
    for node in net.nodes:
        node.core.trace.start(Choice(sample=0.25), net.now)
    _lives(net, publisher, 200)
    at_ingress, at_egress = ({step.tag for step in node.core.trace.newest(10_000)} for node in net.nodes)
    assert at_ingress == at_egress
    assert 20 < len(at_ingress) < 90


def test_tracing_ends_by_itself_and_what_was_gathered_can_still_be_read() -> None:
    net = Net()
    net.subscriber(net.nodes[0])
    publisher = net.publisher(net.nodes[0])
    core = net.nodes[0].core
    core.trace.start(Choice(time_s=60.0), net.now)
    publisher.send(b"1")
    assert core.trace.left_s(net.now) == 60.0
    net.advance(60.0)
    publisher.send(b"2")
    assert not core.trace.is_on
    assert core.trace.left_s(net.now) == 0.0
    assert _rules(net.nodes[0], b"1")
    assert not _rules(net.nodes[0], b"2")


def test_the_ring_forgets_the_oldest_and_says_how_many() -> None:
    net = Net()
    net.subscriber(net.nodes[0])
    publisher = net.publisher(net.nodes[0])
    _trace_everything(net)
    trace = net.nodes[0].core.trace
    publisher.send(b"1")
    kept = len(trace)
    tag = trace.newest(1)[0].tag
    for _ in range(TRACE_STEPS):
        trace.seen(tag, Rule.STORED, 0, 0, 0)
    assert (len(trace), trace.forgotten) == (TRACE_STEPS, kept)


def test_nothing_is_kept_while_tracing_is_off_and_the_effects_are_the_same() -> None:
    def life(traced: bool) -> list[str]:
        net = Net(2)
        subscriber, publisher = net.subscriber(net.nodes[1], limit=2), net.publisher(net.nodes[0])
        if traced:
            _trace_everything(net)
        _lives(net, publisher, 5)
        subscriber.flow(10)
        subscriber.answer(DeliveryOutcome.RELEASED, (0).to_bytes(4, "big"))
        subscriber.accept(*((number).to_bytes(4, "big") for number in range(1, 5)))
        publisher.settle(*((number).to_bytes(4, "big") for number in range(5)))
        assert traced or not len(net.nodes[0].core.trace)
        return [repr(effect) for node in net.nodes for effect in node.done]

    assert life(True) == life(False)


def test_switching_on_again_begins_anew_and_switching_off_keeps() -> None:
    net = Net()
    net.subscriber(net.nodes[0])
    publisher = net.publisher(net.nodes[0])
    _trace_everything(net)
    publisher.send(b"1")
    trace = net.nodes[0].core.trace
    trace.stop()
    publisher.send(b"2")
    assert {step.tag[11:] for step in trace.newest(100)} == {b"1"}
    _trace_everything(net)
    assert not len(trace)


@pytest.mark.parametrize(
    "wrong",
    [
        {"sample": 0.0},
        {"sample": 1.5},
        {"time_s": 0.0},
        {"time_s": TRACE_TIME_CAP_S + 1},
        {"topics": frozenset(str(number) for number in range(65))},
    ],
)
def test_a_choice_out_of_bounds_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"must be|at most"):
        Choice(**wrong)  # type: ignore[arg-type]
    assert Choice().time_s == TRACE_TIME_S


def test_a_step_of_nobody_known_is_not_kept() -> None:
    net = Net()
    _trace_everything(net)
    trace = net.nodes[0].core.trace
    trace.seen(b"\0" + NONCE + b"\0\0\0\0\0\x63" + b"1", Rule.STORED, 0, 0, 0)
    trace.of_epoch(4711, b"1", Rule.PARKED, 4711)
    trace.seen(b"foreign", Rule.STORED, 0, 0, 0)
    assert trace.newest(10) == []


def test_every_rule_that_is_reported_is_on_the_protocol_page() -> None:
    rules = defined_rules(protocol_text())
    assert {reported.rule for reported in Rule} <= set(rules)
    for reported in Rule:
        named = set(re.findall(r"\b[KAIETC]-\d{1,2}[a-z]?\b", reported.sentence))
        assert named <= set(rules), reported


def test_why_else_a_delivery_is_not_sent_or_accepted_is_reported() -> None:
    def annotate(message: bytes, publisher: str, tag: bytes, session: int, user: str) -> bytes:
        if message == b"broken":
            raise ValueError("no section begins like this")
        return message

    net = Net(limits=Limits(policy=TopicPolicy(max_attempts=1)), message_format=MessageFormat(annotate))
    subscriber = net.subscriber(net.nodes[0], map_bound=1)
    publisher, other = net.publisher(net.nodes[0]), net.publisher(net.nodes[0], "other")
    _trace_everything(net)
    publisher.send(b"1", b"broken")
    assert _texts(net.nodes[0], b"1")[0].startswith("cannot be read: no section begins like this")
    publisher.send(b"2")
    publisher.send(b"3")
    assert _rules(net.nodes[0], b"3")[-1] == "C-4"  # the map holds one
    subscriber.answer(DeliveryOutcome.MODIFIED_FAILED, b"2")
    assert "failed 1 times: counts as rejected by it" in _texts(net.nodes[0], b"2")[-3]
    other.drop()
    again = net.publisher(net.nodes[0], "other", unsettled={b"4": None, b"5": None})
    _trace_everything(net)
    again.send(b"5")
    assert _texts(net.nodes[0], b"4")[-1].startswith("not sent again by its publisher")


WRITTEN = {Rule.MALFORMED, Rule.POISONED, Rule.ABANDONED, Rule.MAP_FULL, Rule.IN_ORDER}
"""Written by the test above; seeds meet them seldom."""
SEEDS = 600
"""Enough to meet all others."""
MEETING = (39, 103, 98, 31, 105, 49, 40, 118, 2714, 168, 37, 203, 1267)
"""Seeds that met all others once; tried first."""


def _run_traced(seed: int) -> tuple[Result, list[Trace]]:
    traces: list[Trace] = []

    def traced(**arguments: Any) -> Records:
        records = Records(**arguments)
        records.trace.start(Choice(time_s=TRACE_TIME_CAP_S), 0.0)
        traces.append(records.trace)
        return records

    return run_seed(seed, replace(SHIPPED, records=traced)), traces


def test_tracing_changes_nothing_in_worlds_full_of_faults() -> None:
    for seed in range(4):
        assert _run_traced(seed)[0].story == run_seed(seed).story


def test_every_rule_of_the_trace_is_reported_in_worlds_full_of_faults() -> None:
    left = set(Rule) - WRITTEN
    for seed in (*MEETING, *range(SEEDS)):
        for trace in _run_traced(seed)[1]:
            assert len(trace.newest(TRACE_STEPS)) == len(trace)  # every sentence has its fields
            left -= {rule for _, rule, _, _ in trace._ring}
        if not left:
            return
    raise AssertionError(f"no hook writes {left}, or no seed meets them")


def test_a_step_reads_as_tag_rule_sentence_and_time() -> None:
    assert TraceStep(b"t", "I-4", "settled", 1.5) == TraceStep(tag=b"t", rule="I-4", text="settled", at=1.5)


def test_its_time_may_be_over_at_the_first_of_the_deliveries_whose_link_is_lost() -> None:
    net = Net()
    subscriber, publisher = net.subscriber(net.nodes[0], timeout_s=600.0), net.publisher(net.nodes[0])
    _trace_everything(net)
    _lives(net, publisher, 3)
    net.advance(TRACE_TIME_S + 1)
    subscriber.drop()
    assert not net.nodes[0].core.trace.is_on
    back = net.subscriber(net.nodes[0], timeout_s=600.0)
    assert len(back.deliveries) == 3
