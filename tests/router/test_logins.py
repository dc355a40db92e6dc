"""Logins with SCRAM and with users of a file, at routers and between them."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner

from oncewire.cli import users_file
from oncewire.cli.errors import CliError
from oncewire.cli.users import Users
from oncewire.client import AuthenticationFailed, connect
from oncewire.client.failover import parse_url
from oncewire.client.login import sasl_client
from oncewire.wire import ConnectionClosed, Deferred, SaslClient, Symbol
from oncewire.wire.performatives import SaslMechanisms
from oncewire.wire.scram import SCRAM_HASHES, ScramClient, password_mechanisms
from router.authentication.passwords import MAX_GUESSES, PROOFS_PER_GUESS, Logins, nonce
from router.authentication.users import load_users
from router.commands.local_network import LocalNetwork
from router.commands.users import users
from router.settings.config_loading import load
from tests.router.management_calls import call, entity, login
from tests.router.processes import RouterProcess, running_router
from tests.router.raw_client import RawClient, login_outcome, until
from tests.support.certificates import TestAuthority
from tests.support.commands import finish, start
from tests.support.tokens import AUDIENCE, ISSUER, Issuer
from topology.etcd.server import free_port

LOG = entity("log", "router")
GUARDED = ("--standalone", "--listen-allow-anonymous=never")


def oncewire_users(*arguments: str, password: str = "") -> str:
    result = CliRunner().invoke(users, arguments, input=f"{password}\n")
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("made") / "users")
    for name in ("ann", "bob"):
        oncewire_users("add", path, name, password=f"secret-of-{name}")
    return path


@pytest.fixture
def file(made: str, tmp_path: Path) -> str:
    """A copy of one file: to derive its keys takes a second."""
    return str(shutil.copy2(made, tmp_path / "users"))


PATIENCE_S = 60.0
"""A login takes a core for a while, on a busy machine for longer than a client waits for a silent router."""


def scram(user: str, password: str, number: int = 0) -> SaslClient:
    return SaslClient([ScramClient(SCRAM_HASHES[number], user, password, nonce())])


def text_of(path: str | Path) -> str:
    return Path(path).read_bytes().decode()


def events(log: str, name: str) -> list[dict[str, str]]:
    return [line for line in map(json.loads, log.splitlines()) if line["event"] == name]


async def logins_work(router: RouterProcess, user: str, password: str) -> None:
    for sasl in (scram(user, password), scram(user, password, 1), SaslClient("PLAIN", user, password)):
        assert await login_outcome(router.port, sasl) is True
    for sasl in (scram(user, "wrong-one"), scram(user, "wrong-one", 1), SaslClient("PLAIN", user, "wrong-one")):
        assert await login_outcome(router.port, sasl) is False
    for sasl in (scram("nobody", password), SaslClient("PLAIN", "nobody", password)):
        assert await login_outcome(router.port, sasl) is False
    assert (await call(router.http, "GET", LOG, headers=login(user, password)))[0] == 200
    assert (await call(router.http, "GET", LOG, headers=login(user, "wrong-one")))[0] == 401
    async with connect(f"amqp://{user}:{password}@127.0.0.1:{router.port}", idle_time_out=PATIENCE_S) as client:
        assert client.container_id


async def test_users_of_a_file_log_in_with_scram_plain_and_http_and_no_secret_is_reported(file: str) -> None:
    async with running_router(*GUARDED, f"--users-file={file}", "--roles=ann=admin", "--log-level=debug") as router:
        await logins_work(router, "ann", "secret-of-ann")
        with pytest.raises(AuthenticationFailed) as refused:
            async with connect(f"amqp://ann:wrong-one@127.0.0.1:{router.port}", idle_time_out=PATIENCE_S):
                pass
        reported = [str(refused.value), repr(refused.value)]
        for path in ("/api/v1/management/settings", "/api/v1/state", "/metrics", "/api/v1/events", LOG):
            status, answer = await call(router.http, "GET", path, headers=login("ann", "secret-of-ann"))
            reported.append(f"{status} {answer}")
        reported.append(text_of(f"/proc/{router.process.pid}/cmdline"))
        reported.append(await router.stop())
    keys = [part for line in users_file.read_lines(file) for part in line.split()[1:]]
    for secret in ("secret-of-ann", "wrong-one", *keys, *(key.rpartition("$")[2].split(":")[0] for key in keys)):
        assert not any(secret in text for text in reported), secret


async def test_users_of_the_table_log_in_with_scram_too() -> None:
    async with running_router(*GUARDED, "--users=ann:secret-of-ann") as router:
        await logins_work(router, "ann", "secret-of-ann")


async def test_a_reload_closes_the_connections_of_users_who_are_gone_and_no_others(file: str, tmp_path: Path) -> None:
    config = tmp_path / "router.toml"
    config.write_text(f'standalone = true\nusers_file = "{file}"\nroles = {{ann = "admin", bob = "viewer"}}\n')
    flags = ("--listen-allow-anonymous=never", "--listen-idle-timeout-s=300")  # raw clients send no heartbeats
    async with running_router(f"--config={config}", *flags) as router:
        ann = await RawClient.connect(router.port, sasl=scram("ann", "secret-of-ann"))
        bob = await RawClient.connect(router.port, sasl=scram("bob", "secret-of-bob"))
        oncewire_users("remove", file, "bob")
        oncewire_users("add", file, "eve", password="secret-of-eve")
        router.process.send_signal(signal.SIGHUP)
        closed = await bob.wait_for(ConnectionClosed)
        assert closed.error is not None
        assert closed.error.condition == "amqp:unauthorized-access"
        assert await login_outcome(router.port, scram("bob", "secret-of-bob")) is False
        assert await login_outcome(router.port, scram("eve", "secret-of-eve")) is True
        await ann.subscriber("still-connected")
        ann.cut()
        users_file.write(file, ["ann SCRAM-SHA-256$1:x"])
        router.process.send_signal(signal.SIGHUP)

        async def is_refused() -> bool:
            return "config_refused" in str((await call(router.http, "GET", "/api/v1/events"))[1])

        await until(is_refused, bool)
        assert await login_outcome(router.port, scram("eve", "secret-of-eve")) is True  # nothing has changed
        log = await router.stop()
    (reloaded,) = events(log, "config_reloaded")
    assert reloaded["changed"] == "users_file: 1 added, 1 removed"
    (refused,) = events(log, "config_refused")
    assert "line 1" in refused["why"]


async def test_a_reload_that_takes_all_users_away_closes_their_connections(tmp_path: Path) -> None:
    config = tmp_path / "router.toml"
    config.write_text('standalone = true\nusers = {ann = "a"}\n')
    async with running_router(f"--config={config}") as router:
        ann = await RawClient.connect(router.port, sasl=scram("ann", "a"))
        config.write_text("standalone = true\n")
        router.process.send_signal(signal.SIGHUP)
        closed = await ann.wait_for(ConnectionClosed)
        assert closed.error is not None
        assert closed.error.condition == "amqp:unauthorized-access"


async def test_a_file_that_others_may_read_is_warned_of(file: str) -> None:
    os.chmod(file, 0o640)  # noqa: PTH101
    async with running_router("--standalone", f"--users-file={file}") as router:
        log = await router.stop()
    (warning,) = events(log, "users_file_open")
    assert (warning["level"], warning["path"]) == ("warning", file)


async def test_a_file_of_settings_with_passwords_that_others_may_read_is_warned_of(tmp_path: Path) -> None:
    for text, mode, warned in (
        ('users = {ann = "a"}', 0o644, 1),
        ('users = {ann = "a"}', 0o600, 0),
        ('log.level = "info"', 0o644, 0),
    ):
        config = tmp_path / f"router-{warned}-{mode:o}.toml"
        config.write_text(f"standalone = true\n{text}\n")
        config.chmod(mode)
        async with running_router(f"--config={config}") as router:
            log = await router.stop()
        warnings = events(log, "config_file_open")
        assert len(warnings) == warned, text
        assert all((each["level"], each["path"]) == ("warning", str(config)) for each in warnings)


async def test_proofs_are_limited_for_each_user_and_address() -> None:
    async with running_router(*GUARDED, "--users=ann:a,vera:v") as router:
        results = [await login_outcome(router.port, scram("ann", f"guess-{number}")) for number in range(22)]
        assert results == [False] * (MAX_GUESSES * PROOFS_PER_GUESS) + [None] * 2
        assert await login_outcome(router.port, scram("ann", "a")) is None
        assert await login_outcome(router.port, scram("vera", "v")) is True
        log = await router.stop()
    assert len(events(log, "login_failed")) == MAX_GUESSES * PROOFS_PER_GUESS


async def test_passwords_that_are_guessed_at_once_are_limited_too(file: str) -> None:
    # Each check takes scrypt's time, and a login that takes too long has no answer either.
    flags = (*GUARDED, f"--users-file={file}", "--limits-open-timeout-s=300")
    async with running_router(*flags) as router:
        guesses = [login_outcome(router.port, SaslClient("PLAIN", "ann", f"guess-{number}")) for number in range(12)]
        results = await asyncio.gather(*guesses)
        assert (results.count(False), results.count(None)) == (MAX_GUESSES, 12 - MAX_GUESSES)
        log = await router.stop()
    assert len(events(log, "login_failed")) == MAX_GUESSES


@pytest.mark.parametrize(("allow", "is_offered"), [("loopback", False), ("always", True), ("never", False)])
async def test_plain_is_offered_only_where_the_settings_name_it(allow: str, is_offered: bool) -> None:
    flags = ("--standalone", "--listen-host=0.0.0.0", "--users=ann:a", f"--listen-allow-plain={allow}")
    async with running_router(*flags) as router:
        assert await login_outcome(router.port, SaslClient("PLAIN", "ann", "a")) is is_offered
        assert await login_outcome(router.port, scram("ann", "a")) is True


@pytest.mark.parametrize(
    ("url", "allow", "is_sent"),
    [
        ("amqp://ann:a@192.0.2.7", False, False),
        ("amqp://ann:a@192.0.2.7", True, True),
        ("amqp://ann:a@router.example", False, False),
        ("amqps://ann:a@router.example", False, True),
        ("amqp://ann:a@127.0.0.1", False, True),
        ("amqp://ann:a@[::1]", False, True),
        ("amqp://ann:a@localhost", False, True),
    ],
)
def test_the_client_sends_a_password_only_where_nobody_else_can_read_it(url: str, allow: bool, is_sent: bool) -> None:
    sasl = sasl_client(parse_url(url), {}, allow)
    assert bool(sasl.receive(SaslMechanisms((Symbol("PLAIN"),)))) is is_sent
    assert (sasl.result is None) is is_sent


async def test_routers_log_in_with_scram_and_guesses_of_their_password_are_limited_and_logged(tmp_path: Path) -> None:
    port = free_port()
    settings = {"inter_router.password": "secret-of-routers", "inter_router.allow_plain": "never"}
    async with LocalNetwork(2, log_folder=tmp_path, log_level="info", settings=settings) as network:
        assert len(network.routers) == 2  # which waits for the link between them
    settings = {"inter_router.port": str(port), "inter_router.password": "secret-of-routers"}
    async with LocalNetwork(1, log_folder=tmp_path, log_level="info", settings=settings):
        assert await login_outcome(port, scram("router", "secret-of-routers")) is True
        results: list[bool | None] = []
        for first in range(0, 30, 5):  # the guesser computes proofs in this loop: with more at once it is given up
            guesses = [scram("router", f"guess-{first + number}") for number in range(5)]
            results += await asyncio.gather(*[login_outcome(port, guess) for guess in guesses])
        assert results.count(None) >= 30 - MAX_GUESSES * PROOFS_PER_GUESS
        assert await login_outcome(port, SaslClient("PLAIN", "router", "secret-of-routers")) is None
    log = text_of(tmp_path / "r1.log")
    assert "login_failed" in log
    assert "secret-of-routers" not in log
    assert "guess-" not in log


@pytest.mark.slow
async def test_of_300_guesses_of_the_password_between_routers_few_get_an_answer(tmp_path: Path) -> None:
    port = free_port()
    settings = {"inter_router.port": str(port), "inter_router.password": "secret-of-routers"}
    settings["inter_router.allow_plain"] = "always"
    async with LocalNetwork(1, log_folder=tmp_path, log_level="debug", settings=settings):
        answers = []
        for number in range(300):
            guess = f"guess-{number}"
            sasl = SaslClient("PLAIN", "router", guess) if number % 2 else scram("router", guess, number // 2 % 2)
            answers.append(await login_outcome(port, sasl))
        assert True not in answers
        weights = sum(PROOFS_PER_GUESS if number % 2 else 1 for number, each in enumerate(answers) if each is not None)
        assert MAX_GUESSES * PROOFS_PER_GUESS <= weights < (MAX_GUESSES + 1) * PROOFS_PER_GUESS
        assert answers.count(False) <= 10
        assert await login_outcome(port, scram("router", "secret-of-routers")) is None  # until the minute is over
    log = text_of(tmp_path / "r1.log")
    assert log.count("login_failed") == answers.count(False)
    assert "guess-" not in log
    assert "secret-of-routers" not in log


@pytest.mark.slow
async def test_no_kind_of_failed_login_leaves_a_secret_in_log_replies_or_list_of_processes(
    file: str, tmp_path: Path
) -> None:
    authority, issuer = TestAuthority(tmp_path / "pki"), Issuer()
    own, stranger = authority.issue("router"), authority.issue("stranger")
    config = tmp_path / "router.toml"
    config.write_text(
        "\n".join(
            (
                f'standalone = true\nusers_file = "{file}"\nlog.level = "debug"',
                'listen.tls = true\nlisten.allow_anonymous = "never"\ntls.client_certificates = "optional"',
                f'tls.cert_file = "{own.certificate}"\ntls.key_file = "{own.key}"\ntls.ca_file = "{authority.file}"',
                'external.rules = [{take = "CN", pattern = "ann"}]',
                f'jwt.jwks_file = "{issuer.write(tmp_path / "keys.json")}"',
                f'jwt.issuer = "{ISSUER}"\njwt.audience = "{AUDIENCE}"',
            )
        )
    )
    expired, reported = issuer.token("ann", -60), []
    token_file = tmp_path / "token"
    token_file.write_text(expired)
    for user, context, token in (
        ("ann:wrong-one@", authority.context(), None),
        ("nobody:wrong-one@", authority.context(), None),
        ("", authority.context(stranger), None),
        ("", authority.context(), lambda: expired),
    ):
        async with running_router(f"--config={config}") as router:  # one each: a second refusal would only be counted
            with pytest.raises(AuthenticationFailed) as refused:
                async with connect(f"amqps://{user}127.0.0.1:{router.port}", ssl_context=context, token=token):
                    pass
            reported += [str(refused.value), repr(refused.value), await router.stop()]
        assert "login failed" in reported[-1]
    async with running_router(f"--config={config}") as router:
        url = f"127.0.0.1:{router.port}"
        with pytest.raises(AuthenticationFailed) as refused:  # ends by itself: it has nothing to log in with
            async with connect(f"amqps://{url}", ssl_context=authority.context()):
                pass
        reported += [str(refused.value), repr(refused.value)]
        over_http = login("ann", "wrong-one"), {"Authorization": f"Bearer {expired}"}, {"Authorization": "Bearer !"}
        for headers in over_http:
            reported.append(str(await call(router.http, "GET", LOG, headers=headers)))
        arguments = ("sub", "orders", "--url", f"amqps://{url}", "--ca-file", str(authority.file))
        process = await start(*arguments, "--token-file", str(token_file))
        reported.append(text_of(f"/proc/{process.pid}/cmdline"))
        code, _, output = await finish(process)
        assert code == 2, output
        assert "does not accept the token" in output
        reported.append(output)
        for path in ("/api/v1/management/settings", "/api/v1/state", "/metrics", "/api/v1/events"):
            reported.append(str(await call(router.http, "GET", path)))
        reported.append(text_of(f"/proc/{router.process.pid}/cmdline"))
        reported.append(await router.stop())
    assert "login failed" in reported[-1]
    for secret in ("secret-of-ann", "wrong-one", *expired.split(".")):
        assert not any(secret in text for text in reported), secret


# --- without a router -------------------------------------------------------------------------------------------------


def test_commands_of_users_keep_the_file_closed_and_whole(file: str) -> None:
    assert stat.S_IMODE(Path(file).stat().st_mode) == users_file.MODE
    Path(file).write_text("# ours\n\n" + Path(file).read_text())
    before = Path(file).read_text()
    oncewire_users("password", file, "ann", password="new")
    text = Path(file).read_text()
    assert text.startswith("# ours\n\nann ")
    assert (text != before, "new" in text.split(), "secret" in text) == (True, False, False)
    assert oncewire_users("list", file) == "ann\nbob\n"
    oncewire_users("remove", file, "ann")
    assert oncewire_users("list", file) == "bob\n"
    assert stat.S_IMODE(Path(file).stat().st_mode) == users_file.MODE
    for arguments in (("add", file, "bob"), ("remove", file, "ann"), ("add", file, "a b"), ("list", file + "-not")):
        result = CliRunner().invoke(users, arguments, input="x\n")
        assert (result.exit_code, result.output.count("what to do: ")) == (2, 1), arguments
    assert CliRunner().invoke(users, ("add", file, "eve"), input="\n").exit_code == 2  # no password


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("eve", "line 3: the key of SCRAM-SHA-256 is missing"),
        ("eve plaintext-password", "line 3: a part is no key"),
        ("eve SCRAM-SHA-256$600000:QUJD$QQ==:QQ==", "line 3: the key of SCRAM-SHA-256 is cut off"),
        ("eve SCRAM-SHA-256$600000:!$!:!", "line 3: the key of SCRAM-SHA-256 has Base64 that cannot be read"),
        ("eve SCRAM-SHA-256$10:QUJD$QQ==:QQ==", "line 3: 10 iterations are not between"),
        ("e\u0007ve x", "line 3: the user name has a character"),
        ("", "line 3: user 'ann' has a line already"),
    ],
)
def test_a_bad_line_is_reported_with_its_number_and_without_its_secret(file: str, line: str, why: str) -> None:
    lines = users_file.read_lines(file)
    Path(file).write_text("\n".join([*lines, line or lines[0]]) + "\n")
    result = CliRunner().invoke(users, ("list", file))
    assert result.exit_code == 2
    assert f"why: {why}" in result.output
    assert "oncewire users password FILE NAME" in result.output
    assert "plaintext-password" not in result.output


def test_an_unknown_user_has_a_believable_salt_that_stays_the_same(file: str) -> None:
    class Settings:
        users = ()
        users_file = file

    known = load_users(Settings())
    for scram_hash in SCRAM_HASHES:
        keys = known.find(scram_hash, "ann")
        fake = known.find(scram_hash, "nobody")
        assert not isinstance(keys, Deferred)
        assert not isinstance(fake, Deferred)
        assert fake == load_users(Settings()).find(scram_hash, "nobody")
        assert (len(fake.salt), fake.iterations) == (len(keys.salt), keys.iterations)
        assert fake.salt != known.find(scram_hash, "other").salt  # type: ignore[union-attr]
    assert isinstance(known.check("nobody", "x"), Deferred)  # as long as for a known one
    checked = known.check("ann", "secret-of-ann")
    assert isinstance(checked, Deferred)
    assert checked.then(checked.work())
    assert known.check("ann", "secret-of-ann") is True  # from now on without PBKDF2


def test_a_user_who_is_removed_during_a_login_is_refused() -> None:
    logins = Logins(Users({"ann": "a"}), lambda _user, _host, _failures: None)
    assert logins.judge("ann", True, b"", 1, "192.0.2.7", 0.0) is True
    logins.users = Users({"bob": "b"})
    assert logins.judge("ann", True, b"", 1, "192.0.2.7", 0.0) is False


def test_a_password_between_routers_that_scram_cannot_use_is_refused_without_being_shown() -> None:
    with pytest.raises(CliError) as refused:
        load(None, {"inter_router_password": "secret\u0007word"}, {})
    assert "SASLprep" in refused.value.why
    assert "word" not in refused.value.what.replace("password", "")


def test_an_empty_file_lets_nobody_in() -> None:
    nobody = Users({}, {})
    assert nobody.mechanisms == SCRAM_HASHES
    checked = nobody.check("ann", "")
    assert checked is False


def test_scram_comes_before_plain() -> None:
    names = [each.name for each in password_mechanisms("ann", "a", nonce, None, True)]
    assert names == ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"]
