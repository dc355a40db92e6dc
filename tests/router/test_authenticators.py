"""Authenticators of other packages: a router finds an installed one, and limits what it does."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from oncewire.client import AuthenticationFailed, connect
from oncewire.wire import PLAIN, PlainClient
from router.authentication.authenticators import MAX_CHECKS, Checks, Identity, Login, LoginRefused, LoginUndecided
from router.authentication.passwords import MAX_GUESSES
from router.process.logs import EventLog
from tests.router.management_calls import call, entity, login
from tests.router.processes import run_to_end, running_router
from tests.router.raw_client import login_outcome

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "authenticator"
GUARDED = ("--standalone", "--listen-allow-anonymous=never")
LOG = entity("log", "router")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, built and installed as its users do, into a folder of its own."""
    folder = tmp_path_factory.mktemp("installed")
    source = shutil.copytree(EXAMPLE, folder / "source")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-build-isolation", "--no-deps"]
    subprocess.run([*pip, "--target", str(folder / "site"), str(source)], check=True, timeout=100)
    return folder / "site"


class Service:
    """The web service that the example asks."""

    def __init__(self) -> None:
        self.status = 200
        self.asked: list[dict[str, str]] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def answer(self, request: web.Request) -> web.Response:
        asked = await request.json()
        self.asked.append(asked)
        await self.may_answer.wait()
        if self.status != 200:
            return web.json_response({}, status=self.status)
        if asked["secret"] not in ("secret-of-ann", "token-of-ann"):
            return web.json_response({}, status=403)
        return web.json_response({"user": "ann"})


@asynccontextmanager
async def running_service(installed: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Service]:
    service = Service()
    app = web.Application()
    app.router.add_post("/", service.answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    monkeypatch.setenv("PYTHONPATH", str(installed))
    monkeypatch.setenv("ONCEWIRE_WEB_AUTHENTICATOR", f"http://127.0.0.1:{runner.addresses[0][1]}/")
    try:
        yield service
    finally:
        await runner.cleanup()


async def test_an_installed_package_decides_who_logs_in(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        running_service(installed, monkeypatch) as service,
        running_router(*GUARDED, "--authenticator=web", "--roles=ann=admin", "--http-loopback-role=none") as router,
    ):
        async with connect(f"amqp://ann:secret-of-ann@127.0.0.1:{router.port}") as client:
            assert client.container_id
        async with connect(router.url, token=lambda: "token-of-ann") as client:
            assert client.container_id
        with pytest.raises(AuthenticationFailed):
            async with connect(f"amqp://ann:wrong@127.0.0.1:{router.port}"):
                pass
        assert await login_outcome(router.port, PlainClient("bob", "secret-of-ann")) is False  # she is not bob
        assert (await call(router.http, "GET", LOG, headers=login("ann", "secret-of-ann")))[0] == 200
        assert (await call(router.http, "GET", LOG, headers={"Authorization": "Bearer token-of-ann"}))[0] == 200
        assert (await call(router.http, "GET", LOG, headers=login("ann", "wrong")))[0] == 401
        assert service.asked[0] == {"mechanism": PLAIN, "user": "ann", "secret": "secret-of-ann", "host": "127.0.0.1"}
        service.status = 500
        assert await login_outcome(router.port, PlainClient("ann", "secret-of-ann")) is False
        assert (await call(router.http, "GET", LOG, headers=login("ann", "secret-of-ann")))[0] == 503
        log = await router.stop()
    assert "the web service answers 500" in log
    for secret in ("secret-of-ann", "token-of-ann", "wrong"):
        assert secret not in log


async def test_guesses_are_limited_for_an_authenticator_too(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        running_service(installed, monkeypatch) as service,
        running_router(*GUARDED, "--authenticator=web") as router,
    ):
        results = [await login_outcome(router.port, PlainClient("ann", f"guess-{number}")) for number in range(8)]
        assert results == [False] * MAX_GUESSES + [None] * (8 - MAX_GUESSES)
        assert await login_outcome(router.port, PlainClient("ann", "secret-of-ann")) is None
        assert len(service.asked) == MAX_GUESSES


async def test_a_router_without_the_named_authenticator_does_not_start() -> None:
    code, _, reported = await run_to_end("--standalone", "--listen-port=0", "--http-port=0", "--authenticator=absent")
    assert code == 2
    assert "no installed package has the entry point 'absent'" in reported


# --- limits, without a router -----------------------------------------------------------------------------------------


class Scripted:
    """Does what a test says."""

    mechanisms = frozenset({PLAIN})

    def __init__(self) -> None:
        self.answer: Identity | Exception = Identity("ann")
        self.is_held = False
        self.running = 0

    async def check(self, _login: Login, /) -> Identity:
        self.running += 1
        if self.is_held:
            await asyncio.Event().wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def attempt(user: str = "ann") -> Login:
    return Login(PLAIN, user, "the secret", "192.0.2.7")


async def test_checks_have_a_limit_and_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("router.authentication.authenticators.CHECK_S", 0.5)
    scripted, log = Scripted(), EventLog("r1")
    checks = Checks(scripted, log)
    scripted.is_held = True
    waiting = [asyncio.ensure_future(checks.check(attempt())) for _ in range(MAX_CHECKS + 3)]
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(each, LoginUndecided) for each in results)
    assert [str(each) for each in results].count("no answer within 0.5 s") == MAX_CHECKS
    assert scripted.running == MAX_CHECKS
    scripted.is_held = False
    assert await checks.check(attempt()) == Identity("ann")


@pytest.mark.parametrize(
    ("answer", "user", "error"),
    [
        (LoginRefused("no"), "ann", LoginRefused),
        (RuntimeError("the secret"), "ann", LoginUndecided),
        (Identity("ann"), "bob", LoginRefused),
        (Identity(""), "", LoginRefused),
        (Identity("a\x00b"), "", LoginRefused),
    ],
)
async def test_what_an_authenticator_does_wrong_lets_nobody_in_and_notifies_no_secret(
    answer: Identity | Exception, user: str, error: type[Exception]
) -> None:
    scripted, log = Scripted(), EventLog("r1")
    scripted.answer = answer
    with pytest.raises(error):
        await Checks(scripted, log).check(attempt(user))
    page = log.recent.after(None, 100)
    assert str(page).count("192.0.2.7") == 1
    assert "the secret" not in str(page)
    assert "the secret" not in repr(attempt())
