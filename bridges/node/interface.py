"""What a bridge node does for those who use it, whether it is behind a socket or in their own process."""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bridges.node.errors import OutboxFull
from bridges.node.gaps import Gap
from bridges.node.model import AS_USUAL, Publishing, StagedPart, Writer
from oncewire.client.isolation import Isolation

RETRY_FIRST_S = 0.1
RETRY_CAP_S = 2.0
"""Pauses before a call is made again that failed for a passing reason."""


@dataclass(frozen=True, slots=True)
class Offsets:
    """Where a subscription stands.

    Attributes:
        journal: the journal's uuid; put it into offsets.
        deleted: readable is what comes after this position.
        trimmed: positions up to it are done with.
        last: the newest position.
        end: where a range from the given start may end within the given limits.
        owner: the query that reads; None = none yet.
        gaps: where messages are missing between the given start and `end`, the oldest first; some of them if many.
        ended: why nothing more comes: the node does not receive the subscription any more (J-14); empty = it does.
        released: positions up to it were released by `owner`; `trimmed` may be more (J-15).
    """

    journal: str
    deleted: int
    trimmed: int
    last: int
    end: int
    owner: str | None
    gaps: tuple[Gap, ...] = ()
    ended: str = ""
    released: int = 0


@dataclass(frozen=True, slots=True)
class Commit:
    """What became of a batch.

    Attributes:
        number: of its manifest; ask for it with `wait_done`.
        rows: that count, of this attempt or an earlier one.
        is_first: this call decided the batch.
        is_done: every row is published and has its outcome.
        not_accepted: rows that ended otherwise than accepted.
        trouble: what keeps the node from publishing just now; empty if nothing does.
    """

    number: int
    rows: int
    is_first: bool
    is_done: bool
    not_accepted: int
    trouble: str


class Node(ABC):
    """A bridge node. Errors of all calls: `NodeError` and its kinds."""

    @abstractmethod
    def subscribe(self, subscription: str, topics: Sequence[str], isolation: Isolation | None = None) -> str:
        """Receive topics under a name from now on; returns the journal's uuid.

        `isolation` is what its readers see of transactions; None = as the journal has it, `read_uncommitted` if new.
        """

    @abstractmethod
    def offsets(
        self, subscription: str, low: int | None = None, *, max_rows: int | None = None, max_bytes: int | None = None
    ) -> Offsets:
        """Where the subscription stands, and where a range from `low` may end."""

    @abstractmethod
    def initial_offset(self, subscription: str, start: str | int) -> int:
        """Where the first batch starts; the first call decides. `start`: earliest, latest or a position."""

    @abstractmethod
    def choose_end(self, subscription: str, start: int, stop: int) -> int:
        """Where the batch that begins behind `start` ends: the first call decides; see batch_ends.py."""

    @abstractmethod
    def read_range(
        self, subscription: str, low: int, high: int, *, journal: str | None = None, query: str | None = None
    ) -> Iterator[Any]:
        """The messages of (low, high] as record batches of `arrow_bodies.range_schema`, all of them or an error."""

    @abstractmethod
    def trim(self, subscription: str, position: int, query: str | None = None) -> None:
        """Everything up to a position is done with."""

    @abstractmethod
    def release(self, subscription: str, *, ends: bool = False) -> bool:
        """Take the subscription from the query that owns it, so that another one may start.

        `ends`: delete it in the network as well, and receive it no more (J-14), unless the node's settings have it.
        Returns whether the network has deleted it.
        """

    @abstractmethod
    def choose_snapshot(self, sink: str, start: str, stop: str) -> str:
        """Where a processor's attempt that begins at `start` ends: the first call decides; see snapshots.py."""

    @abstractmethod
    def stage_once(
        self, sink: str, writer: Writer, batch: int, partition: int, attempt: str, chunk: int, body: bytes
    ) -> bool:
        """As `stage`, but raises OutboxFull at once."""

    @abstractmethod
    def commit(
        self,
        sink: str,
        writer: Writer,
        batch: int,
        parts: Sequence[StagedPart],
        wait_s: float = 0.0,
        publishing: Publishing = AS_USUAL,
    ) -> Commit:
        """Decide a batch, then wait until it is published, for the given time."""

    @abstractmethod
    def discard(self, sink: str, writer: Writer, batch: int) -> None:
        """Delete what is only staged of a batch whose writer stands alone (O-13); a decision stays."""

    @abstractmethod
    def wait_done(self, sink: str, number: int, wait_s: float) -> Commit:
        """Wait until a decided batch is published, for the given time."""

    @abstractmethod
    def status(self) -> dict[str, Any]:
        """The node's whole status."""

    @abstractmethod
    def close(self) -> None:
        """Let go of connections and threads."""

    def stage(
        self,
        sink: str,
        writer: Writer,
        batch: int,
        partition: int,
        attempt: str,
        chunk: int,
        body: bytes,
        *,
        patience_s: float = 600.0,
    ) -> bool:
        """Store a body of `arrow_bodies.encode_rows` for a batch; nothing of it leaves before it is committed.

        Args:
            sink: its id.
            writer: who stages.
            batch: the query's number of the batch.
            partition: of the batch.
            attempt: names this attempt of the task; no other one may have the name.
            chunk: counts the bodies of this attempt from 0.
            body: the rows.
            patience_s: how long to wait while too much is unpublished (back-pressure).

        Returns:
            False: the batch was decided before; more need not be staged.

        Raises:
            OutboxFull: patience is over.
        """
        ends_at = time.monotonic() + patience_s
        pause_s = RETRY_FIRST_S
        while True:
            try:
                return self.stage_once(sink, writer, batch, partition, attempt, chunk, body)
            except OutboxFull:
                if time.monotonic() + pause_s >= ends_at:
                    raise
            time.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(RETRY_CAP_S, 2 * pause_s)

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()
