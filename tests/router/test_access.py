"""Who may do what over HTTP: users, this machine, everybody; and pages of other sites nothing."""

from __future__ import annotations

import json

import pytest
from aiohttp import web

from oncewire.cli.users import Users, token
from oncewire.transport.guarded_logins import MAX_ADDRESSES, MAX_FAILURES
from oncewire.wire import SaslClient, SaslOutcome
from router.authentication.passwords import GUESS_WINDOW_S, MAX_GUESSERS, MAX_GUESSES, PROOFS_PER_GUESS, Logins
from router.operator.access import Access, AccessDenied, Caller, Route, add_routes
from router.operator.http import _LOG, _say_as_json
from router.process.logs import EventLog
from router.settings.config import RouterConfig
from tests.router.management_calls import PREFIX, call, entity, login
from tests.router.processes import RouterProcess, running_router
from tests.router.raw_client import RawClient, until
from topology.inspector.schema.model import Role

USERS = ("--users=ann:a,olga:o,vera:v,nick:n", "--roles=ann=admin,olga=operator,vera=viewer")
PROXIED = {"X-Forwarded-For": "192.0.2.7"}
"""A proxy on this machine has passed the request on: whom it is from, nobody knows."""
LOG = entity("log", "router")


async def set_level(router: RouterProcess, headers: dict[str, str] | None = None) -> tuple[int, dict[str, str]]:
    return await call(router.http, "PUT", LOG, {"level": "info"}, headers)


async def test_each_role_may_do_what_it_is_for() -> None:
    async with running_router("--standalone", *USERS) as router:
        reload = entity("router", "x", "reload")
        for user, password, may_read, may_set in (
            ("ann", "a", 200, 200),
            ("olga", "o", 200, 200),
            ("vera", "v", 200, 403),
            ("nick", "n", 200, 403),
        ):
            who = login(user, password) | PROXIED
            assert (await call(router.http, "GET", LOG, headers=who))[0] == may_read
            assert (await set_level(router, who))[0] == may_set, user
        status, reported = await call(router.http, "POST", reload, {}, login("olga", "o"))
        assert (status, reported) == (
            403,
            {
                "error": "this needs the role admin; olga is operator",
                "fix": "log in as another user, or set roles.olga",
            },
        )


async def test_without_login_the_role_is_that_of_the_place() -> None:
    async with running_router("--standalone", *USERS) as router:
        assert (await set_level(router))[0] == 200  # this machine
        status, reported = await set_level(router, PROXIED)
        assert (status, reported["error"]) == (401, "this needs the role operator")
        assert (await call(router.http, "GET", LOG, headers=PROXIED))[0] == 200
        for header in ("Forwarded", "Via", "X-Real-IP", "x-forwarded-host"):
            assert (await set_level(router, {header: "192.0.2.7"}))[0] == 401, header
    async with running_router("--standalone", "--http-loopback-role=none", "--http-anonymous-role=none") as router:
        for path in ("/metrics", "/api/v1/state", "/api/v1/overview", "/api/v1/management/schema", LOG):
            status, reported = await call(router.http, "GET", path)
            assert (status, reported["error"]) == (403, "this needs the role viewer; without login you are none"), path
        for path in ("/healthz", "/readyz"):
            assert (await call(router.http, "GET", path))[0] == 200


async def test_a_program_on_this_machine_may_at_least_what_everybody_may() -> None:
    """A scraper beside a router that has no role for its machine, as behind a proxy."""
    async with running_router("--standalone", "--http-loopback-role=none") as router:
        assert (await call(router.http, "GET", "/api/v1/overview"))[0] == 200
        status, reported = await set_level(router)
        assert status == 403
        assert "http.loopback_role" in reported["fix"]
        assert "http.anonymous_role" in reported["fix"]


async def test_a_wrong_login_is_refused_even_where_none_is_needed_and_too_many_lock_the_address_out() -> None:
    async with running_router("--standalone", *USERS) as router:
        for _ in range(MAX_FAILURES):
            status, reported = await call(router.http, "GET", LOG, headers=login("ann", "wrong"))
            assert (status, reported["error"]) == (401, "login failed")
        status, reported = await call(router.http, "GET", LOG, headers=login("ann", "a"))
        assert (status, reported["error"]) == (429, "too many failed logins from your address")
        assert (await call(router.http, "GET", LOG))[0] == 200
        log = await router.stop()
    failures = [line for line in map(json.loads, log.splitlines()) if line["event"] == "login_failed"]
    assert [line["failures"] for line in failures] == [1, 2, 3, 4, 5]
    assert {(line["user"], line["peer"]) for line in failures} == {("ann", "127.0.0.1")}
    assert "wrong" not in log


