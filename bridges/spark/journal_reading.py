"""What a source of journals does, without Spark: where batches begin and end, which tasks read what, what is lost.

Positions of a journal are its offsets, and a range of them has the same messages whoever reads it, however often. So a
batch is what its two offsets in the checkpoint say; nothing is claimed, and nothing is kept for a query: retention
decides what goes, and any number of queries read one journal.

Spark asks for the beginning of the first batch again when it repeats it, and `latest` or a time may be elsewhere then.
So each end carries where its query began (`begun`): a repeat of the first batch begins there (J-29).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bridges.journal.pages import Page
from bridges.node.arrow_bodies import arrow, range_schema
from bridges.node.errors import BadRequest, JournalReplaced, NodeError, RangeNotThere, RangeTrimmed
from bridges.spark.edge_client import EdgeClient, JournalMissing, Standing
from bridges.spark.journal_options import AtTime, JournalOptions
from bridges.spark.offsets import refuse_kafkas
from bridges.spark.option_values import EARLIEST, LATEST, Place, TooLate
from bridges.spark.reading import Limits, Patience, cut
from bridges.spark.schema import RowDecoder, journal_schema
from bridges.spark.sharding import split_rows

logger = logging.getLogger("oncewire.spark")


LOOK_S = 30.0
"""How often a query looks for journals that its pattern matches."""


@dataclass(frozen=True, slots=True)
class JournalPlace:
    """A place in a journal.

    Attributes:
        uuid: of the journal.
        position: of the newest message before the place.
        begun: where the query's first batch began.
    """

    uuid: str
    position: int
    begun: int

    def for_spark(self) -> dict[str, Any]:
        """As Spark keeps it; it compares texts, so the order stays."""
        return {"journal": self.uuid, "seq": self.position, "begun": self.begun}


@dataclass(frozen=True, slots=True)
class JournalRange:
    """What one task reads: (low, high] of a journal."""

    journal: str
    uuid: str
    low: int
    high: int


class JournalPlanner:
    """The driver's part. Nothing is opened before it is needed; not for several threads.

    Args:
        options: of the source.
        client: of its edge; `close()` closes it.
        clock: seconds, for `maxTriggerDelay`.
    """

    def __init__(self, options: JournalOptions, client: EdgeClient, clock: Callable[[], float]) -> None:
        self._options = options
        self._client = client
        self._patience = Patience(options.max_trigger_delay_s, clock)
        self._clock = clock
        self._found: tuple[float, Sequence[str]] | None = None
        self._targets: dict[str, int] | None = None
        self._newest: dict[str, Any] | None = None

    def close(self) -> None:
        """Let go of the edge."""
        self._client.close()

    def initial(self) -> dict[str, Any]:
        """Where the first batch begins, as things are now; an end that is known already takes precedence (`begun`).

        Raises:
            JournalMissing, JournalReplaced, RangeTrimmed, RangeNotThere: it cannot begin there.
        """
        found = {}
        for journal in self._journals():
            standing = self._client.standing(journal)
            position = place_in(self._client, journal, self._options.starts.of(journal), standing)
            position = self._checked(journal, standing.uuid, position, standing)
            found[journal] = JournalPlace(standing.uuid, position, position).for_spark()
        return found

    def _journals(self) -> Sequence[str]:
        now = self._clock()
        if self._found is None or (self._options.pattern and now - self._found[0] >= LOOK_S):
            self._found = now, journals_of(self._options, self._client)
        return self._found[1]

    def latest(self, given: dict[str, Any], limits: Limits) -> dict[str, Any]:
        """Where a batch that begins at `given` ends; `given` itself where there should be no batch now.

        Raises:
            JournalMissing, JournalReplaced, RangeTrimmed, RangeNotThere: messages are missing, and `failOnDataLoss` is
                set.
        """
        starts = self._places(given)
        standings = {journal: self._client.standing(journal) for journal in self._journals()}
        self._newest = {
            journal: JournalPlace(found.uuid, found.last, found.last).for_spark()
            for journal, found in standings.items()
        }
        lows = {}
        for journal, standing in standings.items():
            start = starts.get(journal) or JournalPlace(standing.uuid, standing.trimmed, standing.trimmed)
            starts[journal] = start
            lows[journal] = self._checked(journal, start.uuid, start.position, standing)
        waiting = [max(0, self._end(journal, standings[journal]) - lows[journal]) for journal in lows]
        if self._targets is None and not self._patience.is_enough(sum(waiting), limits.min_rows):
            return given
        rows = self._limited(list(standings), waiting, limits)
        if any(rows):
            self._patience.begin_anew()
        ends = {}
        for (journal, low), count in zip(lows.items(), rows, strict=True):
            start, uuid = starts[journal], standings[journal].uuid
            begun = start.begun if start.uuid == uuid else low
            ends[journal] = (JournalPlace(uuid, low + count, begun) if count else start).for_spark()
        return ends if any(rows) else given

    def _limited(self, journals: Sequence[str], waiting: Sequence[int], limits: Limits) -> list[int]:
        """How many messages of each journal a batch has; at least one, so that none is passed over."""
        busy = sum(count > 0 for count in waiting)
        rows = list(waiting) if limits.max_rows is None else split_rows(max(limits.max_rows, busy), waiting)
        if limits.max_bytes is None:
            return rows
        share = limits.max_bytes / max(1, busy)
        return [
            min(count, max(1, int(share / self._client.message_bytes(journal)))) if count else 0
            for journal, count in zip(journals, rows, strict=True)
        ]

    def _end(self, journal: str, standing: Standing) -> int:
        return standing.last if self._targets is None else min(standing.last, self._targets.get(journal, 0))

    def fix_target(self) -> None:
        """Read no further than what is there now."""
        self._targets = {journal: self._client.standing(journal).last for journal in self._journals()}

    def newest(self) -> dict[str, Any] | None:
        """The newest known messages; None = not read yet."""
        return self._newest

    def ranges(self, given_start: dict[str, Any], given_end: dict[str, Any]) -> list[JournalRange]:
        """What the tasks of a batch read; errors as `latest`."""
        starts, ends = self._places(given_start), self._places(given_end)
        found = []
        for journal, end in ends.items():
            start, low = starts.get(journal), end.begun
            if start is not None and start.uuid == end.uuid and start.position != start.begun:
                low = start.position
            if low < end.position:
                low = self._checked(journal, end.uuid, low, self._client.standing(journal), end.position)
                found.append(JournalRange(journal, end.uuid, low, end.position))
        return split(found, self._options)

    def _places(self, given: Mapping[str, Any]) -> dict[str, JournalPlace]:
        """An offset of Spark's; a journal that was added to the options since has none there.

        Raises:
            BadRequest: it is of another source, or names a journal that the options do not have.
        """
        refuse_kafkas(given)
        if left := [name for name in given if name not in self._journals()]:
            raise BadRequest(
                "the checkpoint cannot be used with these journals",
                f"it is of {', '.join(map(repr, left))}, too",
                "read all that the query has read, or start with a new checkpoint; `oncewire journal create` makes one "
                "that was deleted again",
            )
        try:
            return {name: JournalPlace(each["journal"], each["seq"], each["begun"]) for name, each in given.items()}
        except (KeyError, TypeError):
            raise BadRequest(
                "the checkpoint cannot be used for a source of journals",
                f"{dict(given)!r} are no places in journals",
                "use the checkpoint of a query with the option `journal`",
            ) from None

    def _checked(self, journal: str, uuid: str, position: int, standing: Standing, end: int | None = None) -> int:
        """From where a batch can be read that begins behind a position of the journal of this identity."""
        try:
            check_place(journal, uuid, position, standing, end)
        except (JournalReplaced, RangeTrimmed, RangeNotThere) as error:
            if self._options.fail_on_data_loss:
                raise
            logger.warning("messages are lost, failOnDataLoss is false: %s", error)
            if isinstance(error, RangeNotThere):
                return standing.last
            return standing.trimmed
        return position


def journals_of(options: JournalOptions, client: EdgeClient) -> Sequence[str]:
    """The journals that are read.

    Raises:
        JournalMissing: no name matches the pattern.
    """
    if options.journals:
        return options.journals
    every = client.names()
    found = [name for name in every if re.fullmatch(options.pattern, name)]
    if not found:
        known = f"there are {', '.join(every[:10])}" if every else "the edge has none"
        raise JournalMissing(
            f"no journal has a name that matches journalPattern = {options.pattern!r}", known, "give another pattern"
        )
    return found


def place_in(client: EdgeClient, journal: str, place: Place | AtTime, standing: Standing) -> int:
    """The position of a place in a journal.

    Raises:
        BadRequest: no message was stored at its time or later.
        JournalReplaced: it is of another journal of that name.
    """
    if isinstance(place, AtTime):
        found = client.before(journal, place.us)
        if found is None and place.too_late is TooLate.ERROR:
            raise BadRequest(
                f"journal {journal!r} cannot be read from its starting time",
                "nothing was stored then or later",
                "give an earlier time, or startingOffsetsByTimestampStrategy=latest",
            )
        return standing.last if found is None else found
    if place.journal is not None and place.journal != standing.uuid:
        raise _replaced(journal, place.journal, standing)
    known = {EARLIEST: standing.trimmed, LATEST: standing.last}
    return place.at if isinstance(place.at, int) else known[place.at]


def check_place(journal: str, uuid: str, position: int, standing: Standing, end: int | None = None) -> None:
    """Whether what comes behind a position, or all up to an end, is there.

    Raises:
        JournalReplaced, RangeTrimmed, RangeNotThere: it is not.
    """
    if uuid != standing.uuid:
        raise _replaced(journal, uuid, standing)
    kept = f"it has {standing.trimmed + 1} to {standing.last}" if standing.trimmed < standing.last else "it is empty"
    if position < standing.trimmed:
        raise RangeTrimmed(
            f"journal {journal!r} cannot be read from position {position + 1}",
            f"its retention, or somebody, has deleted messages up to {standing.trimmed}; {kept}",
            "raise `keep` of the journal, run the query more often; failOnDataLoss=false goes on with what is left",
        )
    if max(position, end or 0) > standing.last:
        raise RangeNotThere(
            f"journal {journal!r} cannot be read up to position {max(position, end or 0)}",
            f"{kept}: its store was restored, or the position was never there",
            "start with a new checkpoint, or give an earlier position",
        )


def _replaced(journal: str, uuid: str, standing: Standing) -> JournalReplaced:
    return JournalReplaced(
        f"journal {journal!r} cannot be read on",
        f"the checkpoint, or the option, is of journal {uuid}, and there is another one now, {standing.uuid}: it was "
        "deleted and made again, or its store was restored",
        "start with a new checkpoint; failOnDataLoss=false goes on with the oldest message of the new one",
    )


def split(found: Sequence[JournalRange], options: JournalOptions) -> list[JournalRange]:
    """Ranges in parts for tasks; `minPartitions` is shared out among them."""
    least = -(-options.min_partitions // max(1, len(found)))
    return [
        JournalRange(each.journal, each.uuid, *part)
        for each in found
        for part in cut(each.low, each.high, least, options.max_task_rows)
    ]


def plan_journal_read(options: JournalOptions, client: EdgeClient) -> list[JournalRange]:
    """What the tasks of a batch read read.

    Raises:
        BadRequest: an end is before its start.
        JournalMissing, JournalReplaced, RangeTrimmed, RangeNotThere: it is not there, and `failOnDataLoss` is set.
    """
    found = []
    for journal in journals_of(options, client):
        standing = client.standing(journal)
        places = (options.starts.of(journal), options.ends.of(journal))
        low, high = (place_in(client, journal, place, standing) for place in places)
        if low > high:
            raise BadRequest(
                f"journal {journal!r} cannot be read to its end",
                f"the end, {high}, is before the start, {low}",
                "give an earlier start, or a later end",
            )
        if options.fail_on_data_loss:
            check_place(journal, standing.uuid, low, standing, high)
        low, high = max(low, standing.trimmed), min(high, standing.last)
        if low < high:
            found.append(JournalRange(journal, standing.uuid, low, high))
    return split(found, options)


# --- tasks ------------------------------------------------------------------------------------------------------------


def read_journal(options: JournalOptions, client: EdgeClient, part: JournalRange) -> Iterator[Any]:
    """The rows of a range as record batches of the source's Arrow schema.

    Raises:
        JournalReplaced, RangeTrimmed: messages are missing, and `failOnDataLoss` is set.
    """
    decoder = RowDecoder(include_headers=options.include_headers, include_metadata=options.include_metadata)
    schema = journal_schema(include_headers=options.include_headers, include_metadata=options.include_metadata)
    pa = arrow()
    for page in _pages(options, client, part):
        if page.messages:
            rows = decoder.batch(_range_batch(page))
            names = pa.repeat(pa.scalar(part.journal, pa.string()), rows.num_rows)
            yield pa.record_batch([*rows.columns, names], schema=schema)


def _pages(options: JournalOptions, client: EdgeClient, part: JournalRange) -> Iterator[Page]:
    low = part.low
    while True:
        try:
            for page in client.read(part.journal, low, part.high):
                if page.uuid != part.uuid:
                    raise _replaced(part.journal, part.uuid, Standing(page.uuid, page.trimmed, page.last))
                yield page
                low = page.messages[-1].position if page.messages else part.high
            return
        except NodeError as error:
            if options.fail_on_data_loss or not isinstance(error, JournalReplaced | RangeTrimmed):
                raise
            logger.warning("messages of (%d, %d] are lost, failOnDataLoss is false: %s", low, part.high, error)
            if isinstance(error, JournalReplaced):
                return
            low = max(low, client.standing(part.journal).trimmed)


def _range_batch(page: Page) -> Any:
    """A page as the decoder of rows takes it."""
    pa = arrow()
    messages = page.messages
    columns = [
        pa.array([each.position for each in messages], pa.int64()),
        pa.array([each.source for each in messages], pa.string()),
        pa.array([each.arrived_us for each in messages], pa.int64()).cast(pa.timestamp("us", tz="UTC")),
        pa.array([each.payload for each in messages], pa.binary()),
    ]
    return pa.record_batch(columns, schema=range_schema())
