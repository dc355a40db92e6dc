"""What a store of queues has: its tables, the operations of a transaction, and what PostgreSQL does in advance."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from bridges.workqueue import sql_statements as sql
from bridges.workqueue.items import Commit
from bridges.workqueue.merging_core import Needs, ReserveJob, first_needs
from bridges.workqueue.sql_base import Ahead
from bridges.workqueue.sql_operations import SqlOperations
from bridges.workqueue.sql_schema import QUEUES
from oncewire.store.contents import Begun, Contents, Send
from oncewire.store.migrations import Feature
from oncewire.store.rules_core import to_us
from oncewire.store.store import Job
from oncewire.store.transaction import Connection

MAX_USED = 8
"""Queues whose settings are read in advance."""


class QueueContents(Contents):
    """See Contents; for one store.

    Args:
        features: that stand beside the queues.
        chance: returns random numbers, 0 to 1, for jitter.
    """

    def __init__(self, features: Sequence[Feature] = (), *, chance: Callable[[], float] = random.random) -> None:
        super().__init__((QUEUES, *features))
        self._chance = chance
        self._last: SqlOperations | None = None

    def transaction(self, connection: Connection, now: float, ahead: Ahead | None = None) -> SqlOperations:
        """Return what the jobs of a transaction get; see Contents."""
        self._last = SqlOperations(connection, now, self._chance, ahead)
        return self._last

    def begin(self, send: Send, jobs: Sequence[Job], now_us: int | None) -> QueuesBegun:
        """Do what comes first, and read settings that are likely needed; see Contents."""
        needs = first_needs(jobs)
        committed = send(sql.COMMIT_AHEAD, _parameters(now_us, needs.commits)) if needs.commits else None
        reserved = {
            job: send(
                sql.RESERVE_AHEAD, (job.queue, job.queue, now_us, job.queue, job.count, job.count, to_us(job.timeout))
            )
            for job in needs.reservations
        }
        # After them: nothing that was found ready is due later than the transaction's time. It asks for the settings
        # that the last transaction used.
        used = [] if self._last is None else [*self._last.queues_used()[:MAX_USED]]
        return QueuesBegun(send(sql.CLOCK_AND_QUEUES, (used,)), self, needs, committed, reserved)


class QueuesBegun(Begun):
    """See Begun.

    Args:
        clock: cursor of CLOCK_AND_QUEUES.
        contents: make the operations.
        needs: what was done.
        committed: cursor of COMMIT_AHEAD.
        reserved: cursors of RESERVE_AHEAD.
    """

    def __init__(
        self, clock: Any, contents: QueueContents, needs: Needs, committed: Any, reserved: Mapping[ReserveJob, Any]
    ) -> None:
        super().__init__(clock, contents)
        self._queue_contents = contents
        self._needs = needs
        self._committed = committed
        self._reserved = reserved

    def transaction(self, connection: Connection, now: float | None) -> SqlOperations:
        """Return the operations, which know what was done; see Begun."""
        rows = self._clock.fetchall()
        ahead = Ahead(
            {name: settings for _, name, *settings in rows if name is not None},
            (
                tuple(each.handle.item for each in self._needs.commits),
                () if self._committed is None else self._committed.fetchall(),
            ),
            {(job.queue, job.count, job.timeout): cursor.fetchall() for job, cursor in self._reserved.items()},
        )
        return self._queue_contents.transaction(connection, float(rows[0][0]) if now is None else now, ahead)


def _array(numbers: Iterable[int]) -> str:
    """Numbers as PostgreSQL reads them; psycopg takes longer for a list."""
    return "{" + ",".join(map(str, numbers)) + "}"


def _parameters(now_us: int | None, commits: Sequence[Commit]) -> tuple[object, ...]:
    """Those of COMMIT_AHEAD."""
    items = _array(each.handle.item for each in commits)
    changed = [each for each in commits if each.result is not None or each.payload is not None]
    return (
        now_us,
        items,
        _array(each.handle.reservation for each in commits),
        items,
        _array(each.handle.item for each in changed),
        [each.result for each in changed],
        [each.payload for each in changed],
    )