async def logs_in(router: RouterProcess, user: str, password: str) -> bool | None:
    """Whether SASL PLAIN lets somebody in; None = the connection ends without an answer."""
    client = await RawClient.dial(router.port, sasl=SaslClient("PLAIN", user, password))

    async def is_over() -> bool:
        return client.is_gone or any(isinstance(event, SaslOutcome) for event in client.heard)

    await until(is_over, bool)
    outcome = next((event for event in client.heard if isinstance(event, SaslOutcome)), None)
    client.cut()
    await client.closed()
    return None if outcome is None else outcome.ok


async def test_amqp_lets_nobody_guess_passwords_and_an_old_one_locks_nobody_out() -> None:
    async with running_router("--standalone", "--users=ann:a,vera:v", "--listen-allow-anonymous=never") as router:
        for number in range(MAX_GUESSES + 2):
            assert await logs_in(router, "vera", "old") is False  # a client that connects again and again
            assert await logs_in(router, "ann", f"guess-{number}") is (False if number < MAX_GUESSES else None)
        assert await logs_in(router, "ann", "a") is None  # it must try again, and not take its password for wrong
        assert await logs_in(router, "vera", "v") is True
        log = await router.stop()
    failures = [line for line in map(json.loads, log.splitlines()) if line["event"] == "login_failed"]
    assert [line["failures"] for line in failures if line["user"] == "ann"] == [1, 2, 3, 4, 5]
    assert [line["failures"] for line in failures if line["user"] == "vera"] == [1]
    assert "guess-" not in log


def test_guesses_are_forgotten_in_time_and_bounded() -> None:
    logins = Logins(Users({"ann": "a"}), lambda _user, _host, _failures: None)

    def check(user: str, password: str, host: str, now: float) -> bool:
        is_right = logins.check(user, password, host, now)
        assert isinstance(is_right, bool)
        guess = token(user, password)
        return bool(logins.judge(user, is_right, guess, PROOFS_PER_GUESS, host, now))

    for number in range(MAX_GUESSES):
        assert not logins.guesses.is_guessed("ann", "192.0.2.7", 0.0)
        assert not check("ann", str(number), "192.0.2.7", 0.0)
    assert logins.guesses.is_guessed("ann", "192.0.2.7", GUESS_WINDOW_S - 1)
    assert not logins.guesses.is_guessed("ann", "192.0.2.8", 0.0)
    assert not logins.guesses.is_guessed("ann", "192.0.2.7", GUESS_WINDOW_S)
    assert check("ann", "a", "192.0.2.7", GUESS_WINDOW_S)
    for number in range(MAX_GUESSERS + 1):
        assert not check("ann", "x", f"10.0.{number >> 8}.{number & 255}", 0.0)
        assert not check(f"made-up-{number}", "x", "192.0.2.7", 0.0)
    assert len(logins.guesses._wrong) == MAX_GUESSERS


@pytest.mark.parametrize("header", ["Basic", "Basic !!", "Basic bm9jb2xvbg==", "Bearer abc", "Basic /w=="])
async def test_a_login_that_cannot_be_read_says_how_to_log_in(header: str) -> None:
    async with running_router("--standalone", *USERS) as router:
        status, reported = await call(router.http, "GET", LOG, headers={"Authorization": header})
    assert (status, reported["fix"]) == (401, "log in with HTTP Basic: user:password in Base64")


@pytest.mark.parametrize(
    "header", ["Forwarded", "X-Forwarded-For", "x-forwarded-proto", "X-Forwarded", "X-Real-IP", "True-Client-IP", "Via"]
)
async def test_nobody_behind_a_proxy_on_this_machine_is_taken_for_a_program_on_it(header: str) -> None:
    async with running_router("--standalone") as router:
        assert (await set_level(router))[0] == 200
        status, answer = await set_level(router, {header: "192.0.2.7"})
        assert (status, "without login" in answer["error"]) == (403, True)


