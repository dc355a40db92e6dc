"""Exports spans to an OpenTelemetry collector (OTLP over HTTP), off the event loop and with bounded memory.

The packages of the extra `otel` are imported only when `telemetry.endpoint` is set. A collector that is slow or away
costs spans, which are counted, and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from delivery_records.model import effects, inputs
from delivery_records.model.topics import split_vhost
from oncewire.cli.errors import CliError
from oncewire.settings.parsers import without_login
from router.operator.span_core import DeliverySpans, Kind, Span
from router.process.logs import EventLog, RouterEvent
from router.settings.config import RouterConfig

if TYPE_CHECKING:
    from delivery_records import Records

QUEUE_SPANS = 8192
"""Spans that wait for the collector's answer; further ones are dropped and counted. About 10 MB."""
BATCH_SPANS = 512
"""Spans of one request: some 200 kB."""
EXPORT_S = 1.0
"""How long a span waits for others to go with it."""
REQUEST_TIMEOUT_S = 5.0
"""For one request with its retries; the queue takes what comes meanwhile."""
FLUSH_S = 2.0
"""At the end of the process: for what is still queued."""
TRACES_PATH = "/v1/traces"


def telemetry_of(config: RouterConfig, version: str, log: EventLog) -> Telemetry | None:
    """What the settings ask for; None when no endpoint is set.

    Raises:
        CliError: the extra `otel` is not installed.
    """
    return Telemetry(config, version, log) if config.telemetry_endpoint else None


class Telemetry:
    """The exporter of one router process."""

    def __init__(self, config: RouterConfig, version: str, log: EventLog) -> None:
        """Load the packages; nothing is sent yet.

        Raises:
            CliError: the extra `otel` is not installed.
        """
        self.exported = 0
        self.dropped = 0
        """Spans for which the queue had no room, or that were never begun for the same reason."""
        self.failed = 0
        """Spans the collector did not take."""
        self._ratio = config.telemetry_sample_ratio
        self._log = log
        self._taken = 0
        self._is_failing = False
        self._processor: Any = None
        self._otlp = _Otlp(config.telemetry_endpoint, config.node_id, version)

    def start(self) -> None:
        """Begin to export, from a thread."""
        # The processor drops without a count what passes its own bound; ours is never above it.
        self._processor = self._otlp.batches(
            self, max_queue_size=QUEUE_SPANS, max_export_batch_size=BATCH_SPANS, schedule_delay_millis=EXPORT_S * 1000
        )

    async def stop(self) -> None:
        """Send what is queued, but not for long."""
        if self._processor is not None:
            ending = asyncio.ensure_future(asyncio.to_thread(self._processor.shutdown))
            await asyncio.wait([ending], timeout=FLUSH_S)
        self.shutdown()

    def watch(self, records: Records) -> Watch:
        """What makes the spans of one incarnation."""
        return Watch(self, records, self._ratio, self._log)

    def counts(self) -> dict[str, int]:
        """What became of spans, by name."""
        return {"exported": self.exported, "dropped": self.dropped, "failed": self.failed}

    def queue(self, span: Span) -> None:
        """Take a span that has ended."""
        if self._taken - self.exported - self.failed >= QUEUE_SPANS:
            self.dropped += 1
        else:
            self._taken += 1
            self._processor.on_end(self._otlp.readable(span))

    def export(self, batch: Sequence[Any]) -> None:
        """Send spans; called by the processor, in its thread."""
        why = self._otlp.send(batch)
        if not why:
            self.exported += len(batch)
        else:
            self.failed += len(batch)
        if bool(why) != self._is_failing:
            self._is_failing = bool(why)
            event = RouterEvent.TELEMETRY_FAILED if why else RouterEvent.TELEMETRY_BACK
            self._log.event(event, endpoint=without_login(self._otlp.url), **({"why": why} if why else {}))

    def shutdown(self) -> None:
        """Abandon a request that is being retried; called by the processor, too."""
        self._otlp.stop()


