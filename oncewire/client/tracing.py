"""Spans of OpenTelemetry around what an application sends and processes, and the trace context in its messages.

The context is W3C's, as its draft for AMQP has it: a publisher writes `traceparent` and `tracestate` into the
application properties; routers that export spans write the annotation of that name; a reader looks at the annotation
first. Names and attributes are those of OpenTelemetry's semantic conventions for messaging. Nothing else imports this
file: an application that makes no spans needs no package for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from oncewire.client.errors import UsageError
from oncewire.wire import Message, WireError

try:
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as error:
    raise UsageError(
        "no spans can be made", f"OpenTelemetry cannot be loaded ({error})", "run pip install opentelemetry-api"
    ) from error

if TYPE_CHECKING:
    from opentelemetry.trace import Span, TracerProvider

SYSTEM = "oncewire"
NAME = "oncewire.client"
"""Of the instrumentation."""
KEYS = ("traceparent", "tracestate")
_PROPAGATOR: Any = TraceContextTextMapPropagator()
Result = TypeVar("Result")


class Traced(Protocol):
    """A delivery, or a message that a consumer processes."""

    @property
    def message(self) -> Message:
        """The decoded message."""


def context() -> dict[str, object]:
    """The application properties that carry the current span's context; empty outside of a span.

    For what is sent without a span of its own, such as `tx.publish(topic, body, application_properties=context())`.
    """
    carried: dict[str, object] = {}
    _PROPAGATOR.inject(carried)
    return carried


@contextmanager
def sending(
    topic: str, application_properties: dict[str, object] | None = None, *, provider: TracerProvider | None = None
) -> Iterator[dict[str, object]]:
    """A span of the kind *producer* around a send. Its context is in the application properties that this yields.

    ``with sending("orders") as properties: await publisher.send(body, application_properties=properties)``: the span
    lasts until every subscription has processed the message, and fails with what `send` raises.

    Args:
        topic: where the message goes.
        application_properties: further ones of the message.
        provider: of tracers; None = the one that the program has set.
    """
    with _span("send", topic, trace.SpanKind.PRODUCER, None, provider):
        yield {**(application_properties or {}), **context()}


@contextmanager
def processing(received: Traced, topic: str = "", *, provider: TracerProvider | None = None) -> Iterator[Span]:
    """A span of the kind *consumer* around the processing of a message, in the trace that the message carries.

    Args:
        received: a delivery, a consumer's message, or the delivery of a request.
        topic: for the span's name; empty = that of a consumer's message, and of a delivery from a journal.
        provider: as of `sending`.

    Yields:
        the span, for attributes of the application. An exception that leaves the block is its error.
    """
    parent = _PROPAGATOR.extract(_carried(received))
    topic = topic or str(getattr(received, "topic", None) or "")
    with _span("process", topic, trace.SpanKind.CONSUMER, parent, provider) as span:
        tag = getattr(received, "tag", None)
        if isinstance(tag, bytes):
            span.set_attribute("messaging.message.id", tag.hex())
        yield span


def traced(
    process: Callable[[Any, Any], Result], *, provider: TracerProvider | None = None
) -> Callable[[Any, Any], Result]:
    """A consumer's function with a span around each call: ``await consumer.run(traced(process))``."""

    @wraps(process)
    def with_span(tx: Any, message: Any) -> Result:
        with processing(message, provider=provider):
            return process(tx, message)

    return with_span


@contextmanager
def _span(operation: str, topic: str, kind: Any, parent: Any, provider: TracerProvider | None) -> Iterator[Span]:
    attributes = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
    }
    if topic:
        attributes["messaging.destination.name"] = topic
    tracer = trace.get_tracer(NAME, tracer_provider=provider)
    name = f"{operation} {topic}".strip()
    with tracer.start_as_current_span(
        name, parent, kind=kind, attributes=attributes, set_status_on_exception=True
    ) as span:
        try:
            yield span
        except BaseException as error:
            span.set_attribute("error.type", type(error).__qualname__)
            raise


def _carried(received: Traced) -> dict[str, str]:
    """What the message says of its trace; nothing where it cannot be read."""
    try:
        message = received.message
    except WireError:
        return {}
    annotated = {str(key): value for key, value in message.annotations.items()}
    stated = {**message.application_properties, **annotated}
    return {key: value for key in KEYS if isinstance(value := stated.get(key), str)}
