"""All operations of a MongoDB store: items, and here the history and statistics. And the store for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from bridges.workqueue import sql_operations as limits
from bridges.workqueue.items import Ending, HistoryEntry, Page, Search, Statistics
from bridges.workqueue.mongodb import MongoConnection
from bridges.workqueue.mongodb_documents import Document, entry_of, is_kept, new_document, passage_of
from bridges.workqueue.mongodb_items import MongoItems, the_one
from bridges.workqueue.one_operation import OneOperation
from bridges.workqueue.refusals import no_dead_letter, replayed_before, unknown_entry
from bridges.workqueue.sql_operations import END_OF_TIME, RATE_S, READ_LIMIT, SCAN_LIMIT, is_wanted
from bridges.workqueue.store import Operations
from oncewire.client.put_off import ended
from oncewire.store.rules_core import check_count, check_seconds, to_s, to_us

T = TypeVar("T")


class MongoOperations(MongoItems):
    """One operation of a MongoDB store; see Operations."""

    async def history(self, search: Search) -> Page:
        """Search ended items; see Operations."""
        await self._known(search.queue)
        check_count(search.limit)
        since = 0 if search.since is None else to_us(search.since)
        before = (END_OF_TIME if search.until is None else to_us(search.until), 0)
        if search.before is not None:
            before = min(before, search.before)
        found: list[HistoryEntry] = []
        for _ in range(SCAN_LIMIT // READ_LIMIT):
            rows = await self._read_history(search, since, before)
            for row in rows:
                entry = entry_of(row)
                before = (row["ended"], entry.entry)
                if is_kept(row, self._now_us) and is_wanted(entry, search):
                    found.append(entry)
                if len(found) == search.limit:
                    return Page(tuple(found), before)
            if len(rows) < READ_LIMIT:
                return Page(tuple(found), None)
        return Page(tuple(found), before)

    async def _read_history(self, search: Search, since: int, before: tuple[int, int]) -> list[Document]:
        """Return the next entries, of items that ended and of items that went on."""
        rows: dict[int, Document] = {}
        for path in ("", "past."):
            ended, entry = f"{path}ended", f"{path}entry"
            wanted: Document = {
                f"{path}queue": search.queue,
                ended: {"$gte": since, "$lte": before[0]},
                "$or": [{ended: {"$lt": before[0]}}, {entry: {"$lt": before[1]}}],
            }
            if search.ending is Ending.DEAD:
                wanted[f"{path}ending"] = Ending.DEAD.value
            async for document in self._items.find(wanted).sort([(ended, -1), (entry, -1)]).limit(READ_LIMIT):
                row = document["past"] if path else document
                rows[row["entry"]] = row  # once, also while it moves into a document of its own
        return sorted(rows.values(), key=lambda row: (row["ended"], row["entry"]), reverse=True)[:READ_LIMIT]

    async def entry(self, number: int) -> HistoryEntry:
        """Return one entry; see Operations."""
        return entry_of(await self._entry(number))

    async def _entry(self, number: int) -> Document:
        found: Document | None = await self._items.find_one({"entry": number})
        if found is None:
            found = (await self._items.find_one({"past.entry": number}) or {}).get("past")
        if found is None or not is_kept(found, self._now_us):
            raise unknown_entry(number)
        return found

    async def replay(self, entries: Sequence[int], delay: float = 0.0) -> list[int]:
        """Push a payload again; see Operations."""
        check_seconds("a delay", delay)
        document = await self._entry(the_one(entries, "a replay"))
        entry = entry_of(document)
        if entry.ending in {Ending.REPLAYED, Ending.DISCARDED}:
            raise replayed_before(entry.entry, entry.ending)
        settings = await self._known(entry.queue)
        due = to_us(self.now + delay)
        self.touched.add(entry.queue)
        if entry.ending is not Ending.DEAD:
            new = new_document(await self._db.number(), entry.queue, entry.priority, due, self._now_us, entry.payload)
            await self._db.insert(new)
            return [new["_id"]]
        # W-16: a dead letter is the item that it was again, with its key, in one change; its passage has ended.
        expires = self._now_us + to_us(settings.history_s)
        past = passage_of(document, entry.entry, Ending.REPLAYED, document["ended"], expires, [])
        again = {"due": due, "created": self._now_us, "reserved": False, "tries": 0, "reason": "", "past": past}
        gone = dict.fromkeys(("ended", "ending", "entry", "result", "retries"), "")
        await self._give_past_a_document(document)
        wanted = {"_id": document["_id"], "entry": entry.entry, "ending": Ending.DEAD.value}
        changed = await self._items.update_one(wanted, {"$set": again, "$unset": gone})
        return [document["_id"]] if changed.matched_count else await self.replay(entries, delay)

    async def discard(self, entries: Sequence[int]) -> None:
        """Give up a dead letter; see Operations."""
        entry = await self.entry(the_one(entries, "a discard"))
        history_s = (await self._known(entry.queue)).history_s
        expires = self._now_us + to_us(history_s)
        changed = await self._items.update_one(
            {"entry": entry.entry, "ending": Ending.DEAD.value},
            {"$set": {"ending": Ending.DISCARDED.value, "expires": expires, "purge": expires}},
        )
        if not changed.matched_count:
            raise no_dead_letter(entry.entry)

    async def statistics(self, queue: str) -> Statistics:
        """Return a queue in numbers; see Operations."""
        await self._known(queue)
        now = self._now_us
        here, most = {"queue": queue}, limits.COUNT_LIMIT

        async def count(wanted: Document) -> int:
            return int(await self._items.count_documents(wanted, limit=most))

        async def first(due: Document) -> int | None:
            found = await self._items.find_one({**here, "due": due}, {"due": 1}, sort=[("due", 1)])
            return None if found is None else int(found["due"])

        ready_since, following = await first({"$gte": 0, "$lte": now}), await first({"$gt": now})
        since = {"$gte": now - to_us(RATE_S)}
        ended = await count({**here, "ended": since})
        ended += await count({"past.queue": queue, "past.ended": since})
        return Statistics(
            queue=queue,
            ready=await count({**here, "due": {"$gte": 0, "$lte": now}}),
            waiting=await count({**here, "reserved": False, "due": {"$gt": now}}),
            reserved=await count({**here, "reserved": True, "due": {"$gt": now}}),
            dead=await count({**here, "ending": Ending.DEAD.value}),
            oldest_s=None if ready_since is None else to_s(now - ready_since),
            next_s=None if following is None else to_s(following - now),
            ended_last_minute=min(ended, most),
            count_limit=most,
        )


class MongoStore:
    """A store in a MongoDB database, for asyncio. A job is one operation there.

    Args:
        connection: to the database, which is prepared.
    """

    def __init__(self, connection: MongoConnection) -> None:
        self._connection = connection

    @classmethod
    async def open(cls, address: str, **options: Any) -> MongoStore:
        """Open the store at an address; see MongoConnection for the options.

        Raises:
            QueueError: it cannot be opened.
        """
        connection = MongoConnection(address, **options)
        try:
            await connection.prepare()
        except BaseException:
            await ended(asyncio.ensure_future(connection.close()))
            raise
        return cls(connection)

    async def perform(self, job: Callable[[Operations], T]) -> tuple[T, frozenset[str]]:
        """Do the operation of a job; durable on return.

        Returns the result, and the queues in which items may have become ready earlier than was known.

        Raises:
            NeedsTransactions: the job is more than one operation; nothing has happened.
            QueueError: nothing has happened, or after StoreUnreachable maybe all of it.
        """
        now = await self._connection.now()
        returned, planned = OneOperation(now).of(cast("Callable[[Any], Any]", job))
        if planned is None:
            return returned, frozenset()
        operations = MongoOperations(self._connection, now)
        async with self._connection.explained():
            result = await getattr(operations, planned.name)(*planned.arguments, **planned.options)
        return (result if returned is planned else returned), frozenset(operations.touched)

    async def close(self) -> None:
        """Release the connections; what was returned is durable."""
        await self._connection.close()
