"""The group `oncewire queue`, and what its commands have in common: a store, and errors in the usual shape."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import click

from bridges.doors.routers import RouterLogin
from bridges.workqueue.errors import QueueError
from bridges.workqueue.queue_store import QueueStore
from bridges.workqueue.store import Operations
from oncewire.cli import variables
from oncewire.cli.errors import CliError
from oncewire.cli.store_options import Command, of_store
from oncewire.cli.tls import tls_of_command, tls_options
from oncewire.cli.token import token_of_command, token_option
from oncewire.cli.where import DEFAULT_URL, PRECEDENCE, amqp_addresses, context_option, hostname_of, require_listener

T = TypeVar("T")


@click.group("queue", short_help="Work queues in a database: push, reserve, commit and so on.")
def queue() -> None:
    """Work queues: delays, reservations, retries, dead letters, history, moves and schedules (docs/workqueue.md).

    A queue is made by the first push into it. HANDLE is the `id` that `reserve` printed.
    """


def store_command(name: str, short_help: str) -> Callable[[Command], Command]:
    """A command with --store and --json."""
    options = of_store(
        "sqlite:///FILE, postgresql://USER@HOST/DATABASE or mongodb://HOST/DATABASE.", variables.QUEUE_STORE
    )
    return lambda function: queue.command(name, short_help=short_help)(options(function))


def router_options(command: Command) -> Command:
    """Which network, as for `oncewire pub`; a command asks `routers_of` what they came to."""
    for option in (
        click.option("--vhost", metavar="NAME", help="Virtual host of the routers. [that of the user, or of the URL]"),
        click.option(
            "--router",
            "--url",
            "routers",
            multiple=True,
            envvar=variables.URL,
            metavar="URL",
            help="Address of a router, amqp(s):// or ws(s)://[USER:PASSWORD@]HOST[:PORT]; may be repeated. "
            f"[{PRECEDENCE.format(variable=variables.URL, default=DEFAULT_URL)}]",
        ),
    ):
        command = option(command)
    return context_option(tls_options(token_option(command)))


def routers_of(given: Sequence[str], vhost: str | None) -> tuple[tuple[str, ...], RouterLogin]:
    """Addresses of routers, and the login for them.

    Raises:
        CliError: there is no such context; a file cannot be used; or no address was given, and nobody listens.
    """
    where = amqp_addresses(given)
    if where.is_guessed:
        require_listener(where)
    login = RouterLogin(ssl_context=tls_of_command(), token=token_of_command(), hostname=hostname_of(where, vhost))
    return where.urls, login


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
