"""Contexts: which network a command works on, and as whom."""

from __future__ import annotations

import json
import ssl
from collections.abc import Sequence
from pathlib import Path

import click
import pytest

from oncewire.cli.context_cli import context
from oncewire.cli.contexts import contexts_file
from oncewire.cli.local_registry import registered
from oncewire.cli.run import run
from oncewire.cli.tls import tls_of_command, tls_options
from oncewire.cli.token import token_of_command, token_option
from oncewire.cli.where import amqp_addresses, context_option, http_address
from tests.router.processes import running_router
from tests.support.certificates import TestAuthority
from tests.support.commands import run as command
from tests.support.isolation import refusing_network
from tests.support.ports import PortBlock

SEEN: list[dict[str, object]] = []
LONG_S = 60.0


@click.command("look")
@click.option("--url", "urls", multiple=True, envvar="ONCEWIRE_URL")
@context_option
@tls_options
@token_option
def look(urls: Sequence[str]) -> None:
    """What a command works on."""
    http = "" if urls else http_address(None).urls[0]
    where = amqp_addresses(urls)
    token = token_of_command()
    SEEN.append(
        {
            "urls": list(where.urls),
            "source": where.source,
            "http": http,
            "token": None if token is None else token(),
            "tls": isinstance(tls_of_command(), ssl.SSLContext),
        }
    )


def oncewire(*arguments: str) -> int:
    return run(arguments, click.Group("oncewire", commands={"context": context, "look": look}))


def looked(*arguments: str) -> dict[str, object]:
    SEEN.clear()
    assert oncewire("look", *arguments) == 0
    return SEEN[0]


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("abc\n")
    path.chmod(0o600)
    return path


def test_flag_environment_context_local_network_default_in_this_order(monkeypatch: pytest.MonkeyPatch) -> None:
    assert looked()["urls"] == ["amqp://127.0.0.1:5672"]
    assert looked()["http"] == "http://127.0.0.1:8672"
    with registered(["amqp://127.0.0.1:1"], ["http://127.0.0.1:2"]):
        assert looked()["urls"] == ["amqp://127.0.0.1:1"]
        assert looked()["http"] == "http://127.0.0.1:2"
        assert oncewire("context", "add", "prod", "--url", "amqps://r1.example.com", "--url", "r2.example.com") == 0
        found = looked()
        assert (found["urls"], found["source"]) == (["amqps://r1.example.com", "r2.example.com"], "context prod")
        assert found["http"] == "https://r1.example.com:8672"
        monkeypatch.setenv("ONCEWIRE_URL", "amqp://of-the-environment")
        assert looked()["urls"] == ["amqp://of-the-environment"]
        assert looked("--url", "amqp://of-the-flag")["urls"] == ["amqp://of-the-flag"]


