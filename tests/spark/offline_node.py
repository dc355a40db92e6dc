"""A node whose journals are filled by the test itself: real files, no network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bridges.node.embedded import EmbeddedNode
from bridges.node.interface import Offsets
from bridges.node.journal import Arrival, ReceiverJournal
from bridges.node.model import NodeSettings, Subscription
from oncewire.client import SqliteJournal
from oncewire.client.isolation import Isolation
from oncewire.wire import encode_data_message

ARRIVED_US = 1_700_000_000_000_000


class OfflineNode(EmbeddedNode):
    """Reads and trims as an embedded node does; what is received is what `append` is given."""

    def __init__(self, folder: Path, retention_s: float = 0.0) -> None:
        self.folder = folder
        self.retention_s = retention_s
        self.ended = ""
        self.isolation: Isolation | None = None
        self.subscribed: list[tuple[str, tuple[str, ...]]] = []
        defaults = Subscription("", "", (), retention_s=retention_s)
        super().__init__(NodeSettings("node", folder, ("amqp://127.0.0.1:1",), defaults=defaults))

    def path(self, subscription: str) -> Path:
        """Where a journal is."""
        return self._files.journal_path(subscription)

    def subscribe(self, subscription: str, topics: Sequence[str], isolation: Isolation | None = None) -> str:
        """Makes the journal, and receives nothing."""
        self.subscribed.append((subscription, tuple(topics)))
        self.isolation = isolation or self.isolation
        self.append_messages(subscription, [])
        return self._files.journal(subscription).marks().uuid

    def offsets(
        self, subscription: str, low: int | None = None, *, max_rows: int | None = None, max_bytes: int | None = None
    ) -> Offsets:
        """What the journal has, and `ended` as the test has set it."""
        return replace(super().offsets(subscription, low, max_rows=max_rows, max_bytes=max_bytes), ended=self.ended)

    def append(self, subscription: str, values: Sequence[str], topic: str = "orders", incarnation: int = 0) -> None:
        """Messages with these texts have arrived."""
        payloads = [encode_data_message(value.encode()) for value in values]
        self.append_messages(subscription, payloads, topic, incarnation)

    def append_numbers(self, subscription: str, start: int, stop: int) -> None:
        """The numbers from start to stop - 1 have arrived, as texts."""
        self.append(subscription, [str(number) for number in range(start, stop)])

    def append_messages(
        self, subscription: str, payloads: Sequence[bytes], topic: str = "orders", incarnation: int = 0
    ) -> None:
        """Encoded messages have arrived."""
        path = self.path(subscription)
        client = SqliteJournal(path)
        try:
            journal = ReceiverJournal(client.connection, path, subscription, self.isolation)
            source = journal.source_id(topic)
            client.begin()
            journal.append([Arrival(source, payload, None, incarnation) for payload in payloads], ARRIVED_US)
            client.commit()
        finally:
            client.close()

    def replace(self, subscription: str) -> None:
        """The journal's file is deleted, and there is a new one."""
        path = self.path(subscription)
        self.close()
        for found in path.parent.glob(f"{path.name}*"):
            found.unlink()
        self.append_messages(subscription, [])

    def status(self) -> dict[str, Any]:
        """What a source looks at."""
        return {"subscriptions": {name: {"retention_s": self.retention_s} for name, _ in self.subscribed}}
