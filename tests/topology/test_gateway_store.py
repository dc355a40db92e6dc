"""What only the gateway store can meet: fragments, strangers at the address, the words of etcd's JSON."""

from __future__ import annotations

from contextlib import aclosing

import pytest
from aiohttp import web

from tests.support.stores import QUICK_TIMEOUT_S, next_batch
from topology.etcd.gateway_codec import (
    ErrorClass,
    GatewayFormatError,
    classify_error,
    integer,
    parse_error,
    parse_object,
)
from topology.etcd.gateway_http import GatewayOptions
from topology.etcd.gateway_store import GatewayStore
from topology.etcd.server import EtcdServer
from topology.etcd.store import (
    ABSENT,
    StoreAuthError,
    StoreError,
    StoreRejected,
    StoreReplaced,
    StoreTimeout,
    StoreUnavailable,
    Write,
)

QUICK = GatewayOptions(call_timeout_s=2.0, connect_timeout_s=QUICK_TIMEOUT_S, watch_silence_s=QUICK_TIMEOUT_S)


# --- the wire


async def test_a_revision_that_etcd_sends_in_fragments_arrives_as_one_batch() -> None:
    # etcd cuts responses at this limit plus 512 KiB: 500 deletions of long keys are more than that.
    async with EtcdServer(arguments=["--max-request-bytes=10000"]) as etcd:
        store = GatewayStore(etcd.urls, QUICK)
        lease = await store.grant_lease(60)
        keys = [f"/t/{number:04}/{'x' * 1500}" for number in range(500)]
        for key in keys:
            last = await store.compare_and_put(key, b"", ABSENT, lease)
        await store.revoke(lease)
        async with aclosing(store.watch("/t/", last.revision + 1)) as batches:
            batch = await next_batch(batches)
        assert sorted(event.key for event in batch.events) == keys
        assert {event.mod_revision for event in batch.events} == {last.revision + 1}
        await store.close()


async def test_what_is_not_etcd_is_named(unused_tcp_port: int) -> None:
    app = web.Application()

    async def page(_request: web.Request) -> web.Response:
        return web.Response(text="<html>hello</html>")

    app.router.add_route("*", "/v3/kv/range", page)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", unused_tcp_port).start()
    store = GatewayStore([f"http://127.0.0.1:{unused_tcp_port}"], QUICK)
    for call in (lambda: store.get("/a"), lambda: store.compare_and_put("/a", b"", ABSENT)):
        with pytest.raises(StoreRejected, match="not etcd's gateway"):
            await call()
    async with aclosing(store.watch("/t/", 1)) as batches:
        with pytest.raises(StoreRejected, match="not etcd's gateway"):
            await next_batch(batches)
    await store.close()
    await runner.cleanup()


@pytest.mark.parametrize("answers", [[], [{"response_put": {}}] * 2, [{"response_txn": {"succeeded": True}}]])
async def test_a_transaction_whose_answer_does_not_say_what_was_done_is_of_unknown_fate(
    unused_tcp_port: int, answers: list[object]
) -> None:
    app = web.Application()

    async def answer(_request: web.Request) -> web.Response:
        header = {"cluster_id": "1", "revision": "5"}
        return web.json_response({"header": header, "succeeded": True, "responses": answers})

    app.router.add_route("*", "/v3/kv/txn", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", unused_tcp_port).start()
    store = GatewayStore([f"http://127.0.0.1:{unused_tcp_port}"], QUICK)
    try:
        with pytest.raises(StoreTimeout):
            await store.write_each([Write("/t/a", b"", ABSENT), Write("/t/b", b"", ABSENT)])
        with pytest.raises(StoreUnavailable):
            await store.get_each(["/t/a", "/t/b"])
    finally:
        await store.close()
        await runner.cleanup()


@pytest.mark.parametrize("endpoint", ["", "127.0.0.1:2379", "ftp://127.0.0.1", "http://", "http://[::1", "http://h:x"])
def test_a_wrong_endpoint_is_named(endpoint: str) -> None:
    with pytest.raises(ValueError, match="is not an etcd endpoint"):
        GatewayStore(["http://127.0.0.1:2379", endpoint])


def test_at_least_one_endpoint_is_needed() -> None:
    with pytest.raises(ValueError, match="no etcd endpoint"):
        GatewayStore([])


@pytest.mark.parametrize(
    ("code", "text", "meaning"),
    [
        (16, "etcdserver: invalid auth token", ErrorClass.LOGIN),
        (3, "etcdserver: user name is empty", ErrorClass.LOGIN),
        (3, "etcdserver: authentication failed, invalid user ID or password", ErrorClass.AUTH),
        (7, "etcdserver: permission denied", ErrorClass.AUTH),
        (5, "etcdserver: requested lease not found", ErrorClass.LEASE),
        (14, "etcdserver: no leader", ErrorClass.NOT_APPLIED),
        (8, "etcdserver: too many requests", ErrorClass.NOT_APPLIED),
        (8, "etcdserver: mvcc: database space exceeded", ErrorClass.FULL),
        (14, "etcdserver: request timed out", ErrorClass.UNKNOWN),
        (14, "etcdserver: leader changed", ErrorClass.UNKNOWN),
        (14, "transport is closing", ErrorClass.UNKNOWN),
        (13, "anything new", ErrorClass.UNKNOWN),
        (3, "etcdserver: request is too large", ErrorClass.REJECTED),
    ],
)
def test_error_answers_mean_for_a_write_what_etcd_does(code: int, text: str, meaning: ErrorClass) -> None:
    assert classify_error(code, text) is meaning


def test_numbers_may_be_text_or_left_out_and_nothing_else() -> None:
    assert integer({"a": "12"}, "a") == integer({"a": 12}, "a") == 12
    assert integer({}, "a") == 0
    for wrong in ("x", None, [1]):
        with pytest.raises(GatewayFormatError):
            integer({"a": wrong}, "a")


def test_errors_of_calls_and_of_streams_read_alike() -> None:
    flat = parse_object(b'{"error":"etcdserver: no leader","code":14,"message":"etcdserver: no leader"}')
    in_stream = parse_object(b'{"error":{"grpc_code":14,"http_code":503,"message":"etcdserver: no leader"}}')
    assert parse_error(flat) == parse_error(in_stream) == (14, "etcdserver: no leader")
    assert parse_error(parse_object(b"{}")) == (0, "no reason given")


def test_every_error_of_a_store_is_a_store_error() -> None:
    for kind in (StoreUnavailable, StoreTimeout, StoreAuthError, StoreRejected, StoreReplaced):
        assert issubclass(kind, StoreError)
