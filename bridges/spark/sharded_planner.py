"""The driver's part for a subscription that several nodes share out: a `BatchPlanner` for each, and one batch of all.

Its offsets have an entry for each node, {"SUBSCRIPTION#0": ..., "SUBSCRIPTION#1": ...}, with the uuid of that node's
journal. Tasks read, claim and give up each range at its node, as they do where there is one node only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from bridges.spark.offsets import ShardOffsets, merged, refuse_kafkas
from bridges.spark.options import SourceOptions, open_node
from bridges.spark.reading import BatchPlanner, Limits, Patience, Range
from bridges.spark.sharding import check_names, check_topics, split_rows


class ShardedPlanner:
    """See the module; methods and errors are those of `BatchPlanner`.

    Args:
        options: of the source, with all nodes.
        planners: one for each node, in order.
        clock: seconds, for `maxTriggerDelay`.
    """

    def __init__(self, options: SourceOptions, planners: Sequence[BatchPlanner], clock: Callable[[], float]) -> None:
        self._options = options
        self._planners = planners
        self._names = [one.offset_name for one in options.shards()]
        self._patience = Patience(options.max_trigger_delay_s, clock)
        self._has_target = False
        self._is_checked = False

    def close(self) -> None:
        """Let go of the nodes."""
        for planner in self._planners:
            planner.close()

    def initial(self) -> ShardOffsets:
        """Where the first batch begins."""
        self._check()
        return ShardOffsets(tuple(planner.initial() for planner in self._planners))

    def latest(self, given: dict[str, Any], limits: Limits) -> dict[str, Any]:
        """Where a batch that begins at `given` ends; a node without new messages stays where it is."""
        self._check()
        starts = self._parts(given)
        most: list[int | None] = [None] * len(starts)
        max_bytes = limits.max_bytes
        if limits != Limits():
            waiting = [planner.waiting(start) for planner, start in zip(self._planners, starts, strict=True)]
            if not self._has_target and not self._patience.is_enough(sum(waiting), limits.min_rows):
                return given
            if limits.max_rows is not None:
                most = list(split_rows(limits.max_rows, waiting))
            if max_bytes is not None:
                max_bytes = max(1, max_bytes // max(1, sum(rows > 0 for rows in waiting)))
        ends = [
            start if rows == 0 else planner.latest(start, Limits(rows, max_bytes))
            for planner, start, rows in zip(self._planners, starts, most, strict=True)
        ]
        if ends != starts:
            self._patience.begin_anew()
        return merged(ends)

    def fix_target(self) -> None:
        """Read no further than what is there now."""
        self._has_target = True
        for planner in self._planners:
            planner.fix_target()

    def newest(self) -> dict[str, Any] | None:
        """The newest known messages; None = not all nodes were read yet."""
        found = [part for planner in self._planners if (part := planner.newest()) is not None]
        return merged(found) if len(found) == len(self._planners) else None

    def done(self, given: dict[str, Any]) -> None:
        """Spark will not ask for anything up to this place again."""
        for planner, part in zip(self._planners, self._parts(given), strict=True):
            planner.done(part)

    def ranges(self, given_start: dict[str, Any], given_end: dict[str, Any]) -> list[Range]:
        """What the tasks of a batch read; `minPartitions` is shared out among the nodes that have something."""
        self._check()
        parts = list(zip(self._parts(given_start), self._parts(given_end), strict=True))
        busy = max(1, sum(start != end for start, end in parts))
        tasks = -(-self._options.min_partitions // busy)
        return [
            replace(found, shard=number)
            for number, (planner, part) in enumerate(zip(self._planners, parts, strict=True))
            for found in planner.ranges(*part, min_parts=tasks)
        ]

    def _check(self) -> None:
        """Once for this process: the nodes are the right ones, and receive all that is asked for."""
        if not self._is_checked:
            check_topics(self._options, [planner.received_topics() for planner in self._planners])
            self._is_checked = True

    def _parts(self, given: dict[str, Any]) -> list[dict[str, Any]]:
        """An offset of Spark's, cut into those of the nodes."""
        refuse_kafkas(given)
        check_names(self._options.subscription, list(given), self._names)
        return [{name: given[name]} if name in given else given for name in self._names]


Planner: TypeAlias = BatchPlanner | ShardedPlanner


def open_planner(options: SourceOptions, clock: Callable[[], float]) -> Planner:
    """The driver's part for a source; nothing is opened before it is needed."""
    planners = [BatchPlanner(one, open_node(one), clock) for one in options.shards()]
    return planners[0] if len(planners) == 1 else ShardedPlanner(options, planners, clock)
