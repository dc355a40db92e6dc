"""Spans of deliveries, made from what the record core gets and decides; it knows nothing of OpenTelemetry.

At the ingress `accept` lasts from a delivery's arrival to the outcome its publisher gets, and `settle` from there to
its settlement. At an egress `forward` lasts from the transfer to the subscriber's answer, and `settle` from there on.
`accept` is a child of the publisher's span, and `forward` of `accept`: its context travels in the message annotations.

Times are nanoseconds since 1970, given; nothing is decided here and no delivery waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from delivery_records.model import effects, inputs
from delivery_records.model.parts import Part
from delivery_records.model.tags import network_tag
from router.operator.trace_context import TraceContext, read_context, with_context

if TYPE_CHECKING:
    from delivery_records import Records

OPEN_SPANS = 20_000
"""Spans that have begun and not ended; more are not begun, and counted. About 10 MB."""
_RATIO_RANGE = 1 << 64
LINK_LOST = "the link was lost"
GIVEN_UP = "settled by its publisher before an outcome was reported"
ABORTED = "aborted before its last part"
ROUTER_ENDED = "this incarnation of the router ended"


class Kind(Enum):
    """What a span stands for; its value is the first word of its name."""

    ACCEPT = "accept"
    FORWARD = "forward"
    SETTLE = "settle"


@dataclass(slots=True)
class Span:
    """One span."""

    kind: Kind
    topic: str
    context: TraceContext
    parent_id: int
    """0 for the root of a trace."""
    start_ns: int
    delivery_id: int = -1
    """Of an `accept`: what the outcome will name it by."""
    end_ns: int = 0
    failure: str = ""
    """Why it did not end as it should."""
    attributes: dict[str, str | int | bool] = field(default_factory=dict)


class _Link:
    """Open spans of one client link."""

    __slots__ = ("by_id", "by_tag")

    def __init__(self) -> None:
        self.by_tag: dict[bytes, Span] = {}
        """By the tag this side knows: the publisher's own, or the network tag."""
        self.by_id: dict[int, bytes] = {}
        """The tags of open `accept` spans by delivery-id: outcomes name it."""


