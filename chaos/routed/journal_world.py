"""Runs with a journal: readers of three kinds, senders, topics that append, an operator, a thief (J-17 to J-26)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from bridges.journal import log
from bridges.journal.model import AtTime, JournalSettings, NewMessage, Place, Start
from chaos.routed.bridges import SimBridge
from chaos.routed.clients import SimClient, SimPusher
from chaos.routed.code import Code
from chaos.routed.journal_ends import JournalEnd, SimEdge
from chaos.routed.journal_judge import NAME, JournalJudge
from chaos.routed.journal_store import JournalStore
from chaos.routed.judge import Violation
from chaos.routed.readers import ADDRESS, CursorReader, MapReader, OwnReader, SimReader, Thief
from chaos.routed.world import World
from oncewire.wire import encode_data_message

SENT = 12
"""Messages of each direct sender."""
APPENDED = 60
"""Messages that topics bring."""
MOST_SKEW_S = 30
"""How far the clocks of two edges are apart: as many seconds as steps."""
BURSTS = (1, 2, 3, 12)
"""Messages that come at once: now and then more than a reader may be ahead of its cursor."""
KEYS = 3
"""Of a compacted journal."""
FULL_BYTES = 1
FAULTS = (0, 1, 2, 2, 3, 3, *[4] * 6)
KINDS = (MapReader, OwnReader, CursorReader)


class JournalSender(SimPusher):
    """Sends to the journal."""

    address = ADDRESS


class JournalWorld(World):
    """One run with a journal in the place of the queue."""

    judge: JournalJudge

    def __init__(self, code: Code, seed: int) -> None:
        self.journal = JournalStore()
        self._left = APPENDED
        self._edges: dict[str, SimEdge] = {}
        super().__init__(code, seed)

    # --- who is there -------------------------------------------------------------------------------------------------

    def _judge(self) -> JournalJudge:
        self._is_compacted = self.random.random() < 0.4
        self._is_trimmed = self.random.random() < 0.4
        self._is_sought = self.random.random() < 0.4
        self._configure(1 << 30)
        return JournalJudge(self.journal, is_compacted=self._is_compacted, is_trimmed=self._is_trimmed)

    def _configure(self, max_bytes: int) -> None:
        key = self.code.log.KeyOf.SUBJECT if self._is_compacted else None
        settings = JournalSettings(max_bytes=max_bytes, compact_by=key)
        self.journal.transact(lambda do: log.configure(do, NAME, settings))

    def _build_clients(self) -> None:
        self._append()
        for number in range(self.random.randint(1, 2)):
            second = number == 0 or self.random.random() < 0.7
            self.clients.append(JournalSender(f"p{number}", self.judge, self.random, SENT, self._on_sent, second))
        first = self.random.randrange(len(KINDS))
        for number in range(self.random.randint(2, 3)):
            kind = KINDS[(first + number) % len(KINDS)]
            self.clients.append(kind(f"r{number}", self.judge, self.random, self._start(kind)))
        with_cursors = [each for each in self._readers() if each.has_cursor]
        if self.random.random() < 0.5:
            self.clients.append(Thief(self.random.choice(with_cursors)))

    def _start(self, kind: type[SimReader]) -> Start:
        if kind is OwnReader:
            return Place.FIRST  # until it has a position
        found = self.random.randrange(5)
        if found == 0:
            return self.random.randint(1, self.judge.state.last)
        return AtTime(self.judge.times[-1]) if found == 1 else list(Place)[found - 2]

    def _bridge(self, name: str) -> SimBridge:
        bridge = super()._bridge(name)
        self._edges[name] = SimEdge(bridge, self.journal, self.random.uniform(0, MOST_SKEW_S))
        return bridge

    def _readers(self) -> list[SimReader]:
        return [each for each in self.clients if isinstance(each, SimReader)]

    # --- steps --------------------------------------------------------------------------------------------------------

    def _step(self, step: int) -> None:
        self.journal.now = float(step)
        super()._step(step)

    def _others(self) -> list[Callable[[], object]]:
        late: list[Callable[[], object]] = [
            partial(self._move, reader) for reader in self._readers() if reader.is_late and self.random.random() < 0.1
        ]
        return [self._append, *late] if self._left and not self.judge.is_full and self.random.random() < 0.15 else late

    def _append(self) -> None:
        """Topics bring some messages."""
        numbers = range(self._left, max(0, self._left - self.random.choice(BURSTS)), -1)
        self._left -= len(numbers)
        messages = [
            NewMessage(
                encode_data_message(b"t:%d" % number),
                0,
                f"k{self.random.randrange(KEYS)}" if self._is_compacted else None,
            )
            for number in numbers
        ]
        self.journal.transact(lambda do: self.code.log.append(do, NAME, messages, "t"))

    def _move(self, reader: SimReader) -> None:
        """J-24: an operator moves a cursor to the oldest message."""
        if reader.track.high is not None and not self.judge.cursor_of(reader.track):
            raise Violation(f"the cursor of {reader.name} is gone")
        cursor = self.journal.transact(lambda do: self.code.cursors.seek(do, NAME, reader.track.cursor, Place.FIRST))
        self.judge.on_moved(reader.track, cursor.low)
        reader.is_late = False

    # --- faults -------------------------------------------------------------------------------------------------------

    def _fault(self) -> None:
        kind = self.random.choice(FAULTS)
        plain = [each for each in self.clients if isinstance(each, CursorReader)]
        mapped = [each for each in self.clients if isinstance(each, MapReader)]
        if kind == 0 and mapped:
            self._lose(mapped[0])
            mapped[0].crash()
        elif kind == 1 and self._is_trimmed:
            self._trim()
        elif kind == 2 and self._is_sought and plain and plain[0].is_ready:
            self._lose(plain[0])
            self._move(plain[0])
        elif kind == 3 and self._is_sought and plain:
            plain[0].leave()
        else:
            super()._fault()
            return
        self.faults += 1

    def _lose(self, client: SimClient) -> None:
        if client.end is not None:
            self.pipes.cut(client.end)

    def _trim(self) -> None:
        state = self.judge.state
        position = self.random.randint(state.trimmed, state.last)
        self.journal.transact(lambda do: self.code.log.trim(do, NAME, position))
        self.judge.look()

    def _toggle_full(self) -> None:
        self._configure(1 << 30 if self.judge.is_full else FULL_BYTES)
        self.judge.is_full = not self.judge.is_full

    def _calm(self) -> None:
        super()._calm()
        if self.judge.is_full:
            self._toggle_full()
        for reader in self._readers():
            reader.is_calm = True
        self.clients = [each for each in self.clients if not isinstance(each, Thief)]

    # --- the end ------------------------------------------------------------------------------------------------------

    def _is_done(self) -> bool:
        return (
            not self._left
            and all(client.is_done for client in self._pushers())
            and all(reader.is_done for reader in self._readers())
            and all(link.core.is_joined for router in self.routers.values() for link in router.links.links)
        )

    def _story(self) -> str:
        return "; ".join(
            f"{reader.name} misses {self.judge.misses(reader.track)} of {self.judge.state.last}, and has the cursor "
            f"{self.judge.cursor_of(reader.track)}"
            for reader in self._readers()
            if not reader.is_done
        )

    def _judge_end(self, exactly_once: set[bytes]) -> None:
        self.judge.judge_end(self.sent, exactly_once)
        for bridge in self.bridges:
            waiters = sum(len(found) for found in self._edges[bridge.name].waiters.values())
            links = [end for end in bridge.links.values() if isinstance(end, JournalEnd) and end.link.is_sending]
            if waiters > sum(2 if end.has_cursor else 1 for end in links):
                raise Violation(f"{waiters} events are waited for, by {len(links)} links")
        self.journal.close()
