"""One run: a network, queues and their processes at work on the flights, kills among them, and the verdict."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from bridges.workqueue import Ending, Search
from bridges.workqueue.opening import open_store
from bridges.workqueue.store import Operations
from chaos.clients.flights import take_flights
from chaos.experiments.kills import by_turns
from chaos.experiments.queue_demo import FLIGHTS_TOPIC, PARSE
from chaos.experiments.queue_demo.flight_core import Verdict, body_of, judge
from chaos.experiments.queue_demo.processes import Kind, RoleProcess
from chaos.experiments.queue_demo.report import QueueResult
from chaos.experiments.queue_demo.worker import READ, count_received, prepare, store_url
from chaos.experiments.stage import SETTINGS, Stage, StageOptions, in_folder
from router.commands.local_network import LocalNetwork

WORKERS = 2
LINE_S = 3.0
"""Between two lines of numbers."""


@dataclass(frozen=True, slots=True)
class QueueOptions(StageOptions):
    """What to run."""

    def schedule(self) -> list[Kind]:
        """What is killed: each kind as often, in random order."""
        return by_turns(Kind, self.kills, self.seed)


async def run_queue_demo(options: QueueOptions, console: Console) -> QueueResult:
    """Run once; leaves no process behind, and no file unless they are to be kept.

    Raises:
        DataSetError: the flights cannot be read.
        LocalNetworkError, EtcdNotFound, EtcdFailed: the network cannot be started.
    """
    rows = await asyncio.to_thread(take_flights, options.messages)
    return await in_folder(options.keep, "oncewire-demo-queue-", partial(_run_in, options, rows, console))


async def _run_in(options: QueueOptions, rows: Sequence[bytes], console: Console, folder: Path) -> QueueResult:
    began = time.monotonic()

    def say(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    async with LocalNetwork(options.routers, settings=SETTINGS, log_folder=folder) as network:
        assert network.etcd is not None
        say(f"{network.etcd.description}, {options.routers} routers, queues in {folder / 'queues.db'}")
        bodies = [body_of(number, row) for number, row in enumerate(rows, 1)]
        stage = _Stage(options, network, folder, bodies, say)
        problems = await stage.play_to_the_end()
        verdict = await asyncio.to_thread(_judge, folder, rows)
        return QueueResult(**stage.outcome(began, problems), kinds=tuple(Kind), verdict=verdict)


def _judge(folder: Path, rows: Sequence[bytes]) -> Verdict:
    with closing(open_store(store_url(folder))) as store:

        def read(do: Operations) -> tuple[list[bytes], list[int]]:
            dead: list[bytes] = []
            search = Search(PARSE, Ending.DEAD, limit=1000)
            while True:
                page = do.history(search)
                dead += [entry.payload for entry in page.entries]
                if page.following is None:
                    return dead, [number for (number,) in do.execute("SELECT number FROM effects")]
                search = Search(PARSE, Ending.DEAD, limit=1000, before=page.following)

        ((dead, effects),), _ = store.transact([read])
    received: list[bytes] = []
    if (folder / READ).exists():
        with closing(sqlite3.connect(folder / READ)) as database:
            received = [body for (body,) in database.execute("SELECT body FROM received")]
    return judge(rows, received, dead, effects)


class _Stage(Stage):
    """See Stage."""

    def __init__(
        self,
        options: QueueOptions,
        network: LocalNetwork,
        folder: Path,
        bodies: Sequence[bytes],
        say: Callable[[str], None],
    ) -> None:
        super().__init__(options, network, folder, bodies, say)
        self._kinds = options.schedule()
        self._next_line = 0.0
        numbers = {Kind.WORKER: WORKERS}
        self.processes = self._roles = [
            RoleProcess(kind, folder, self._urls, number)
            for kind in Kind
            if kind is not Kind.ROUTER
            for number in range(1, numbers.get(kind, 1) + 1)
        ]

    async def play(self) -> None:
        """See Stage."""
        await prepare(self._folder)
        await asyncio.gather(*(process.start() for process in self.processes))
        await self.publish_under(
            [((n + 0.5) / (len(self._kinds) + 1), partial(self._kill_one, kind)) for n, kind in enumerate(self._kinds)]
        )
        await self.until(self._is_at_rest, "nothing is under way any more")

    def topic_of(self, body: bytes) -> str:
        """See Stage."""
        return FLIGHTS_TOPIC

    def come(self) -> int:
        """See Stage."""
        return count_received(self._folder)

    def standing(self) -> str:
        """See Stage."""
        return f"{self.come()} came out so far"

    def show(self) -> None:
        """See Stage."""
        if time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + LINE_S
            self._say(f"  {self.come()}/{len(self._bodies)} came out")

    async def _kill_one(self, kind: Kind) -> None:
        """SIGKILL one of a kind, and start the next."""
        if kind is Kind.ROUTER:
            await self.kill_router(kind)
        else:
            await self.kill(kind, self._chance.choice([each for each in self._roles if each.kind is kind]))

    def _is_at_rest(self) -> bool:
        """No item, no message in the outbox, and as many messages received as the workers let through."""
        path = self._folder / "queues.db"
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            items, outbox, effects = (
                database.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608  # our own names
                for table in ("oncewire_items", "oncewire_outbox", "effects")
            )
        return not items and not outbox and count_received(self._folder) >= effects
