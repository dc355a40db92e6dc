"""An OpenTelemetry collector for tests: takes spans over HTTP as protobuf; on request it fails or is slow."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from topology.etcd.etcd3_rpc import Etcd3Missing, load_packages

with suppress(Etcd3Missing):
    load_packages()  # first, as in a router: it cannot use a protobuf that others have loaded in their way

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

WAIT_S = 60.0


@dataclass(slots=True)
class Collected:
    """One span as it came."""

    router: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    start_ns: int
    end_ns: int
    kind: int
    is_error: bool
    attributes: dict[str, Any]


@dataclass
class Collector:
    """What has come so far."""

    url: str = ""
    spans: list[Collected] = field(default_factory=list)
    requests: int = 0
    refuse_with: int = 0
    """An HTTP status to answer with instead of taking spans; 0 = take them."""
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait_for(self, done: Callable[[list[Collected]], bool]) -> list[Collected]:
        """Wait until what has come satisfies `done`."""
        async with asyncio.timeout(WAIT_S):
            while not done(self.spans):
                self.news.clear()
                await self.news.wait()
        return self.spans

    async def handle(self, request: web.Request) -> web.Response:
        """POST /v1/traces."""
        body = await request.read()
        if request.headers.get("Content-Encoding") == "gzip" and body[:2] == b"\x1f\x8b":
            body = gzip.decompress(body)
        self.requests += 1
        self.news.set()
        if self.refuse_with:
            return web.Response(status=self.refuse_with)
        message = ExportTraceServiceRequest.FromString(body)
        for resource in message.resource_spans:
            reported = {item.key: item.value.string_value for item in resource.resource.attributes}
            assert reported["service.name"] == "oncewire-router"
            for scope in resource.scope_spans:
                self.spans += [_collected(reported["service.instance.id"], span) for span in scope.spans]
        return web.Response(
            body=ExportTraceServiceResponse().SerializeToString(), content_type="application/x-protobuf"
        )


def _collected(router: str, span: Any) -> Collected:
    attributes = {item.key: getattr(item.value, item.value.WhichOneof("value")) for item in span.attributes}
    return Collected(
        router,
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        span.kind,
        span.status.code == 2,
        attributes,
    )


@asynccontextmanager
async def running_collector() -> AsyncIterator[Collector]:
    """A collector on a free port of this machine."""
    collector = Collector()
    app = web.Application(client_max_size=1 << 26)
    app.router.add_post("/v1/traces", collector.handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    collector.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield collector
    finally:
        await runner.cleanup()
