"""Logins with JSON Web Tokens at real routers: what is refused, keys that change, and tokens that expire."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import re
import signal
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from oncewire.cli.errors import CliError
from oncewire.cli.users_file import write
from oncewire.client import AuthenticationFailed, ClientEvent, Connected, Disconnected, UsageError, connect
from oncewire.client.failover import parse_url
from oncewire.client.login import sasl_client
from oncewire.wire import ConnectionClosed, SaslClient
from oncewire.wire.bearer import XOAUTH2, OAuthBearerClient
from router.settings.config_loading import load
from tests.router.management_calls import call, entity
from tests.router.processes import RouterProcess, running_router
from tests.router.raw_client import RawClient, login_outcome, until
from tests.support.commands import run
from tests.support.tokens import AUDIENCE, ISSUER, Issuer, settings_of_tokens

LONG_S = 60.0
GUARDED = ("--standalone", "--listen-allow-anonymous=never")
LOG = entity("log", "router")


class XOAuth2Client(OAuthBearerClient):
    """As stock clients send it."""

    def __init__(self, user: str, token: str) -> None:
        super().__init__(token)
        self.name = XOAUTH2
        self._sent = f"user={user}\x01auth=Bearer {token}\x01\x01".encode()

    def initial_response(self) -> bytes | None:
        return self._sent


class NamingClient(OAuthBearerClient):
    """Names a user beside the token."""

    def initial_response(self) -> bytes | None:
        return b"n,a=bob,\x01auth=Bearer " + self._token.encode() + b"\x01\x01"


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def whys(log: str, event: str) -> list[str]:
    return [line["why"] for line in map(json.loads, log.splitlines()) if line["event"] == event]


def resigned(token: str, algorithm: str, key: bytes = b"") -> str:
    """The same claims, without a signature or with an HMAC, which needs no private key."""
    head, payload, _ = token.split(".")
    header = {**json.loads(base64.urlsafe_b64decode(head + "==")), "alg": algorithm}
    signed = f"{_encoded(json.dumps(header).encode())}.{payload}"
    signature = hmac.digest(key, signed.encode(), "sha256") if key else b""
    return f"{signed}.{_encoded(signature)}"


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def tampered(token: str) -> str:
    head, payload, signature = token.split(".")
    claims = json.loads(base64.urlsafe_b64decode(payload + "=="))
    return f"{head}.{_encoded(json.dumps({**claims, 'sub': 'root'}).encode())}.{signature}"


@pytest.fixture
def issuer() -> Issuer:
    return Issuer()


async def test_users_of_tokens_log_in_over_amqp_and_http(issuer: Issuer, tmp_path: Path) -> None:
    flags = settings_of_tokens(jwks_file=str(issuer.write(tmp_path / "keys.json")))
    async with running_router(
        *GUARDED, *flags, "--roles=ann=admin", "--http-anonymous-role=none", "--http-loopback-role=none"
    ) as router:
        token = issuer.token("ann")
        assert await login_outcome(router.port, OAuthBearerClient(token)) is True
        assert await login_outcome(router.port, XOAuth2Client("ann", token)) is True
        assert await login_outcome(router.port, XOAuth2Client("bob", token)) is False
        assert await login_outcome(router.port, NamingClient(token)) is False
        assert (await call(router.http, "GET", LOG, headers=bearer(token)))[0] == 200
        assert (await call(router.http, "GET", LOG, headers=bearer(issuer.token("bob"))))[0] == 403
        assert (await call(router.http, "GET", LOG, headers=bearer(issuer.token("ann", -60))))[0] == 401
        assert (await call(router.http, "GET", LOG))[0] == 401
        async with connect(router.url, token=lambda: token) as client:
            assert client.container_id


async def test_a_token_that_is_not_right_in_every_way_is_refused_and_the_log_says_why(
    issuer: Issuer, tmp_path: Path
) -> None:
    flags = settings_of_tokens(jwks_file=str(issuer.write(tmp_path / "keys.json")))
    good, public = issuer.token("ann"), json.dumps(issuer.key_set()["keys"][0]).encode()
    wrong = {
        tampered(good): "signature",
        issuer.token("ann", -60): "expired",
        issuer.token("ann", exp=None): "lacks a claim",
        issuer.token("ann", aud="others"): "audience",
        issuer.token("ann", aud=None): "lacks a claim",
        issuer.token("ann", iss="https://other.example"): "issuer",
        issuer.token("ann", iss=None): "lacks a claim",
        issuer.token("ann", nbf=4_000_000_000): "not valid yet",
        issuer.token("ann", sub=None): "no text as claim sub",
        issuer.token("a" * 300): "user name",
        issuer.token("\uff41nn"): "SASLprep",  # in full width
        issuer.token("an\u00adn"): "SASLprep",  # with a soft hyphen
        issuer.token("ann\u00a0"): "SASLprep",
        resigned(good, "none"): "algorithm",
        resigned(good, "HS256", public): "algorithm",
        Issuer().token("ann"): "signature",
        "no-token-at-all": "cannot be used",
        "a.b.c": "cannot be used",
    }
    issuer.rotate()
    wrong[issuer.token("ann")] = "not among those"
    async with running_router(*GUARDED, *flags) as router:
        for token in wrong:
            assert await login_outcome(router.port, OAuthBearerClient(token)) is False, token
            assert await login_outcome(router.port, XOAuth2Client("ann", token)) is False, token
        assert await login_outcome(router.port, OAuthBearerClient(good)) is True
        log = await router.stop()
    reported = whys(log, "login_failed")
    for why, expected in zip(reported[::2], wrong.values(), strict=True):
        assert expected in why
    for token in (good, *wrong):
        assert not any(part in log for part in token.split(".") if len(part) > 20), token


async def test_keys_are_fetched_once_and_again_for_a_key_that_is_not_known(issuer: Issuer) -> None:
    async with issuer.serving():
        flags = settings_of_tokens(jwks_url=issuer.url, refetch_s="1")
        async with running_router(*GUARDED, *flags) as router:
            for _ in range(5):
                assert await login_outcome(router.port, OAuthBearerClient(issuer.token("ann"))) is True
            assert issuer.requests == 1
            old = issuer.token("ann")
            issuer.rotate("ES256")

            async def is_taken() -> bool | None:
                return await login_outcome(router.port, OAuthBearerClient(issuer.token("ann")))

            await until(is_taken, bool)
            assert await login_outcome(router.port, OAuthBearerClient(old)) is False


async def test_unknown_keys_do_not_make_the_router_ask_again_and_again(issuer: Issuer) -> None:
    async with issuer.serving():
        flags = settings_of_tokens(jwks_url=issuer.url, refetch_s="3600")
        async with running_router(*GUARDED, *flags) as router:
            stranger = Issuer()
            stranger.rotate()
            tries = [login_outcome(router.port, OAuthBearerClient(stranger.token("ann"))) for _ in range(20)]
            assert await asyncio.gather(*tries) == [False] * 20
            assert issuer.requests == 1


@pytest.mark.parametrize("status", [500, 302, None])
async def test_without_the_keys_nobody_is_let_in_and_a_client_tries_again(issuer: Issuer, status: int | None) -> None:
    async with issuer.serving():
        issuer.status = status or 200
        url = issuer.url if status is not None else "http://127.0.0.1:9/keys"
        flags = settings_of_tokens(jwks_url=url, refetch_s="1")
        async with running_router(*GUARDED, *flags) as router:
            assert await login_outcome(router.port, OAuthBearerClient(issuer.token("ann"))) is False
            assert (await call(router.http, "GET", LOG, headers=bearer(issuer.token("ann"))))[0] == 503
            if status is not None:
                refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()

                def note(event: ClientEvent) -> None:
                    if isinstance(event, Disconnected) and not refused.done():
                        refused.set_result(None)

                async def enter() -> None:
                    async with connect(
                        router.url, token=lambda: issuer.token("ann"), timeout=LONG_S, on_event=note
                    ) as client:
                        assert client.statistics.connections == 1

                entering = asyncio.ensure_future(enter())
                await asyncio.wait_for(refused, LONG_S)
                issuer.status = 200
                await entering
            log = await router.stop()
    assert "cannot be fetched from http://127.0.0.1" in whys(log, "login_undecided")[0]


async def test_an_expired_token_ends_the_connection_with_unauthorized_access(issuer: Issuer, tmp_path: Path) -> None:
    flags = settings_of_tokens(jwks_file=str(issuer.write(tmp_path / "keys.json")), leeway_s="0")
    async with running_router(*GUARDED, *flags) as router:
        client = await RawClient.connect(router.port, sasl=SaslClient(OAuthBearerClient(issuer.token("ann", 5))))
        closed = await client.wait_for(ConnectionClosed)
        assert closed.error is not None
        assert closed.error.condition == "amqp:unauthorized-access"
        assert "token" in (closed.error.description or "")
        log = await router.stop()
    assert '"event": "login_expired"' in log


@pytest.mark.slow
async def test_nothing_is_lost_or_duplicated_while_tokens_expire(issuer: Issuer, tmp_path: Path) -> None:
    """Publisher and subscriber live through several expiries each; tokens are fresh for each connection."""
    flags = settings_of_tokens(jwks_file=str(issuer.write(tmp_path / "keys.json")), leeway_s="0")
    connected = {"pub": 0, "sub": 0}

    def counting(name: str) -> Any:
        def note(event: ClientEvent) -> None:
            connected[name] += isinstance(event, Connected)

        return note

    async with running_router(*GUARDED, *flags) as router:

        async def fresh() -> str:
            return issuer.token("ann", 4)

        async with (
            connect(router.url, container_id="there", token=fresh, on_event=counting("sub")) as there,
            connect(
                router.url, container_id="here", token=lambda: issuer.token("bob", 4), on_event=counting("pub")
            ) as here,
        ):
            subscriber = await there.subscriber("orders", name="sub")
            publisher = await here.publisher("orders", name="pub")
            bodies: list[bytes] = []

            async def receive() -> None:
                async for delivery in subscriber:
                    assert isinstance(delivery.body, bytes)
                    bodies.append(delivery.body)
                    await delivery.accept()
                    if delivery.body == b"last":
                        return

            receiving = asyncio.ensure_future(receive())
            sent = 0
            while min(connected.values()) < 4:
                _ = await publisher.submit(b"%d" % sent)
                sent += 1
                if sent % 50 == 0:
                    await publisher.flush(LONG_S)
            await publisher.send(b"last", timeout=LONG_S)
            await asyncio.wait_for(receiving, LONG_S)
            statistics = publisher.statistics
        assert bodies == [*(b"%d" % number for number in range(sent)), b"last"]
        assert (statistics.accepted, statistics.not_accepted) == (sent + 1, 0)


@pytest.mark.slow
async def test_a_client_whose_new_token_comes_late_tries_again_until_it_does(issuer: Issuer, tmp_path: Path) -> None:
    flags = settings_of_tokens(jwks_file=str(issuer.write(tmp_path / "keys.json")), leeway_s="0")
    file = tmp_path / "token"
    causes: list[str] = []

    def note(event: ClientEvent) -> None:
        if isinstance(event, Disconnected):
            causes.append(event.cause)

    async with running_router(*GUARDED, *flags) as router:
        file.write_text(issuer.token("ann", 5))
        async with connect(router.url, token=file.read_text, on_event=note) as client:
            publisher = await client.publisher("orders")

            async def was_refused() -> bool:
                return len(causes) >= 3

            await until(was_refused, bool)
            file.write_text("")
            before = len(causes)

            async def had_none() -> bool:
                return len(causes) >= before + 2

            await until(had_none, bool)
            file.write_text(issuer.token("ann", 300))
            assert (await publisher.send(b"one", timeout=LONG_S)).is_accepted
    assert "unauthorized-access" in causes[0]
    assert any("there is no token" in cause for cause in causes)


async def test_commands_log_in_with_the_token_of_a_file(issuer: Issuer, tmp_path: Path) -> None:
    flags = settings_of_tokens(jwks_file=str(issuer.write(tmp_path / "keys.json")))
    file, rows = tmp_path / "token", tmp_path / "rows"
    file.write_text(issuer.token("ann") + "\n")
    rows.write_text("one\n")
    async with running_router(*GUARDED, *flags) as router:
        words = ("pub", "--settled", "orders", "--file", str(rows), "--url", router.url)
        _, output, _ = await run(*words, ONCEWIRE_TOKEN_FILE=str(file))
        assert output == "published 1, settled\n"
        log = await router.stop()
    assert '"user": "ann"' in log


async def test_a_token_that_is_refused_at_once_ends_the_client_without_being_shown(
    issuer: Issuer, tmp_path: Path
) -> None:
    flags = settings_of_tokens(jwks_file=str(issuer.write(tmp_path / "keys.json")))
    async with running_router(*GUARDED, *flags) as router:
        expired = issuer.token("ann", -60)
        with pytest.raises(AuthenticationFailed) as refused:
            async with connect(router.url, token=lambda: expired):
                pass
        assert expired not in str(refused.value)
    async with running_router("--standalone", "--listen-allow-anonymous=never", "--users=ann:a") as router:
        with pytest.raises(AuthenticationFailed, match="does not offer OAUTHBEARER"):
            async with connect(router.url, token=lambda: expired):
                pass


async def test_a_reload_reads_the_keys_and_the_users_again_without_a_file_of_settings(
    issuer: Issuer, tmp_path: Path
) -> None:
    users = str(tmp_path / "users")
    write(users, [])
    keys = issuer.write(tmp_path / "keys.json")
    flags = (*settings_of_tokens(jwks_file=str(keys)), f"--users-file={users}")
    async with running_router(*GUARDED, *flags) as router:
        issuer.rotate()
        issuer.write(keys)
        write(users, [USER_LINE])
        token = issuer.token("ann")
        assert await login_outcome(router.port, OAuthBearerClient(token)) is False
        router.process.send_signal(signal.SIGHUP)

        async def is_taken() -> bool | None:
            return await login_outcome(router.port, OAuthBearerClient(token))

        await until(is_taken, bool)
        stays = await RawClient.connect(router.port, sasl=SaslClient(OAuthBearerClient(token)))
        keys.write_text("{}")
        router.process.send_signal(signal.SIGHUP)

        async def is_refused() -> bool:
            return "config_refused" in str((await call(router.http, "GET", "/api/v1/events"))[1])

        await until(is_refused, bool)
        assert await login_outcome(router.port, OAuthBearerClient(token)) is True
        assert not stays.is_gone  # the user of a token is in no file
        log = await router.stop()
    assert "1 added" in log


USER_LINE = (
    "bob SCRAM-SHA-256$4096:QUJDREVGR0hJSktMTU5PUA==$"
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
)


@pytest.mark.parametrize(
    ("url", "allow", "is_sent"),
    [
        ("amqp://192.0.2.7", False, False),
        ("amqp://192.0.2.7", True, True),
        ("amqps://router.example", False, True),
        ("amqp://127.0.0.1", False, True),
    ],
)
def test_the_client_sends_a_token_only_where_nobody_else_can_read_it(url: str, allow: bool, is_sent: bool) -> None:
    with nullcontext() if is_sent else pytest.raises(UsageError, match="amqps://"):
        sasl_client(parse_url(url), {}, allow, "token")


def test_a_token_beside_a_user_is_not_clear() -> None:
    with pytest.raises(UsageError, match="not clear"):
        _ = connect("amqp://ann:a@127.0.0.1", token=lambda: "token")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"jwks_file": "k"}, "tokens of all others"),
        ({"jwks_file": "k", "jwt_issuer": ISSUER}, "tokens of all others"),
        ({"jwks_file": "k", "jwks_url": "https://a/k", "jwt_issuer": ISSUER, "jwt_audience": AUDIENCE}, "is set, too"),
        ({"jwks_url": "http://issuer.example/k"}, "allowed: URL https"),
        ({"jwks_url": "https://ann:secret@issuer.example/k"}, "allowed: URL https"),
        ({"jwt_algorithms": "HS256"}, ""),
        ({"jwt_algorithms": "none"}, ""),
        ({"authenticator": "x", "users": "ann:a"}, "too"),
        (
            {"jwks_file": "k", "jwt_issuer": ISSUER, "jwt_audience": AUDIENCE, "listen_host": "0.0.0.0"},
            "would cross the network",
        ),
    ],
)
def test_settings_that_would_let_others_in_are_refused(given: dict[str, str], why: str) -> None:
    with pytest.raises(CliError) as refused:
        load(None, given, {})
    assert why in refused.value.why


async def test_tokens_are_not_taken_over_http_where_others_can_read_them(issuer: Issuer, tmp_path: Path) -> None:
    flags = settings_of_tokens(jwks_file=str(issuer.write(tmp_path / "keys.json")))
    async with running_router(*GUARDED, *flags, "--http-host=0.0.0.0") as router:
        assert (await call(_on_loopback(router), "GET", LOG, headers=bearer(issuer.token("ann"))))[0] == 401


def _on_loopback(router: RouterProcess) -> str:
    return f"http://127.0.0.1:{router.http.rpartition(':')[2]}"


def test_the_settings_of_the_page_are_accepted(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "logins.md").read_text()
    (block,) = [each for each in re.findall(r"```toml\n(.*?)```", page, re.DOTALL) if "jwks_url" in each]
    (tmp_path / "router.toml").write_text(block)
    config = load(str(tmp_path / "router.toml"), {}, {}).config
    assert (config.has_tokens, config.jwt_user_claim) == (True, "sub")
