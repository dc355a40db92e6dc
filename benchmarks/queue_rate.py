"""Items that workers take and finish a second: work queues here, and other queues in PostgreSQL, in one process each.

A worker is a task of one asyncio process. It does nothing with an item, so that all of the time is the queue's.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bridges.workqueue import NewItem, Queue, QueueStore

PAYLOAD = b"x" * 100
PORTION = 1000
DEADLINE_S = 300.0

Run = Callable[[str, int, int], Awaitable["Stopwatch"]]
"""Address of an empty database, workers, items; returns the time from the first to the last item."""


@dataclass(frozen=True)
class Rate:
    """Items a second, and processor time of client and server for each."""

    a_second: float
    processor_us: float


class Stopwatch:
    """Time and processor time of this process from its making to `stop`."""

    def __init__(self) -> None:
        self._began, self._processor = time.perf_counter(), time.process_time()
        self._server = server_processor_s()
        self.took_s = self.processor_s = 0.0

    def stop(self) -> Stopwatch:
        self.took_s = time.perf_counter() - self._began
        self.processor_s = time.process_time() - self._processor + server_processor_s() - self._server
        return self


_server_pid = 0


def server_processor_s() -> float:
    """Processor time of the PostgreSQL server with all its processes; connections stay open while it is measured."""
    if not _server_pid:
        return 0.0
    total = 0
    children = Path(f"/proc/{_server_pid}/task/{_server_pid}/children").read_text().split()
    for process in (_server_pid, *children):
        with contextlib.suppress(OSError):
            total += int(Path(f"/proc/{process}/schedstat").read_text().split()[0])
    return total / 1e9


class Counter:
    """Counts finished items."""

    def __init__(self, items: int) -> None:
        self.left = items

    def count(self) -> None:
        self.left -= 1


async def oncewire(url: str, workers: int, items: int) -> Stopwatch:
    """Reserve and commit of a work queue, each durable."""
    async with Queue.open(url, "jobs") as queue:
        for start in range(0, items, PORTION):
            await queue.push_many([NewItem(PAYLOAD)] * min(PORTION, items - start))

        async def work() -> None:
            while await one(queue.store):
                counter.count()

        async def one(store: QueueStore) -> bool:
            for item in await queue.reserve_many(1):
                await item.commit()
                return True
            return False

        counter = Counter(items)
        watch = Stopwatch()
        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(work())
        watch.stop()
    assert not counter.left, f"{counter.left} items were not done"
    return watch


async def procrastinate(url: str, workers: int, items: int) -> Stopwatch:
    """Jobs of procrastinate: fetched one at a time, and kept when they are done, as in a work queue's history."""
    library: Any = importlib.import_module("procrastinate")
    app = library.App(connector=library.PsycopgConnector(conninfo=url))
    counter = Counter(items)

    @app.task(name="job", queue="jobs")  # type: ignore[untyped-decorator]
    async def job(payload: str) -> None:
        counter.count()

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        for start in range(0, items, PORTION):
            many = min(PORTION, items - start)
            await job.batch_defer_async(*[{"payload": PAYLOAD.decode()}] * many)
        watch = Stopwatch()
        # It ends when the queue is empty and the states of all jobs are written.
        await app.run_worker_async(
            queues=["jobs"], concurrency=workers, wait=False, install_signal_handlers=False, listen_notify=False
        )
        watch.stop()
    assert not counter.left, f"{counter.left} jobs were not done"
    return watch


@contextlib.asynccontextmanager
async def _connection(url: str) -> AsyncIterator[Any]:
    psycopg: Any = importlib.import_module("psycopg")
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        yield connection


async def pgqueuer(url: str, workers: int, items: int) -> Stopwatch:
    """Jobs of PgQueuer: as many fetched at a time as there are workers, and logged when they are done."""
    library: Any = importlib.import_module("pgqueuer")
    drivers: Any = importlib.import_module("pgqueuer.db")
    queries: Any = importlib.import_module("pgqueuer.queries")
    types: Any = importlib.import_module("pgqueuer.types")
    counter = Counter(items)
    async with _connection(url) as connection:
        driver = drivers.PsycopgDriver(connection)
        known = queries.Queries(driver)
        await known.install()
        for start in range(0, items, PORTION):
            many = min(PORTION, items - start)
            await known.enqueue(["jobs"] * many, [PAYLOAD] * many, [0] * many)
        manager = library.PgQueuer(driver)

        @manager.entrypoint("jobs")  # type: ignore[untyped-decorator]
        async def job(job: Any) -> None:
            counter.count()

        watch = Stopwatch()
        await manager.qm.run(batch_size=workers, mode=types.QueueExecutionMode.drain)
        watch.stop()
    assert not counter.left, f"{counter.left} jobs were not done"
    return watch


RIVALS: dict[str, Run] = {"procrastinate": procrastinate, "pgqueuer": pgqueuer}


def measure(run: Run, url: str, workers: int, items: int, server_pid: int) -> Rate:
    """Do one run; `server_pid` is the database server's, or 0.

    Raises:
        TimeoutError: it did not end.
    """

    global _server_pid  # noqa: PLW0603
    _server_pid = server_pid

    async def within() -> Stopwatch:
        async with asyncio.timeout(DEADLINE_S):
            return await run(url, workers, items)

    logging.disable(logging.WARNING)
    watch = asyncio.run(within())
    return Rate(items / watch.took_s, watch.processor_s / items * 1e6)
