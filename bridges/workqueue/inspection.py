"""What the inspector shows of the work queues of a store; `bridges.edge.inspection` adds its journals.

It is a `QueueReader` of the inspector, for all stores: each transaction has one operation, as MongoDB needs it. The
store is opened when somebody first looks, and again after it failed; a store that is unreachable keeps no router from
starting.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict
from typing import Any, TypeVar

from bridges.workqueue.cli_shapes import iso, payload_words
from bridges.workqueue.contents import QueueContents
from bridges.workqueue.errors import UnknownEntry, UnknownQueue
from bridges.workqueue.items import Ending, HistoryEntry, Search, Statistics
from bridges.workqueue.opening import check_address
from bridges.workqueue.queue_store import QueueStore
from bridges.workqueue.store import Operations
from bridges.workqueue.unpublished import outbox_numbers
from oncewire.cli.errors import CliError
from oncewire.store.errors import EdgeError, InvalidRequest, NeedsTransactions, PartMissing, StoreError, UnknownName
from oncewire.store.migrations import Feature

T = TypeVar("T")
Words = dict[str, Any]
SHOWN_BYTES = 4_096
"""Of a payload: enough to read a job, little enough for a page."""

_STATUS = (
    (UnknownName, 404),
    (UnknownQueue, 404),
    (UnknownEntry, 404),
    (InvalidRequest, 400),
    (StoreError, 503),
    (PartMissing, 503),
)


def check_store(url: str) -> None:
    """Read the address of a store, which is opened later.

    Raises:
        CliError: it means no store.
    """
    try:
        check_address(url)
    except InvalidRequest as error:
        raise CliError(error.what, error.why, error.fix) from error


def open_queues(url: str) -> StoreInspection:
    """Return the reader of the store at an address (see open_store); nothing is opened yet.

    Raises:
        CliError: the address means no store.
    """
    check_store(url)
    return StoreInspection(url)


class StoreInspection:
    """See the module; for one event loop.

    Args:
        url: of the store.
        features: that stand in it beside the queues.
    """

    def __init__(self, url: str, features: Sequence[Feature] = ()) -> None:
        self._url = url
        self._features = features
        self._opening = asyncio.Lock()
        self._held = AsyncExitStack()
        self._store: QueueStore | None = None

    async def queues(self) -> list[Words]:
        """See QueueReader."""
        names = await self._do(lambda do: do.queues())
        return [_queue_words(await self._numbers(name)) for name in names]

    async def outbox(self) -> list[Words]:
        """See QueueReader."""
        try:
            return [{"key": each.topic, **asdict(each)} for each in await self._do(outbox_numbers)]
        except NeedsTransactions:  # such a store has none
            return []

    async def _numbers(self, queue: str) -> Statistics:
        return await self._do(lambda do: do.statistics(queue))

    async def entries(self, queue: str, ending: str | None, limit: int, cursor: str | None) -> Words:
        """See QueueReader."""
        wanted = None if ending is None else Ending(ending)
        search = Search(queue, wanted, limit=limit, before=_place_of(cursor))
        page = await self._do(lambda do: do.history(search))
        return {
            "items": [_entry_words(entry) for entry in page.entries],
            "next": None if page.following is None else "-".join(map(str, page.following)),
        }

    async def entry(self, queue: str, number: int, *, with_payload: bool) -> Words:
        """See QueueReader."""
        entry = await self._entry(queue, number)
        words = _entry_words(entry)
        words |= {"payload": None, "encoding": None, "is_cut": None, "result": None}
        if with_payload:
            words |= _shown(entry.payload)
            words["result"] = None if entry.result is None else _shown(entry.result)["payload"]
        return words

    async def replay(self, queue: str, number: int) -> Words:
        """See QueueReader."""
        await self._entry(queue, number)
        (item,) = await self._do(lambda do: do.replay([number]))
        return {"queue": queue, "entry": number, "item": item}

    async def _entry(self, queue: str, number: int) -> HistoryEntry:
        entry = await self._do(lambda do: do.entry(number))
        if entry.queue != queue:  # an entry never changes its queue
            raise UnknownEntry(
                f"the entry {number} of {queue!r} cannot be found",
                f"it is of the queue {entry.queue!r}",
                "look at it there",
            )
        return entry

    def refusal_of(self, error: Exception) -> tuple[int, str, str] | None:
        """See QueueReader."""
        if not isinstance(error, EdgeError):
            return None
        status = next((status for kind, status in _STATUS if isinstance(error, kind)), 409)
        return status, f"{error.what}: {error.why}", error.fix

    async def close(self) -> None:
        """See QueueReader."""
        async with self._opening:
            self._store = None
            held, self._held = self._held, AsyncExitStack()
            await held.aclose()

    async def _do(self, job: Callable[[Operations], T]) -> T:
        try:
            store = await self._opened()
            return await store.transact(job)
        except StoreError:
            await self.close()  # the next request opens it anew
            raise

    async def _opened(self) -> QueueStore:
        async with self._opening:
            if self._store is None:
                self._store = await self._held.enter_async_context(
                    QueueStore.open(self._url, QueueContents(self._features))
                )
            return self._store


def _queue_words(numbers: Statistics) -> Words:
    return {
        "key": numbers.queue,
        "queue": numbers.queue,
        "depth": numbers.ready + numbers.waiting + numbers.reserved,
        "ready": numbers.ready,
        "waiting": numbers.waiting,
        "reserved": numbers.reserved,
        "dead": numbers.dead,
        "oldest_s": numbers.oldest_s,
        "next_s": numbers.next_s,
        "ended_last_minute": numbers.ended_last_minute,
        "count_limit": numbers.count_limit,
    }


def _entry_words(entry: HistoryEntry) -> Words:
    return {
        "key": str(entry.entry),
        "entry": entry.entry,
        "item": entry.item,
        "queue": entry.queue,
        "ending": entry.ending.value,
        "ended": iso(entry.ended),
        "created": iso(entry.created),
        "retries": entry.retries,
        "priority": entry.priority,
        "reason": entry.reason,
        "targets": list(entry.targets),
        "size": len(entry.payload),
    }


def _shown(payload: bytes) -> Words:
    if len(payload) <= SHOWN_BYTES:
        return {**payload_words(payload), "is_cut": False}
    return {"payload": b64encode(payload[:SHOWN_BYTES]).decode(), "encoding": "base64", "is_cut": True}


def _place_of(cursor: str | None) -> tuple[int, int] | None:
    if cursor is None:
        return None
    ended, _, entry = cursor.partition("-")
    if not (ended.isascii() and ended.isdigit() and entry.isascii() and entry.isdigit()):
        raise InvalidRequest("there is no such page", "its cursor cannot be read", "give the `next` of the page before")
    return int(ended), int(entry)
