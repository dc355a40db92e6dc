"""The connection of a MongoDB store: address, indexes, numbers, the server's clock, errors. Needs PyMongo."""

from __future__ import annotations

import asyncio
import importlib
import random
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any

from bridges.workqueue.mongodb_documents import (
    ITEM_INDEXES,
    ITEMS,
    QUEUES,
    SCHEDULE_INDEXES,
    SCHEDULES,
    STORE,
    VERSION,
    Indexes,
)
from oncewire.store.errors import (
    InvalidRequest,
    PartMissing,
    StatementFailed,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreUnreachable,
    StoreVersionUnknown,
)

PREFIX = "mongodb://"
CONNECT_MS = 10_000
"""How long to wait for the server, where the address does not say (``serverSelectionTimeoutMS``)."""
REPLY_MS = 30_000
"""How long to wait for a reply, where the address does not say (``socketTimeoutMS``): the server may be cut off."""
CLOCK_S = 10.0
"""How long the server's time goes on by this machine's monotonic clock before it is asked for again."""
MOST_NUMBERS = 64
"""Numbers of items taken from the server at once: few round trips, and few numbers that are never used."""
PROBES = 8
"""Connections that increment one number at the same time, and increments of each."""
# Codes of the server's errors -> what it is for us, and what to do.
_CODES: dict[int, tuple[type[StoreError], str]] = {
    13: (StoreUnreachable, "check user, password and rights"),
    18: (StoreUnreachable, "check user, password and rights"),
    50: (StoreBusy, "look for what loads the server"),
    14031: (StoreFull, "make room on the server's disk"),
}


def load_pymongo() -> ModuleType:
    """Return PyMongo.

    Raises:
        PartMissing: it is not installed.
    """
    try:
        return importlib.import_module("pymongo")
    except ImportError as error:
        raise PartMissing(
            "a MongoDB store cannot be opened",
            f"PyMongo cannot be loaded ({error})",
            'run pip install "oncewire[mongodb]"',
        ) from error


