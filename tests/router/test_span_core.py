"""Spans of deliveries, made from what real record cores get and decide."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from delivery_records.model import effects, inputs
from delivery_records.model.outcomes import DeliveryOutcome
from delivery_records.model.parts import Part
from delivery_records.records import Records
from oncewire.wire import Message, encode_message
from router.operator import span_core
from router.operator.span_core import ABORTED, LINK_LOST, DeliverySpans, Kind, Span
from router.operator.trace_context import TraceContext, read_context
from tests.delivery_records.harness import Net
from tests.delivery_records.links import PublisherLink, SubscriberLink
from tests.delivery_records.nodes import Node

PARENT = TraceContext(0xABC, 0xDEF, True)


class Followed:
    """A record core, and the spans of what it gets and decides."""

    def __init__(self, core: Records, spans: DeliverySpans) -> None:
        """Stand before `core`."""
        self._core = core
        self._spans = spans

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)

    def handle(self, batch: Any, now: float) -> Any:
        """See `Records`."""
        self._spans.on_inputs(batch, int(now * 1e9))
        done = self._core.handle(batch, now)
        self._spans.on_effects(done, int(now * 1e9))
        return done


class Watched(Net):
    """Routers whose cores are followed, as a driver does it."""

    def __init__(self, routers: int, ratio: float = 0.0) -> None:
        """Follow every router."""
        self.ended: list[Span] = []
        self.spans: dict[int, DeliverySpans] = {}
        self._ratio = ratio
        self._ids = iter(range(1, 1 << 30))
        super().__init__(routers)

    def start_router(self) -> Node:
        """As `Net`, and follow it."""
        node = super().start_router()
        ids: Iterator[int] = self._ids
        spans = self.spans[node.rid] = DeliverySpans(node.core, self._ratio, lambda bits: next(ids), self.ended.append)
        node.core = cast("Records", Followed(node.core, spans))
        return node

    def named(self, kind: Kind) -> list[Span]:
        """Spans of one kind that have ended."""
        return [span for span in self.ended if span.kind is kind]


def body(context: TraceContext | None = PARENT) -> bytes:
    message = Message(b"x")
    if context is not None:
        message.application_properties = {"traceparent": context.text()}
    return bytes(encode_message(message))


def two_routers(ratio: float = 0.0) -> tuple[Watched, PublisherLink, SubscriberLink]:
    net = Watched(2, ratio)
    return net, net.publisher(net.nodes[0]), net.subscriber(net.nodes[1])


def test_accept_forward_and_settle_hang_together_across_two_routers() -> None:
    net, publisher, subscriber = two_routers()
    publisher.send(b"1", body())
    net.advance(1.0)
    subscriber.accept(b"1")
    net.advance(1.0)
    publisher.settle(b"1")
    (accept,), (forward,) = net.named(Kind.ACCEPT), net.named(Kind.FORWARD)
    by_parent = {span.parent_id: span for span in net.named(Kind.SETTLE)}
    at_publisher, at_subscriber = by_parent[accept.context.span_id], by_parent[forward.context.span_id]
    assert {span.context.trace_id for span in net.ended} == {PARENT.trace_id}
    assert (accept.parent_id, forward.parent_id) == (PARENT.span_id, accept.context.span_id)
    assert [span.end_ns - span.start_ns for span in (accept, forward, at_publisher, at_subscriber)] == [10**9] * 4
    assert {span.topic for span in net.ended} == {"orders"}
    assert accept.attributes["oncewire.outcome"] == "accepted"
    assert len({span.attributes["oncewire.tag"] for span in net.ended}) == 1
    assert not any(span.failure for span in net.ended)


def test_the_subscriber_gets_the_context_of_accept_in_the_annotations() -> None:
    net, publisher, subscriber = two_routers()
    publisher.send(b"1", body())
    sent = subscriber.last(effects.Deliver).message
    subscriber.accept(b"1")
    accept = net.named(Kind.ACCEPT)[0]
    assert read_context(sent, also_properties=False) == accept.context
    assert sent.endswith(body())


def test_a_context_that_is_not_sampled_goes_through_and_makes_no_span() -> None:
    net, publisher, subscriber = two_routers(ratio=1.0)
    message = body(TraceContext(1, 2, False))
    publisher.send(b"1", message)
    subscriber.accept(b"1")
    publisher.settle(b"1")
    assert not net.ended
    assert [delivery.message for delivery in subscriber.all(effects.Deliver)] == [message]


def test_messages_without_a_context_begin_a_trace_by_the_ratio() -> None:
    for ratio, expected in ((0.0, 0), (1.0, 1)):
        net, publisher, subscriber = two_routers(ratio)
        publisher.send(b"1", body(None))
        subscriber.accept(b"1")
        assert len(net.named(Kind.ACCEPT)) == expected
        assert all(span.parent_id == 0 for span in net.named(Kind.ACCEPT))


def test_a_lost_link_ends_its_spans_and_the_next_attach_begins_others() -> None:
    net, publisher, subscriber = two_routers()
    publisher.send(b"1", body())
    subscriber.drop()
    (lost,) = net.named(Kind.FORWARD)
    assert lost.failure == LINK_LOST
    back = net.subscriber(net.nodes[0])
    back.accept(b"1")
    again = net.named(Kind.FORWARD)[1]
    assert (again.failure, again.attributes["oncewire.redelivered"]) == ("", True)
    assert again.parent_id == lost.parent_id


def test_an_early_settle_ends_accept_as_given_up() -> None:
    net, publisher, _ = two_routers()
    publisher.send(b"1", body())
    publisher.settle(b"1")
    (accept,) = net.named(Kind.ACCEPT)
    assert accept.failure == span_core.GIVEN_UP
    publisher.drop()
    assert len(net.named(Kind.ACCEPT)) == 1


def test_a_message_that_is_not_taken_and_comes_again_leaves_no_span_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(span_core, "OPEN_SPANS", 2)
    net, publisher, _ = two_routers()
    spans = net.spans[net.nodes[0].rid]
    for delivery_id in range(1, 6):
        spans.on_inputs([inputs.PublisherTransfer(publisher.number, delivery_id, b"1", body())], 0)
    spans.on_inputs([inputs.PublisherSettle(publisher.number, [b"1"])], 0)
    assert [span.failure for span in net.ended] == [span_core.GIVEN_UP] * 5
    assert spans.not_begun == 0


def test_each_attempt_is_a_span_of_its_own() -> None:
    net, publisher, subscriber = two_routers()
    publisher.send(b"1", body())
    subscriber.answer(DeliveryOutcome.RELEASED, b"1")
    net.run()
    subscriber.accept(b"1")
    assert [span.attributes["oncewire.outcome"] for span in net.named(Kind.FORWARD)] == ["released", "accepted"]


def test_the_end_of_an_incarnation_ends_every_span() -> None:
    net, publisher, _ = two_routers()
    publisher.send(b"1", body())
    for spans in net.spans.values():
        spans.end(2 * 10**12)
    assert {span.failure for span in net.ended} == {span_core.ROUTER_ENDED}
    assert len(net.ended) == 2


def test_open_spans_are_bounded_and_those_without_room_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(span_core, "OPEN_SPANS", 3)
    net = Watched(1)
    publisher = net.publisher(net.nodes[0])
    net.subscriber(net.nodes[0], limit=0)
    for number in range(5):
        publisher.send(bytes([number]), body())
    spans = net.spans[net.nodes[0].rid]
    assert spans.not_begun == 2
    publisher.drop()
    assert len(net.ended) == 3


def test_an_opaque_a_settled_or_a_malformed_message_is_no_harm() -> None:
    net, publisher, subscriber = two_routers(ratio=1.0)
    publisher.send(b"1", b"\xff\xff", message_format=7)
    publisher.send(b"2", b"no message at all")
    publisher.send(b"3", body(), settled=True)
    publisher.feed(inputs.PublisherTransfer(publisher.number, 4, b"4", body(), aborted=True))
    assert {span.failure for span in net.named(Kind.ACCEPT)} <= {""}
    assert len(subscriber.deliveries) == 3


# --- large messages ---------------------------------------------------------------------------------------------------


def send_part(publisher: PublisherLink, data: bytes, part: Part) -> None:
    publisher.feed(inputs.LargeTransfer(publisher.number, 7, b"1", data, part))


def test_a_large_message_has_the_spans_of_any_other() -> None:
    net, publisher, subscriber = two_routers()
    whole = body()
    send_part(publisher, whole[:-1], Part.FIRST)
    net.advance(1.0)
    send_part(publisher, whole[-1:], Part.LAST)
    parts = subscriber.all(effects.DeliverPart)
    sent = b"".join(each.data for each in parts)
    subscriber.feed(inputs.LargeTaken(subscriber.number, len(sent)))
    outcome = inputs.SubscriberDisposition(subscriber.number, [parts[0].tag], DeliveryOutcome.ACCEPTED, False)
    subscriber.feed(outcome)
    publisher.settle(b"1")
    (accept,), (forward,) = net.named(Kind.ACCEPT), net.named(Kind.FORWARD)
    assert (accept.parent_id, forward.parent_id) == (PARENT.span_id, accept.context.span_id)
    assert accept.end_ns - accept.start_ns == 10**9
    assert accept.attributes["oncewire.outcome"] == "accepted"
    assert read_context(sent, also_properties=False) == accept.context
    assert sent.endswith(whole)
    assert not any(span.failure for span in net.ended)


def test_an_abort_ends_the_spans_of_a_large_message() -> None:
    net, publisher, _ = two_routers()
    send_part(publisher, body()[:-1], Part.FIRST)
    send_part(publisher, b"", Part.ABORT)
    assert [(span.kind, span.failure) for span in net.ended] == [(Kind.ACCEPT, ABORTED), (Kind.FORWARD, ABORTED)]
