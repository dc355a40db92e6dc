"""AMQP over WebSocket at real routers: it is one more transport, and whoever misuses it harms nobody."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar, cast
from urllib.parse import urlsplit

import aiohttp
import pytest
from aiohttp import ClientWebSocketResponse, WSCloseCode, WSMsgType

from oncewire.client import ClientEvent, Disconnected, connect
from oncewire.transport.engine_protocol import EngineProtocol
from oncewire.transport.websocket import open_websocket
from oncewire.wire import Connection, ConnectionClosed, ConnectionOpened, Event, Open, Role, SaslClient, SaslOutcome
from oncewire.wire.frames import encode_frame
from oncewire.wire.performative_codec import encode_performative
from oncewire.wire.vocabulary import FAILOVER_LIST
from router.commands.local_network import LocalNetwork
from tests.router.abusers import AMQP_HEADER
from tests.router.honest_pair import others_lose_nothing
from tests.router.management_calls import call, entity, login
from tests.router.processes import RouterProcess, run_to_end, running_router
from tests.router.raw_client import RawClient, until
from tests.router.test_tls import cause_of, one_message, standalone, tls_settings
from tests.support.certificates import TestAuthority, replace_file
from tests.support.commands import run

E = TypeVar("E", bound=Event)
DEADLINE_S = 40.0
MAX_FRAME = 4096
MIB = 1 << 20
ON = "--http-websocket=true"
AMQP = {"Sec-WebSocket-Protocol": "amqp"}


def websocket_url(http: str) -> str:
    return http.replace("http", "ws", 1) + "/amqp"


pytestmark = pytest.mark.router(ON, f"--limits-max-frame-size={MAX_FRAME}")


@pytest.fixture
def authority(tmp_path: Path) -> TestAuthority:
    return TestAuthority(tmp_path / "pki")


@asynccontextmanager
async def raw_websocket(router: RouterProcess, **headers: str) -> AsyncIterator[ClientWebSocketResponse]:
    """A WebSocket without AMQP on it."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with (
        asyncio.timeout(DEADLINE_S),
        aiohttp.ClientSession() as session,
        session.ws_connect(websocket_url(router.http), protocols=("amqp",), headers=named, autoping=False) as websocket,
    ):
        yield websocket


async def dial(http: str, sasl: SaslClient | None = None, *, max_frame_size: int = 1 << 20) -> RawClient:
    """A client that has said open, by WebSocket."""
    client = RawClient("by-websocket", sasl or SaslClient("ANONYMOUS"), max_frame_size, None)
    await open_websocket(cast("EngineProtocol", client), websocket_url(http), DEADLINE_S, None)
    client.engine.open()
    client.flush()
    return client


async def heard(websocket: ClientWebSocketResponse, kind: type[E], engine: Connection, *, at_once: int = 4096) -> E:
    """What the router says first of that kind; our engine's bytes go out in messages with so many of them."""
    while True:
        data = engine.data_to_send()
        for at in range(0, len(data), at_once):
            await websocket.send_bytes(b"")
            await websocket.send_bytes(data[at : at + at_once])
        for event in engine.events():
            if isinstance(event, kind):
                return event
        message = await websocket.receive()
        assert message.type is WSMsgType.BINARY, message
        engine.receive_data(message.data, 0.0)


def masked(opcode: int, payload: bytes, *, final: bool = True, total: int | None = None) -> bytes:
    """A frame of a client, of which so many bytes have come of `total`."""
    length = len(payload) if total is None else total
    header = bytes((opcode | 0x80 * final, 0x80 | 127)) + length.to_bytes(8)
    return header + b"\0\0\0\0" + payload


async def raw_handshake(router: RouterProcess) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection on which a WebSocket for AMQP was agreed, for whatever bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(router.http).port)
    writer.write(
        b"GET /amqp HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
        b"Sec-WebSocket-Protocol: amqp\r\n\r\n"
    )
    answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), DEADLINE_S)
    assert answer.startswith(b"HTTP/1.1 101 "), answer
    return reader, writer


