"""One run: a network, edges with a journal, its readers, kills among them, and the verdict."""

from __future__ import annotations

import asyncio
import json
import logging
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
from chaos.experiments.journal_demo.process import PASSES, REPLAY, count_seen, seen_by
from chaos.experiments.journal_demo.report import JournalResult, Kind, Loss
from chaos.experiments.journal_demo.verdict_core import Finding, body_of, judge, topic_of
from chaos.experiments.kills import by_turns
from chaos.experiments.stage import POLL_S, SETTINGS, Event, Stage, StageOptions, in_folder
from chaos.network.database_relay import DatabaseRelay, relay_to
from chaos.network.trial import TrialFailed
from oncewire.store.contents import Contents
from oncewire.store.opening import file_of, open_store
from oncewire.store.transaction import SqlTransaction
from oncewire.wire import decode_message
from router.commands.local_network import LocalNetwork

TOPICS = "flights.#"
OWNED = f" {EdgeEvent.PART_OWNED.value} "
PROCESS = "chaos.experiments.journal_demo.process"
AWAY, LATE = "away", "late"
"""Readers with a cursor; the one that has none is REPLAY."""
REPLAY_AT, LEAVES_AT, LATE_AT, BACK_AT = 0.2, 0.33, 0.5, 0.66
"""Parts of the rows that are accepted when a reader begins, leaves, and comes back."""
EXTRA_KILLS = 2
"""The reader that leaves is killed, and the one that replays in its second pass."""
QUIET_S = 1.0
"""Behind the last message: a message that came once more would come now."""
PAGE, PAGE_BYTES = 1_000, 1 << 24
"""What is read of the journal at once."""


@dataclass(frozen=True, slots=True)
class JournalOptions(StageOptions):
    """What to run."""

    store: str | None = None
    """URL: a PostgreSQL database is for two edges. None: one edge over a SQLite file in the folder."""
    is_takeover: bool = False
    """What is killed is the edge that owns the journal, or it is stopped, or cut off from the database."""

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
    return await in_folder(options.keep, "oncewire-demo-journal-", partial(_run_in, options, bodies, say))


async def _run_in(
    options: JournalOptions, bodies: Sequence[bytes], say: Callable[[str], None], folder: Path
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
        async with AsyncExitStack() as stack:
            if options.is_takeover:
                await stage.lead_through_relays(stack)
            waits = logging.FileHandler(folder / "publisher.log")  # that rows wait for an edge is what a kill means
            stack.callback(waits.close)
            logging.getLogger("oncewire.client").addHandler(waits)
            stack.callback(logging.getLogger("oncewire.client").removeHandler, waits)
            problems = await stage.play_to_the_end()
        findings = await asyncio.to_thread(_judge, folder, bodies, stored)
        return JournalResult(**stage.outcome(began, problems), kinds=options.kinds, findings=findings)


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


class _Stage(Stage):
    """See Stage."""

    extra_kills = EXTRA_KILLS

    def __init__(
        self,
        options: JournalOptions,
        network: LocalNetwork,
        folder: Path,
        bodies: Sequence[bytes],
        stored: Stored,
        say: Callable[[str], None],
    ) -> None:
        super().__init__(options, network, folder, bodies, say)
        self._schedule = options.schedule()
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

    @property
    def processes(self) -> Sequence[ChildProcess]:  # type: ignore[override]
        """See Stage."""
        return (*self.edges, *self.readers.values())

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

    async def play(self) -> None:
        """See Stage."""
        for edge in self.edges:  # the first one owns the journal
            await edge.start()
        await self.readers[AWAY].start()
        await self.publish_under(self._events())
        await self.until(lambda: count_seen(self._folder, REPLAY, PASSES[-1]) > 0, "the second pass has begun")
        await self._kill_reader(REPLAY)
        await self.until(self._is_all_read, "every reader has read all")
        await asyncio.sleep(QUIET_S)

    def topic_of(self, body: bytes) -> str:
        """See Stage."""
        return topic_of(body)

    def come(self) -> int:
        """See Stage."""
        return self.accepted

    def standing(self) -> str:
        """See Stage."""
        readers = ", ".join(f"{name} {count_seen(self._folder, name)}" for name in self.readers)
        return f"{self.accepted} rows stored, read: {readers}"

    def _events(self) -> list[Event]:
        events: list[Event] = [
            (REPLAY_AT, self.readers[REPLAY].start),
            (LEAVES_AT, lambda: self._kill_reader(AWAY, comes_back=False)),
            (LATE_AT, self.readers[LATE].start),
            (BACK_AT, self.readers[AWAY].start),
        ]
        doings: dict[Enum, Callable[[], Awaitable[None]]] = {
            Kind.ROUTER: lambda: self.kill_router(Kind.ROUTER),
            Kind.EDGE: lambda: self.kill(Kind.EDGE, self._chance.choice(self.edges)),
            Kind.READER: self._kill_reader,
            **{how: partial(self._lose_owner, how) for how in Loss},
        }
        for number, kind in enumerate(self._schedule):
            events.append(((number + 0.5) / len(self._schedule), doings[kind]))
        return sorted(events, key=lambda event: event[0])

    def _is_all_read(self) -> bool:
        counts = [count_seen(self._folder, name) for name in (AWAY, LATE)]
        return min(*counts, count_seen(self._folder, REPLAY, PASSES[-1])) >= len(self._bodies)

    # --- kills --------------------------------------------------------------------------------------------------------

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
        self.note(how, edge.name, f"{edge.name}: {how.value}")
        ends_at = time.monotonic() + self._patience_s
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
        await self.kill(
            Kind.READER, self.readers[name] if name else self._chance.choice(running), comes_back=comes_back
        )
