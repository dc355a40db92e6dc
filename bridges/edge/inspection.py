"""What the inspector shows of an edge's store: the entry point `queues` of the group `oncewire.inspector`.

Queues and journals of one store, whichever edges run them: each edge that receives for a journal notes its name there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from bridges.edge.restart_core import Rate
from bridges.journal import cursors, log
from bridges.journal.contents import JOURNALS
from bridges.journal.model import JournalState
from bridges.journal.shapes import journal_words, reader_words
from bridges.workqueue.inspection import StoreInspection, check_store
from bridges.workqueue.mongodb import PREFIX as MONGODB_PREFIX
from oncewire.store.errors import NeedsTransactions
from oncewire.store.store import Transaction

T = TypeVar("T")
Words = dict[str, Any]
MAX_READERS = 500
"""Of one answer, those that have most to read: a page shows no more."""


def open_edge_store(url: str) -> EdgeInspection:
    """Return the reader of the store at an address; nothing is opened yet.

    Raises:
        CliError: the address means no store.
    """
    check_store(url)
    return EdgeInspection(url)


class EdgeInspection(StoreInspection):
    """See the module; for one event loop."""

    def __init__(self, url: str) -> None:
        """Open nothing yet."""
        self._has_journals = not url.startswith(MONGODB_PREFIX)
        super().__init__(url, [JOURNALS] if self._has_journals else [])
        self._rates: dict[str, Rate] = {}

    async def journals(self) -> list[Words]:
        """See QueueReader."""
        if not self._has_journals:
            return []

        def look(do: Transaction) -> list[tuple[JournalState, Words]]:
            return [(each, _words(do, each)) for each in log.journals(do)]

        found = await self._journals(look)
        self._note([state for state, _ in found])
        return [words | self._rate(state) for state, words in found]

    async def journal(self, name: str) -> Words:
        """See QueueReader."""
        if not self._has_journals:
            raise NeedsTransactions("there are no journals", "a MongoDB store has none", "use SQLite or PostgreSQL")

        def look(do: Transaction) -> tuple[JournalState, Words]:
            found = log.state(do, name)
            return found, _words(do, found) | {"readers": _readers(do, found)[:MAX_READERS]}

        state, words = await self._journals(look)
        return words | self._rate(state)

    async def _journals(self, job: Callable[[Transaction], T]) -> T:
        found: T = await self._do(job)
        return found

    def _note(self, states: list[JournalState]) -> None:
        now = asyncio.get_running_loop().time()
        self._rates = {each.uuid: self._rates.get(each.uuid, Rate()) for each in states}
        for each in states:
            self._rates[each.uuid].note(now, each.last)

    def _rate(self, state: JournalState) -> Words:
        """Messages a second that were appended since somebody looked first, in the last minute."""
        rate = self._rates.get(state.uuid)
        return {"rate": None if rate is None else rate.per_second()}


def _words(do: Transaction, found: JournalState) -> Words:
    readers = _readers(do, found)
    return {
        "key": found.name,
        **journal_words(found, log.oldest_s(do, found)),
        "owner": log.owner(do, found),
        "reader_count": len(readers),
        "late_readers": sum(each["is_late"] for each in readers),
        "reader_lag": max((each["unread"] for each in readers), default=0),
    }


def _readers(do: Transaction, found: JournalState) -> list[Words]:
    """Those that are late first, then those that have most to read."""
    readers = [
        {"key": reader, **reader_words(found, reader, each)} for reader, each in cursors.cursors(do, found).items()
    ]
    return sorted(readers, key=lambda each: (not each["is_late"], -each["unread"], each["reader"]))