def anonymous_client() -> Connection:
    engine = Connection(Role.CLIENT, container_id="raw", sasl=SaslClient("ANONYMOUS"), now=0.0)
    engine.open()
    return engine


async def status_of(router: RouterProcess, headers: dict[str, str], path: str = "/amqp") -> tuple[int, str]:
    """What a handshake with these headers is answered, and the hint."""
    given = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
        **headers,
    }
    async with aiohttp.ClientSession() as session, session.get(router.http + path, headers=given) as answer:
        return answer.status, "" if answer.status == 101 else str((await answer.json())["fix"])


# --- one more transport -----------------------------------------------------------------------------------------------


async def test_a_message_is_accepted_between_clients_by_websocket_and_by_tcp(router: RouterProcess) -> None:
    url = websocket_url(router.http)
    async with connect(url) as here, connect(router.url) as there:
        for publishing, subscribing in ((here, there), (there, here), (here, here)):
            subscriber = await subscribing.subscriber("orders")
            publisher = await publishing.publisher("orders")
            body = bytes(range(256)) * 2000  # more than one message of a WebSocket can have, at both ends
            sending = asyncio.ensure_future(publisher.send(body, timeout=DEADLINE_S))
            delivery = await asyncio.wait_for(anext(subscriber), DEADLINE_S)
            assert delivery.body == body
            await delivery.accept()
            await sending
            await subscriber.unsubscribe()
            await publisher.close()
        _, found = await router.get("/api/v1/management/connection")
        assert len(found["items"]) == 2


async def test_an_amqp_frame_may_be_spread_over_messages(router: RouterProcess) -> None:
    async with raw_websocket(router) as websocket:
        await heard(websocket, ConnectionOpened, anonymous_client(), at_once=1)


@pytest.mark.slow
async def test_users_log_in_with_sasl_and_not_over_http() -> None:
    users = ("--listen-allow-anonymous=never", "--users=ann:secret", "--http-loopback-role=none")
    async with running_router("--standalone", ON, *users) as router:
        host = urlsplit(router.http).netloc
        async with connect(f"ws://ann:secret@{host}") as client:
            await client.subscriber("orders")
            _, found = await call(router.http, "GET", entity("connection"), headers=login("ann", "secret"))
            assert [each["links"] for each in found["items"]] == [1]
        for sasl in (SaslClient("PLAIN", "ann", "wrong"), SaslClient("ANONYMOUS")):
            refused = await dial(router.http, sasl)
            assert not (await refused.wait_for(SaslOutcome)).ok
            await refused.closed()


async def test_who_comes_through_a_proxy_on_this_machine_is_not_taken_for_a_program_of_this_machine() -> None:
    users = ("--users=ann:secret",)
    async with running_router("--standalone", ON, *users) as router:
        async with raw_websocket(router) as websocket:
            await heard(websocket, ConnectionOpened, anonymous_client())
        async with raw_websocket(router, X_Forwarded_For="192.0.2.1") as websocket:
            assert not (await heard(websocket, SaslOutcome, anonymous_client())).ok
    async with running_router("--standalone", ON) as router:
        status, fix = await status_of(router, {**AMQP, "X-Forwarded-For": "192.0.2.1"})
        assert (status, "users_file" in fix) == (403, True)


async def test_a_client_beyond_max_connections_is_refused() -> None:
    async with running_router("--standalone", ON, "--limits-max-connections=1") as router, connect(router.url):
        client = await dial(router.http)
        closed = await client.wait_for(ConnectionClosed)
        assert closed.error is not None
        assert "1 connections" in (closed.error.description or "")
        await client.closed()


async def connected(router: RouterProcess) -> list[str]:
    _, found = await router.get("/api/v1/management/connection")
    return [each["container_id"] for each in found["items"]]


async def test_a_silent_client_is_disconnected_after_the_idle_time_out_and_pings_do_not_count() -> None:
    async with (
        running_router("--standalone", ON, "--listen-idle-timeout-s=1") as router,
        connect(websocket_url(router.http)) as stays,
    ):
        await stays.subscriber("orders")
        async with raw_websocket(router) as websocket:
            await heard(websocket, ConnectionOpened, anonymous_client())
            while (message := await websocket.receive()).type in (WSMsgType.BINARY, WSMsgType.PONG):
                await websocket.ping()
            assert message.type in (WSMsgType.CLOSE, WSMsgType.CLOSED)
        await until(lambda: connected(router), lambda found: found == [stays.container_id])


