"""Metrics of the store of work queues that a router shows: what waits in its outbox, and whether the store can be read.

A scrape never waits long for the store: one reading at a time goes on behind it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from topology.inspector.queues import QueueReader
from topology.inspector.rows_core import Row

SCRAPE_S = 2.0
"""How long a scrape waits for the store; Prometheus gives up after ten seconds."""


class QueueMetrics:
    """Metrics for the HTTP server.

    Args:
        reader: the store; None = the router shows none, and there are no samples.
    """

    def __init__(self, reader: QueueReader | None) -> None:
        self._reader = reader
        self._reading: asyncio.Task[list[Row]] | None = None

    async def text(self) -> bytes:
        """The metrics in the Prometheus text format."""
        registry = CollectorRegistry()
        registry.register(_Collector(self._reader is not None, await self._read()))
        return generate_latest(registry)

    async def _read(self) -> list[Row] | None:
        """The topics of the outbox; None = the store cannot be read, or not now."""
        if self._reader is None:
            return None
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._reader.outbox())
        reading = self._reading
        await asyncio.wait([reading], timeout=SCRAPE_S)
        failed = not reading.done() or reading.cancelled() or reading.exception() is not None
        return None if failed else reading.result()

    async def close(self) -> None:
        """End the reading that goes on."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])


class _Collector(Collector):
    def __init__(self, has_store: bool, topics: Sequence[Row] | None) -> None:
        self._has_store = has_store
        self._topics = topics

    def collect(self) -> Iterator[Metric]:
        readable = GaugeMetricFamily("oncewire_queue_store_readable", "1: the store of work queues can be read")
        unsent = GaugeMetricFamily("oncewire_outbox_messages", "Messages in its outbox that wait to be published")
        oldest = GaugeMetricFamily("oncewire_outbox_oldest_seconds", "How long the first of them has waited")
        ended = GaugeMetricFamily(
            "oncewire_outbox_unpublished_messages", "Messages in its outbox that ended otherwise than accepted"
        )
        if self._has_store:
            readable.add_metric([], self._topics is not None)
        if self._topics is not None:
            unsent.add_metric([], sum(self._values("unsent")))
            oldest.add_metric([], max(self._values("oldest_s"), default=0.0))
            ended.add_metric([], sum(self._values("unpublished")))
        yield from (readable, unsent, oldest, ended)

    def _values(self, name: str) -> list[float]:
        found = [topic[name] for topic in self._topics or ()]
        return [value for value in found if isinstance(value, int | float)]
