"""What a source does, without Spark: where batches begin and end, which tasks read what, and what is lost or refused.

Two processes take part. The driver's plans (`BatchPlanner`); it does not know which query it works for. Tasks read
(`read_range`); they know it, so ownership is claimed and messages are given up there, never by the driver: a query
with the wrong checkpoint is refused before it could delete anything (J-6, J-7).

What `deliveryGuarantee` means here. Exactly-once and at-least-once are the same for a source: a batch is read again as
it was, until it is committed. At-most-once gives a batch up before the first of its rows is read (J-10): a batch that
was begun is not read again by anybody, neither by a query that is started again nor by a second attempt of a task.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bridges.node.errors import (
    BadRequest,
    JournalReplaced,
    NodeError,
    OwnedByAnother,
    RangeHole,
    RangeNotThere,
    RangeTrimmed,
)
from bridges.node.gaps import Gap
from bridges.node.interface import Node, Offsets
from bridges.spark.gap_checks import check_gaps, check_not_ended, check_retention
from bridges.spark.offsets import Offset, read_offset, refuse_kafkas
from bridges.spark.option_values import EARLIEST, LATEST, Guarantee, Place, is_pattern
from bridges.spark.options import SourceOptions
from bridges.spark.schema import RowDecoder
from bridges.spark.sharding import check_names, check_whole, sharded_journal

logger = logging.getLogger("oncewire.spark")

TASK_ROWS = 50_000
"""A task with more is cut: it takes longer than Spark needs to start another one."""
MAX_TASKS = 256
"""Of a batch without limits: more tasks than that only cost planning."""


@dataclass(frozen=True, slots=True)
class Range:
    """What one task reads.

    Attributes:
        journal: the uuid that the positions are of.
        low, high: it reads (low, high].
        done_with: this task releases messages up to this position; None = none.
        shard: which of the source's nodes has them.
    """

    journal: str
    low: int
    high: int
    done_with: int | None = None
    shard: int = 0


@dataclass(frozen=True, slots=True)
class Limits:
    """How large a batch may be, and how large it should be; None = any size."""

    max_rows: int | None = None
    max_bytes: int | None = None
    min_rows: int | None = None


class Patience:
    """How long a batch may wait until there are as many messages as it should have.

    Args:
        delay_s: how long, `maxTriggerDelay`.
        clock: seconds.
    """

    def __init__(self, delay_s: float, clock: Callable[[], float]) -> None:
        self._delay_s = delay_s
        self._clock = clock
        self._waiting_since: float | None = None

    def is_enough(self, rows: int, min_rows: int | None) -> bool:
        """Whether there should be a batch of so many."""
        if min_rows is None or rows >= min_rows:
            return True
        now = self._clock()
        if self._waiting_since is None:
            self._waiting_since = now
        return now - self._waiting_since >= self._delay_s

    def begin_anew(self) -> None:
        """There is a batch; the next one may wait as long."""
        self._waiting_since = None


class BatchPlanner:
    """The driver's part. Nothing is opened before it is needed; not for several threads.

    Args:
        options: of the source.
        node: its node; `close()` closes it.
        clock: seconds, for `maxTriggerDelay`.
    """

    def __init__(self, options: SourceOptions, node: Node, clock: Callable[[], float]) -> None:
        self._options = options
        self._node = node
        self._patience = Patience(options.max_trigger_delay_s, clock)
        self._journal = ""
        self._topics: Sequence[str] = options.topics
        self._target: int | None = None
        self._done_with: int | None = None
        self._newest: Offset | None = None

    def close(self) -> None:
        """Let go of the node."""
        self._node.close()

    def received_topics(self) -> Sequence[str]:
        """What the node receives for the subscription."""
        self._subscribe()
        return self._topics

    def initial(self) -> Offset:
        """Where the first batch begins: the same for ever, whatever has arrived since.

        Raises:
            JournalReplaced: `startingOffsets` names another journal.
            OwnedByAnother: another query has read on from there.
            BadRequest: `startingOffsets` is not in the journal.
        """
        journal = self._subscribe()
        start = self._options.start
        _check_journal(start, journal)
        name = self._options.subscription
        position = self._node.initial_offset(name, start.at)
        marks = self._node.offsets(name)
        is_once_at_most = self._options.guarantee is Guarantee.AT_MOST_ONCE
        if marks.released > position and marks.owner is not None and not is_once_at_most:
            # A query that asks for its beginning has no finished batch, so it has released nothing. What was trimmed
            # otherwise may be its first batch (J-15), or what a former query has read.
            raise OwnedByAnother(
                f"the subscription {name!r} cannot be read with a new checkpoint",
                f"query {marks.owner} has read it up to position {marks.released}",
                "use its checkpoint, or another subscription; "
                "if that checkpoint is lost, run `oncewire bridge release --keep`",
            )
        if marks.last == 0 and self._newest is None:
            logger.warning("%s", nothing_yet(name, self._options.topics))
        return Offset(self._options.offset_name, journal, position)

    def latest(self, given: dict[str, Any], limits: Limits) -> dict[str, Any]:
        """Where a batch that begins at `given` ends; `given` itself where there should be no batch now.

        The first answer for a batch stays (J-5), whatever has arrived since.

        Raises:
            JournalReplaced, RangeTrimmed, RangeNotThere, SubscriptionGap: messages are missing, and `failOnDataLoss`
                is set.
        """
        self._subscribe()
        start = self._offset(given)
        low, found = self._available(start, limits)
        self._newest = Offset(start.subscription, found.journal, found.last)
        end = found.end if self._target is None else min(found.end, self._target)
        if end <= low:
            if found.last <= low:
                check_not_ended(found, start.subscription)
            return given
        if self._target is None and not self._patience.is_enough(found.last - low, limits.min_rows):
            return given
        self._patience.begin_anew()
        end = self._node.choose_end(self._options.subscription, low, self._up_to_gap(low, end, found.gaps))
        place = Offset(start.subscription, found.journal, end)
        return place.after(start, self._options.min_batches_to_retain).for_spark()

    def waiting(self, given: dict[str, Any]) -> int:
        """How many messages the next batch could have; errors as `latest`."""
        self._subscribe()
        low, found = self._available(self._offset(given), Limits())
        return max(0, (found.last if self._target is None else min(found.last, self._target)) - low)

    def fix_target(self) -> None:
        """Read no further than what is there now."""
        self._subscribe()
        self._target = self._node.offsets(self._options.subscription).last

    def newest(self) -> dict[str, Any] | None:
        """The newest known message; None = not read yet."""
        return None if self._newest is None else self._newest.for_spark()

    def done(self, given: dict[str, Any]) -> None:
        """Spark will not ask for anything up to this place again. The next batch's first task gives it up."""
        offset = self._offset(given)
        self._done_with = offset.done_with(self._options.min_batches_to_retain)

    def ranges(
        self, given_start: dict[str, Any], given_end: dict[str, Any], min_parts: int | None = None
    ) -> list[Range]:
        """What the tasks of a batch read, at least `min_parts` of them; None = as the options say.

        Raises:
            JournalReplaced, RangeTrimmed, RangeNotThere, SubscriptionGap: messages are missing, and `failOnDataLoss`
                is set.
        """
        self._subscribe()
        name = self._options.subscription
        start, end = self._offset(given_start), self._offset(given_end)
        marks = self._node.offsets(name)
        if marks.journal != end.journal:
            self._lost(_replaced(end, marks))
            return []
        low = start.position
        if start.journal != end.journal:  # `latest` has said so and gone on
            low = marks.deleted
        is_once_at_most = self._options.guarantee is Guarantee.AT_MOST_ONCE
        if is_once_at_most and marks.trimmed > low:
            logger.warning(
                "subscription %s: (%d, %d] was handed out before and is not read again",
                name,
                low,
                min(marks.trimmed, end.position),
            )
            low = marks.trimmed
        low, high = _within(low, end.position, marks, self._node, self._options)
        least = self._options.min_partitions if min_parts is None else min_parts
        cuts = cut(low, high, least, self._options.max_task_rows)
        if is_once_at_most:
            return [Range(end.journal, *part, done_with=high) for part in cuts]
        done_with = self._done_with if start.journal == end.journal else None
        return [
            Range(end.journal, *part, done_with=done_with if index == 0 else None) for index, part in enumerate(cuts)
        ]

    # --- parts --------------------------------------------------------------------------------------------------------

    def _subscribe(self) -> str:
        """Receive, once for this process; returns the journal's uuid."""
        name = self._options.subscription
        if self._journal:
            return self._journal
        if self._options.shard is None:
            journal = self._node.subscribe(name, self._options.topics, self._options.isolation)
        else:
            journal, self._topics = sharded_journal(self._node, self._options)
        if self._options.guarantee is Guarantee.AT_MOST_ONCE:
            check_retention(self._node, name)
        self._journal = journal
        return journal

    def _available(self, start: Offset, limits: Limits) -> tuple[int, Offsets]:
        """From where the next batch can be read, and what there is."""
        name, low = self._options.subscription, start.position
        error: NodeError | None = None
        try:
            found = self._look(low, limits)
        except (RangeTrimmed, RangeNotThere) as raised:
            error = raised
            found = self._node.offsets(name)
        if found.journal != start.journal:
            error = _replaced(start, found)
            low = found.deleted
        if error is None:
            return low, found
        self._lost(error)
        low = max(low, found.deleted)
        return (low, self._look(low, limits)) if low <= found.last else (low, found)

    def _look(self, low: int, limits: Limits) -> Offsets:
        return self._node.offsets(self._options.subscription, low, max_rows=limits.max_rows, max_bytes=limits.max_bytes)

    def _up_to_gap(self, low: int, end: int, gaps: Sequence[Gap]) -> int:
        """J-8: a batch ends before the first gap, and one that would begin with it fails; unless it may be passed."""
        inside = [gap for gap in gaps if gap.position < end]
        if not inside or not self._options.fail_on_data_loss:
            return end  # `ranges` logs what is passed
        if inside[0].position > low:
            return inside[0].position
        check_gaps(inside, self._options.subscription, fails=True)
        return end

    def _lost(self, error: NodeError) -> None:
        if self._options.fail_on_data_loss:
            raise error
        logger.warning("messages are lost, failOnDataLoss is false: %s", error)

    def _offset(self, given: dict[str, Any]) -> Offset:
        name = self._options.offset_name
        refuse_kafkas(given)
        if self._options.shard is None:
            check_names(self._options.subscription, list(given), [name])
        return read_offset(name, given)


