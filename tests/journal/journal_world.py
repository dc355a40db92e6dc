"""A store with journals under a clock of the test's own, one operation at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from bridges.journal import log
from bridges.journal.contents import JOURNALS
from bridges.journal.model import JournalSettings, NewMessage, StoredMessage
from oncewire.store.contents import Contents
from oncewire.store.store import Store, Transaction
from oncewire.wire import encode_data_message
from tests.store.databases import Clock, SqlDatabase

T = TypeVar("T")
NAME = "orders"


@dataclass
class JournalWorld:
    """An open store."""

    database: SqlDatabase
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.store: Store = self.database.open_with(Contents([JOURNALS]), self.clock)

    def do(self, job: Callable[[Transaction], T]) -> T:
        """Run a job in a transaction of its own."""
        (result,), _ = self.store.transact([job])
        return result  # type: ignore[no-any-return]

    def make(self, name: str = NAME, **settings: Any) -> None:
        """Make a journal."""
        self.do(lambda do: log.configure(do, name, JournalSettings(**settings)))

    def append(self, *bodies: str, name: str = NAME, source: str = "orders.#", keys: str = "") -> range:
        """Append messages; with `keys` a character for each is its key."""
        messages = [
            NewMessage(encode_data_message(body.encode()), 0, key)
            for body, key in zip(bodies, keys or [None] * len(bodies), strict=True)
        ]
        return self.do(lambda do: log.append(do, name, messages, source))

    def read(
        self, after: int = 0, count: int = 1000, name: str = NAME, max_bytes: int = 1 << 20
    ) -> list[StoredMessage]:
        """Messages behind a position."""
        return self.do(lambda do: log.read(do, name, after, count, max_bytes))[1]

    def positions(self, after: int = 0, name: str = NAME) -> list[int]:
        """Their positions."""
        return [message.position for message in self.read(after, name=name)]


@contextmanager
def journal_world(database: SqlDatabase) -> Iterator[JournalWorld]:
    """A world whose store is closed at the end."""
    world = JournalWorld(database)
    try:
        yield world
    finally:
        world.store.close()
