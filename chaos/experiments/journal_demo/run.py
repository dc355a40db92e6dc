"""One run: a network, edges with a journal, its readers, kills among them, and the verdict."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import secrets
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from bridges.edge.events import EdgeEvent
from bridges.journal import log
from bridges.journal.contents import JOURNALS
from chaos.clients.flights import take_flights
from chaos.experiments.child_process import ChildProcess
from chaos.experiments.journal_demo.process import CONNECT_S, PASSES, REPLAY, count_seen, seen_by
from chaos.experiments.journal_demo.report import JournalResult, Kind, Loss
from chaos.experiments.journal_demo.verdict_core import Finding, body_of, judge, topic_of
from chaos.experiments.kills import Kill, by_turns
from chaos.network.database_relay import DatabaseRelay, relay_to
from chaos.network.trial import TrialFailed
from oncewire.client import Client, ClientError, Publisher, connect
from oncewire.store.contents import Contents
from oncewire.store.opening import file_of, open_store
from oncewire.store.transaction import SqlTransaction
from oncewire.wire import decode_message
from router.commands.local_network import LocalNetwork, LocalNetworkError

TOPICS = "flights.#"
OWNED = f" {EdgeEvent.PART_OWNED.value} "
PROCESS = "chaos.experiments.journal_demo.process"
AWAY, LATE = "away", "late"
"""Readers with a cursor; the one that has none is REPLAY."""
REPLAY_AT, LEAVES_AT, LATE_AT, BACK_AT = 0.2, 0.33, 0.5, 0.66
"""Parts of the rows that are accepted when a reader begins, leaves, and comes back."""
EXTRA_KILLS = 2
"""The reader that leaves is killed, and the one that replays in its second pass."""
SECONDS_PER_KILL = 3.0
"""The rows are published over this time for each kill, so that something is under way at each."""
RESTART_AFTER_S = 0.5
"""From SIGKILL to the start of the next process."""
QUIET_S = 1.0
"""Behind the last message: a message that came once more would come now."""
SETTINGS = {"etcd.lease_ttl_s": "5"}
PATIENCE_S = 180.0
SECONDS_PER_MESSAGE = 0.02
"""How long each part of a run may take, on a slow machine."""
POLL_S = 0.05
PAGE, PAGE_BYTES = 1_000, 1 << 24
"""What is read of the journal at once."""


@dataclass(frozen=True, slots=True)
class JournalOptions:
    """What to run."""

    messages: int
    kills: int
    routers: int
    seed: int
    store: str | None = None
    """URL: a PostgreSQL database is for two edges. None: one edge over a SQLite file in the folder."""
    keep: Path | None = None
    """Folder for stores and logs; None: a temporary one, which is removed."""
    is_takeover: bool = False
    """What is killed is the edge that owns the journal, or it is stopped, or cut off from the database."""

    @property
    def patience_s(self) -> float:
        """How long each part of the run may take."""
        return PATIENCE_S + self.messages * SECONDS_PER_MESSAGE

    @property
    def kinds(self) -> tuple[Enum, ...]:
        """What can happen."""
        return (*Loss, Kind.READER) if self.is_takeover else tuple(Kind)

    def schedule(self) -> Sequence[Enum]:
        """What happens: each kind as often, in random order."""
        return by_turns(Loss if self.is_takeover else Kind, self.kills, self.seed)


async def run_journal_demo(options: JournalOptions, say: Callable[[str], None]) -> JournalResult:
    """Run once; leaves no process behind, nor a file that is not to be kept, nor, at its end, a journal in the store.

    `say` is called with what happens, as it does.

    Raises:
        DataSetError: the flights cannot be read.
        EdgeError: the store cannot be used.
        LocalNetworkError, EtcdNotFound, EtcdFailed: the network cannot be started.
    """
    rows = await asyncio.to_thread(take_flights, options.messages)
    bodies = [body_of(number, row) for number, row in enumerate(rows, 1)]
    if options.keep is not None:
        return await _run_in(options.keep.absolute(), options, bodies, say)
    with TemporaryDirectory(prefix="oncewire-demo-journal-") as folder:
        return await _run_in(Path(folder), options, bodies, say)


async def _run_in(
    folder: Path, options: JournalOptions, bodies: Sequence[bytes], say: Callable[[str], None]
) -> JournalResult:
    began = time.monotonic()
    stored = Stored(options.store or f"sqlite:///{folder / 'edge.db'}", f"flights-{secrets.token_hex(4)}")
    await asyncio.to_thread(stored.check)
    async with LocalNetwork(options.routers, settings=SETTINGS, log_folder=folder) as network:
        assert network.etcd is not None
        stage = _Stage(options, network, folder, bodies, stored, say)
        say(
            f"{network.etcd.description}, routers: {options.routers}, edges: {len(stage.edges)}, journal: {stored.name}"
        )
        problems: list[str] = []
        async with AsyncExitStack() as stack:
            if options.is_takeover:
                await stage.lead_through_relays(stack)
            waits = logging.FileHandler(folder / "publisher.log")  # that rows wait for an edge is what a kill means
            stack.callback(waits.close)
            logging.getLogger("oncewire.client").addHandler(waits)
            stack.callback(logging.getLogger("oncewire.client").removeHandler, waits)
            for process in (*stage.edges, *stage.readers.values()):
                stack.push_async_callback(process.kill)
            try:
                await stage.play()
            except (TrialFailed, ClientError, LocalNetworkError) as failure:
                problems.append(str(failure))
        findings = await asyncio.to_thread(_judge, folder, bodies, stored)
        planned = options.kills + EXTRA_KILLS
        seconds = time.monotonic() - began
        return JournalResult(
            options.messages, stage.accepted, findings, stage.kills, planned, seconds, problems, options.kinds
        )


@dataclass(frozen=True, slots=True)
class Stored:
    """The journal, as it stands in the store."""

    url: str
    name: str

    def check(self) -> None:
        """Raise EdgeError if the store cannot be used."""
        open_store(self.url, Contents([JOURNALS])).close()

    def take(self) -> list[bytes]:
        """All that is stored, in order, nothing where no edge has made it; the journal is deleted."""
        bodies: list[bytes] = []

        def read(do: SqlTransaction) -> list[bytes]:
            _, page = log.read(do, self.name, len(bodies), PAGE, PAGE_BYTES)
            return [message.payload for message in page]

        with closing(open_store(self.url, Contents([JOURNALS]))) as store:
            if store.transact([lambda do: log.find(do, self.name)])[0][0] is None:
                return []
            while page := store.transact([read])[0][0]:
                for payload in page:
                    body = decode_message(payload).body
                    assert isinstance(body, bytes)
                    bodies.append(body)
            store.transact([lambda do: log.delete(do, self.name)])
            while store.transact([log.clear_remains])[0][0]:
                pass
        return bodies


def _judge(folder: Path, bodies: Sequence[bytes], stored: Stored) -> list[Finding]:
    journal = stored.take()
    return [
        judge("journal", bodies, journal, topic_of),
        *(judge(f"reader {name}", journal, seen_by(folder, name)) for name in (AWAY, LATE)),
        *(judge(f"reader {REPLAY}, pass {number}", journal, seen_by(folder, REPLAY, number)) for number in PASSES),
    ]


class _Stage:
    """The processes of a run, and what happens to them."""

    def __init__(
        self,
        options: JournalOptions,
        network: LocalNetwork,
        folder: Path,
        bodies: Sequence[bytes],
        stored: Stored,
        say: Callable[[str], None],
    ) -> None:
        self._options = options
        self._network = network
        self._folder = folder
        self._bodies = bodies
        self._say = say
        self._chance = random.Random(options.seed)
        self._urls = [router.url for router in network.routers.values()]
        self._publishers: dict[str, Publisher] = {}
        self._may_send = 0
        self._start = 0.0
        self.kills: list[Kill] = []
        self._stored = stored
        self._relays: list[DatabaseRelay] = []
        self.edges = [self._edge(stored.url, number) for number in range(1, 2 if file_of(stored.url) else 3)]
        routers = ",".join(self._urls)
        self.readers = {
            name: ChildProcess(
                f"reader {name}", PROCESS, ["reader", name, str(folder), routers, stored.name], folder / f"{name}.log"
            )
            for name in (AWAY, LATE)
        }
        words = [REPLAY, str(folder), routers, stored.name, str(len(bodies))]
        self.readers[REPLAY] = ChildProcess(f"reader {REPLAY}", PROCESS, words, folder / f"{REPLAY}.log")

    async def lead_through_relays(self, stack: AsyncExitStack) -> None:
        """Lead each edge to the database through a relay of its own, until the stack is closed."""
        for number in range(len(self.edges)):
            folder = stack.enter_context(TemporaryDirectory(prefix="oncewire-"))  # the path of a socket is short
            relay = await stack.enter_async_context(relay_to(self._stored.url, Path(folder)))
            self._relays.append(relay)
            self.edges[number] = self._edge(relay.url, number + 1)

    def _edge(self, url: str, number: int) -> ChildProcess:
        name = f"edge{number}"
        file = self._folder / f"{name}.toml"
        file.write_text(
            f'[edge]\nname = "{name}"\nstore = {json.dumps(url)}\nrouters = {json.dumps(self._urls)}\n'
            'lease = 2\n[http]\nhost = ""\n'
            f'[[journal]]\nname = "{self._stored.name}"\ntopics = ["{TOPICS}"]\nkeep = "1d"\n'
        )
        return ChildProcess(name, PROCESS, ["edge", str(file)], self._folder / f"{name}.log")

    @property
    def accepted(self) -> int:
        """Rows that the network has accepted."""
        return sum(publisher.statistics.accepted for publisher in self._publishers.values())

    async def play(self) -> None:
        """Start everything, let each event happen at its part of the rows, and let all come to its end.

        Raises:
            TrialFailed, ClientError, LocalNetworkError: something did not happen that must.
        """
        for edge in self.edges:  # the first one owns the journal
            await edge.start()
        await self.readers[AWAY].start()
        self._start = time.monotonic()
        async with connect(self._urls, container_id="flights", timeout=CONNECT_S) as client:
            sending = asyncio.create_task(self._send(client))
            try:
                events = self._events()
                shares = [*(share for share, _ in events[1:]), 1.0]
                for (share, event), following in zip(events, shares, strict=True):
                    # The rows up to the following event are published while this one happens, and not more.
                    self._may_send = max(self._may_send, round(following * len(self._bodies)))
                    due = share * len(self._bodies) * 0.9
                    await self._until(lambda: self.accepted >= due, f"{share:.0%} of the rows is accepted", sending)  # noqa: B023
                    await event()
                await self._until(sending.done, "every row is accepted", sending)
                sending.result()
            finally:
                sending.cancel()
                await asyncio.wait([sending])
        await self._until(lambda: count_seen(self._folder, REPLAY, PASSES[-1]) > 0, "the second pass has begun")
        await self._kill_reader(REPLAY)
        await self._until(self._is_all_read, "every reader has read all")
        await asyncio.sleep(QUIET_S)

    def _events(self) -> list[tuple[float, Callable[[], Awaitable[None]]]]:
        events: list[tuple[float, Callable[[], Awaitable[None]]]] = [
            (REPLAY_AT, self.readers[REPLAY].start),
            (LEAVES_AT, lambda: self._kill_reader(AWAY, comes_back=False)),
            (LATE_AT, self.readers[LATE].start),
            (BACK_AT, self.readers[AWAY].start),
        ]
        doings: dict[Enum, Callable[[], Awaitable[None]]] = {
            Kind.ROUTER: self._kill_router,
            Kind.EDGE: self._kill_edge,
            Kind.READER: self._kill_reader,
            **{how: partial(self._lose_owner, how) for how in Loss},
        }
        for number, kind in enumerate(self._options.schedule()):
            events.append(((number + 0.5) / self._options.kills, doings[kind]))
        return sorted(events, key=lambda event: event[0])

    async def _send(self, client: Client) -> None:
        """Publish the rows, spread over the kills, each by the publisher of its topic."""
        pace = SECONDS_PER_KILL * self._options.kills / len(self._bodies)
        begin = time.monotonic()
        for number, body in enumerate(self._bodies, 1):
            while number > self._may_send:  # noqa: ASYNC110  # the events are seconds apart
                await asyncio.sleep(POLL_S)
            topic = topic_of(body)
            if topic not in self._publishers:
                self._publishers[topic] = await client.publisher(topic, name=topic)
            _ = await self._publishers[topic].submit(body)
            ahead = number * pace - (time.monotonic() - begin)
            if ahead > 0:
                await asyncio.sleep(ahead)
        for publisher in self._publishers.values():
            await publisher.flush()

    async def _until(self, condition: Callable[[], bool], what: str, sending: asyncio.Task[None] | None = None) -> None:
        ends_at = time.monotonic() + self._options.patience_s
        while not condition():
            for process in (*self.edges, *self.readers.values()):
                process.check()
            if sending is not None and sending.done():
                sending.result()
            if time.monotonic() > ends_at:
                raise TrialFailed(f"not within {self._options.patience_s:g} s: {what}")
            await asyncio.sleep(POLL_S)

    def _is_all_read(self) -> bool:
        counts = [count_seen(self._folder, name) for name in (AWAY, LATE)]
        return min(*counts, count_seen(self._folder, REPLAY, PASSES[-1])) >= len(self._bodies)

    # --- kills --------------------------------------------------------------------------------------------------------

    async def _kill_router(self) -> None:
        name = self._chance.choice(list(self._network.routers))
        await self._network.kill(name)
        self._note(Kind.ROUTER, f"router {name}")
        await asyncio.sleep(RESTART_AFTER_S)
        await self._network.restart(name)

    async def _kill_edge(self) -> None:
        await self._kill(Kind.EDGE, self._chance.choice(self.edges))

    def _owner(self) -> int:
        """The edge that said last that it owns the journal."""
        said = [(self._folder / f"{edge.name}.log").read_text().splitlines() for edge in self.edges]
        owned = [
            max((line for line in lines if OWNED in line), default="") for lines in said
        ]  # they begin with the time
        return owned.index(max(owned))

    async def _lose_owner(self, how: Loss) -> None:
        """Until the other edge has taken over; then it comes back, and stands by."""
        number = self._owner()
        edge, relay = self.edges[number], self._relays[number]
        if how is Loss.KILLED:
            await edge.kill()
        elif how is Loss.STOPPED:
            edge.send_signal(signal.SIGSTOP)
        else:
            relay.cut()
        self._note(how, edge.name)
        ends_at = time.monotonic() + self._options.patience_s
        while self._owner() == number:
            if time.monotonic() > ends_at:
                raise TrialFailed(f"no edge has taken over from {edge.name}")
            await asyncio.sleep(POLL_S)
        self._say(f"the other edge has taken over after {time.monotonic() - self._start - self.kills[-1].at_s:.1f} s")
        if how is Loss.KILLED:
            await edge.start()
        edge.send_signal(signal.SIGCONT)
        relay.heal()

    async def _kill_reader(self, name: str | None = None, *, comes_back: bool = True) -> None:
        running = [reader for reader in self.readers.values() if reader.is_running]
        await self._kill(
            Kind.READER, self.readers[name] if name else self._chance.choice(running), comes_back=comes_back
        )

    async def _kill(self, kind: Kind, process: ChildProcess, *, comes_back: bool = True) -> None:
        await process.kill()
        self._note(kind, process.name)
        if comes_back:
            await asyncio.sleep(RESTART_AFTER_S)
            await process.start()

    def _note(self, kind: Enum, target: str) -> None:
        at_s = time.monotonic() - self._start
        self.kills.append(Kill(kind, target, at_s))
        readers = ", ".join(f"{name} {count_seen(self._folder, name)}" for name in self.readers)
        what = f"{target}: {kind.value}" if isinstance(kind, Loss) else f"SIGKILL to {target}"
        self._say(f"{what} after {at_s:.1f} s; {self.accepted} rows stored, read: {readers}")
