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
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bridges.workqueue import NewItem, Queue

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
    """Time and processor time from its making until as many items are finished, durably.

    It does not wait for the end of a run: PgQueuer looks for more work for some seconds then.
    """

    def __init__(self, items: int) -> None:
        self.left = items
        self._server = server_processor_s()
        self._began, self._processor = time.perf_counter(), time.process_time()
        self.took_s = self.processor_s = 0.0

    def finished(self, items: int = 1) -> None:
        self.left -= items
        if self.left == 0:
            self.took_s = time.perf_counter() - self._began
            self.processor_s = time.process_time() - self._processor + server_processor_s() - self._server


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


async def oncewire(url: str, workers: int, items: int) -> Stopwatch:
    """Items of a work queue: a transaction commits one and reserves the next, durably before the worker goes on.
    Workers that wait at the same time share it. Ended items are kept in the history."""
    async with Queue.open(url, "jobs") as queue:
        for start in range(0, items, PORTION):
            await queue.push_many([NewItem(PAYLOAD)] * min(PORTION, items - start))

        async def work() -> None:
            (item,) = await queue.reserve_many(1)
            while item:
                item = await item.commit_and_reserve()
                watch.finished()

        watch = Stopwatch(items)
        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(work())
    return watch


async def procrastinate(url: str, workers: int, items: int) -> Stopwatch:
    """Jobs of procrastinate: fetched one at a time, one after the other; ends are written side by side, over as many
    connections as there are workers. Two transactions for each job. Jobs and their events are kept."""
    library: Any = importlib.import_module("procrastinate")
    app = library.App(connector=library.PsycopgConnector(conninfo=url, min_size=workers + 1, max_size=workers + 1))

    @app.task(name="job", queue="jobs")  # type: ignore[untyped-decorator]
    async def job(payload: str) -> None:
        pass

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        for start in range(0, items, PORTION):
            many = min(PORTION, items - start)
            await job.batch_defer_async(*[{"payload": PAYLOAD.decode()}] * many)
        finish = app.job_manager.finish_job

        async def finish_job(*arguments: Any, **options: Any) -> None:
            await finish(*arguments, **options)
            watch.finished()

        app.job_manager.finish_job = finish_job
        watch = Stopwatch(items)
        await app.run_worker_async(
            queues=["jobs"], concurrency=workers, wait=False, install_signal_handlers=False, listen_notify=False
        )
    return watch


async def pgqueuer(url: str, workers: int, items: int) -> Stopwatch:
    """Jobs of PgQueuer: as many fetched at a time as there are workers, and as many ends written at a time, while it
    fetches on. Two transactions for each batch, over one connection. Jobs are deleted, their log is kept."""
    library: Any = importlib.import_module("pgqueuer")
    drivers: Any = importlib.import_module("pgqueuer.db")
    queries: Any = importlib.import_module("pgqueuer.queries")
    types: Any = importlib.import_module("pgqueuer.types")
    asyncpg: Any = importlib.import_module("asyncpg")
    async with contextlib.AsyncExitStack() as stack:
        connection = await asyncpg.connect(url)
        stack.push_async_callback(connection.close)
        # The driver for psycopg keeps its connection for a second at a time while it listens.
        driver = drivers.AsyncpgDriver(connection)
        known = queries.Queries(driver)
        await known.install()
        for start in range(0, items, PORTION):
            many = min(PORTION, items - start)
            await known.enqueue(["jobs"] * many, [PAYLOAD] * many, [0] * many)
        manager = library.PgQueuer(driver)

        @manager.entrypoint("jobs")  # type: ignore[untyped-decorator]
        async def job(job: Any) -> None:
            pass

        log = manager.qm.queries.log_jobs

        async def log_jobs(ended: Sequence[Any]) -> None:
            await log(ended)
            watch.finished(len(ended))

        manager.qm.queries.log_jobs = log_jobs
        watch = Stopwatch(items)
        await manager.qm.run(batch_size=workers, mode=types.QueueExecutionMode.drain)
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
            watch = await run(url, workers, items)
            assert watch.left == 0, f"{watch.left} items were not done"
            return watch

    logging.disable(logging.WARNING)
    watch = asyncio.run(within())
    return Rate(items / watch.took_s, watch.processor_s / items * 1e6)
