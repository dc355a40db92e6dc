"""One run: a network, queues and their processes at work on the flights, kills among them, and the verdict."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from bridges.workqueue import Ending, Search
from bridges.workqueue.opening import open_store
from bridges.workqueue.store import Operations
from chaos.clients.flights import take_flights
from chaos.experiments.kills import Kill, by_turns
from chaos.experiments.queue_demo import FLIGHTS_TOPIC, PARSE
from chaos.experiments.queue_demo.flight_core import Verdict, body_of, judge
from chaos.experiments.queue_demo.processes import Kind, RoleProcess
from chaos.experiments.queue_demo.report import QueueResult
from chaos.experiments.queue_demo.worker import READ, count_received, prepare, store_url
from chaos.network.trial import TrialFailed
from oncewire.client import Client, ClientError, Publisher, connect
from router.commands.local_network import LocalNetwork, LocalNetworkError

WORKERS = 2
SECONDS_PER_KILL = 3.0
"""The rows are published over this time for each kill, so that something is under way at each."""
RESTART_AFTER_S = 0.5
"""From SIGKILL to the start of the next process."""
SETTINGS = {"etcd.lease_ttl_s": "5"}
PATIENCE_S = 180.0
SECONDS_PER_MESSAGE = 0.02
"""How long each part of a run may take, on a slow machine."""
POLL_S = 0.05
CONNECT_S = 120.0
"""How long a router may take to answer, on a slow machine."""
LINE_S = 3.0
"""Between two lines of numbers."""


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """What to run."""

    messages: int
    kills: int
    routers: int
    seed: int
    keep: Path | None = None
    """Folder for the store and logs; None: a temporary one, which is removed."""

    @property
    def patience_s(self) -> float:
        """How long each part of the run may take."""
        return PATIENCE_S + self.messages * SECONDS_PER_MESSAGE

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
    if options.keep is not None:
        return await _run_in(options.keep.absolute(), options, rows, console)
    with TemporaryDirectory(prefix="oncewire-demo-queue-") as folder:
        return await _run_in(Path(folder), options, rows, console)


async def _run_in(folder: Path, options: QueueOptions, rows: Sequence[bytes], console: Console) -> QueueResult:
    began = time.monotonic()

    def say(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    async with LocalNetwork(options.routers, settings=SETTINGS, log_folder=folder) as network:
        assert network.etcd is not None
        say(f"{network.etcd.description}, {options.routers} routers, queues in {folder / 'queues.db'}")
        stage = _Stage(options, network, folder, rows, say)
        problems: list[str] = []
        async with AsyncExitStack() as stack:
            for process in stage.processes:
                stack.push_async_callback(process.kill)
            try:
                await stage.play()
            except (TrialFailed, ClientError, LocalNetworkError) as failure:
                problems.append(str(failure))
        verdict = await asyncio.to_thread(_judge, folder, rows)
        seconds = time.monotonic() - began
        return QueueResult(options.messages, stage.accepted, verdict, stage.kills, options.kills, seconds, problems)


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


class _Stage:
    """The processes of a run, and what happens to them."""

    def __init__(
        self,
        options: QueueOptions,
        network: LocalNetwork,
        folder: Path,
        rows: Sequence[bytes],
        say: Callable[[str], None],
    ) -> None:
        self._options = options
        self._network = network
        self._folder = folder
        self._rows = rows
        self._say = say
        self._chance = random.Random(options.seed)
        self._urls = [router.url for router in network.routers.values()]
        self._next_line = 0.0
        self._start = 0.0
        self._killed = asyncio.Event()
        self.accepted = 0
        self.kills: list[Kill] = []
        numbers = {Kind.WORKER: WORKERS}
        self.processes = [
            RoleProcess(kind, folder, self._urls, number)
            for kind in Kind
            if kind is not Kind.ROUTER
            for number in range(1, numbers.get(kind, 1) + 1)
        ]

    async def play(self) -> None:
        """Start everything, kill by the schedule, and let all come to its end.

        Raises:
            TrialFailed, ClientError, LocalNetworkError: something did not happen that must.
        """
        await prepare(self._folder)
        await asyncio.gather(*(process.start() for process in self.processes))
        self._start = time.monotonic()
        async with connect(self._urls, container_id="flights", timeout=CONNECT_S) as client:
            sending = asyncio.create_task(self._send(client))
            try:
                for number, kind in enumerate(self._options.schedule()):
                    share = (number + 0.5) / (self._options.kills + 1)
                    await self._until(
                        lambda: count_received(self._folder) >= share * len(self._rows) * 0.9,  # noqa: B023
                        f"{share:.0%} of the flights came out",
                        sending,
                    )
                    await self._kill(kind)
                await self._until(sending.done, "every flight is accepted", sending)
                sending.result()
            finally:
                sending.cancel()
                await asyncio.wait([sending])
        await self._until(self._is_at_rest, "nothing is under way any more")

    async def _send(self, client: Client) -> None:
        """Publish the rows, spread over the kills."""
        publisher: Publisher = await client.publisher(FLIGHTS_TOPIC, name=FLIGHTS_TOPIC)
        rate = len(self._rows) / (SECONDS_PER_KILL * self._options.kills)
        begin = time.monotonic()
        segment = -(-len(self._rows) // (self._options.kills + 1))
        for number, row in enumerate(self._rows, 1):
            # Held back until the next kill is near, however slow the machine is: it must find something under way.
            while number > (len(self.kills) + 1) * segment:
                self._killed.clear()
                await self._killed.wait()
            _ = await publisher.submit(body_of(number, row))
            ahead = number / rate - (time.monotonic() - begin)
            if ahead > 0:
                await asyncio.sleep(ahead)
        await publisher.flush()
        self.accepted = publisher.statistics.accepted

    async def _until(self, condition: Callable[[], bool], what: str, sending: asyncio.Task[None] | None = None) -> None:
        ends_at = time.monotonic() + self._options.patience_s
        while not await asyncio.to_thread(condition):
            for process in self.processes:
                process.check()
            if sending is not None and sending.done():
                sending.result()
            if time.monotonic() > ends_at:
                raise TrialFailed(f"not within {self._options.patience_s:g} s: {what}")
            self._show()
            await asyncio.sleep(POLL_S)

    def _show(self) -> None:
        if time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + LINE_S
            self._say(f"  {count_received(self._folder)}/{len(self._rows)} came out")

    async def _kill(self, kind: Kind) -> None:
        """SIGKILL one of a kind, and start the next."""
        at_s = time.monotonic() - self._start
        if kind is Kind.ROUTER:
            name = self._chance.choice(list(self._network.routers))
            await self._network.kill(name)
            self._note(Kill(kind, f"router {name}", at_s))
            await asyncio.sleep(RESTART_AFTER_S)
            await self._network.restart(name)
            return
        process = self._chance.choice([each for each in self.processes if each.kind is kind])
        await process.kill()
        self._note(Kill(kind, process.name, at_s))
        await asyncio.sleep(RESTART_AFTER_S)
        await process.start()

    def _note(self, kill: Kill) -> None:
        self.kills.append(kill)
        self._killed.set()
        self._say(f"SIGKILL to {kill.target} after {kill.at_s:.1f} s; {count_received(self._folder)} came out so far")

    def _is_at_rest(self) -> bool:
        """No item, no message in the outbox, and as many messages received as the workers let through."""
        path = self._folder / "queues.db"
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            items, outbox, effects = (
                database.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608  # our own names
                for table in ("oncewire_items", "oncewire_outbox", "effects")
            )
        return not items and not outbox and count_received(self._folder) >= effects