# --- failover ---------------------------------------------------------------------------------------------------------


async def test_a_drained_router_sends_its_clients_to_the_urls_they_were_given(tmp_path: Path) -> None:
    settings = {"http.websocket": "true"}
    async with LocalNetwork(2, settings=settings, log_folder=tmp_path, log_level="info") as network:
        urls = [websocket_url(network.routers[name].http) for name in ("r1", "r2")]
        bare = await dial(network.routers["r1"].http)
        opened = await bare.wait_for(ConnectionOpened)
        assert FAILOVER_LIST not in (opened.open.properties or {})
        lost: list[str] = []

        def note(event: ClientEvent) -> None:
            if isinstance(event, Disconnected):
                lost.append(event.address)

        async with connect(urls, on_event=note) as client, connect(urls[1]) as there:
            subscriber, publisher = await client.subscriber("orders"), await there.publisher("orders")
            await network.terminate("r1")
            closed = await bare.wait_for(ConnectionClosed)
            assert closed.error is not None
            assert (closed.error.condition, closed.error.info) == ("amqp:connection:forced", None)
            sending = asyncio.ensure_future(publisher.send(b"one", timeout=DEADLINE_S))
            delivery = await asyncio.wait_for(anext(subscriber), DEADLINE_S)
            await delivery.accept()
            await sending
            assert lost[0] == urls[0]


# --- TLS --------------------------------------------------------------------------------------------------------------


def secured(authority: TestAuthority, **more: str) -> dict[str, str]:
    own = authority.issue("alpha")
    return {**tls_settings(authority, own, **more), "http.tls": "true", "http.websocket": "true"}


async def test_a_message_is_accepted_over_wss_and_a_command_sends_one(authority: TestAuthority) -> None:
    async with standalone(secured(authority)) as router:
        url = websocket_url(router.http)
        assert url.startswith("wss://")
        assert await one_message(url, router.url, authority.context()) == b"one"
        code, out, err = await run(
            "pub", "nobody", f"--url={url}", f"--ca-file={authority.file}", "--settled", text="one\n"
        )
        assert (code, out) == (0, "published 1, settled\n"), err


async def test_what_a_client_is_reported_whose_websocket_fails(tmp_path: Path, authority: TestAuthority) -> None:
    other = TestAuthority(tmp_path / "other")
    async with standalone(secured(authority)) as router:
        url = websocket_url(router.http)
        assert "certificate is not valid" in await cause_of(url, other.context())
        assert "HTTP status 404, nothing is at this path" in await cause_of(f"{url}/else", authority.context())
        assert "no AMQP over WebSocket there" in await cause_of(url.replace("/amqp", "/healthz"), authority.context())
        assert await cause_of(url.replace("wss:", "ws:"), None)
    assert "refused" in (await cause_of(url, authority.context())).lower()


async def test_who_must_show_a_certificate_over_amqps_must_show_one_over_wss(authority: TestAuthority) -> None:
    settings = secured(authority, tls__client_certificates="required", http__client_certificates="optional")
    async with standalone(settings) as router:
        url = websocket_url(router.http)
        assert "HTTP status 403" in await cause_of(url, authority.context())
        mine = authority.context(authority.issue("mine"))
        assert await one_message(url, url, mine) == b"one"


async def test_a_client_whose_certificate_is_revoked_is_closed_without_a_signal_and_others_stay(
    tmp_path: Path, authority: TestAuthority
) -> None:
    revoked, good, crl = authority.issue("revoked"), authority.issue("good"), tmp_path / "crl.pem"
    crl.write_bytes(authority.revoke())
    settings = secured(
        authority, tls__client_certificates="required", http__client_certificates="required", tls__crl_file=str(crl)
    )
    reported: asyncio.Queue[str] = asyncio.Queue()
    stays: list[ClientEvent] = []

    def note(event: ClientEvent) -> None:
        if isinstance(event, Disconnected):
            reported.put_nowait(event.cause)

    async with standalone(settings) as router:
        url = websocket_url(router.http)
        async with (
            connect(url, ssl_context=authority.context(good), on_event=stays.append),
            connect(url, ssl_context=authority.context(revoked), on_event=note),
        ):
            replace_file(crl, authority.revoke(revoked.number))
            assert "revoked" in await asyncio.wait_for(reported.get(), DEADLINE_S)
            assert "our certificate is revoked" in await asyncio.wait_for(reported.get(), DEADLINE_S)
            assert not any(isinstance(event, Disconnected) for event in stays)


