"""What operations in SQL share: settings of queues, rows of items, and how an item ends."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from bridges.store import outbox
from bridges.store.outbox import NewMessage
from bridges.workqueue import sql_statements as sql
from bridges.workqueue.items import Ending, QueueSettings
from bridges.workqueue.refusals import unknown_queue
from bridges.workqueue.rules_core import SETTING_NAMES, check_settings
from oncewire.store.rules_core import check_name, to_us
from oncewire.store.store import Row
from oncewire.store.transaction import Connection, SqlTransaction, chunks

PURGE_EVERY = 64
"""Ended items for which one search for expired entries is made."""
PURGE_SPARE = 16
"""Twice as many expired entries are deleted as are added, and so many more: the history never falls behind."""


@dataclass(slots=True)
class ItemRow:
    """One row of oncewire_items, in the order of ITEM_COLUMNS."""

    id: int
    queue: str
    priority: int
    due: int
    reserved: int
    reservation: int
    retries: int
    created: int
    payload: bytes
    key: str | None
    schedule: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class Ahead:
    """What a connection has done at the beginning of a transaction, in the round trip of its BEGIN, for its first jobs.

    Whether they may do so is decided after it: if not, their error ends the transaction, and nothing has happened.

    Attributes:
        settings: the row of the statement QUEUE, by queue.
        committed: numbers of items to commit, and the rows, without payloads, of those that went to the history.
        reserved: rows as they were, each with its new due time, in order; by queue, count and timeout.
    """

    settings: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    committed: tuple[tuple[int, ...], Sequence[Row]] = ((), ())
    reserved: Mapping[tuple[str, int, float], Sequence[Row]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ended:
    """An item's row as it ends, with what the history says beside."""

    row: ItemRow
    ending: Ending
    result: bytes | None = None
    reason: str = ""
    targets: tuple[tuple[str, int], ...] = ()


class SqlQueues(SqlTransaction):
    """One transaction of a SQL store with queues.

    Args:
        connection: inside a transaction.
        now: time of the transaction (W-15).
        chance: returns a random number, 0 to 1.
        ahead: what this transaction has done.
    """

    def __init__(
        self, connection: Connection, now: float, chance: Callable[[], float], ahead: Ahead | None = None
    ) -> None:
        super().__init__(connection, now)
        self._chance = chance
        ahead = ahead or Ahead()
        self._settings = {name: QueueSettings(*row) for name, row in ahead.settings.items()}
        # Each is used once: later it is no longer what the tables say.
        self._committed_ahead = dict([ahead.committed])
        self._reserved_ahead = dict(ahead.reserved)
        self._gone = frozenset(row[0] for row in ahead.committed[1])
        self._ended = 0

    def configure(self, queue: str, **changes: float) -> QueueSettings:
        """Make or change a queue; see Operations."""
        check_name("queue", queue)
        settings = replace(self._find(queue) or QueueSettings(), **changes)  # type: ignore[arg-type]
        settings = replace(
            settings, max_retries=int(settings.max_retries), max_payload_bytes=int(settings.max_payload_bytes)
        )
        check_settings(settings)
        values = asdict(settings)
        self.execute(sql.PUT_QUEUE, (queue, *(values[name] for name in SETTING_NAMES)))
        self._settings[queue] = settings
        return settings

    def queues(self) -> list[str]:
        """Return the names of all queues; see Operations."""
        return [name for (name,) in self.execute(sql.QUEUES)]

    def queues_used(self) -> tuple[str, ...]:
        """Return queues whose settings were needed."""
        return tuple(self._settings)

    def finish(self) -> None:
        """Delete some of what has expired, before the transaction commits (W-9)."""
        # Most transactions end few items. Some of them delete for all: on average two entries for each one added.
        if self._ended and self._chance() * PURGE_EVERY > PURGE_EVERY - self._ended:
            limit = 2 * max(self._ended, PURGE_EVERY) + PURGE_SPARE
            self.write(sql.PURGE_HISTORY, (self._now_us, limit))
            self.write(sql.PURGE_KEYS, (self._now_us, limit))

    def publish(self, messages: Sequence[NewMessage]) -> None:
        """Add messages to the outbox; see Operations."""
        outbox.publish(self, messages)

    def _find(self, queue: str) -> QueueSettings | None:
        found = self._settings.get(queue)
        if found is None:
            rows = self.execute(sql.QUEUE, (queue,))
            if not rows:
                return None
            found = self._settings[queue] = QueueSettings(*rows[0])
        return found

    def _known(self, queue: str) -> QueueSettings:
        found = self._find(queue)
        if found is None:
            raise unknown_queue(queue)
        return found

    def _with_ids(self, statement: str, before: Sequence[object], ids: Sequence[int]) -> list[Row]:
        rows: list[Row] = []
        for some in chunks(ids):
            marks = ", ".join("?" * len(some))
            rows += self.execute(statement.replace("/*ids*/", marks), (*before, *some))
        return rows

    def _write_ids(self, statement: str, before: Sequence[object], ids: Sequence[int]) -> None:
        for some in chunks(ids):
            marks = ", ".join("?" * len(some))
            self.write(statement.replace("/*ids*/", marks), (*before, *some))

    def _end(self, ended: Sequence[Ended]) -> None:
        """W-9: items leave their queue for the history, or for nothing where none is kept. Moved ones stay items."""
        noted = []
        expiries: dict[int, list[int]] = {}
        for each in ended:
            row = each.row
            keeps_s = self._known(row.queue).history_s
            is_dead = each.ending is Ending.DEAD
            expires = self._now_us + to_us(keeps_s)
            # W-8: nobody has seen to a dead letter yet, so it does not expire, and neither does its key (W-11).
            if row.key is not None and not is_dead and each.ending is not Ending.MOVED:
                expiries.setdefault(expires, []).append(row.id)
            self._ended += bool(keeps_s or is_dead)
            if (keeps_s or is_dead) and row.id not in self._gone:
                noted.append(
                    (
                        row.id,
                        row.queue,
                        each.ending.value,
                        row.created,
                        self._now_us,
                        None if is_dead else expires,
                        row.retries,
                        row.reservation,
                        row.priority,
                        row.payload,
                        each.result,
                        each.reason or row.reason,
                        json.dumps(each.targets),
                        row.key,
                    )
                )
        # Before the history is written: in a store that is full it takes the room that these leave.
        left = [each.row.id for each in ended if each.ending is not Ending.MOVED and each.row.id not in self._gone]
        self._write_ids(sql.DELETE_ITEMS, (), left)
        for some in chunks(noted):
            values = ", ".join([sql.HISTORY_ROW] * len(some))
            self.write(sql.INSERT_HISTORY + values, [value for row in some for value in row])
        for expires, ids in expiries.items():
            self._write_ids(sql.EXPIRE_KEYS, (expires,), ids)
