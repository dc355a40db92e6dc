"""The client where only Windows' part of Python's library is there: `windows_child.py use URL FOLDER`, or `hold`, ...

What an application has not installed is hidden, too: only click is there. It says one line of JSON.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import pkgutil
import sys
from pathlib import Path

UNIX_MODULES = ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog", "readline", "curses")
OTHER_PACKAGES = ("aiohttp", "lark", "prometheus_client", "rich", "uvloop", "yarl", "proton", "etcd3", "psycopg")
OTHER_FOLDERS = ("router", "topology", "delivery_records", "bridges", "chaos")
UNIX_CALLS = ("pread", "pwrite", "O_CLOEXEC", "fchmod", "fchown", "chown", "getuid", "geteuid", "fork", "uname")
MESSAGES = 50


def hide() -> None:
    """Make them unimportable, and take away calls and signals that Windows has not."""
    for name in (*UNIX_MODULES, *OTHER_PACKAGES, *OTHER_FOLDERS):
        sys.modules[name] = None  # type: ignore[assignment]
    for name in UNIX_CALLS:
        delattr(os, name)
    loop = asyncio.SelectorEventLoop
    loop.add_signal_handler = asyncio.AbstractEventLoop.add_signal_handler  # type: ignore[method-assign]


def say(what: object) -> None:
    """For the test."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def not_importable() -> list[str]:
    """Modules of the client that need what is hidden."""
    import oncewire
    from oncewire.client import UsageError

    found = []
    for _, name, _ in pkgutil.walk_packages(oncewire.__path__, "oncewire."):
        try:
            if not name.endswith("__main__"):
                importlib.import_module(name)
        except (ImportError, UsageError):  # the latter states what to install
            found.append(name)
    return found


async def use(url: str, folder: Path) -> None:
    """Publish to a subscriber of the same program, with a journal, as an application does."""
    import oncewire

    async with oncewire.connect([url], journal=folder / "shop.db") as client:
        subscriber = await client.subscriber("orders", name="kitchen")
        publisher = await client.publisher("orders", name="shop")
        sent = [await publisher.submit(b"%d" % number) for number in range(MESSAGES)]
        received = []
        for _ in range(MESSAGES):
            delivery = await subscriber.receive()
            received.append(delivery.body)
            await delivery.accept()
        accepted = [(await outcome).is_accepted for outcome in sent]
        await subscriber.unsubscribe()
    in_order = received == [b"%d" % number for number in range(MESSAGES)] and all(accepted)
    say({"in_order": in_order, "not_importable": not_importable()})


def command(name: str, arguments: list[str]) -> int:
    """`oncewire pub` or `oncewire sub`, installed or not."""
    import click

    from oncewire.cli.run import run

    commands = {each: getattr(importlib.import_module("oncewire.client.cli"), each) for each in ("pub", "sub")}
    return run([name, *arguments], click.Group("oncewire", commands=commands))


def hold(path: Path) -> None:
    """Keep a journal open until it is killed; say so, or why not."""
    from oncewire.client import JournalLocked, SqliteJournal

    try:
        journals = [SqliteJournal(path)]
    except JournalLocked as error:
        say({"held": False, "why": error.why})
        return
    try:
        journals.append(SqliteJournal(path))
    except JournalLocked:
        say({"held": True})
        sys.stdin.read()


async def lines() -> None:
    """What `oncewire pub` reads where an event loop cannot wait for the standard input."""
    from oncewire.client.cli_publish import _lines_of_a_thread

    say([line.decode() async for line in _lines_of_a_thread()])


if __name__ == "__main__":
    hide()
    what, *given = sys.argv[1:]
    if what == "use":
        asyncio.run(use(given[0], Path(given[1])))
    elif what == "hold":
        hold(Path(given[0]))
    elif what == "lines":
        asyncio.run(lines())
    else:
        sys.exit(command(what, given))