def test_a_context_that_is_spelled_wrong_is_met_with_the_one_that_is_meant(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("prod", "lab"):
        assert oncewire("context", "add", name, "--url", f"amqp://{name}") == 0
    for arguments in (("context", "use", "prd"), ("context", "remove", "prd")):
        capsys.readouterr()
        assert oncewire(*arguments) == 2
        assert "why: the contexts of this user: lab, prod. Did you mean 'prod'?\n" in capsys.readouterr().err


def test_the_variable_and_the_flag_choose_among_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two", "three"):
        assert oncewire("context", "add", name, "--url", f"amqp://{name}") == 0
    assert looked()["urls"] == ["amqp://one"]  # the first one added
    assert oncewire("context", "use", "two") == 0
    assert looked()["urls"] == ["amqp://two"]
    monkeypatch.setenv("ONCEWIRE_CONTEXT", "three")
    assert looked()["urls"] == ["amqp://three"]
    assert looked("--context", "one")["urls"] == ["amqp://one"]
    monkeypatch.delenv("ONCEWIRE_CONTEXT")
    assert oncewire("context", "use", "--none") == 0
    assert looked()["source"] == "the default"


def test_a_login_goes_to_the_routers_of_its_context_only(token: Path, tmp_path: Path) -> None:
    authority = TestAuthority(tmp_path / "pki")
    arguments = ("--url", "amqps://r1", "--token-file", str(token), "--ca-file", str(authority.file))
    assert oncewire("context", "add", "prod", *arguments) == 0
    found = looked()
    assert (found["token"], found["tls"]) == ("abc", True)
    found = looked("--url", "amqp://elsewhere")
    assert (found["token"], found["tls"]) == (None, False)
    found = looked("--url", "amqp://elsewhere", "--context", "prod")  # somebody who asks for it
    assert (found["urls"], found["token"]) == (["amqp://elsewhere"], "abc")


def test_user_and_password_of_a_context_are_in_the_address(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("p@ss/word\n")
    arguments = ("--url", "amqps://r1:5671", "--url", "amqps://bob:b@r2", "--user", "ann")
    assert oncewire("context", "add", "prod", *arguments, "--password-file", str(password)) == 0
    assert looked()["urls"] == ["amqps://ann:p%40ss%2Fword@r1:5671", "amqps://bob:b@r2"]


def test_the_file_is_for_its_owner_and_no_password_is_listed(token: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert oncewire("context", "add", "prod", "--url", "amqp://ann:secret@r1", "--token-file", str(token)) == 0
    assert contexts_file().stat().st_mode & 0o777 == 0o600
    assert contexts_file().parent.stat().st_mode & 0o777 == 0o700
    capsys.readouterr()
    assert oncewire("context", "list") == 0
    text = capsys.readouterr().out
    assert text == "* prod  amqp://r1  http://r1:8672  with a token\n"
    assert oncewire("context", "list", "--json") == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed["current"] == "prod"
    assert [each["urls"] for each in listed["contexts"]] == [["amqp://r1"]]
    assert oncewire("context", "remove", "prod") == 0
    assert [path.name for path in contexts_file().parent.iterdir()] == ["contexts.json"]


def test_programs_read_what_became_of_a_context_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    def done(*arguments: str) -> dict[str, object]:
        capsys.readouterr()
        assert oncewire("context", *arguments, "--json") == 0
        found: dict[str, object] = json.loads(capsys.readouterr().out)
        assert found.pop("file") == str(contexts_file())
        return found

    assert done("add", "prod", "--url", "amqp://r1") == {"done": "added", "name": "prod", "in_use": True}
    assert done("add", "lab", "--url", "amqp://r2") == {"done": "added", "name": "lab", "in_use": False}
    assert done("add", "lab", "--url", "amqp://r3") == {"done": "replaced", "name": "lab", "in_use": False}
    assert done("use", "lab") == {"done": "used", "name": "lab", "in_use": True}
    assert done("use", "--none") == {"done": "used", "name": None, "in_use": False}
    assert done("remove", "lab") == {"done": "removed", "name": "lab", "in_use": False}


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("add", "a b", "--url", "amqp://r1"), "a name has 1 to 64 letters"),
        (("add", "prod", "--url", "http://r1"), "its scheme is 'http'"),
        (("add", "prod", "--url", "amqp://r1", "--http", "r1:8672"), "is no HTTP address"),
        (("add", "prod", "--url", "amqp://r1", "--user", "ann"), "a user needs a password"),
        (("use", "prod"), "none yet"),
        (("use",), "give one of both"),
        (("remove", "prod"), "none yet"),
    ],
)
def test_what_cannot_be_a_context_is_refused_with_the_reason(
    arguments: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert oncewire("context", *arguments) == 2
    assert why in capsys.readouterr().err
    assert not contexts_file().exists()


def test_a_damaged_file_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    contexts_file().parent.mkdir(parents=True)
    contexts_file().write_text('{"contexts": []}')
    assert oncewire("context", "list") == 2
    assert str(contexts_file()) in capsys.readouterr().err
    assert oncewire("look", "--url", "amqp://r1") == 0  # who needs none is not held up


async def test_pub_and_inspect_log_in_with_a_context_at_a_real_router(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("pa\n")
    flags = ("--standalone", "--id=alpha", "--listen-allow-anonymous=never", "--users=ann:pa", "--roles=ann=viewer")
    async with running_router(*flags, "--http-loopback-role=none", "--http-anonymous-role=none") as router:
        code, _, err = await command("pub", "orders", "--url", router.url)
        assert code == 2, err
        login = ("--user", "ann", "--password-file", str(password))
        assert oncewire("context", "add", "prod", "--url", router.url, "--http", router.http, *login) == 0
        assert await command("pub", "orders") == (0, "published 0, accepted 0\n", "")
        code, out, err = await command("inspect", "routers", "--json")
        assert (code, err) == (0, "")
        assert [row["id"] for row in json.loads(out)["routers"]] == ["alpha"]
        code, _, err = await command("inspect", "--url", router.http)
        assert code == 2
        assert "refuses" in err


async def test_queue_unsubscribe_finds_its_routers_and_login_by_the_context(
    tmp_path: Path, ports_of_this_run: PortBlock
) -> None:
    words = ("queue", "unsubscribe", "orders", "in", "--store", f"sqlite:///{tmp_path / 'work.db'}", "--json")

    with refusing_network(ports_of_this_run):
        code, _, err = await command(*words)
    assert code == 2
    assert "there is no router to connect to" in err

    password = tmp_path / "password"
    password.write_text("pa\n")
    settings = tmp_path / "router.toml"
    settings.write_text("".join(f'[[vhosts]]\nname = "{name}"\nusers = ["ann"]\n' for name in ("crm", "sales")))
    flags = ("--standalone", f"--config={settings}", "--listen-allow-anonymous=never", "--users=ann:pa")
    async with running_router(*flags, "--roles=ann=operator") as router:
        login = ("--user", "ann", "--password-file", str(password))
        assert oncewire("context", "add", "prod", "--url", router.url, "--vhost", "sales", *login) == 0
        code, out, err = await command(*words)
        assert (code, json.loads(out)["unsubscribed"]) == (0, True), err
        attached = [line for line in (await router.stop()).splitlines() if '"subscriber_attached"' in line]
    assert [(json.loads(line)["topic"], json.loads(line)["vhost"]) for line in attached] == [("orders", "sales")]
