"""A listener for streaming queries that also asks the bridge node; add it with `spark.streams.addListener`."""

from __future__ import annotations

import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from bridges.node.errors import NodeError
from bridges.spark.options import bridge_options, open_bridge
from bridges.spark.progress import QueryReport, join_progress, join_states, positions

logger = logging.getLogger("oncewire.spark")

MAX_QUERIES = 1_000
"""Reports that are kept, the newest of each query; the oldest goes first."""


def print_line(report: QueryReport) -> None:
    """Print the line of a report: `AmqpListener(report=print_line)` is for terminals and notebooks."""
    print(report.line(), flush=True)  # noqa: T201  # it is what it is for


class AmqpListener(StreamingQueryListener):  # type: ignore[misc]  # pyspark has no types for us
    """Joins each progress with the state of the node, or nodes. Spark calls it in a thread of its own.

    A node that cannot be asked changes nothing for the query; the report gives the reason. Of journals it reports what
    Spark knows: how far the query is behind.

    Args:
        options: `bridge` and what belongs to it, as for the source; None = no node is asked.
        report: called with each report, such as `print_line`; None = a line in the log `oncewire.spark`, level INFO.

    Raises:
        BadRequest: the options cannot be used.
    """

    def __init__(
        self, options: Mapping[str, str] | None = None, report: Callable[[QueryReport], None] | None = None
    ) -> None:
        bridge = None if options is None else bridge_options(options)
        self._nodes = [] if bridge is None else [open_bridge(one) for one in bridge.nodes()]
        self._is_embedded = bridge is not None and bridge.is_embedded
        self._report = report
        self._lock = threading.Lock()
        self._newest: OrderedDict[str, QueryReport] = OrderedDict()

    def newest(self, query: str) -> QueryReport | None:
        """The newest report of a query, by its id; None = there is none yet."""
        with self._lock:
            return self._newest.get(query)

    def close(self) -> None:
        """Let go of the nodes."""
        with self._lock:
            for node in self._nodes:
                node.close()

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802  # Spark's names, here and below
        """Nothing is known of it yet."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """Report a batch."""
        progress = json.loads(event.progress.json)
        with self._lock:
            try:
                found = join_progress(progress, self._state(progress))
            except NodeError as error:
                found = join_progress(progress, {}, str(error))
            self._newest[found.query] = found
            self._newest.move_to_end(found.query)
            while len(self._newest) > MAX_QUERIES:
                self._newest.popitem(last=False)
        if self._report is None:
            logger.info("%s", found.line())
        else:
            self._report(found)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Nothing has changed."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """The newest report stays."""

    def _state(self, progress: Mapping[str, Any]) -> dict[str, Any]:
        if not self._is_embedded:
            return join_states([node.status() for node in self._nodes])
        # An embedded node lives in Spark's other processes; what can be seen from here is its files.
        names = [name for source in progress["sources"] for name in positions(source.get("endOffset"))]
        (node,) = self._nodes
        return {"subscriptions": {name: {"last": node.offsets(name).last} for name in names}}