# --- who is refused ---------------------------------------------------------------------------------------------------


async def test_a_page_of_another_site_does_not_get_in_and_the_log_says_so() -> None:
    friend = "https://friend.example:8443"
    async with running_router("--standalone", ON, f"--http-origins={friend}") as router:
        own = urlsplit(router.http).netloc
        assert (await status_of(router, {**AMQP, "Origin": "https://other.example"}))[0] == 403
        assert (await status_of(router, {**AMQP, "Origin": "null"}))[0] == 403
        # DNS rebinding: the page's own name leads to this router.
        rebound = {**AMQP, "Origin": "http://other.example:80", "Host": "other.example:80"}
        status, fix = await status_of(router, rebound)
        assert (status, "http.names" in fix) == (403, True)
        for welcome in (friend, f"http://{own}"):
            async with raw_websocket(router, Origin=welcome) as websocket:
                assert websocket.protocol == "amqp"
        log = await router.stop(signal.SIGKILL)
    assert "pages of https://other.example may not connect" in log


async def test_a_handshake_that_is_not_for_amqp_is_refused(router: RouterProcess) -> None:
    for protocols in ({}, {"Sec-WebSocket-Protocol": "mqtt, AMQPWSB10"}):
        assert (await status_of(router, protocols))[0] == 400
    for broken in ({"Upgrade": "h2c"}, {"Sec-WebSocket-Version": "7000"}, {"Sec-WebSocket-Key": "short"}):
        assert (await status_of(router, {**AMQP, **broken}))[0] == 426
    assert (await call(router.http, "POST", "/amqp", {}))[0] == 405
    async with raw_websocket(router) as websocket:  # several may be offered
        assert websocket.protocol == "amqp"


async def test_the_path_is_not_there_unless_the_settings_say_so() -> None:
    async with running_router("--standalone") as router:
        assert (await status_of(router, AMQP))[0] == 404
    code, _, err = await run_to_end("--standalone", ON, "--http-host=")
    assert (code, "http.host is empty" in err) == (2, True)


# --- who misbehaves ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (masked(1, b"AMQP"), WSCloseCode.UNSUPPORTED_DATA),
        (masked(1, b"AMQP", total=1 << 40), WSCloseCode.UNSUPPORTED_DATA),
        (b"\x82\x04AMQP", WSCloseCode.PROTOCOL_ERROR),  # RFC 6455, 5.1: not masked
        (b"\x89\x00", WSCloseCode.PROTOCOL_ERROR),
        (masked(0, b"AMQP"), WSCloseCode.PROTOCOL_ERROR),
        (masked(2, b"A", final=False) + masked(2, b"M"), WSCloseCode.PROTOCOL_ERROR),
        (masked(2, b"", total=1 << 63), WSCloseCode.PROTOCOL_ERROR),
        (masked(9, b"", final=False), WSCloseCode.PROTOCOL_ERROR),
    ],
)
async def test_what_amqp_over_websocket_does_not_allow_ends_the_connection_and_nobody_else_is_harmed(
    sent: bytes, code: int, router: RouterProcess
) -> None:
    async with others_lose_nothing(router.port):
        for _ in range(3):
            reader, writer = await raw_handshake(router)
            writer.write(sent)
            async with asyncio.timeout(DEADLINE_S):
                answer = await reader.readuntil(code.to_bytes(2))
                assert answer[-4] == 0x88  # a frame that closes
            writer.close()


