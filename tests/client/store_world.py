"""Databases for stores, topics that repeat and reorder, and a consumer that dies at named points."""

from __future__ import annotations

import importlib
import itertools
import json
import os
import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oncewire.client.isolation import Isolation
from oncewire.client.transactions.sequence_header import SequenceHeader, read_header
from oncewire.client.transactions.sequencer import Batch, Sequencer
from oncewire.client.transactions.sequencer_state import Placed, Reread
from oncewire.client.transactions.store import Store
from oncewire.client.transactions.store_schema import Intent
from oncewire.client.transactions.stores import PostgresStore, SqliteStore
from oncewire.wire import Symbol

_names = itertools.count(1)


@dataclass(frozen=True)
class Database:
    """Where a store is: kind, and file or address."""

    kind: str
    address: str

    @property
    def url(self) -> str:
        """The address that consumers take."""
        if self.kind == "sqlite":
            return f"sqlite:///{self.address}"
        parts = dict(part.split("=") for part in self.address.split())
        return f"postgresql://{parts['user']}@/{parts['dbname']}?host={parts['host']}"

    def open(self, name: str = "billing", **settings: Any) -> Store[Any]:
        if self.kind == "sqlite":
            return SqliteStore(self.address, name, **settings)
        return PostgresStore(self.address, name, **settings)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """What another program sees in it."""
        with closing(self.connect()) as connection:
            return [tuple(row) for row in connection.execute(query).fetchall()]

    def run(self, statement: str) -> None:
        with closing(self.connect()) as connection:
            connection.execute(statement)

    def connect(self) -> Any:
        if self.kind == "sqlite":
            return sqlite3.connect(self.address, isolation_level=None, timeout=10)
        return importlib.import_module("psycopg").connect(self.address, autocommit=True)

    def insert(self, table: str, count: int) -> str:
        """The INSERT statement of this kind for so many values."""
        mark = "?" if self.kind == "sqlite" else "%s"
        return f"INSERT INTO {table} VALUES ({', '.join([mark] * count)})"


def new_postgres_database(server: str) -> Database:
    name = f"test_{os.getpid()}_{next(_names)}"
    Database("postgres", f"{server} dbname=postgres").run(f"CREATE DATABASE {name}")
    return Database("postgres", f"{server} dbname={name}")


