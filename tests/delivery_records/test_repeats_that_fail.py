"""What a publisher sends again that is malformed, or was failed before (rules I-9, I-4a, E-4a, L-5)."""

from __future__ import annotations

from dataclasses import replace

from delivery_records.model import effects, inputs
from delivery_records.model.message_format import MessageFormat
from delivery_records.model.outcomes import DeliveryOutcome
from delivery_records.model.parts import Part
from tests.delivery_records.harness import Net
from tests.delivery_records.large_parts import LIMITS, answer, part, take_all
from tests.delivery_records.test_dead_letters import POLICY, bodies, dead_letters, described


def annotate(message: bytes, publisher: str, tag: bytes, session: int, user: str) -> bytes:
    if message.startswith(b"broken"):
        raise ValueError("no sections")
    return message


def test_what_is_sent_again_and_malformed_is_progress_with_the_map() -> None:  # I-9
    net = Net(1, message_format=MessageFormat(annotate))
    net.subscriber(net.nodes[0])
    net.publisher(net.nodes[0]).drop()
    tags = [b"%d" % number for number in range(30)]
    publisher = net.publisher(net.nodes[0], unsettled=dict.fromkeys(tags))
    for tag in tags:
        publisher.send(tag, b"broken")
        net.advance(5.0)
        publisher.settle(tag)
    assert publisher.detached() is None


def test_what_is_sent_again_malformed_and_settled_is_given_up() -> None:  # I-4a
    net = Net(1, message_format=MessageFormat(annotate))
    net.subscriber(net.nodes[0])
    net.publisher(net.nodes[0]).drop()
    publisher = net.publisher(net.nodes[0], unsettled={b"1": None})
    publisher.send(b"1", b"broken", settled=True)
    (ingress,) = net.nodes[0].core.ingresses.values()
    assert len(ingress.window) == 0


def test_a_member_hears_how_often_it_failed_what_its_publisher_sends_again() -> None:  # E-4a
    net = Net(2, limits=LIMITS)
    one = net.subscriber(net.nodes[0], "m0", share=inputs.Share("work", is_global=True))
    net.publisher(net.nodes[1]).drop()
    publisher = net.publisher(net.nodes[1], unsettled={b"1": None})
    part(publisher, b"1", b"f" * 2000, Part.FIRST)
    take_all(one)
    answer(one, DeliveryOutcome.MODIFIED_FAILED, b"1")
    part(publisher, b"1", b"", Part.ABORT)
    publisher.send(b"1")
    net.advance(3.0)
    assert [sent.attempt for sent in one.all(effects.Deliver)] == [1]


def test_a_letter_says_nothing_of_an_aborted_try() -> None:  # I-3e, L-5
    net = Net(3, limits=replace(LIMITS, policy=POLICY), message_format=MessageFormat(make_letter=described))
    letters = dead_letters(net)
    one, two = net.subscriber(net.nodes[0], "one"), net.subscriber(net.nodes[0], "two")
    net.publisher(net.nodes[2]).drop()
    publisher = net.publisher(net.nodes[2], unsettled={b"1": None})
    part(publisher, b"1", b"f" * 2000, Part.FIRST)
    take_all(one)
    take_all(two)
    (first,) = (sent.tag for sent in one.all(effects.DeliverPart) if sent.part is Part.FIRST)
    rejected = DeliveryOutcome.REJECTED
    one.feed(inputs.SubscriberDisposition(one.number, [first], rejected, False, error="app:one"))
    part(publisher, b"1", b"", Part.ABORT)
    publisher.send(b"1")
    two.answer(rejected, b"1", error="app:two")
    (body,) = bodies(letters)
    assert body.split(b"|")[5] == b"app:two"