async def test_what_is_under_way_in_a_websocket_message_counts_as_what_is_under_way_by_tcp() -> None:
    """A MiB of a frame from each of twelve, in one message or in many parts of one, none of which ends."""
    part = MIB.to_bytes(4, "big") + b"\x02\x00\x00\x00" + b"x" * (MIB - 100)
    opened = AMQP_HEADER + encode_frame(0, encode_performative(Open("half")))
    pieces = [part[at : at + 1000] for at in range(0, len(part), 1000)]
    in_parts = masked(2, b"", final=False) + b"".join(masked(0, piece, final=False) for piece in pieces)
    quiet = "--listen-idle-timeout-s=600"
    async with running_router("--standalone", ON, quiet, "--limits-router-bytes=16777216") as router:
        clients = [await raw_handshake(router) for _ in range(12)]

        ends = [asyncio.ensure_future(reader.read()) for reader, _ in clients]

        async def gone() -> int:
            return sum(end.done() for end in ends)

        async with others_lose_nothing(router.port):
            for number, (_, writer) in enumerate(clients):
                writer.write(masked(2, opened) + (in_parts if number % 2 else masked(2, part, total=MIB + 1000)))
            await until(gone, lambda count: count >= 8)
        assert await gone() < len(clients)
        for _, writer in clients:
            writer.close()
        await asyncio.wait(ends)


@pytest.mark.parametrize("reads", [True, False])
async def test_floods_of_pings_and_of_empty_messages_harm_nobody_else(reads: bool) -> None:
    patient = "--limits-open-timeout-s=300"  # it never logs in
    async with (
        running_router("--standalone", ON, patient) as router,
        others_lose_nothing(router.port),
        raw_websocket(router) as websocket,
    ):
        pongs = 0
        for _ in range(20_000):
            await websocket.ping(bytes(125))
            await websocket.send_bytes(b"")
        while reads and pongs < 20_000:
            message = await websocket.receive()
            assert message.type is WSMsgType.PONG, message
            pongs += 1


@pytest.mark.slow
async def test_whoever_does_not_finish_what_begins_a_connection_is_disconnected(router: RouterProcess) -> None:
    async def ends(sent: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(router.http).port)
        writer.write(sent)
        answer = await asyncio.wait_for(reader.read(), DEADLINE_S)
        writer.close()
        return answer

    async def never_opens() -> bool:
        async with raw_websocket(router) as websocket:
            return (await websocket.receive()).type in (WSMsgType.CLOSE, WSMsgType.CLOSED)

    silent, half, opened = await asyncio.gather(ends(b""), ends(b"GET /amqp HTTP/1.1\r\nHost: x\r\n"), never_opens())
    assert (silent, half, opened) == (b"", b"", True)


async def test_a_slow_subscriber_is_sent_no_more_than_it_takes_and_others_go_on(router: RouterProcess) -> None:
    slow = await dial(router.http)
    slow.session = await slow.begun()
    subscriber = await slow.subscriber("many", credit=1_000_000)
    slow.pause()
    async with others_lose_nothing(router.port), connect(router.url) as client:
        publisher = await client.publisher("many")
        sending = [asyncio.ensure_future(publisher.send(bytes(100_000), timeout=DEADLINE_S)) for _ in range(40)]

        async def unsettled() -> int:
            _, found = await router.get("/api/v1/management/publisher")
            return sum(int(each["unsettled"]) for each in found["items"] if "honest" not in each["name"])

        await until(unsettled, lambda found: found >= 20)
        slow.resume()
        for _ in range(40):
            subscriber.accept(await subscriber.delivery())
        await asyncio.gather(*sending)
    slow.cut()


async def test_closing_a_connection_by_management_closes_its_websocket(router: RouterProcess) -> None:
    events: asyncio.Queue[ClientEvent] = asyncio.Queue()
    async with connect(websocket_url(router.http), on_event=events.put_nowait):
        _, found = await router.get("/api/v1/management/connection")
        peer = found["items"][0]["peer"]
        assert (await call(router.http, "DELETE", entity("connection", peer), {}))[0] == 200
        while not isinstance(event := await asyncio.wait_for(events.get(), DEADLINE_S), Disconnected):
            pass
        assert "an operator has closed this connection" in event.cause
