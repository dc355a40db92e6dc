"""One seeded run of a query on a journal of an edge, which is trimmed, deleted and made anew (J-29)."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any

from bridges.journal import log
from bridges.journal.model import JournalSettings, NewMessage
from bridges.journal.pages import Page
from bridges.node.errors import JournalReplaced, RangeTrimmed
from bridges.spark.edge_client import Standing
from bridges.spark.journal_options import journal_options
from chaos.queries.code import Code
from chaos.quiet import without_logs
from chaos.routed.journal_store import JournalStore
from chaos.routed.judge import Judge, Violation
from oncewire.wire import encode_data_message

NAME = "orders"
STEPS = 120
PAGE_COUNT = 3
ALL = 1 << 30


class SimEdge:
    """What a query asks of an edge; see `EdgeClient`."""

    def __init__(self, store: JournalStore) -> None:
        self._store = store

    def standing(self, journal: str) -> Standing:
        """See `EdgeClient`."""
        found = self._store.peek(lambda do: log.state(do, journal))
        return Standing(found.uuid, found.trimmed, found.last)

    def read(self, journal: str, low: int, high: int) -> Iterator[Page]:
        """See `EdgeClient`; a page has few messages."""
        while low < high:
            state = self._store.peek(lambda do: log.state(do, journal))
            if low < state.trimmed:
                raise RangeTrimmed("messages were trimmed", f"up to {state.trimmed}", "go on with what is left")
            found = self._store.peek(partial(_read, journal, low, min(high - low, PAGE_COUNT)))
            yield Page(state.uuid, state.trimmed, state.last, found)
            if not found:
                return
            low = found[-1].position

    def close(self) -> None:
        """See `EdgeClient`."""


def _read(journal: str, after: int, count: int, do: Any) -> Any:
    return log.read(do, journal, after, count, ALL)[1]


class BatchesWorld:
    """One run; see `chaos.routed.world.Run`."""

    def __init__(self, code: Code, seed: int) -> None:
        self.code = code
        self.random = Random(seed)
        self.judge = Judge()
        self.store = JournalStore()
        self.faults = 0
        self._made = self._sent = 0
        self._make()
        self._begin_query()

    def _make(self) -> None:
        """The journal is there from now on; its messages say which one they are of, and at which position."""
        self._made += 1
        self._sent = 0
        self.store.transact(lambda do: log.configure(do, NAME, JournalSettings()))

    def _begin_query(self) -> None:
        """Another query, with a new checkpoint."""
        start = self.random.choice(("earliest", "latest"))
        given = {"edge": "http://127.0.0.1:1", "journal": NAME, "startingOffsets": start}
        given["maxOffsetsPerTrigger"] = str(self.random.randint(2, 9))
        self.options = journal_options(given, is_stream=True)
        self._log: list[str] = []
        self._sink: list[list[tuple[int, int]]] = []
        self._committed = 0
        self._start_over()

    def _start_over(self) -> None:
        self._planner: Any = self.code.journal_reading.JournalPlanner(self.options, SimEdge(self.store), lambda: 0.0)

    @without_logs()
    def run(self) -> int:
        """See Run."""
        steps: list[Callable[[], None]] = [self._append, self._append, self._query, self._query, self._query]
        for _ in range(STEPS):
            if self.random.random() < 0.12:
                self.faults += 1
                self._fault()
            else:
                self.random.choice(steps)()
        self.store.close()
        return STEPS

    def _append(self) -> None:
        count = self.random.randint(1, 4)
        numbers = range(self._sent + 1, self._sent + count + 1)
        self._sent += count
        messages = [NewMessage(encode_data_message(b"%d %d" % (self._made, number))) for number in numbers]
        self.store.transact(lambda do: log.append(do, NAME, messages, "t"))

    def _fault(self) -> None:
        kind = self.random.randrange(8)
        if kind == 0:
            self._trim()
        elif kind == 1:
            self._replace()
        elif kind < 5:
            self._start_over()
        else:  # the newest files of the checkpoint are lost, or the batch is run again
            self._committed = max(0, len(self._log) - 1)
            self._start_over()

    def _trim(self) -> None:
        position = self.random.randint(0, self._sent)
        self.store.transact(lambda do: log.trim(do, NAME, position))

    def _replace(self) -> None:
        self.store.transact(lambda do: log.delete(do, NAME))
        self._make()
        for _ in range(self.random.randint(0, 6)):
            self._append()

    # --- the query ----------------------------------------------------------------------------------------------------

    def _place(self, batch: int) -> dict[str, Any]:
        found: dict[str, Any] = self._planner.initial() if batch < 0 else json.loads(self._log[batch])
        return found

    def _query(self) -> None:
        """A batch, the next one or one again; what is missing ends the query."""
        try:
            self._run_batch()
        except (JournalReplaced, RangeTrimmed):
            self._begin_query()

    def _run_batch(self) -> None:
        batch = self._committed
        if batch == len(self._log):
            start = self._place(batch - 1)
            end = self._planner.latest(start, self.code.journal_reading.Limits(self.options.max_rows, None, None))
            if json.dumps(end) == json.dumps(start):
                return
            self._log.append(json.dumps(end))
            if self.random.random() < 0.3:  # the driver ends behind it, and more comes
                self._append()
                self._start_over()
        parts = self._planner.ranges(self._place(batch - 1), self._place(batch))
        if self.random.random() < 0.1:
            self.random.choice((self._replace, self._trim))()
        rows = [
            tuple(map(int, value.split()))
            for part in parts
            for found in self.code.journal_reading.read_journal(self.options, SimEdge(self.store), part)
            for value in found.column("value").to_pylist()
        ]
        self._look(batch, rows)
        self._committed = batch + 1

    def _look(self, batch: int, rows: list[Any]) -> None:
        """J-29: a batch comes again as it was; it follows the one before, and nothing is left out."""
        if batch < len(self._sink):
            if self._sink[batch] != rows:
                raise Violation(f"batch {batch} was {self._sink[batch]}, and is {rows}")
            return
        before = self._sink[-1][-1:] if self._sink else []
        together = [*before, *rows]
        for (made, position), (next_made, next_position) in itertools.pairwise(together):
            if (made, position + 1) != (next_made, next_position):
                raise Violation(f"{(next_made, next_position)} follows {(made, position)}")
        if not rows:
            raise Violation(f"batch {batch} is empty")
        self._sink.append(rows)
        self.judge.accepted.update(b"%d %d" % row for row in rows)
