"""One process of the demo: ``python -m chaos.experiments.queue_demo.worker ROLE FOLDER ROUTERS``.

ROLE is `feed`, `worker`, `publisher` (of the outbox) or `reader`. Each prints a line when it is at work, and ends when
its standard input does: the demo has ended.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from bridges.workqueue import (
    AlreadyReassigned,
    Commit,
    Feed,
    Operations,
    OutboxPublisher,
    Queue,
    QueueStore,
    Reserved,
    Rollback,
    StoreError,
    Target,
    new_message,
)
from chaos.experiments.child_process import end_with_parent, say_ready
from chaos.experiments.queue_demo import DELAYS_TOPIC, FLIGHTS_TOPIC, PARSE, REPORT, WAIT
from chaos.experiments.queue_demo.flight_core import FlightFailed, parse
from oncewire.client.transactions import Consumer

STORE = "queues.db"
READ = "reader.db"
"""Files in the demo's folder."""
BATCH = 50
"""Items of one transaction: each costs a durable write."""
RESERVED_S = 5.0
"""A killed worker's items are taken again after this time."""
DELAY_S = 0.3
"""In the second queue."""
MAX_RETRIES = 10
"""A flight that never arrived fails as often; kills of its workers count, too, and must not bury what can be done."""
BACKOFF_S = 0.02
BACKOFF_MAX_S = 0.5
RETRY_S = 0.1
EFFECTS = "CREATE TABLE IF NOT EXISTS effects (number BIGINT NOT NULL)"

Step = Callable[[Operations, Reserved], None]


def store_url(folder: Path) -> str:
    """The address of the queues."""
    return f"sqlite:///{folder / STORE}"


async def prepare(folder: Path) -> None:
    """Make the queues and the table of effects."""
    async with QueueStore.open(store_url(folder)) as store:

        def make(do: Operations) -> None:
            do.execute(EFFECTS)
            for name in (PARSE, WAIT, REPORT):
                do.configure(name, max_retries=MAX_RETRIES, backoff_s=BACKOFF_S, backoff_max_s=BACKOFF_MAX_S)

        await store.transact(make)


def parse_step(do: Operations, item: Reserved) -> None:
    """Parse, or fail."""
    try:
        parsed = parse(item.payload, item.taken.retries)
    except FlightFailed as failure:
        do.rollback([Rollback(item.handle, None, str(failure))])
    else:
        do.move(item.handle, [Target(WAIT, parsed, DELAY_S)])


def effect_step(do: Operations, item: Reserved) -> None:
    """The effect in the application's own table, and the next step, in one transaction."""
    do.execute("INSERT INTO effects VALUES (?)", (item.json["number"],))
    do.move(item.handle, [Target(REPORT)])


def report_step(do: Operations, item: Reserved) -> None:
    """Done, and published."""
    do.commit([Commit(item.handle, messages=(new_message(DELAYS_TOPIC, item.payload),))])


STEPS: dict[str, Step] = {PARSE: parse_step, WAIT: effect_step, REPORT: report_step}


async def work(store: QueueStore, name: str, step: Step) -> None:
    """Take the items of one queue, many in a transaction."""
    queue = Queue(store, name)

    def job(do: Operations, items: Sequence[Reserved]) -> None:
        for item in items:
            step(do, item)

    while True:
        try:
            items = await queue.reserve_many(BATCH, RESERVED_S, wait=None)
            try:
                await store.transact(lambda do: job(do, items))  # noqa: B023
            except AlreadyReassigned:  # it was too slow for some, and another worker has them
                for item in items:
                    with suppress(AlreadyReassigned):
                        await store.transact(partial(job, items=[item]))
        except StoreError as error:  # what is reserved comes back
            sys.stderr.write(f"{error}\n")
            await asyncio.sleep(RETRY_S)


async def run_worker(folder: Path, routers: Sequence[str]) -> None:
    """All three steps."""
    async with QueueStore.open(store_url(folder)) as store, asyncio.TaskGroup() as group:
        for name, step in STEPS.items():
            group.create_task(work(store, name, step))
        say_ready()


async def run_feed(folder: Path, routers: Sequence[str]) -> None:
    """From the topic into the first queue."""
    async with QueueStore.open(store_url(folder)) as store, asyncio.TaskGroup() as group:
        feed = Feed(Queue(store, PARSE), FLIGHTS_TOPIC, routers)
        group.create_task(feed.run())
        await feed.subscribed.wait()
        say_ready()


async def run_publisher(folder: Path, routers: Sequence[str]) -> None:
    """From the outbox to the topic."""
    async with QueueStore.open(store_url(folder)) as store:
        say_ready()
        await OutboxPublisher(store, routers).run()


async def run_reader(folder: Path, routers: Sequence[str]) -> None:
    """Store what comes, each message once."""
    schema = ["CREATE TABLE IF NOT EXISTS received (body BLOB NOT NULL)"]
    store = f"sqlite:///{folder / READ}"
    async with Consumer(routers, store=store, name="reader", topics=[DELAYS_TOPIC], schema=schema) as reader:
        say_ready()
        await reader.run(lambda tx, message: tx.execute("INSERT INTO received VALUES (?)", (message.body,)))


def count_received(folder: Path) -> int:
    """How many messages the reader has stored."""
    path = folder / READ
    if not path.exists():
        return 0
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
        try:
            count: int = database.execute("SELECT count(*) FROM received").fetchone()[0]
        except sqlite3.OperationalError:  # it has no tables yet, or is being made
            return 0
    return count


ROLES = {"feed": run_feed, "worker": run_worker, "publisher": run_publisher, "reader": run_reader}

if __name__ == "__main__":
    end_with_parent()
    asyncio.run(ROLES[sys.argv[1]](Path(sys.argv[2]), sys.argv[3].split(",")))