class MongoConnection:
    """A database of a server. For one event loop.

    Args:
        address: ``mongodb://HOST/DATABASE``, with PyMongo's options.
        clock: returns Unix time in seconds; None = the server's clock (W-15).
        chance: returns random numbers, 0 to 1, for jitter.

    Raises:
        PartMissing: PyMongo is not installed.
        InvalidRequest: the address means no database.
    """

    def __init__(
        self, address: str, *, clock: Callable[[], float] | None = None, chance: Callable[[], float] = random.random
    ) -> None:
        pymongo = load_pymongo()
        self._errors = importlib.import_module("pymongo.errors")
        self._make_index = pymongo.IndexModel
        self._clock = clock
        self.chance = chance
        self._time: tuple[float, float] | None = None
        self._numbers = range(0)
        self._block = 1
        # W-1: a change that a failover or power loss could undo would lose items.
        safe = pymongo.WriteConcern(w="majority", j=True)
        timeouts = {"serverSelectionTimeoutMS": CONNECT_MS, "socketTimeoutMS": REPLY_MS}
        unsaid = {name: value for name, value in timeouts.items() if name.lower() not in address.lower()}
        try:
            self._client = pymongo.AsyncMongoClient(address, tz_aware=True, **unsaid)
            database = self._client.get_default_database().with_options(
                write_concern=safe, read_preference=pymongo.ReadPreference.PRIMARY
            )
        except (self._errors.PyMongoError, ValueError) as error:
            why = "PyMongo cannot read it" if "@" in address else str(error)  # no password in a log
            raise InvalidRequest(
                "the store mongodb://... cannot be opened", why, "use mongodb://HOST:PORT/DATABASE"
            ) from None
        self.items: Any = database[ITEMS]
        self.queues: Any = database[QUEUES]
        self.schedules: Any = database[SCHEDULES]
        self._store: Any = database[STORE]

    async def prepare(self) -> None:
        """Make the store in the database, unless it is there.

        Raises:
            StoreError: the server cannot be reached, cannot be used, or a later version wrote the store.
        """
        async with self.explained():
            found = await self._store.find_one({"_id": "version"})
            if found is not None and found["version"] > VERSION:
                raise StoreVersionUnknown(
                    "the store in this database cannot be used",
                    f"it is of version {found['version']}, and this program knows up to {VERSION}",
                    "use the newer version of Oncewire that wrote it",
                )
            if found is None:
                await self._check_that_changes_are_atomic()
                await self._make_indexes(self.items, ITEM_INDEXES)
                await self._make_indexes(self.schedules, SCHEDULE_INDEXES)
                await self._upsert({"_id": "version"}, {"$setOnInsert": {"version": VERSION}})

    async def _make_indexes(self, collection: Any, indexes: Indexes) -> None:
        """Make those that are not there; where another node makes them now, some servers refuse the second one."""
        wanted = [self._make_index(fields, **options) for fields, options in indexes]
        for is_last in (False, False, True):
            there = await collection.index_information()
            missing = [index for index in wanted if index.document["name"] not in there]
            if not missing:
                return
            try:
                await collection.create_indexes(missing)
            except self._errors.PyMongoError:
                if is_last:
                    raise

    async def _check_that_changes_are_atomic(self) -> None:
        """Everything rests on it (W-4), and some servers that speak MongoDB's protocol lose changes of one another."""
        probe = f"probe-{secrets.token_hex(8)}"
        await self._store.insert_one({"_id": probe, "count": 0})

        async def increment() -> None:
            for _ in range(PROBES):
                await self._store.find_one_and_update({"_id": probe}, {"$inc": {"count": 1}})

        await asyncio.gather(*(increment() for _ in range(PROBES)))
        counted = (await self._store.find_one_and_delete({"_id": probe}))["count"]
        if counted != PROBES * PROBES:
            raise StoreUnreachable(
                "the server cannot keep work queues",
                f"it does not change a document atomically: {counted} of {PROBES * PROBES} increments were kept",
                "use another server with MongoDB's protocol; FerretDB 1 is known for this",
            )

    async def _upsert(self, wanted: dict[str, Any], change: dict[str, Any]) -> Any:
        """Change a document that may not be there yet; two who make it at once collide, and then it is there."""
        for is_last in (False, True):
            try:
                return await self._store.find_one_and_update(wanted, change, upsert=True)
            except self._errors.DuplicateKeyError:
                if is_last:
                    raise
        raise AssertionError

    async def now(self) -> float:
        """Return the time by the store's clock (W-15): the server's."""
        if self._clock is not None:
            return self._clock()
        if self._time is None or time.monotonic() - self._time[1] > CLOCK_S:
            async with self.explained():
                asked = time.monotonic()
                hello = await self._client.admin.command("hello")
                self._time = (hello["localTime"].timestamp(), (asked + time.monotonic()) / 2)
        at, monotonic = self._time
        return float(at + time.monotonic() - monotonic)

    async def number(self) -> int:
        """Return a number that no item and no entry has; ascending in a process."""
        while not self._numbers:
            change = {"$inc": {"last": self._block}}
            block, self._block = self._block, min(2 * self._block, MOST_NUMBERS)
            before = await self._upsert({"_id": "numbers"}, change)
            last = 0 if before is None else before["last"]
            self._numbers = range(last + 1, last + block + 1)
        number, self._numbers = self._numbers[0], self._numbers[1:]
        return number

    async def insert(self, document: dict[str, Any]) -> bool:
        """Add an item's document; returns False where a unique value of it is there already."""
        try:
            await self.items.insert_one(document)
        except self._errors.DuplicateKeyError:
            return False
        return True

    @asynccontextmanager
    async def explained(self) -> AsyncIterator[None]:
        """PyMongo's errors become ours."""
        try:
            yield
        except self._errors.PyMongoError as error:
            raise self._explain(error) from error
        except OverflowError as error:
            raise StatementFailed("the store was not changed", f"{error}: too large", "use a smaller number") from error

    def _explain(self, error: Exception) -> StoreError:
        why = f"MongoDB says: {str(error).partition(', full error')[0].partition(', Timeout:')[0]}"
        fix = "check address, rights and that the server runs; then do it again"
        kind: type[StoreError] = StoreUnreachable
        if isinstance(error, self._errors.OperationFailure):
            kind, fix = _CODES.get(error.code, (StatementFailed, "check that this server has MongoDB's commands"))
        what = "the operation was refused" if kind is StatementFailed else "the store cannot be used"
        return kind(what, why, fix)

    async def close(self) -> None:
        """Release the connections."""
        await self._client.close()
