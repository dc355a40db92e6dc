"""`oncewire queue`: work queues from a shell. Commands with topics are in cli_topics.py."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import click

from bridges.workqueue import cli_topics  # noqa: F401  # it adds its commands
from bridges.workqueue.cli_group import queue, run, store_command, transact
from bridges.workqueue.cli_shapes import (
    entry_words,
    iso,
    item_words,
    read_body,
    read_fields,
    read_time,
    schedule_words,
    show,
    statistics_words,
    typed,
)
from bridges.workqueue.errors import UnknownQueue
from bridges.workqueue.items import (
    DEFAULT_PRIORITY,
    MAX_PRIORITY,
    Commit,
    Ending,
    Handle,
    HistoryEntry,
    NewItem,
    Page,
    Rollback,
    Schedule,
    Search,
    Target,
)
from bridges.workqueue.queue import TIMEOUT_S, Queue
from bridges.workqueue.queue_store import QueueStore
from bridges.workqueue.store import Operations
from bridges.workqueue.unpublished import outbox_numbers
from oncewire.cli.errors import CliError
from oncewire.cli.store_options import Command
from oncewire.store.errors import InvalidRequest

__all__ = ["queue"]

NOTHING_READY = 1
"""Exit code of pop and reserve without an item."""
TAIL_S = 1.0
"""How often `tail` looks; it is for people."""
TAIL_OVERLAP_S = 10.0
"""A transaction that began earlier may commit later: `tail` looks at these seconds again."""

ENDINGS = click.Choice([ending.value for ending in Ending])
SECONDS = click.FloatRange(min=0)


def options_of(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Several options as one decorator, in their order."""

    def add(function: Command) -> Command:
        for option in reversed(options):
            function = option(function)
        return function

    return add


search_options = options_of(
    click.option("--ending", type=ENDINGS, help="Only what ended so."),
    click.option("--since", metavar="TIME", help="Ended at this time or later."),
    click.option("--until", metavar="TIME", help="Ended before this time."),
    click.option("--field", "fields", multiple=True, metavar="PATH=VALUE", help="Of the JSON payload; repeatable."),
)
body_options = options_of(
    click.argument("body", required=False),
    click.option("--file", "-f", metavar="FILE", help="Read the payload from this file; - is the standard input."),
)
delay_option = click.option("--delay", type=SECONDS, default=0.0, metavar="SECONDS", help="Ready after this time.")
priority_option = click.option(
    "--priority", type=click.IntRange(0, MAX_PRIORITY), default=DEFAULT_PRIORITY, show_default=True
)
wait_option = click.option("--wait", type=SECONDS, default=0.0, metavar="SECONDS", help="Wait so long for an item. [0]")
timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=TIMEOUT_S,
    show_default=True,
    metavar="SECONDS",
    help="How long the reservation holds.",
)


@store_command("push", "Add an item.")
@click.argument("name", metavar="QUEUE")
@body_options
@delay_option
@click.option("--when", metavar="TIME", help="Ready at this time: ISO 8601 with a time zone, or Unix seconds.")
@priority_option
@click.option("--key", help="Add nothing if the queue knows this key.")
def push(
    url: str,
    as_json: bool,
    name: str,
    body: str | None,
    file: str | None,
    delay: float,
    when: str | None,
    priority: int,
    key: str | None,
) -> None:
    """Add an item to QUEUE, which is made if there is none."""
    item = NewItem(read_body(body, file), delay, read_time(when), priority, key)

    async def work(store: QueueStore) -> dict[str, Any]:
        queue = Queue(store, name)
        try:
            (pushed,) = await queue.push_many([item])
        except UnknownQueue:
            await queue.configure()
            (pushed,) = await queue.push_many([item])
        return {"id": pushed.item, "queue": name, "is_new": pushed.is_new}

    show(run(url, work), as_json=as_json)


@store_command("pop", "Take an item for good.")
@click.argument("name", metavar="QUEUE")
@wait_option
def pop(url: str, as_json: bool, name: str, wait: float) -> int:
    """Take the next ready item of QUEUE for good. Exit code 1: none became ready."""
    taken = run(url, lambda store: Queue(store, name).pop(wait=wait))
    if taken is None:
        return _nothing_ready(name)
    show(item_words(taken), as_json=as_json)
    return 0


@store_command("reserve", "Take an item, to be committed or rolled back.")
@click.argument("name", metavar="QUEUE")
@timeout_option
@wait_option
def reserve(url: str, as_json: bool, name: str, timeout: float, wait: float) -> int:
    """Reserve the next ready item of QUEUE; `id` is its handle. Exit code 1: none became ready."""
    found = run(url, lambda store: Queue(store, name).reserve_many(1, timeout, wait=wait))
    if not found:
        return _nothing_ready(name)
    show(item_words(found[0].taken), as_json=as_json)
    return 0


def _nothing_ready(name: str) -> int:
    click.echo(f"no item of {name} is ready", err=True)
    return NOTHING_READY