def nothing_yet(subscription: str, topics: Sequence[str]) -> str:
    """What is logged of a subscription without messages: its query may expect earlier ones, or other topics."""
    said = [
        f"subscription {subscription!r} has no messages: it gets what is published from now on to {', '.join(topics)}",
        "the network keeps nothing of before, so startingOffsets=earliest changes nothing",
        "a journal of an edge keeps what was, for the option `journal`",
    ]
    if any(is_pattern(topic) for topic in topics):
        said.append("a pattern is no regular expression: * stands for one word between dots, # for any rest")
    return "; ".join(said)


def plan_batch_read(options: SourceOptions, node: Node) -> list[Range]:
    """What the tasks of a batch read read. The subscription stays as it is: nothing is claimed or released.

    Raises:
        BadRequest: an isolation level is given.
        StorageError: the node has no such subscription.
        JournalReplaced, RangeTrimmed, RangeNotThere, SubscriptionGap: messages are missing, and `failOnDataLoss` is
            set.
    """
    if options.isolation is not None:
        raise BadRequest(
            "isolationLevel cannot be used for a batch read", "it gets what the journal holds", "leave it out"
        )
    if options.shard is None:
        check_whole(node, options)
    else:
        sharded_journal(node, options)
    marks = node.offsets(options.subscription)
    for place in (options.start, options.end):
        _check_journal(place, marks.journal)
    known = {EARLIEST: marks.deleted, LATEST: marks.last}
    low, high = (place.at if isinstance(place.at, int) else known[place.at] for place in (options.start, options.end))
    if low > high:
        raise BadRequest(
            "endingOffsets cannot be used", f"{high} is before startingOffsets, {low}", "give a later place"
        )
    low, high = _within(low, high, marks, node, options)
    return [Range(marks.journal, *part) for part in cut(low, high, options.min_partitions, options.max_task_rows)]


