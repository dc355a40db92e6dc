"""Offsets as Spark keeps them in its checkpoint: {"SUBSCRIPTION": {"journal": UUID, "seq": POSITION, "ends": "..."}}.

Where several nodes share out a subscription there is an entry for each, "SUBSCRIPTION#0", "SUBSCRIPTION#1" and so on.

Spark compares them as text, so the order of keys never changes. `ends` are the ends of the batches before, newest
first: what may be deleted is known from the checkpoint alone, however often the query was started in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bridges.node.errors import BadRequest


@dataclass(frozen=True, slots=True)
class Offset:
    """A place in a journal.

    Attributes:
        subscription: whose.
        journal: its uuid.
        position: of the newest message before the place.
        ends: where the batches before ended, newest first.
    """

    subscription: str
    journal: str
    position: int
    ends: tuple[int, ...] = ()

    def for_spark(self) -> dict[str, Any]:
        """As Spark keeps it."""
        inner: dict[str, Any] = {"journal": self.journal, "seq": self.position}
        if self.ends:
            inner["ends"] = ",".join(map(str, self.ends))
        return {self.subscription: inner}

    def after(self, start: Offset, kept: int) -> Offset:
        """This place as the end of a batch that begins at `start`, remembering the ends of so many batches."""
        ends = (start.position, *start.ends)[:kept] if start.journal == self.journal else ()
        return Offset(self.subscription, self.journal, self.position, ends)

    def done_with(self, kept: int) -> int | None:
        """Up to where messages need not be kept when the batch that ends here is done; None = all are needed."""
        if kept == 0:
            return self.position
        return self.ends[kept - 1] if len(self.ends) >= kept else None


@dataclass(frozen=True, slots=True)
class ShardOffsets:
    """A place in the journals of several nodes, in their order."""

    parts: tuple[Offset, ...]

    def for_spark(self) -> dict[str, Any]:
        """As Spark keeps it."""
        return merged([part.for_spark() for part in self.parts])


def merged(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The offsets of several nodes as one, in this order: Spark compares them as text."""
    return {name: inner for part in parts for name, inner in part.items()}


def refuse_kafkas(given: Mapping[str, Any]) -> None:
    """Refuse an offset of Kafka's connector: {"TOPIC": {"PARTITION": OFFSET, ...}, ...}.

    Raises:
        BadRequest: it is one.
    """
    if given and all(isinstance(each, Mapping) and each and all(map(str.isdecimal, each)) for each in given.values()):
        raise BadRequest(
            "the checkpoint cannot be used",
            f"it is of a query of Kafka's connector, which read {', '.join(given)}",
            "give a new checkpointLocation, and begin where that query ended: `startingOffsets`, or of journals "
            "`startingTimestamp`",
        )


def read_offset(subscription: str, given: Mapping[str, Any]) -> Offset:
    """An offset of a subscription as Spark gives it back.

    Raises:
        BadRequest: it is of another subscription, or of another kind of source.
    """
    inner = given.get(subscription)
    if inner is None:
        raise BadRequest(
            f"the checkpoint cannot be used for subscription {subscription!r}",
            f"it is of {', '.join(map(repr, given)) or 'nothing'}",
            "start with the subscription it belongs to, or with a new checkpoint",
        )
    try:
        journal, position = inner["journal"], inner["seq"]
        ends = tuple(int(end) for end in str(inner.get("ends", "")).split(",") if end)
        if not isinstance(journal, str) or isinstance(position, bool) or not isinstance(position, int):
            raise ValueError
    except (KeyError, TypeError, ValueError, AttributeError):
        raise BadRequest(
            f"the checkpoint cannot be used for subscription {subscription!r}",
            f"{inner!r} is no place in a journal",
            "use the checkpoint of a query that reads the format amqp",
        ) from None
    return Offset(subscription, journal, position, ends)