@store_command("extend", "Make a reservation hold longer.")
@click.argument("handle")
@timeout_option
def extend(url: str, as_json: bool, handle: str, timeout: float) -> None:
    """Make the reservation HANDLE run out --timeout seconds from now."""
    until = transact(url, lambda do: do.extend([Handle.parse(handle)], timeout))
    show({"id": handle, "until": iso(until)}, as_json=as_json)


@store_command("commit", "A reserved item is done.")
@click.argument("handle")
@click.option("--result", metavar="BODY", help="Noted in the history.")
@click.option("--payload", metavar="BODY", help="Replaces the payload.")
def commit(url: str, as_json: bool, handle: str, result: str | None, payload: str | None) -> None:
    """End the reserved item HANDLE as done. Doing it again has no effect."""
    done = (None if result is None else typed(result), None if payload is None else typed(payload))
    transact(url, lambda do: do.commit([Commit(Handle.parse(handle), *done)]))
    show({"id": handle, "ending": Ending.DONE.value}, as_json=as_json)


@store_command("rollback", "Give a reserved item back.")
@click.argument("handle")
@click.option("--delay", type=SECONDS, metavar="SECONDS", help="Ready after this time. [the back-off]")
@click.option("--reason", default="", help="Kept with the item.")
@click.option("--untried", is_flag=True, help="It has not failed: its retries stay.")
def rollback(url: str, as_json: bool, handle: str, delay: float | None, reason: str, untried: bool) -> None:
    """Give the reserved item HANDLE back; after too many failures it is dead."""
    transact(url, lambda do: do.rollback([Rollback(Handle.parse(handle), delay, reason, not untried)]))
    show({"id": handle, "rolled_back": True}, as_json=as_json)


@store_command("move", "Move a reserved item to other queues.")
@click.argument("handle")
@click.argument("targets", metavar="QUEUE...", nargs=-1, required=True)
@click.option("--payload", metavar="BODY", help="Replaces the payload.")
@delay_option
def move(url: str, as_json: bool, handle: str, targets: tuple[str, ...], payload: str | None, delay: float) -> None:
    """Move the reserved item HANDLE to QUEUE in one step; with several, one item goes to each."""
    body = None if payload is None else typed(payload)
    whole = [Target(target, body, delay) for target in targets]
    items = transact(url, lambda do: do.move(Handle.parse(handle), whole))
    show({"id": handle, "targets": list(targets), "items": items}, as_json=as_json)


@store_command("schedule", "Push again and again, by cron fields.")
@click.argument("name", metavar="QUEUE")
@click.argument("schedule_name", metavar="[NAME", required=False)
@click.argument("cron", metavar="CRON", required=False)
@click.argument("body", metavar="BODY]", required=False)
@click.option("--timezone", default="UTC", show_default=True, help="Of the fields.")
@priority_option
@click.option("--delete", is_flag=True, help="Delete the schedule NAME.")
def schedule(
    url: str,
    as_json: bool,
    name: str,
    schedule_name: str | None,
    cron: str | None,
    body: str | None,
    timezone: str,
    priority: int,
    delete: bool,
) -> None:
    """Push BODY into QUEUE at the times of CRON ('*/5 * * * *'). With QUEUE alone, list its schedules."""
    if schedule_name is None:
        for each in transact(url, lambda do: do.schedules(name)):
            show(schedule_words(each), as_json=as_json)
    elif delete:
        transact(url, lambda do: do.unschedule(schedule_name))
        show({"name": schedule_name, "deleted": True}, as_json=as_json)
    elif cron is None:
        raise CliError("no schedule was added", "it has no CRON", "give QUEUE NAME CRON BODY, or --delete")
    else:
        wanted = Schedule(schedule_name, name, cron, timezone, typed(body or "null"), priority)
        show(schedule_words(transact(url, lambda do: do.schedule(wanted))), as_json=as_json)


@store_command("stats", "Queues in numbers.")
@click.argument("name", metavar="[QUEUE]", required=False)
def stats(url: str, as_json: bool, name: str | None) -> None:
    """Print how many items are ready, waiting, reserved and dead, in QUEUE or in each.

    Without QUEUE it also prints, for each topic of the outbox, how many messages wait to be published, and for how
    long.
    """

    async def count(store: QueueStore) -> list[dict[str, Any]]:
        names = [name] if name else await store.transact(lambda do: do.queues())
        queues = [statistics_words(await Queue(store, each).statistics()) for each in names]
        has_outbox = not name and store.has_transactions
        topics = await store.transact(outbox_numbers) if has_outbox else []
        return [*queues, *map(asdict, topics)]

    found = run(url, count)
    if as_json:
        show(found[0] if name else found, as_json=True)
    else:
        for each in found:
            show(each, as_json=False)


@store_command("history", "What ended, newest first.")
@click.argument("name", metavar="QUEUE")
@search_options
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True)
def history(
    url: str,
    as_json: bool,
    name: str,
    ending: str | None,
    since: str | None,
    until: str | None,
    fields: tuple[str, ...],
    limit: int,
) -> None:
    """Print the items of QUEUE that ended, one a line; `entry` is what replay takes."""
    search = _search(name, ending, since, until, fields, limit)
    for entry in run(url, lambda store: _found(store, search)):
        show(entry_words(entry), as_json=as_json)