def cut(low: int, high: int, min_parts: int, max_rows: int | None = None) -> list[tuple[int, int]]:
    """(low, high] in parts of nearly the same size, in order; none where it is empty."""
    rows = high - low
    if rows <= 0:
        return []
    wanted = min(MAX_TASKS, -(-rows // TASK_ROWS)) if max_rows is None else -(-rows // max_rows)
    parts = min(rows, max(min_parts, wanted))
    bounds = [low + rows * index // parts for index in range(parts + 1)]
    return list(itertools.pairwise(bounds))


def _check_journal(place: Place, journal: str) -> None:
    if place.journal not in {None, journal}:
        raise JournalReplaced(
            f"a position of journal {place.journal} cannot be used",
            f"the subscription has another journal, {journal}",
            "give a position of this journal, or earliest",
        )


def _replaced(offset: Offset, marks: Offsets) -> JournalReplaced:
    return JournalReplaced(
        f"the checkpoint of subscription {offset.subscription!r} cannot be used",
        f"it is of journal {offset.journal}, and the node has another one, {marks.journal}: "
        "the old one was deleted or replaced",
        "restore the old journal, or start the query with failOnDataLoss=false (messages in between are lost)",
    )


def _within(low: int, high: int, marks: Offsets, node: Node, options: SourceOptions) -> tuple[int, int]:
    """The part of (low, high] that is there.

    Raises:
        RangeTrimmed, RangeNotThere, SubscriptionGap: that is not all of it, and `failOnDataLoss` is set.
    """
    if low < high and (low < marks.deleted or high > marks.last):
        if options.fail_on_data_loss:
            for place in (low, high):  # the node says best what is wrong; if it finds nothing, the marks were old
                node.offsets(options.subscription, place)
            return low, high
        logger.warning(
            "subscription %s: of (%d, %d] only (%d, %d] is there; failOnDataLoss is false",
            options.subscription,
            low,
            high,
            marks.deleted,
            marks.last,
        )
    low, high = max(low, marks.deleted), min(high, marks.last)
    if low < high:
        gaps = node.offsets(options.subscription, low, max_rows=high - low).gaps
        check_gaps(gaps, options.subscription, fails=options.fail_on_data_loss)
    return low, high


# --- tasks ------------------------------------------------------------------------------------------------------------


def read_range(
    options: SourceOptions, node: Node, part: Range, *, query: str | None, is_first_attempt: bool = True
) -> Iterator[Any]:
    """The rows of a range as record batches of the source's Arrow schema.

    Args:
        options: of the source.
        node: where the messages are.
        part: what to read.
        query: which query reads; it becomes the subscription's owner. None = a batch read, which owns nothing.
        is_first_attempt: whether no other attempt of this task was started.

    Raises:
        OwnedByAnother: the subscription is another query's.
        JournalReplaced, RangeTrimmed, RangeNotThere, RangeHole: messages are missing, and `failOnDataLoss` is set.
    """
    if options.guarantee is Guarantee.AT_MOST_ONCE and query is not None and not is_first_attempt:
        logger.warning(
            "subscription %s: (%d, %d] was handed out to an attempt that failed and is not read again",
            options.subscription,
            part.low,
            part.high,
        )
        return
    decoder = RowDecoder(include_headers=options.include_headers, include_metadata=options.include_metadata)
    is_given_up = part.done_with is None
    for batch in _messages(options, node, part, query):
        if not is_given_up:  # the first batch has come: the subscription is this query's
            assert part.done_with is not None
            node.trim(options.subscription, part.done_with, query)
            is_given_up = True
        yield decoder.batch(batch)


def _messages(options: SourceOptions, node: Node, part: Range, query: str | None) -> Iterator[Any]:
    """The messages of a range; what is missing is an error, or left out."""
    name, low = options.subscription, part.low

    def read(start: int, stop: int) -> Iterator[Any]:
        return node.read_range(name, start, stop, journal=part.journal, query=query)

    try:
        for batch in read(low, part.high):
            yield batch
            low += batch.num_rows
        return
    except (RangeTrimmed, RangeNotThere, RangeHole, JournalReplaced) as error:
        if options.fail_on_data_loss:
            raise
        logger.warning("messages of (%d, %d] are lost, failOnDataLoss is false: %s", low, part.high, error)
        if isinstance(error, JournalReplaced):
            return
    marks = node.offsets(name)
    yield from _around_holes(read, max(low, marks.deleted), min(part.high, marks.last))


def _around_holes(read: Callable[[int, int], Iterator[Any]], low: int, high: int) -> Iterator[Any]:
    """Whatever is there of a range of a damaged journal: halves without a hole are read whole."""
    while low < high:
        try:
            for batch in read(low, high):
                yield batch
                low += batch.num_rows
            return
        except RangeTrimmed:
            return
        except RangeHole:
            if high - low == 1:
                return
        middle = (low + high) // 2
        yield from _around_holes(read, low, middle)
        low = middle