class DeliverySpans:
    """The spans of one incarnation."""

    def __init__(
        self, records: Records, ratio: float, new_id: Callable[[int], int], finish: Callable[[Span], None]
    ) -> None:
        """Nothing is traced yet.

        Args:
            records: the record core of this incarnation; read only.
            ratio: share of the messages without a context that begin a trace, 0 to 1.
            new_id: makes a random number of so many bits.
            finish: takes each span that has ended.
        """
        self._records = records
        self._threshold = int(ratio * _RATIO_RANGE)
        self._new_id = new_id
        self._finish = finish
        self._links: dict[int, _Link] = {}
        self._open = 0
        self.not_begun = 0
        """Spans for which there was no room."""

    # ------------------------------------------------------------------ what happens

    def on_inputs(self, batch: Sequence[inputs.Input], now_ns: int) -> None:
        """Before the record core gets it. A sampled message gets the context of its `accept` span."""
        for item in batch:
            kind = type(item)
            if kind is inputs.PublisherTransfer:
                assert isinstance(item, inputs.PublisherTransfer)
                self._on_transfer(item, now_ns)
            elif kind is inputs.LargeTransfer:
                assert isinstance(item, inputs.LargeTransfer)
                self._on_part(item, now_ns)
            elif not self._links:
                continue
            elif kind is inputs.SubscriberDisposition:
                assert isinstance(item, inputs.SubscriberDisposition)
                self._on_answer(item, now_ns)
            elif kind is inputs.PublisherSettle:
                assert isinstance(item, inputs.PublisherSettle)
                self._end_settled(item.link, item.tags, now_ns)
            elif isinstance(item, (inputs.LinkLost, inputs.LinkDetach)):
                self._end_link(item.link, now_ns, LINK_LOST)

    def on_effects(self, done: Sequence[effects.Effect], now_ns: int) -> None:
        """After the record core has decided."""
        for effect in done:
            kind = type(effect)
            if kind is effects.Deliver:
                assert isinstance(effect, effects.Deliver)
                self._on_deliver(effect, effect.message, now_ns)
            elif kind is effects.DeliverPart:
                assert isinstance(effect, effects.DeliverPart)
                self._on_deliver_part(effect, now_ns)
            elif not self._links:
                continue
            elif kind is effects.Dispose:
                assert isinstance(effect, effects.Dispose)
                self._on_reported(effect, now_ns)
            elif kind is effects.SettleAtSubscriber:
                assert isinstance(effect, effects.SettleAtSubscriber)
                self._end_settled(effect.link, effect.tags, now_ns)
            elif isinstance(effect, (effects.DetachLink, effects.CloseConnection)):
                self._end_link(effect.link, now_ns, LINK_LOST)

    def end(self, now_ns: int) -> None:
        """The incarnation is over: what is open ends with it."""
        for link in list(self._links):
            self._end_link(link, now_ns, ROUTER_ENDED)

    # ------------------------------------------------------------------ at the ingress

    def _on_part(self, part: inputs.LargeTransfer, now_ns: int) -> None:
        """A large delivery: its context lies in the first part; `accept` lasts as for any other (L-1)."""
        if part.part is Part.FIRST:
            first = inputs.PublisherTransfer(
                part.link, part.delivery_id, part.tag, part.data, resume=part.resume, message_format=part.message_format
            )
            self._on_transfer(first, now_ns, is_part=True)
            part.data = first.message
        elif part.part is Part.ABORT:
            self._end_settled(part.link, [part.tag], now_ns, ABORTED)
        elif part.part is Part.LAST and part.settled:
            self._end_settled(part.link, [part.tag], now_ns)

    def _on_transfer(self, transfer: inputs.PublisherTransfer, now_ns: int, *, is_part: bool = False) -> None:
        if transfer.aborted or transfer.resume or transfer.message_format:
            return
        publisher = self._records.figures.publisher_on(transfer.link)
        if publisher is None:
            return
        context = read_context(transfer.message, also_properties=True)
        if context is None:
            trace_id = self._new_id(128) or 1
            if trace_id % _RATIO_RANGE >= self._threshold:
                return
            parent_id = 0
        elif context.is_sampled:
            trace_id, parent_id = context.trace_id, context.span_id
        else:
            return
        span = self._begin(Kind.ACCEPT, publisher.topic, trace_id, parent_id, now_ns)
        if span is None:
            return
        span.attributes |= {
            "oncewire.publisher": publisher.name,
            "oncewire.tag": network_tag(self._records.nonce, publisher.session, transfer.tag).hex(),
        }
        if not is_part:
            span.attributes["messaging.message.envelope.size"] = len(transfer.message)
        transfer.message = with_context(transfer.message, span.context)
        if transfer.settled:
            self._end(span, now_ns)  # I-1c: nobody gets an outcome
        else:
            link = self._link(transfer.link)
            self._end_settled(transfer.link, [transfer.tag], now_ns)  # it was not taken, and has come again
            span.delivery_id = transfer.delivery_id
            link.by_id[transfer.delivery_id] = transfer.tag
            link.by_tag[transfer.tag] = span

    def _on_reported(self, reported: effects.Dispose, now_ns: int) -> None:
        link = self._links.get(reported.link)
        if link is None or not link.by_id:
            return
        for delivery_id in reported.delivery_ids:
            tag = link.by_id.pop(delivery_id, None)
            if tag is None:
                continue
            span = link.by_tag.pop(tag)
            span.attributes["oncewire.outcome"] = reported.outcome.value
            self._end(span, now_ns)
            if not reported.settled:
                self._begin_settle(link, tag, span, now_ns)

    # ------------------------------------------------------------------ at the egress

    def _on_deliver_part(self, sent: effects.DeliverPart, now_ns: int) -> None:
        if sent.part is Part.FIRST:
            self._on_deliver(sent, sent.data, now_ns)
        elif sent.part is Part.ABORT:
            self._end_settled(sent.link, [sent.tag], now_ns, ABORTED)

    def _on_deliver(self, sent: effects.Deliver | effects.DeliverPart, message: bytes, now_ns: int) -> None:
        if sent.message_format or not message:
            return
        context = read_context(message, also_properties=False)
        if context is None or not context.is_sampled:
            return
        subscriber = self._records.figures.subscriber_on(sent.link)
        if subscriber is None:
            return
        link = self._link(sent.link)
        before = link.by_tag.pop(sent.tag, None)
        if before is not None:
            self._end(before, now_ns)  # another attempt (E-4a)
        view = self._records.view
        publisher = view.publishers.get(view.sessions.get(int.from_bytes(sent.tag[5:11], "big"), ""))
        topic = "" if publisher is None else publisher.record.topic
        span = self._begin(Kind.FORWARD, topic, context.trace_id, context.span_id, now_ns)
        if span is None:
            return
        span.attributes |= {
            "messaging.destination.subscription.name": subscriber.name,
            "oncewire.tag": sent.tag.hex(),
            "oncewire.redelivered": sent.redelivered,
        }
        if sent.settled:
            self._end(span, now_ns)  # c.3: at most once, no answer comes
        else:
            link.by_tag[sent.tag] = span

    def _on_answer(self, answer: inputs.SubscriberDisposition, now_ns: int) -> None:
        link = self._links.get(answer.link)
        if link is None:
            return
        for tag in answer.tags:
            span = link.by_tag.get(tag)
            if span is None or span.kind is not Kind.FORWARD:
                continue
            del link.by_tag[tag]
            span.attributes["oncewire.outcome"] = "released" if answer.outcome is None else answer.outcome.value
            self._end(span, now_ns)
            if not answer.settled and (answer.outcome is None or answer.outcome.is_done):
                self._begin_settle(link, tag, span, now_ns)

    # ------------------------------------------------------------------ both

    def _begin_settle(self, link: _Link, tag: bytes, after: Span, now_ns: int) -> None:
        context = after.context
        span = self._begin(Kind.SETTLE, after.topic, context.trace_id, context.span_id, now_ns)
        if span is not None:
            span.attributes["oncewire.tag"] = after.attributes["oncewire.tag"]
            link.by_tag[tag] = span

    def _end_settled(self, number: int, tags: Sequence[bytes], now_ns: int, failure: str = "") -> None:
        link = self._links.get(number)
        if link is None or not link.by_tag:
            return
        for tag in tags:
            span = link.by_tag.pop(tag, None)
            if span is None:
                continue
            span.failure = failure
            if span.kind is Kind.ACCEPT:
                del link.by_id[span.delivery_id]
                span.failure = failure or GIVEN_UP
            self._end(span, now_ns)

    def _end_link(self, number: int, now_ns: int, failure: str) -> None:
        link = self._links.pop(number, None)
        if link is None:
            return
        for span in link.by_tag.values():
            span.failure = failure
            self._end(span, now_ns)

    def _link(self, number: int) -> _Link:
        found = self._links.get(number)
        if found is None:
            found = self._links[number] = _Link()
        return found

    def _begin(self, kind: Kind, topic: str, trace_id: int, parent_id: int, now_ns: int) -> Span | None:
        if self._open >= OPEN_SPANS:
            self.not_begun += 1
            return None
        self._open += 1
        context = TraceContext(trace_id, self._new_id(64) or 1, True)
        return Span(kind, topic, context, parent_id, now_ns)

    def _end(self, span: Span, now_ns: int) -> None:
        self._open -= 1
        span.end_ns = now_ns
        self._finish(span)
