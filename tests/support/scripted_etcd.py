"""Endpoints that answer watches as an etcd with a known fault did: etcd's JSON gateway over HTTP, and its gRPC.

For faults of etcd that no test can provoke in a real one. The stores under test are our own, unchanged.
"""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from tests.support.stores import in_base64
from topology.etcd.etcd3_rpc import load_packages

CLUSTER_ID = 1
"""Of all answers."""


@dataclass(frozen=True, slots=True)
class Watch:
    """What one connection of a watch gets: the member's revision, and puts by revision, a list for each answer."""

    revision: int
    answers: Sequence[Sequence[int]]
    ends: bool = False
    """It breaks behind the last answer."""


@dataclass(slots=True)
class Script:
    """The watches in the order in which they are opened, and the revision that linearizable reads return."""

    watches: list[Watch]
    """Those that are not opened yet."""
    revision: int


def key_of(revision: int) -> str:
    """The key that is put at a revision."""
    return f"/t/{revision}"


@asynccontextmanager
async def scripted_gateway(script: Script) -> AsyncIterator[str]:
    """The URL of an endpoint that speaks as etcd's JSON gateway."""

    def header(revision: int) -> dict[str, str]:
        return {"cluster_id": str(CLUSTER_ID), "revision": str(revision)}

    async def read(_request: web.Request) -> web.Response:
        return web.json_response({"header": header(script.revision)})

    async def watch(request: web.Request) -> web.StreamResponse:
        asked, response = script.watches.pop(0), web.StreamResponse()
        await response.prepare(request)

        async def line(fields: dict[str, object]) -> None:
            await response.write(json.dumps({"result": fields}).encode() + b"\n")

        await line({"header": header(asked.revision), "created": True})
        for revisions in asked.answers:
            events = [
                {"kv": {"key": in_base64(key_of(each)), "create_revision": str(each), "mod_revision": str(each)}}
                for each in revisions
            ]
            await line({"header": header(revisions[-1]), "events": events})
        if not asked.ends:
            await request.content.read()  # until the client leaves
        return response

    app = web.Application()
    app.router.add_post("/v3/kv/range", read)
    app.router.add_post("/v3/watch", watch)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield site.name
    finally:
        await runner.cleanup()


@asynccontextmanager
async def scripted_grpc(script: Script) -> AsyncIterator[str]:
    """The URL of an endpoint that speaks as etcd's gRPC."""
    packages = load_packages()
    grpc, rpc = packages.grpc, packages.rpc
    is_over = threading.Event()

    def header(revision: int) -> Any:
        return rpc.ResponseHeader(cluster_id=CLUSTER_ID, revision=revision)

    def read(_request: Any, _context: Any) -> Any:
        return rpc.RangeResponse(header=header(script.revision))

    def watch(_requests: Any, context: Any) -> Iterator[Any]:
        asked, is_left = script.watches.pop(0), threading.Event()
        context.add_callback(is_left.set)
        yield rpc.WatchResponse(header=header(asked.revision), created=True)
        for revisions in asked.answers:
            answer = rpc.WatchResponse(header=header(revisions[-1]))
            for each in revisions:
                put = answer.events.add().kv
                put.key, put.create_revision, put.mod_revision = key_of(each).encode(), each, each
            yield answer
        while not asked.ends and not is_left.wait(0.05) and not is_over.is_set():
            pass

    def handlers(name: str, handler: Any) -> Any:
        return grpc.method_handlers_generic_handler(f"etcdserverpb.{name}", handler)

    server = grpc.server(ThreadPoolExecutor(max_workers=4))
    reads = grpc.unary_unary_rpc_method_handler(read, rpc.RangeRequest.FromString, rpc.RangeResponse.SerializeToString)
    watches = grpc.stream_stream_rpc_method_handler(
        watch, rpc.WatchRequest.FromString, rpc.WatchResponse.SerializeToString
    )
    server.add_generic_rpc_handlers((handlers("KV", {"Range": reads}), handlers("Watch", {"Watch": watches})))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        is_over.set()
        server.stop(None).wait()