async def test_no_page_of_another_site_is_answered() -> None:
    async with running_router("--standalone") as router:
        evil = {"Origin": "http://evil.example"}
        assert (await set_level(router, evil))[0] == 403
        assert (await call(router.http, "GET", LOG, headers=evil))[0] == 403
        assert (await call(router.http, "GET", "/api/v1/watch", headers={**evil, "Upgrade": "websocket"}))[0] == 403
        for strange in ("null", "http://[", "//", "http://" + router.http.removeprefix("http://") + "@evil.example"):
            assert (await set_level(router, {"Origin": strange}))[0] == 403, strange
        assert (await set_level(router, {"Origin": "null", "Host": ""}))[0] == 403
        assert (await set_level(router, {"Sec-Fetch-Site": "cross-site"}))[0] == 403
        assert (await set_level(router, {"Sec-Fetch-Site": "same-site"}))[0] == 403
        assert (await set_level(router, {"Origin": router.http, "Sec-Fetch-Site": "same-origin"}))[0] == 200
        for form in ("text/plain", "application/x-www-form-urlencoded"):
            status, reported = await call(router.http, "PUT", LOG, '{"level": "info"}', {"Content-Type": form})
            assert (status, reported["fix"]) == (415, "send Content-Type: application/json")


async def test_dns_rebinding_gives_no_role() -> None:
    flags = ("--standalone", "--id=alpha", "--http-names=router.example", *USERS)
    async with running_router(*flags) as router:
        port = router.http.rpartition(":")[2]
        for name in (f"evil.example:{port}", "evil.example", "127.0.0.1.evil.example"):
            status, reported = await call(router.http, "GET", "/metrics", headers={"Host": name})
            assert status == 403
            assert reported["error"] == f"this needs the role viewer, and '{name}' is no name of this router"
            assert (await call(router.http, "GET", "/healthz", headers={"Host": name}))[0] == 200
            assert (await call(router.http, "GET", "/metrics", headers=login("vera", "v") | {"Host": name}))[0] == 200
        for name in (f"localhost:{port}", f"[::1]:{port}", "alpha", "ALPHA:80", "router.example"):
            assert (await call(router.http, "GET", "/metrics", headers={"Host": name}))[0] == 200, name


async def test_every_route_says_which_role_it_needs() -> None:
    """What is open is open on purpose: nothing else answers anybody."""
    async with running_router("--standalone", "--http-loopback-role=none", "--http-anonymous-role=none") as router:
        for path in ("/", "/inspector", "/inspector/main.js", "/api/v1/events", "/api/v1/routers", PREFIX + "/router"):
            assert (await call(router.http, "GET", path))[0] == 403, path


async def test_failures_of_more_addresses_than_are_remembered_forget_the_oldest() -> None:
    access = Access(RouterConfig(users=(("ann", "a"),)), EventLog("r"))
    header = login("ann", "wrong")["Authorization"]
    for number in range(MAX_ADDRESSES + 1):
        with pytest.raises(AccessDenied):
            await access._logged_in(header, f"10.0.{number >> 8}.{number & 255}")
    assert len(access._logins._failures) == MAX_ADDRESSES
    assert "10.0.0.0" not in access._logins._failures


def test_a_client_of_amqp_has_the_role_of_its_user_or_of_its_place() -> None:
    access = Access(RouterConfig(users=(("ann", "a"), ("bob", "b")), roles=(("ann", "operator"),)), EventLog("r"))
    assert access.caller_at("192.0.2.7", "ann") == Caller(Role.OPERATOR, "ann", "192.0.2.7")
    assert access.caller_at("127.0.0.1", "bob").role is Role.VIEWER
    assert access.caller_at("::1", None).role is Role.ADMIN
    assert access.caller_at("192.0.2.7", None).role is Role.VIEWER


async def test_a_fault_of_ours_ends_one_request_and_is_logged_as_one(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(_request: web.Request) -> web.StreamResponse:
        raise ValueError("a fault")

    log = EventLog("r")
    app = web.Application(middlewares=[_say_as_json])
    app[_LOG] = log
    add_routes(app, Access(RouterConfig(), log), [Route("GET", "/broken", broken, Role.VIEWER)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        status, reported = await call(f"http://127.0.0.1:{runner.addresses[0][1]}", "GET", "/broken")
    finally:
        await runner.cleanup()
    assert (status, reported) == (500, {"error": "internal error", "fix": "see the router's log"})
    assert log.counts["error"] == 1
    assert [record.name for record in caplog.records if record.levelname == "ERROR"] == ["oncewire.router"]
