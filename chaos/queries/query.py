"""One Spark query as Spark lives it: ends are logged first, then tasks run, then the batch is committed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from bridges.spark.option_values import Guarantee
from bridges.spark.options import source_options
from chaos.queries.code import Code
from chaos.queries.network import TOPIC
from chaos.queries.sim_node import SUB, SimClock, SimNode
from chaos.routed.judge import Violation
from oncewire.wire import decode_message

RETAINED = 2


class Query:
    """A query and its sink, which decides each batch once.

    Args:
        code: of the source.
        node: that it reads from.
        name: of the query.
        more: options of the source.
    """

    def __init__(self, code: Code, node: SimNode, name: str, **more: str) -> None:
        given = {"amqp.urls": "amqp://127.0.0.1:1", "bridge.folder": "/none", "subscribe": TOPIC, "subscription": SUB}
        self._code = code
        self._node = node
        self.name = name
        self._given = {**given, "minBatchesToRetain": str(RETAINED), **more}
        self.log: list[str] = []
        self.committed = 0
        self.sink: dict[int, list[bytes]] = {}
        self.handed_out: list[bytes] = []
        self.passes_gaps = False
        self.between: Callable[[], object] = lambda: None
        """Called when a batch was planned, and before it is read."""
        self._newest = 0
        self._parts: list[Any] = []
        self.start_over()

    @property
    def rows(self) -> list[bytes]:
        """What the sink has, in order."""
        return [row for batch in sorted(self.sink) for row in self.sink[batch]]

    def start_over(self) -> None:
        """The driver ends and is started again."""
        given = {**self._given, "failOnDataLoss": "false" if self.passes_gaps else "true"}
        self.options = source_options(given)
        self.planner: Any = self._code.reading.BatchPlanner(self.options, self._node.api, SimClock().time)

    def lose_log(self, count: int) -> None:
        """The newest files of the checkpoint are lost with the power."""
        del self.log[max(0, self._newest - RETAINED, len(self.log) - count) :]
        self.committed = min(self.committed, len(self.log))
        self.start_over()

    def _place(self, batch: int) -> dict[str, Any]:
        if batch < 0:
            found: dict[str, Any] = self.planner.initial().for_spark()
        else:
            found = json.loads(self.log[batch])
        return found

    def plan(self) -> bool:
        """Log the next batch, if there is one."""
        if len(self.log) > self.committed:
            return True
        start = self._place(len(self.log) - 1)
        limits = self._code.reading.Limits(self.options.max_rows, None, None)
        end = self.planner.latest(start, limits)
        if json.dumps(end) == json.dumps(start):
            return False
        self.log.append(json.dumps(end))
        return True

    def run(self, stops_at: int | None = None, *, again: bool = False) -> list[bytes]:
        """Run the tasks of the batch that is logged.

        Args:
            stops_at: rows after which a task is lost; None = none is.
            again: these are further attempts of the tasks of the last call, which were lost.

        Returns:
            What this attempt has read.
        """
        batch = self.committed
        if not again:
            self._newest = max(self._newest, batch)
            if batch:
                self.planner.done(self._place(batch - 1))
            self._parts = self.planner.ranges(self._place(batch - 1), self._place(batch))
        self.between()
        rows: list[bytes] = []
        for part in self._parts:
            found = self._code.reading.read_range(
                self.options, self._node.api, part, query=self.name, is_first_attempt=not again
            )
            for each in found:
                rows += each.column("value").to_pylist()
                if stops_at is not None and len(rows) >= stops_at:
                    return rows[:stops_at]
        if not self._is_lossy and len(rows) != sum(part.high - part.low for part in self._parts):
            raise Violation(f"J-3: {self.name} reads {rows} of {self._parts}")
        self._decide(batch, rows)
        self.committed = batch + 1
        return rows

    @property
    def _is_lossy(self) -> bool:
        return self.passes_gaps or self.options.guarantee is Guarantee.AT_MOST_ONCE

    def _decide(self, batch: int, rows: list[bytes]) -> None:
        known = self.sink.setdefault(batch, rows)
        if known != rows and not self._is_lossy:
            raise Violation(f"J-5: batch {batch} of {self.name} was {known}, and is {rows}")


def body_of(payload: bytes) -> bytes:
    """The content of an encoded message."""
    body = decode_message(payload).body
    assert isinstance(body, bytes)
    return body
