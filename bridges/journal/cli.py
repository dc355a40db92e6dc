"""`oncewire journal`: journals of an edge's store from a shell."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import click

from bridges.journal import cursors, log
from bridges.journal.contents import JOURNALS
from bridges.journal.errors import unknown_cursor
from bridges.journal.messages import new_message
from bridges.journal.model import JournalSettings, JournalState, KeyOf, Place, StoredMessage, WhenFull
from bridges.journal.shapes import before, journal_words, message_words, reader_words
from bridges.journal.start_core import parse_text
from bridges.workqueue.cli_shapes import read_body, show
from oncewire.cli import variables
from oncewire.cli.errors import CliError
from oncewire.cli.store_options import Command, of_store
from oncewire.settings.parsers import NotAllowed, Parser, duration, size, time_span
from oncewire.store.contents import Contents
from oncewire.store.errors import EdgeError
from oncewire.store.open_store import OpenStore, until_set
from oncewire.store.rules_core import MAX_DELAY_S
from oncewire.store.store import Transaction
from oncewire.wire import Message, Properties, encode_message

T = TypeVar("T")
READ_COUNT = 500
"""Messages of one transaction of `read`: those who write wait for none of them."""
READ_BYTES = 4 << 20
LOOK_S = 1.0
"""How often `read --follow` looks though nothing is announced; it is for people."""
MAX_MESSAGES = 1 << 53
MAX_SIZE = 1 << 62
START = "first, last, next, a position, or a time such as 2026-01-31T12:00 (UTC)"


@click.group("journal", short_help="Journals of topics in an edge's store: list, read, seek, trim and so on.")
def journal() -> None:
    """Journals keep the messages of topics in order, for readers that come later (docs/journals.md).

    START is first, last, next, a position, or a time such as 2026-01-31T12:00 (UTC without a zone).
    """


def store_command(name: str, short_help: str) -> Callable[[Command], Command]:
    """A command with --store and --json."""
    options = of_store("sqlite:///FILE or postgresql://USER@HOST/DATABASE.", variables.EDGE_STORE)
    return lambda function: journal.command(name, short_help=short_help)(options(function))


def parsed_by(parse: Parser, example: str) -> Callable[[click.Context, click.Parameter, str | None], Any]:
    """A callback of an option that takes what the edge's file takes."""

    def convert(context: click.Context, parameter: click.Parameter, value: str | None) -> Any:
        try:
            return None if value is None else parse(value)
        except ValueError as error:
            why = str(error) if isinstance(error, NotAllowed) else f"write it like {example}"
            raise click.BadParameter(f"{value!r}: {why}", context, parameter) from None

    return convert


def _span(value: object) -> float:
    """With a unit: 7 would be 7 seconds, and trim what was meant to be kept for days."""
    return 0.0 if value == "0" else duration(0, MAX_DELAY_S)(time_span(str(value)))


def run(url: str, work: Callable[[OpenStore[Transaction]], Awaitable[T]]) -> T:
    """Open the store, work, close it; errors in the usual shape."""

    async def whole() -> T:
        async with OpenStore[Transaction].open(url, Contents([JOURNALS])) as store:
            return await work(store)

    try:
        return asyncio.run(whole())
    except EdgeError as error:
        raise CliError(error.what, error.why, error.fix) from None


def transact(url: str, job: Callable[[Transaction], T]) -> T:
    """Run one transaction."""
    return run(url, lambda store: store.transact(job))


@store_command("list", "Journals in numbers.")
@click.argument("name", metavar="[JOURNAL]", required=False)
def list_journals(url: str, as_json: bool, name: str | None) -> None:
    """Print what each journal keeps, or JOURNAL: its first and last position, messages, bytes, age, settings."""

    def look(do: Transaction) -> list[dict[str, Any]]:
        found = [log.state(do, name)] if name else log.journals(do)
        return [journal_words(each, log.oldest_s(do, each)) for each in found]

    for words in transact(url, look):
        show(words, as_json=as_json)


@store_command("create", "Make a journal, or change what it keeps.")
@click.argument("name", metavar="JOURNAL")
@click.option("--keep", "keep_s", callback=parsed_by(_span, "7d"), metavar="TIME", help="Such as 7d; 0 = no limit.")
@click.option("--max-messages", type=click.IntRange(0, MAX_MESSAGES), metavar="N", help="0 = no limit.")
@click.option("--max-bytes", callback=parsed_by(size(1, MAX_SIZE), "8GiB"), metavar="SIZE", help="Such as 8GiB.")
@click.option("--when-full", type=click.Choice([each.value for each in WhenFull]), help="What happens at --max-bytes.")
@click.option(
    "--compact-by",
    type=click.Choice([each.value for each in KeyOf]),
    help="Keep the last message of each key; decided before the first message.",
)
def create(url: str, as_json: bool, name: str, when_full: str | None, compact_by: str | None, **limits: Any) -> None:
    """Make JOURNAL if there is none, change the settings that are given, and print all.

    Topics flow into it when an edge runs it as a [[journal]] with topics.
    """
    changes = {setting: value for setting, value in limits.items() if value is not None}
    changes |= {} if when_full is None else {"when_full": WhenFull(when_full)}
    changes |= {} if compact_by is None else {"compact_by": KeyOf(compact_by)}

    def make(do: Transaction) -> JournalState:
        known = log.find(do, name)
        return log.configure(do, name, replace(JournalSettings() if known is None else known.settings, **changes))

    show(journal_words(transact(url, make), None), as_json=as_json)