class FileTopic:
    """A journal in a file: what subscribers of a topic would get. Survives every process.

    Args:
        path: the file.
        seed: makes the topic repeat messages, at once and late, and reorder those published together; None: neither.
    """

    def __init__(self, path: Path, seed: int | None = None) -> None:
        self.path = path
        self.rng = None if seed is None else random.Random(seed)
        self.late: list[tuple[SequenceHeader | None, str]] = []

    def publish(self, messages: list[tuple[SequenceHeader | None, str]]) -> None:
        """Returns when each is accepted, that is when it is in the journal at least once."""
        if self.rng is not None:
            messages = self.rng.sample(messages, len(messages))
            repeated = [entry for entry in messages if entry[0] is not None and self.rng.random() < 0.3]
            self.late += repeated
            self.rng.shuffle(self.late)
            count = self.rng.randrange(len(self.late) + 1)
            messages = self.rng.sample(messages + self.late[:count], len(messages) + count)
            del self.late[:count]
        for header, body in messages:
            self.append(header, body)

    def append(self, header: SequenceHeader | None, body: str) -> None:
        entry = [{str(key): value for key, value in header.annotations().items()} if header else {}, body]
        with self.path.open("ab") as file:
            file.write(json.dumps(entry).encode() + b"\n")

    def read(self, position: int) -> Iterator[tuple[int, SequenceHeader | None, str]]:
        """What is behind a position."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            for place, line in enumerate(file, 1):
                if place > position and line.endswith(b"\n"):
                    annotations, body = json.loads(line)
                    yield place, read_header({Symbol(key): value for key, value in annotations.items()}), body


def placed(topic: FileTopic, effect: Batch[str] | Reread[str]) -> list[Placed[str]]:
    """The messages of an effect, read again where they are no longer in memory."""
    if isinstance(effect, Batch):
        return list(effect.messages)
    found = []
    for position, header, body in topic.read(effect.first_position - 1):
        if position > effect.last_position:
            break
        if effect.wants(header):
            found.append(Placed(position, body))
    effect.finish()
    return found


def read_all(topic: FileTopic, isolation: Isolation = Isolation.READ_COMMITTED) -> list[str]:
    """What a reader of the whole topic processes."""
    sequencer = Sequencer[str](isolation, ring_messages=5)
    found = []
    for position, header, body in topic.read(0):
        step = sequencer.feed(position, header, body, 0.0)
        assert not step.outcome.is_refusal
        for effect in step.effects:
            found += [entry.message for entry in placed(topic, effect)]
    return found


class Crash(Exception):
    """The process is gone."""


POINTS = (
    "opened",
    "recovery published",
    "recovered",
    "received",
    "published",
    "effects written",
    "committed",
    "acknowledged in part",
    "acknowledged",
    "confirmed",
)
"""Where a consumer can die."""


def survive(_point: str) -> None:
    """Reach a point and live on."""


class Consumer:
    """Reads one topic, keeps a sum and a log in its database, publishes two messages for each one to the next topic.

    Args:
        database: where its store is.
        name: its name.
        source, target: what it reads, and where it publishes.
        reach: called at each of POINTS; raises or kills to crash there.
    """

    def __init__(
        self, database: Database, name: str, source: FileTopic, target: FileTopic, reach: Callable[[str], None]
    ) -> None:
        self.database = database
        self.name = name
        self.source = source
        self.target = target
        self.reach = reach
        self.store = database.open(name)
        # A copy of the message in flight differs from attempt to attempt: only one may count.
        self.attempt = self.store.fence
        try:
            self.recover()
        except BaseException:
            self.store.close()
            raise

    @staticmethod
    def make_tables(database: Database, name: str) -> None:
        database.run(f"CREATE TABLE {name}_log (attempt TEXT, message TEXT)")
        database.run(f"CREATE TABLE {name}_sum (total BIGINT)")
        database.run(f"INSERT INTO {name}_sum VALUES (0)")

    def recover(self) -> None:
        self.reach("opened")
        self.sequencer = Sequencer[str](ring_messages=8)
        self.store.restore("source", self.sequencer)
        self.acknowledge("recovery published")
        self.reach("recovered")

    def acknowledge(self, published: str) -> None:
        intents = list(self.store.unconfirmed)
        for intent in intents:
            self.publish(intent)
            self.reach("acknowledged in part")
        self.reach(published)
        self.store.confirm(intents)

    def publish(self, intent: Intent) -> None:
        assert intent.topic == "target"
        self.target.publish([(intent.header, "")])

    def step(self, limit: int) -> int:
        """One transaction over at most so many positions; returns how many there were."""
        messages: list[str] = []
        count = 0
        for position, header, body in self.source.read(self.sequencer.position):
            step = self.sequencer.feed(position, header, body, 0.0)
            assert not step.outcome.is_refusal
            for effect in step.effects:
                messages += [entry.message for entry in placed(self.source, effect)]
            count += 1
            if count == limit:
                break
        self.reach("received")
        if count:
            self.process(messages)
        return count

    def process(self, messages: list[str]) -> None:
        output = self.store.output("target")
        derived = [
            (output.pending(), f"{message}>{self.name}{part}#{self.attempt}") for message in messages for part in "xy"
        ]
        self.target.publish(list(derived))
        for header, _ in derived:
            output.settle(header.sequence)
        # A death in a transaction without messages would show nothing.
        reach = self.reach if messages else survive
        reach("published")
        with self.store.transaction({"source": self.sequencer}) as connection:
            for message in messages:
                connection.execute(
                    self.database.insert(f"{self.name}_log", 2), (f"{self.attempt}/{self.sequencer.position}", message)
                )
            connection.execute(f"UPDATE {self.name}_sum SET total = total + {sum(map(value_of, messages))}")
            reach("effects written")
        reach("committed")
        self.acknowledge("acknowledged")
        reach("confirmed")


def value_of(body: str) -> int:
    """The number that a message and all that is derived from it carry."""
    return int(body.partition(">")[0].partition("#")[0])


def origin(body: str) -> str:
    """A message without the marks of the attempts that made it."""
    return ">".join(part.partition("#")[0] for part in body.split(">"))
