"""Receivers, publishers and journals of a bridge node that run inside a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from bridges.node.arrow_bodies import count_topics, encode_rows
from bridges.node.identity import identity_of
from bridges.node.journal import MAX_OPEN_BYTES, Arrival, ReceiverJournal
from bridges.node.journal_reader import JournalReader
from bridges.node.model import Publishing, StagedPart, Subscription, Writer
from bridges.node.outbox import Outbox
from bridges.node.producers_core import Judgement
from bridges.node.publisher import SinkPublisher
from bridges.node.receiver import Receiver
from oncewire.client import SqliteJournal
from oncewire.client.isolation import Isolation
from oncewire.wire import decode_message, encode_data_message
from tests.client.shell_helpers import until

NOW_US = 1_700_000_000_000_000
WRITER = Writer("query", "run")


@asynccontextmanager
async def receiving(url: str, subscription: Subscription, path: Path) -> AsyncIterator[Receiver]:
    """A receiver that is attached."""
    receiver = Receiver(subscription, path, [url])
    running = asyncio.create_task(receiver.run())
    try:
        await until(lambda: receiver.numbers.active_links == len(subscription.topics) or running.done())
        yield receiver
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        receiver.close()


@asynccontextmanager
async def publishing(path: Path, url: str, inflight: int = 1000) -> AsyncIterator[SinkPublisher]:
    """A publisher of what an outbox has."""
    publisher = SinkPublisher(path, "sink", [url], inflight=inflight)
    running = asyncio.create_task(publisher.run())
    try:
        yield publisher
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


def decide(outbox: Outbox, batch: int, rows: list[tuple[str, bytes]], how: Publishing | None = None) -> None:
    """A batch of rows, (topic, value), is staged and decided."""
    body = encode_rows([topic for topic, _ in rows], [encode_data_message(value) for _, value in rows])
    part = StagedPart(0, f"attempt-{batch}", 1, len(rows))
    outbox.stage(WRITER, batch, part, 0, count_topics(body), body)
    outbox.commit(WRITER, batch, [part], *(() if how is None else (how,)))


def stored(path: Path) -> list[tuple[str, object]]:
    """(topic, body) of everything in a journal, in order."""
    reader = JournalReader(path)
    marks = reader.marks()
    found = [
        (topic, decode_message(payload).body)
        for chunk in reader.read(marks.deleted, marks.last)
        for topic, payload in zip(chunk.topics, chunk.payloads, strict=True)
    ]
    reader.close()
    return found


class Life:
    """A journal that is opened again for each group, as by a node that was killed."""

    def __init__(
        self, path: Path, level: Isolation | None = Isolation.READ_COMMITTED, max_open_bytes: int = MAX_OPEN_BYTES
    ) -> None:
        self.path = path
        self.level = level
        self.max_open_bytes = max_open_bytes

    def append(self, *payloads: bytes) -> list[Judgement]:
        """A group arrives."""
        client = SqliteJournal(self.path)
        try:
            journal = ReceiverJournal(client.connection, self.path, "flights", self.level, self.max_open_bytes)
            source = journal.source_id("orders")
            client.begin()
            found = journal.append([Arrival(source, each, identity_of(each)) for each in payloads], NOW_US)
            client.commit()
            return found
        finally:
            client.close()

    def bodies(self) -> list[object]:
        """What a reader gets."""
        return [body for _, body in stored(self.path)]