@store_command("append", "Append a message.")
@click.argument("name", metavar="JOURNAL")
@click.argument("body", required=False)
@click.option("--file", "-f", metavar="FILE", help="Read the body from this file; - is the standard input.")
@click.option("--subject", help="Of the message.")
@click.option("--group", metavar="ID", help="Its group-id.")
def append(
    url: str, as_json: bool, name: str, body: str | None, file: str | None, subject: str | None, group: str | None
) -> None:
    """Append a message with BODY, as a client that sends to journal://JOURNAL."""
    message = Message(read_body(body, file), properties=Properties(subject=subject, group_id=group))
    payload = encode_message(message)

    def add(do: Transaction) -> int:
        key_of = log.state(do, name).settings.compact_by
        return log.append(do, name, [new_message(payload, 0, key_of)])[0]

    show({"journal": name, "position": transact(url, add)}, as_json=as_json)


@store_command("read", "Print messages.")
@click.argument("name", metavar="JOURNAL")
@click.option("--start", default=Place.FIRST.value, show_default=True, metavar="START", help=START)
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="Stop after so many.")
@click.option("--follow", is_flag=True, help="Go on with what comes, until Ctrl-C.")
def read(url: str, as_json: bool, name: str, start: str, count: int | None, follow: bool) -> None:
    """Print the messages of JOURNAL from START, one a line; no cursor moves."""

    async def work(store: OpenStore[Transaction]) -> None:
        begin = parse_text(start)
        after = await store.transact(lambda do: log.resolve(do, log.state(do, name), begin))
        left = count
        with store.waiting(log.notice_of(name)) as changed:
            while left != 0:
                changed.clear()
                many = READ_COUNT if left is None else min(left, READ_COUNT)
                _, found = await store.transact(partial(_portion, name, after, many))
                for message in found:
                    show(message_words(message), as_json=as_json)
                left = None if left is None else left - len(found)
                if found:
                    after = found[-1].position
                elif follow:
                    await store.listen()
                    await until_set(changed, LOOK_S)
                else:
                    return

    run(url, work)


def _portion(name: str, after: int, count: int, do: Transaction) -> tuple[JournalState, list[StoredMessage]]:
    return log.read(do, name, after, count, READ_BYTES)


@store_command("readers", "Cursors of readers.")
@click.argument("name", metavar="JOURNAL")
@click.option("--delete", metavar="READER", help="Delete this cursor; its link is ended.")
def readers(url: str, as_json: bool, name: str, delete: str | None) -> None:
    """Print the cursors of JOURNAL: the position that comes next, and how many are unread.

    A READER is named by user, container-id and link. One that is late waits for a message that was trimmed.
    """
    if delete is not None:
        reader = delete

        def remove(do: Transaction) -> None:
            if not cursors.delete_cursor(do, name, reader):
                raise unknown_cursor(name, reader)

        transact(url, remove)
        show({"journal": name, "reader": reader, "deleted": True}, as_json=as_json)
        return

    def look(do: Transaction) -> list[dict[str, Any]]:
        found = log.state(do, name)
        return [reader_words(found, reader, each) for reader, each in cursors.cursors(do, found).items()]

    for words in transact(url, look):
        show(words, as_json=as_json)


@store_command("seek", "Move a reader's cursor.")
@click.argument("name", metavar="JOURNAL")
@click.argument("reader")
@click.argument("start")
def seek(url: str, as_json: bool, name: str, reader: str, start: str) -> None:
    """Let READER go on at START; made if it has no cursor. Its link is ended, and attaches again by itself."""
    cursor = transact(url, lambda do: cursors.seek(do, name, reader, parse_text(start)))
    show({"journal": name, "reader": reader, "next": cursor.low + 1}, as_json=as_json)


@store_command("trim", "Delete the oldest messages.")
@click.argument("name", metavar="JOURNAL")
@click.argument("start")
def trim(url: str, as_json: bool, name: str, start: str) -> None:
    """Delete what is before START; with next, everything. Links of readers that have not read it end with an error."""

    async def work(store: OpenStore[Transaction]) -> JournalState:
        end = await store.transact(lambda do: before(do, log.state(do, name), parse_text(start)))
        while True:
            found = await store.transact(lambda do: log.trim(do, name, end))
            if found.trimmed >= end:
                return found

    show(journal_words(run(url, work), None), as_json=as_json)


@store_command("restored", "Say that the store was restored from a backup.")
def restored(url: str, as_json: bool) -> None:
    """Give each journal of a store that was restored another identity, before an edge is started on it.

    Positions behind the backup get other messages than before: readers must not take them for those that they have.
    """
    for each in transact(url, log.renew):
        show(journal_words(each, None), as_json=as_json)


@store_command("delete", "Delete a journal for good.")
@click.argument("name", metavar="JOURNAL")
def delete(url: str, as_json: bool, name: str) -> None:
    """Delete JOURNAL with its messages and cursors. Links of its readers end.

    An edge that runs it ends its subscriptions, and makes it anew when it starts with the same settings.
    """

    async def work(store: OpenStore[Transaction]) -> None:
        await store.transact(lambda do: log.delete(do, name))
        while await store.transact(log.clear_remains):
            pass

    run(url, work)
    show({"journal": name, "deleted": True}, as_json=as_json)
