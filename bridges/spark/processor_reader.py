"""The reading end of a processor, without Spark: what it may attempt next, and the rows of an attempt.

The rows have a few columns for each journal, the same for every processor with as many of them: see `columns_of`.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bridges.node.arrow_bodies import arrow
from bridges.node.errors import BadRequest, SnapshotUnknown
from bridges.node.interface import Node, Offsets
from bridges.spark.gap_checks import check_gaps, check_not_ended, check_retention
from bridges.spark.option_values import Guarantee
from bridges.spark.processor_join_core import (
    InputJournal,
    Places,
    attempt_end,
    check_journals,
    offset_of,
    places_of,
    shares,
    steps_between,
    text_of,
)
from oncewire.client.isolation import Isolation

logger = logging.getLogger("oncewire.processor")

KEPT_ATTEMPTS = 2
"""Finished attempts whose messages stay in the journals: a checkpoint that lost its newest files repeats them."""

Offset = Mapping[str, Any]


def columns_of(journals: int) -> list[tuple[str, str]]:
    """Names of the columns of an attempt's rows, with Spark's names of their types."""
    kinds = {"topic": "string", "journal": "string", "position": "bigint", "arrived": "timestamp", "payload": "binary"}
    return [(f"{name}_{number}", kind) for number in range(journals) for name, kind in kinds.items()]


@dataclass(frozen=True, slots=True)
class Task:
    """What one task of an attempt reads: of each journal the same number of messages.

    Attributes:
        journals: uuid of each.
        lows: what it reads lies behind these positions.
        steps: how many of each.
        done_with: of each journal, up to where the attempt is released before it is read; empty = nothing is.
    """

    journals: tuple[str, ...]
    lows: tuple[int, ...]
    steps: int
    done_with: tuple[int, ...] = ()


class AttemptReader:
    """Reads a processor's journals through a node.

    Args:
        node: where the journals are, and the processor's snapshots.
        processor: its name.
        journals: what it reads.
        fails_at_gaps: stop where messages are missing; False = log it and continue.
        isolation: of its subscriptions; None = as they have it.
        guarantee: at-most-once: an attempt is released before it is read (J-10). At-least-once: where an attempt ends
            is not kept, a repeat may end elsewhere.

    Errors of all methods: `NodeError` and its kinds.
    """

    def __init__(
        self,
        node: Node,
        processor: str,
        journals: Sequence[InputJournal],
        *,
        fails_at_gaps: bool = True,
        isolation: Isolation | None = None,
        guarantee: Guarantee = Guarantee.EXACTLY_ONCE,
    ) -> None:
        self._node = node
        self._fails_at_gaps = fails_at_gaps
        self._isolation = isolation
        self._guarantee = guarantee
        self._processor = processor
        self._journals = tuple(journals)
        self._is_subscribed = False
        self._finished: deque[Places] = deque(maxlen=KEPT_ATTEMPTS)

    def initial(self) -> dict[str, Any]:
        """Where the first attempt begins: the same each time, however often it is asked."""
        self._subscribe()
        positions = [self._node.initial_offset(each.subscription, "earliest") for each in self._journals]
        uuids = [self._node.offsets(each.subscription).journal for each in self._journals]
        return {
            each.subscription: {"journal": uuid, "seq": position}
            for each, uuid, position in zip(self._journals, uuids, positions, strict=True)
        }

    def newest(self) -> list[int]:
        """The newest position of each journal."""
        self._subscribe()
        return [self._node.offsets(each.subscription).last for each in self._journals]

    def next_end(self, start: Offset, max_steps: int | None, target: Sequence[int] | None = None) -> dict[str, Any]:
        """Where the attempt ends that begins at `start`; `start` itself if there is nothing to attempt.

        The first time it is asked this is decided, durably; later nothing else is answered. So a repeat reads the
        same messages even when Spark had not written its offset log yet, or has lost it.

        Args:
            start: where the attempt before it ended.
            max_steps: limit, None = any number.
            target: newest positions that count; None = whatever is there.

        Raises:
            SubscriptionGap: the attempt would skip missing messages.
        """
        self._subscribe()
        begins = places_of(self._journals, start)
        found = [self._node.offsets(each.subscription) for each in self._journals]
        check_journals(self._journals, begins, [offsets.journal for offsets in found])
        newest = [
            self._up_to_gap(each, begin.position, offsets)
            for each, begin, offsets in zip(self._journals, begins, found, strict=True)
        ]
        if target is not None:
            newest = list(map(min, newest, target))
        ends = attempt_end(begins, newest, max_steps)
        if ends == begins:
            for each, begin, offsets in zip(self._journals, begins, found, strict=True):
                if offsets.last <= begin.position:
                    check_not_ended(offsets, each.subscription)
            return offset_of(self._journals, begins)
        return offset_of(self._journals, self._choose(begins, ends))

    def tasks(self, start: Offset, stop: Offset, tasks: int) -> list[Task]:
        """Share an attempt among tasks.

        Raises:
            SnapshotUnknown: the attempt was decided otherwise: the checkpoint is not this processor's.
            SubscriptionGap: it skips missing messages.
        """
        begins, ends = places_of(self._journals, start), places_of(self._journals, stop)
        steps = steps_between(begins, ends)
        if not steps:
            return []
        chosen = self._choose(begins, ends)
        if chosen != ends:
            raise SnapshotUnknown(
                f"processor {self._processor} cannot attempt {text_of(start)} to {text_of(stop)}",
                f"the attempt that begins there ended at {text_of(offset_of(self._journals, chosen))}",
                "the checkpoint is not this processor's: restore its own",
            )
        skipped = self._released(begins, steps)
        if skipped == steps:
            return []
        for each, place in zip(self._journals, begins, strict=True):
            behind = self._node.offsets(each.subscription, place.position, max_rows=steps)
            check_gaps(behind.gaps, each.subscription, fails=self._fails_at_gaps)
        uuids = tuple(place.journal for place in begins)
        is_once_at_most = self._guarantee is Guarantee.AT_MOST_ONCE
        done_with = tuple(place.position for place in ends) if is_once_at_most else ()
        return [
            Task(uuids, tuple(place.position + skipped + first for place in begins), last - first, done_with)
            for first, last in shares(steps - skipped, tasks)
        ]

    def _released(self, begins: Places, steps: int) -> int:
        """At-most-once: how many of the steps a task has begun with before (J-10)."""
        if self._guarantee is not Guarantee.AT_MOST_ONCE:
            return 0
        trimmed = [self._node.offsets(each.subscription).trimmed for each in self._journals]
        passed = max(mark - place.position for mark, place in zip(trimmed, begins, strict=True))
        skipped = min(max(passed, 0), steps)
        if skipped:
            logger.warning(
                "processor %s: %d of %d steps were handed out before and are not tried again",
                self._processor,
                skipped,
                steps,
            )
        return skipped

    def finished(self, stop: Offset) -> None:
        """The attempt that ended at `stop` will not be repeated: messages before it may go, some attempts later."""
        self._finished.append(places_of(self._journals, stop))
        if len(self._finished) == KEPT_ATTEMPTS:
            for each, place in zip(self._journals, self._finished[0], strict=True):
                self._node.trim(each.subscription, place.position)

    def _up_to_gap(self, each: InputJournal, low: int, found: Offsets) -> int:
        """J-8: an attempt ends before the first gap, one that would begin with it fails; unless it may be passed."""
        if not self._fails_at_gaps or not found.deleted <= low < found.last:
            return found.last
        gaps = self._node.offsets(each.subscription, low).gaps
        if not gaps or gaps[0].position > low:
            return gaps[0].position if gaps else found.last
        check_gaps(gaps, each.subscription, fails=True)
        return found.last

    def _choose(self, begins: Places, ends: Places) -> Places:
        if self._guarantee is Guarantee.AT_LEAST_ONCE:
            return ends
        start, stop = (text_of(offset_of(self._journals, places)) for places in (begins, ends))
        return places_of(self._journals, json.loads(self._node.choose_snapshot(self._processor, start, stop)))

    def _subscribe(self) -> None:
        if not self._is_subscribed:
            for each in self._journals:
                self._node.subscribe(each.subscription, each.topics, self._isolation)
                if self._guarantee is Guarantee.AT_MOST_ONCE:
                    check_retention(self._node, each.subscription)
            self._is_subscribed = True


def read_task(
    nodes: Sequence[Node], journals: Sequence[InputJournal], task: Task, query: str, *, is_first_attempt: bool = True
) -> Iterator[Any]:
    """The rows of a task as record batches with the columns of `columns_of`; all of them, or an error.

    Args:
        nodes: one for each journal: they are read at the same time, and a connection has one answer at a time.
        journals: of the processor.
        task: of `AttemptReader.tasks`.
        query: that reads: it owns the subscriptions from then on.
        is_first_attempt: whether no other attempt of this task was started: at-most-once has no second one.

    Raises:
        NodeError: a journal cannot be read.
    """
    if task.done_with and not is_first_attempt:
        logger.warning(
            "processor of %s: %d steps from %s were handed out to an attempt that failed and are not tried again",
            ", ".join(each.subscription for each in journals),
            task.steps,
            task.lows,
        )
        return
    ranges = [
        node.read_range(each.subscription, low, low + task.steps, journal=uuid, query=query)
        for node, each, low, uuid in zip(nodes, journals, task.lows, task.journals, strict=True)
    ]
    is_released = not task.done_with
    for parts in aligned(ranges):
        if not is_released:  # the first messages have come: the subscriptions are this query's
            for node, each, position in zip(nodes, journals, task.done_with, strict=True):
                node.trim(each.subscription, position, query)
            is_released = True
        yield _rows(parts, task.journals)


def aligned(sources: Sequence[Iterator[Any]]) -> Iterator[list[Any]]:
    """Record batches of several ranges, cut so that those that come together have equally many rows.

    Raises:
        BadRequest: one range has more rows than another.
    """
    waiting: list[Any] = [None] * len(sources)
    while True:
        for number, source in enumerate(sources):
            while waiting[number] is None or not waiting[number].num_rows:
                waiting[number] = next(source, None)
                if waiting[number] is None:
                    break
        if any(batch is None for batch in waiting):
            if any(batch is not None for batch in waiting):
                raise BadRequest("ranges cannot be read together", "one is longer", "give ranges of one length")
            return
        rows = min(batch.num_rows for batch in waiting)
        yield [batch.slice(0, rows) for batch in waiting]
        waiting = [batch.slice(rows) for batch in waiting]


def _rows(parts: Sequence[Any], journals: Sequence[str]) -> Any:
    pa = arrow()
    columns: list[Any] = []
    fields: list[Any] = []
    names = iter(columns_of(len(parts)))
    for part, journal in zip(parts, journals, strict=True):
        values = {
            "topic": part.column("topic"),
            "journal": pa.repeat(pa.scalar(journal), part.num_rows),
            "position": part.column("position"),
            "arrived": part.column("arrived"),
            "payload": part.column("payload"),
        }
        for column in values.values():
            fields.append(pa.field(next(names)[0], column.type))
            columns.append(column)
    return pa.record_batch(columns, schema=pa.schema(fields))
