"""The group `oncewire queue`, and what its commands have in common: a store, and errors in the usual shape."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click

from bridges.workqueue.errors import QueueError
from bridges.workqueue.queue_store import QueueStore
from bridges.workqueue.store import Operations
from oncewire.cli.errors import CliError

T = TypeVar("T")
Command = Callable[..., Any]


@click.group("queue", short_help="Work queues in a database: push, reserve, commit and so on.")
def queue() -> None:
    """Work queues: delays, reservations, retries, dead letters, history, moves and schedules (docs/workqueue.md).

    A queue is made by the first push into it. HANDLE is the `id` that `reserve` printed.
    """


def store_command(name: str, short_help: str) -> Callable[[Command], Command]:
    """A command with --store and --json."""

    def make(function: Command) -> Command:
        command = click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)
        command = click.option(
            "--store",
            "url",
            required=True,
            envvar="ONCEWIRE_QUEUE_STORE",
            metavar="URL",
            help="sqlite:///FILE, postgresql://USER@HOST/DATABASE or mongodb://HOST/DATABASE.",
        )(command)
        return queue.command(name, short_help=short_help)(command)

    return make


def run(url: str, work: Callable[[QueueStore], Awaitable[T]]) -> T:
    """Open the store, work, close it; errors in the usual shape."""

    async def whole() -> T:
        async with QueueStore.open(url) as store:
            return await work(store)

    try:
        return asyncio.run(whole())
    except QueueError as error:
        raise CliError(error.what, error.why, error.fix) from None


def transact(url: str, job: Callable[[Operations], T]) -> T:
    """Run one transaction."""
    return run(url, lambda store: store.transact(job))