class Watch:
    """Follows one record core: what it gets, and what it decides."""

    def __init__(self, telemetry: Telemetry, records: Records, ratio: float, log: EventLog) -> None:
        """Follow `records` until `end`."""
        self._telemetry = telemetry
        self._log = log
        self._spans = DeliverySpans(records, ratio, random.getrandbits, telemetry.queue)
        self._is_broken = False

    def on_inputs(self, batch: Sequence[inputs.Input]) -> None:
        """Before the record core gets it."""
        if not self._is_broken:
            try:
                self._spans.on_inputs(batch, time.time_ns())
            except Exception as error:  # noqa: BLE001  (no span is worth a delivery)
                self._give_up(error)

    def on_effects(self, done: Sequence[effects.Effect]) -> None:
        """After it has decided."""
        if not self._is_broken:
            try:
                self._spans.on_effects(done, time.time_ns())
            except Exception as error:  # noqa: BLE001  (as above)
                self._give_up(error)

    def end(self) -> None:
        """The incarnation is over."""
        self._spans.end(time.time_ns())
        self._telemetry.dropped += self._spans.not_begun

    def _give_up(self, error: Exception) -> None:
        self._is_broken = True
        self._log.internal_error(error, "telemetry; deliveries go on without spans")


class _Otlp:
    """The packages behind the extra, in their own words."""

    def __init__(self, endpoint: str, router: str, version: str) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import ReadableSpan
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.sdk.util.instrumentation import InstrumentationScope
            from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags
        except (ImportError, TypeError) as error:
            raise CliError(
                "spans cannot be sent (telemetry.endpoint is set)",
                f"the packages of OpenTelemetry cannot be loaded: {str(error).partition(chr(10))[0]}",
                "pip install 'oncewire[otel]', or leave telemetry.endpoint empty",
            ) from None
        # It would log each request that fails; one event reports that.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        self.url = endpoint.rstrip("/") + TRACES_PATH
        self._exporter = OTLPSpanExporter(endpoint=self.url, timeout=REQUEST_TIMEOUT_S)
        self._resource = Resource.create(
            {"service.name": "oncewire-router", "service.instance.id": router, "service.version": version}
        )
        self._scope = InstrumentationScope("oncewire", version)
        self._flags = TraceFlags(TraceFlags.SAMPLED)
        self._kinds = {Kind.ACCEPT: SpanKind.CONSUMER, Kind.FORWARD: SpanKind.PRODUCER, Kind.SETTLE: SpanKind.INTERNAL}
        self.batches = BatchSpanProcessor
        self._span, self._context = ReadableSpan, SpanContext
        self._status, self._error = Status, StatusCode.ERROR

    def send(self, batch: Sequence[Any]) -> str:
        """Send spans, in the thread; returns why they were not taken, or nothing."""
        try:
            result = self._exporter.export(batch)
        except Exception as error:  # noqa: BLE001  (whatever a package of others raises, spans are all it costs)
            return f"{type(error).__name__}: {error}"
        return "" if result.name == "SUCCESS" else "the collector did not take them, or does not answer"

    def stop(self) -> None:
        """Abandon a request that is being retried."""
        self._exporter.shutdown()

    def readable(self, span: Span) -> Any:
        """The span in the packages' form."""
        context = span.context
        vhost, topic = split_vhost(span.topic)
        parent = None
        if span.parent_id:
            parent = self._context(context.trace_id, span.parent_id, is_remote=True, trace_flags=self._flags)
        return self._span(
            name=f"{span.kind.value} {topic}".rstrip(),
            context=self._context(context.trace_id, context.span_id, is_remote=False, trace_flags=self._flags),
            parent=parent,
            resource=self._resource,
            attributes={
                "messaging.system": "oncewire",
                "messaging.operation.name": span.kind.value,
                "messaging.destination.name": topic,
                **({"oncewire.vhost": vhost} if vhost else {}),
                **span.attributes,
            },
            kind=self._kinds[span.kind],
            status=self._status(self._error, span.failure) if span.failure else self._status(),
            start_time=span.start_ns,
            end_time=span.end_ns,
            instrumentation_scope=self._scope,
        )
