"""Stores of work queues under a clock of the test's own, and the operations one at a time."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from bridges.workqueue import Commit, Handle, NewItem, Operations, Rollback, Search, Taken
from bridges.workqueue.contents import QueueContents
from bridges.workqueue.items import HistoryEntry
from bridges.workqueue.mongodb_operations import MongoStore
from oncewire.store.store import Job, Store
from tests.store.databases import Clock, SqlDatabase

T = TypeVar("T")


class MongoWorldStore:
    """A MongoDB store with an event loop of its own: operations one at a time, as the others do them."""

    def __init__(self, address: str, **options: Any) -> None:
        self._runner = asyncio.Runner()
        try:
            self._store = self._runner.run(MongoStore.open(address, **options))
        except BaseException:
            self._runner.close()
            raise

    def transact(self, jobs: Sequence[Job]) -> tuple[list[Any], frozenset[str]]:
        (job,) = jobs
        result, touched = self._runner.run(self._store.perform(job))
        return [result], touched

    def close(self) -> None:
        self._runner.run(self._store.close())
        self._runner.close()


@dataclass
class Database(SqlDatabase):
    """Where a store of queues is: kind, and file, libpq's words or URL."""

    @property
    def url(self) -> str:
        return self.address if self.kind == "mongodb" else super().url

    def open(self, clock: Clock | None = None, chance: float = 1.0) -> Store:
        if self.kind == "mongodb":  # what the tests use of a Store it has
            return cast("Store", MongoWorldStore(self.address, clock=clock, chance=lambda: chance))
        return self.open_with(QueueContents(chance=lambda: chance), clock)

    def connect(self) -> Any:
        """What another program opens it with; of a MongoDB store, PyMongo's database."""
        if self.kind == "mongodb":
            return importlib.import_module("pymongo").MongoClient(self.address).get_default_database()
        return super().connect()

    def make_all_due(self) -> None:
        """As if the time of every item had come."""
        if self.kind == "mongodb":
            with self.connect().client as client:
                client.get_default_database()["oncewire_items"].update_many({}, {"$set": {"due": 0}})
            return
        with closing(self.connect()) as connection:
            connection.execute("UPDATE oncewire_items SET due = 0")

    def set_time_zones(self, name: str) -> None:
        """As if another machine had written all schedules."""
        if self.kind == "mongodb":
            with self.connect().client as client:
                change = {"$set": {"timezone": name}}
                client.get_default_database()["oncewire_schedules"].update_many({}, change)
            return
        self.run(f"UPDATE oncewire_schedules SET timezone = '{name}'")

    def version(self) -> int:
        """Of the store in it."""
        if self.kind == "mongodb":
            with self.connect().client as client:
                return int(client.get_default_database()["oncewire_store"].find_one({"_id": "version"})["version"])
        return self.versions()["queues"]

    def set_version(self, version: int) -> None:
        """As if another version had written the store."""
        if self.kind == "mongodb":
            with self.connect().client as client:
                change = {"$set": {"version": version}}
                client.get_default_database()["oncewire_store"].update_one({"_id": "version"}, change)
            return
        with closing(self.connect()) as connection:
            connection.execute(f"UPDATE oncewire_versions SET version = {version} WHERE feature = 'queues'")

    def count_kept(self) -> tuple[int, int]:
        """Entries of the history and known keys that take room in it."""
        if self.kind == "mongodb":
            with self.connect().client as client:
                items = client.get_default_database()["oncewire_items"]
                claims = items.count_documents({"claim": {"$gte": ""}})
                return items.count_documents({"ended": {"$gte": 0}}), claims
        ((entries,),) = self.rows("SELECT count(*) FROM oncewire_history")
        ((keys,),) = self.rows("SELECT count(*) FROM oncewire_keys")
        return entries, keys


@dataclass
class World:
    """A store with the queue `work`, and each operation as a transaction of its own."""

    database: Database
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.store = self.database.open(self.clock)
        self.do(lambda do: do.configure("work"))

    @property
    def has_transactions(self) -> bool:
        """Whether the store changes several things at once; one that does not refuses it."""
        return self.database.kind != "mongodb"

    def do(self, job: Callable[[Operations], T]) -> T:
        (result,), _ = self.store.transact([job])
        return result  # type: ignore[no-any-return]

    def configure(self, queue: str = "work", **settings: float) -> None:
        self.do(lambda do: do.configure(queue, **settings))

    def push(self, *payloads: bytes, queue: str = "work", **options: Any) -> list[int]:
        items = [NewItem(payload, **options) for payload in payloads]
        calls = [items] if self.has_transactions else [[item] for item in items]
        return [
            pushed.item
            for call in calls
            for pushed in self.do(lambda do: do.push(queue, call))  # noqa: B023  # it is done before the next one
        ]

    def reserve(self, count: int = 1, timeout: float = 30.0, queue: str = "work") -> list[Taken]:
        return self.do(lambda do: do.reserve(queue, count, timeout))

    def take(self, queue: str = "work", timeout: float = 30.0) -> Handle:
        (taken,) = self.reserve(1, timeout, queue)
        return taken.handle

    def pop(self, count: int = 1, queue: str = "work") -> list[bytes]:
        return [taken.payload for taken in self.do(lambda do: do.pop(queue, count))]

    def commit(self, handle: Handle, result: bytes | None = None, payload: bytes | None = None) -> None:
        self.do(lambda do: do.commit([Commit(handle, result, payload)]))

    def rollback(self, handle: Handle, delay: float | None = None, reason: str = "", is_failure: bool = True) -> None:
        self.do(lambda do: do.rollback([Rollback(handle, delay, reason, is_failure)]))

    def history(self, queue: str = "work", **wanted: Any) -> list[HistoryEntry]:
        return list(self.do(lambda do: do.history(Search(queue, **wanted))).entries)


@contextmanager
def new_world(database: Database) -> Iterator[World]:
    """A world for the block."""
    world = World(database)
    try:
        yield world
    finally:
        world.store.close()