def _search(
    name: str, ending: str | None, since: str | None, until: str | None, fields: tuple[str, ...], limit: int = 1000
) -> Search:
    wanted = None if ending is None else Ending(ending)
    return Search(name, wanted, read_time(since), read_time(until), read_fields(fields), limit)


async def _found(store: QueueStore, search: Search) -> list[HistoryEntry]:
    """All pages of a search up to its limit."""
    entries: list[HistoryEntry] = []
    following: Search | None = search
    while following is not None:
        page = await store.transact(partial(_read_page, following))
        entries += page.entries
        left = search.limit - len(entries)
        following = replace(search, before=page.following, limit=left) if page.following and left else None
    return entries


def _read_page(search: Search, do: Operations) -> Page:
    return do.history(search)


@store_command("replay", "Push ended items again.")
@click.argument("name", metavar="QUEUE")
@click.argument("entries", metavar="[ENTRY]...", type=int, nargs=-1)
@search_options
@delay_option
def replay(
    url: str,
    as_json: bool,
    name: str,
    entries: tuple[int, ...],
    ending: str | None,
    since: str | None,
    until: str | None,
    fields: tuple[str, ...],
    delay: float,
) -> None:
    """Push the payloads of ENTRY... again, or of all (up to 1000) that the options describe."""
    search = _search(name, ending, since, until, fields)
    if bool(entries) == bool(ending or since or until or fields):
        raise CliError("nothing was replayed", "it takes either entries or a search", "give ENTRY, or --ending dead")

    async def work(store: QueueStore) -> list[int]:
        if entries:
            await _check_queue(store, name, entries)
        found = [] if entries else await _found(store, search)
        chosen = entries or [entry.entry for entry in reversed(found)]
        return await Queue(store, name).replay(chosen, delay=delay) if chosen else []

    show({"queue": name, "items": run(url, work)}, as_json=as_json)


async def _check_queue(store: QueueStore, name: str, entries: tuple[int, ...]) -> None:
    """Entries never change their queue, so this holds for what follows."""
    await Queue(store, name).schedules()  # an unknown queue is the first thing to say
    for number in entries:
        if (await store.transact(partial(_read_entry, number))).queue != name:
            raise InvalidRequest(f"the entry {number} cannot be used", f"it is not of {name}", "check both")


def _read_entry(number: int, do: Operations) -> HistoryEntry:
    return do.entry(number)


@store_command("dead", "Dead letters.")
@click.argument("name", metavar="QUEUE")
@click.option("--discard", type=int, multiple=True, metavar="ENTRY", help="Give this one up; repeatable.")
def dead(url: str, as_json: bool, name: str, discard: tuple[int, ...]) -> None:
    """Print the dead letters of QUEUE with their reasons; `oncewire queue replay QUEUE ENTRY` tries one again."""
    if discard:

        async def work(store: QueueStore) -> None:
            await _check_queue(store, name, discard)
            await Queue(store, name).discard(discard)

        run(url, work)
        show({"queue": name, "discarded": list(discard)}, as_json=as_json)
        return
    for entry in run(url, lambda store: _found(store, Search(name, Ending.DEAD, limit=1000))):
        show(entry_words(entry), as_json=as_json)


@store_command("tail", "Print items as they end.")
@click.argument("name", metavar="QUEUE")
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="Stop after so many.")
def tail(url: str, as_json: bool, name: str, count: int | None) -> None:
    """Print the items of QUEUE as they end, until --count or Ctrl-C."""

    async def follow(store: QueueStore) -> None:
        seen: dict[int, float] = {}
        begin = await store.transact(lambda do: do.now)
        since, left = begin, count
        while True:
            found = await _found(store, Search(name, since=since, limit=1000))
            for entry in reversed(found):
                if entry.entry in seen:
                    continue
                seen[entry.entry] = entry.ended
                show(entry_words(entry), as_json=as_json)
                if left is not None and (left := left - 1) == 0:
                    return
            since = max(begin, max(seen.values(), default=begin) - TAIL_OVERLAP_S)
            seen = {number: ended for number, ended in seen.items() if ended >= since}
            await asyncio.sleep(TAIL_S)

    run(url, follow)


@store_command("configure", "Make a queue, or change its settings.")
@click.argument("name", metavar="QUEUE")
@click.option("--max-retries", type=int, help="Retries after the first try, before an item is dead.")
@click.option("--backoff", "backoff_s", type=SECONDS, metavar="SECONDS", help="Delay after the first failure.")
@click.option("--backoff-max", "backoff_max_s", type=SECONDS, metavar="SECONDS", help="The longest delay.")
@click.option("--history", "history_s", type=SECONDS, metavar="SECONDS", help="How long ended items are kept.")
@click.option("--max-payload", "max_payload_bytes", type=int, metavar="BYTES", help="The largest payload.")
def configure(url: str, as_json: bool, name: str, **settings: float | None) -> None:
    """Make QUEUE if there is none, change the settings that are given, and print all."""
    changes = {setting: value for setting, value in settings.items() if value is not None}
    show({"queue": name, **asdict(transact(url, lambda do: do.configure(name, **changes)))}, as_json=as_json)
