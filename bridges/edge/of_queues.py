"""Queues of an edge: each table makes or changes a queue, and ``queue://`` is served for all of the store."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from bridges.edge.part import Ground, Kind, Part, Row
from bridges.workqueue import Queue
from bridges.workqueue.amqp import ADDRESSES
from bridges.workqueue.items import MAX_PAYLOAD_BYTES
from oncewire.settings.parsers import MIB, Parser, duration, size, whole_number
from oncewire.settings.schema import REQUIRED, Setting
from oncewire.store.rules_core import MAX_DELAY_S, check_name

SPAN = duration(0, MAX_DELAY_S)
_IN_STORE = {"backoff": "backoff_s", "backoff_max": "backoff_max_s", "history": "history_s"}
"""What the store calls a setting that has a unit here."""


class QueuePart(Part):
    """One queue."""

    def __init__(self, ground: Ground, name: str, values: Mapping[str, Any]) -> None:
        """Change nothing yet."""
        super().__init__(name)
        self._queue = Queue(ground.store, name)
        self._is_made = False
        given = {key: value for key, value in values.items() if key != "name" and value is not None}
        self._changes = {_IN_STORE.get(key, key): value for key, value in given.items()}
        self._door = ground.door("queue", ADDRESSES)

    @property
    def trouble(self) -> str:
        """See Part."""
        return self._door.trouble or ("" if self._is_made else "it is not made yet")

    async def run(self) -> None:
        """Keep the door for all queues open, and make the queue, or change it."""
        async with self._door.held() as door:
            await self._queue.configure(**self._changes)
            self._is_made = True
            await asyncio.wait([door])
            door.result()

    async def rows(self) -> Row:
        """Numbers of the store: every edge that serves it shows the same."""
        found = await self._queue.statistics()
        return Row(
            depth=found.ready + found.waiting + found.reserved,
            oldest_s=found.oldest_s,
            rate=found.ended_last_minute / 60,
            gauges={"dead": found.dead, "reserved": found.reserved},
        )


def queue_name(value: object) -> str:
    """The name of a queue."""
    if not isinstance(value, str):
        raise TypeError
    check_name("queue", value)
    return value


def _of_store(name: str, parse: Parser, allowed: str, reason: str) -> Setting:
    return Setting(f"queue.{name}", parse, None, f"{allowed}; empty = as the store has it", reason)


def named(settings: tuple[Setting, ...]) -> Mapping[str, Setting]:
    """The settings of one table by their names in it."""
    return {each.name: each for each in settings}


def _name(values: Mapping[str, Any]) -> str:
    return str(values["name"])


QUEUE = Kind(
    "queue",
    named(
        (
            Setting(
                "queue.name",
                queue_name,
                REQUIRED,
                "up to 128 printable characters",
                "AMQP clients find it at `queue://NAME`. It is made if there is none.",
            ),
            _of_store(
                "max_retries",
                whole_number(0, 1_000_000_000),
                "0 to 1000000000",
                "Retries after the first try, before an item is dead.",
            ),
            _of_store(
                "backoff", SPAN, "a time such as 500ms", "Delay after the first failure; it doubles with each further."
            ),
            _of_store("backoff_max", SPAN, "a time such as 1h", "The longest delay."),
            _of_store("history", SPAN, "a time such as 7d, 0 = not at all", "How long ended items are kept."),
            _of_store(
                "max_payload_bytes",
                size(1, MAX_PAYLOAD_BYTES),
                f"1 byte to {MAX_PAYLOAD_BYTES // MIB} MiB",
                "The largest payload.",
            ),
        )
    ),
    _name,
    QueuePart,
    has_owner=False,
)
