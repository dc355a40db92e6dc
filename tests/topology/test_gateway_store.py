"""What only the gateway store can meet: several members, logins, TLS, fragments, strangers at the address."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest
from aiohttp import web

from tests.support.stores import (
    DEADLINE_S,
    QUICK_TIMEOUT_S,
    eventually,
    in_base64,
    next_batch,
    post,
    watch_events,
)
from topology.etcd_server import EtcdCluster, EtcdServer, free_port
from topology.gateway_codec import (
    ErrorClass,
    GatewayFormatError,
    classify_error,
    integer,
    parse_error,
    parse_object,
)
from topology.gateway_http import GatewayOptions
from topology.gateway_store import GatewayStore
from topology.store import (
    ABSENT,
    UNCONDITIONAL,
    EventKind,
    StoreAuthError,
    StoreError,
    StoreRejected,
    StoreReplaced,
    StoreTimeout,
    StoreUnavailable,
)

QUICK = GatewayOptions(call_timeout_s=2.0, connect_timeout_s=QUICK_TIMEOUT_S, watch_silence_s=QUICK_TIMEOUT_S)


@pytest.fixture
async def three() -> AsyncIterator[EtcdCluster]:
    async with EtcdCluster(3) as cluster:
        yield cluster


# --- several members


async def put_until_applied(store: GatewayStore, key: str, value: bytes) -> None:
    async def applied() -> bool:
        try:
            await store.compare_and_put(key, value, UNCONDITIONAL)
        except (StoreTimeout, StoreUnavailable):
            return False
        return True

    await eventually(applied, f"{key} is written")


async def test_calls_and_watch_go_on_at_another_member_when_theirs_is_killed(three: EtcdCluster) -> None:
    store, writer = GatewayStore(three.urls, QUICK), GatewayStore(three.urls, QUICK)
    revision, _ = await store.snapshot("/t/")
    async with aclosing(store.watch("/t/", revision + 1)) as batches:
        await writer.compare_and_put("/t/0", b"", ABSENT)
        assert [event.key for event in (await next_batch(batches)).events] == ["/t/0"]
        await three.members[0].kill()
        for number in range(1, 6):
            await put_until_applied(writer, f"/t/{number}", b"")
        seen: list[str] = []
        while "/t/5" not in seen:
            seen += [event.key for event in (await next_batch(batches)).events]
    # A write of unknown fate may have been applied, and so appear twice; none may be missing.
    assert list(dict.fromkeys(seen)) == [f"/t/{number}" for number in range(1, 6)]
    await store.close()
    await writer.close()


async def test_a_member_that_stands_still_is_left_for_another(three: EtcdCluster) -> None:
    store, writer = GatewayStore(three.urls, QUICK), GatewayStore(three.urls[1:], QUICK)
    lease = await store.grant_lease(60)
    revision, _ = await store.snapshot("/t/")
    async with aclosing(store.watch("/t/", revision + 1)) as batches:
        await writer.compare_and_put("/t/0", b"", ABSENT)
        await next_batch(batches)
        # Its connections stay open: only its silence tells.
        three.members[0].pause()
        await put_until_applied(writer, "/t/1", b"")
        assert (await next_batch(batches)).events[0].key == "/t/1"
    # Reads and keep-alives are asked elsewhere within one call.
    assert await store.keep_alive(lease) > 0
    three.members[0].resume()
    await store.close()
    await writer.close()


async def test_a_member_without_a_quorum_says_so_instead_of_falling_silent(three: EtcdCluster) -> None:
    store = GatewayStore(three.urls, QUICK)
    revision, _ = await store.snapshot("/t/")
    for member in three.members[1:]:
        await member.kill()
    with pytest.raises((StoreTimeout, StoreUnavailable)):
        await store.compare_and_put("/t/a", b"", ABSENT)
    with pytest.raises(StoreUnavailable):
        await store.get("/t/a")
    await asyncio.gather(*(member.restart() for member in three.members[1:]))
    await put_until_applied(store, "/t/b", b"")
    events = await watch_events(store, "/t/", revision + 1, 1)
    assert events[0].key in ("/t/a", "/t/b")
    await store.close()


async def test_a_watch_leaves_a_member_that_has_lost_its_leader(three: EtcdCluster) -> None:
    called = asyncio.Event()

    async def note(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        called.set()
        writer.close()
        await writer.wait_closed()

    other = await asyncio.start_server(note, "127.0.0.1", 0)
    port = other.sockets[0].getsockname()[1]
    store = GatewayStore([*three.members[0].urls, f"http://127.0.0.1:{port}"], GatewayOptions())
    put = await store.compare_and_put("/t/a", b"", ABSENT)
    async with aclosing(store.watch("/t/", put.revision)) as batches:
        await next_batch(batches)
        for member in three.members[1:]:
            member.pause()
        # It serves watches on, alone, and nothing would ever come: what tells is its answer `no leader`.
        going_on = asyncio.create_task(anext(batches))
        async with asyncio.timeout(DEADLINE_S):
            await called.wait()
        going_on.cancel()
        await asyncio.gather(going_on, return_exceptions=True)
    await store.close()
    other.close()


async def test_a_dead_address_costs_little_when_another_works(etcd: EtcdServer) -> None:
    dead = f"http://127.0.0.1:{free_port()}"
    store = GatewayStore([dead, *etcd.urls], QUICK)
    assert (await store.compare_and_put("/dead/a", b"", UNCONDITIONAL)).succeeded
    await store.close()


async def test_endpoints_of_two_clusters_are_noticed(etcd: EtcdServer) -> None:
    async with EtcdServer() as other:
        store = GatewayStore([*other.urls, *etcd.urls], QUICK)
        await store.get("/a")
        await other.kill()
        with pytest.raises(StoreReplaced, match="cluster"):
            await store.get("/a")
        await store.close()


async def test_an_etcd_whose_revisions_went_back_is_noticed() -> None:
    port = free_port()
    async with EtcdServer(name="one", members={"one": port}) as etcd:
        store = GatewayStore(etcd.urls, QUICK)
        for _ in range(5):
            await store.compare_and_put("/a", b"", UNCONDITIONAL)
        await etcd.kill()
        shutil.rmtree(etcd.data_folder)
        await etcd.restart()
        with pytest.raises(StoreReplaced, match="backup"):
            await store.get("/a")
        await store.close()


# --- login and TLS


async def enable_login(url: str) -> None:
    for name, role in (("root", "root"), ("router", "topics"), ("guest", "")):
        await post(url, "auth/user/add", {"name": name, "password": f"{name}-password"})
        if role:
            await post(url, "auth/role/add", {"name": role})
            await post(url, "auth/user/grant", {"user": name, "role": role})
    allowed = {"permType": "READWRITE", "key": in_base64("/t/"), "range_end": in_base64("/t0")}
    await post(url, "auth/role/grant", {"name": "topics", "perm": allowed})
    await post(url, "auth/enable", {})


def login(user: str, password: str = "") -> GatewayOptions:
    return GatewayOptions(user=user, password=password or f"{user}-password", watch_silence_s=QUICK_TIMEOUT_S)


async def test_a_login_is_renewed_when_its_token_ends_for_calls_and_watch() -> None:
    async with EtcdServer(arguments=["--auth-token-ttl=1"]) as etcd:
        await enable_login(etcd.urls[0])
        store, writer = (GatewayStore(etcd.urls, login("router")) for _ in range(2))
        revision, _ = await store.snapshot("/t/")
        async with aclosing(store.watch("/t/", revision + 1)) as batches:
            for number in range(4):
                await writer.compare_and_put("/t/a", str(number).encode(), UNCONDITIONAL)
                assert (await next_batch(batches)).events[0].value == str(number).encode()
                await asyncio.sleep(0.8)
            # All tokens are forgotten when etcd restarts.
            await etcd.restart()
            await writer.compare_and_put("/t/a", b"after", UNCONDITIONAL)
            assert (await next_batch(batches)).events[0].value == b"after"
        lease = await writer.grant_lease(60)
        assert await store.keep_alive(lease) > 0
        await store.close()
        await writer.close()


async def test_a_wrong_password_a_missing_login_and_a_missing_permission_are_told_as_such() -> None:
    async with EtcdServer() as etcd:
        await enable_login(etcd.urls[0])
        for options, words in (
            (login("router", "wrong"), "does not accept user 'router'"),
            (GatewayOptions(), "wants a login"),
            (login("guest"), "permission denied"),
        ):
            store = GatewayStore(etcd.urls, options)
            with pytest.raises(StoreAuthError, match=words):
                await store.compare_and_put("/t/a", b"", UNCONDITIONAL)
            with pytest.raises(StoreAuthError, match=words):
                await store.get("/t/a")
            async with aclosing(store.watch("/t/", 1)) as batches:
                with pytest.raises(StoreAuthError, match=words):
                    await next_batch(batches)
            await store.close()


async def test_tls_works_with_a_trusted_certificate_and_an_untrusted_one_is_not_spoken_to() -> None:
    async with EtcdServer(arguments=["--auto-tls"]) as etcd:
        (certificate,) = etcd.data_folder.glob("fixtures/client/cert.pem")
        trusting = ssl.create_default_context(cafile=str(certificate))
        store = GatewayStore(etcd.urls, GatewayOptions(tls=trusting))
        put = await store.compare_and_put("/t/a", b"", ABSENT)
        assert (await watch_events(store, "/t/", put.revision, 1))[0].kind is EventKind.PUT
        await store.close()
        stranger = GatewayStore(etcd.urls, GatewayOptions())
        with pytest.raises(StoreUnavailable, match="certificate"):
            await stranger.get("/t/a")
        await stranger.close()


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


async def test_a_peer_that_takes_connections_and_says_nothing_costs_one_time_out() -> None:
    connections: set[asyncio.StreamWriter] = set()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.add(writer)
        while await reader.read(1000):
            pass
        writer.close()
        await writer.wait_closed()
        connections.remove(writer)

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    store = GatewayStore([f"http://127.0.0.1:{port}"], GatewayOptions(call_timeout_s=0.2))
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(StoreTimeout):
            await store.compare_and_put("/a", b"", ABSENT)
        with pytest.raises(StoreUnavailable):
            await store.get("/a")
    await store.close()
    await eventually(lambda: not connections, "the client has hung up")
    server.close()


@pytest.mark.parametrize(
    "endpoint", ["", "127.0.0.1:2379", "ftp://127.0.0.1", "http://", "http://[::1", "http://h:x"]
)
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
