"""`oncewire consumer`: what consumers have set aside in their database, from a shell."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TypeVar

import click

from oncewire.cli.errors import CliError
from oncewire.cli.store_options import Command, of_store
from oncewire.client.errors import ClientError
from oncewire.client.transactions.databases import explained
from oncewire.client.transactions.refused import SetAside, drop, retry, set_aside
from oncewire.client.transactions.store_schema import CONSUMERS
from oncewire.store.contents import Contents
from oncewire.store.opening import file_of, open_store
from oncewire.store.store import Transaction

T = TypeVar("T")
BODY_SHOWN = 60
"""Characters of a body in a line; --json has all of it."""


@click.group("consumer", short_help="Messages that consumers have set aside: see, retry, drop.")
def consumer() -> None:
    """Messages that consumers with `skip=True` have set aside in their database (docs/gazette.md).

    What consumers with `dead_letters=TOPIC` have set aside is published to that topic: `oncewire sub TOPIC --json`.
    """


_options = of_store("Of the consumers: sqlite:///FILE or postgresql://USER@HOST/DATABASE.")


def _choice(command: Command) -> Command:
    command = click.argument("positions", metavar="[POSITION]...", nargs=-1, type=click.IntRange(1))(command)
    command = click.argument("name", metavar="CONSUMER")(command)
    return click.option("--all", "takes_all", is_flag=True, help="In the place of positions: all of the consumer.")(
        command
    )


@consumer.command("dead", short_help="Show messages that were set aside, with the reason.")
@click.argument("name", metavar="[CONSUMER]", required=False)
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="Show so many at most.")
@_options
def dead(name: str | None, limit: int, url: str, as_json: bool) -> None:
    """Show messages that were set aside: consumer, position, topic, reason and body."""
    for each in _transact(url, lambda do: set_aside(do, name, limit)):
        click.echo(json.dumps(_words(each)) if as_json else _line(each))


@consumer.command("retry", short_help="Let a consumer process messages once more.")
@_choice
@_options
def retry_command(name: str, positions: tuple[int, ...], takes_all: bool, url: str, as_json: bool) -> None:
    """Let CONSUMER process messages once more, behind all that has come since.

    A consumer that runs takes them within two seconds, one that does not when it is started.
    """
    chosen = _chosen(positions, takes_all)
    _report("retried", _transact(url, lambda do: retry(do, name, chosen)), as_json)


@consumer.command("drop", short_help="Delete messages that were set aside.")
@_choice
@_options
def drop_command(name: str, positions: tuple[int, ...], takes_all: bool, url: str, as_json: bool) -> None:
    """Delete messages that CONSUMER has set aside, for good."""
    chosen = _chosen(positions, takes_all)
    _report("dropped", _transact(url, lambda do: drop(do, name, chosen)), as_json)


def _chosen(positions: Sequence[int], takes_all: bool) -> Sequence[int] | None:
    if bool(positions) is takes_all:
        raise CliError(
            "no messages are chosen" if not takes_all else "messages are chosen in two ways",
            "give positions, or --all",
            "`oncewire consumer dead` shows the positions",
        )
    return None if takes_all else positions


def _report(done: str, count: int, as_json: bool) -> None:
    click.echo(json.dumps({done: count}) if as_json else f"{count} {done}")


def _transact(url: str, job: Callable[[Transaction], T]) -> T:
    try:
        with explained():
            file = file_of(url)
            if file is not None and not file[0].exists():
                fix = "give the address that the consumer has as store="
                raise CliError(f"the store {url} cannot be opened", f"there is no file {file[0]}", fix)
            store = open_store(url, Contents([CONSUMERS]))
            try:
                (result,), _ = store.transact([job])
            finally:
                store.close()
    except ClientError as error:
        raise CliError(error.what, error.why, error.fix) from None
    found: T = result
    return found


def _text_of(each: SetAside) -> str:
    return each.body.decode(errors="replace") if isinstance(each.body, bytes) else str(each.body)


def _words(each: SetAside) -> dict[str, object]:
    return {
        "consumer": each.consumer,
        "position": each.position,
        "topic": each.topic,
        "user": each.user,
        "why": each.why,
        "retry": each.is_to_retry,
        "body": _text_of(each),
    }


def _line(each: SetAside) -> str:
    body = _text_of(each)
    body = body if len(body) <= BODY_SHOWN else f"{body[:BODY_SHOWN]}..."
    waits = ", waits for its consumer" if each.is_to_retry else ""
    return f"{each.consumer} {each.position} {each.topic}: {each.why}{waits}: {body}"
