"""Stock clients and large messages: one that was aborted is none, and the same one sent again is read once (L-5)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import oncewire
from oncewire.wire import Message, Properties, encode_message
from tests.interop.test_stock_clients import stock_client, until
from tests.router.large_clients import MIB, PartPublisher, PartSubscriber
from tests.router.processes import running_router

BODY = b"a" * (4 * MIB)
SENT = Message(BODY, properties=Properties(message_id="1"))
MESSAGE = encode_message(SENT)
CLIENTS = [
    pytest.param("proton", marks=pytest.mark.needs("proton")),
    pytest.param("rhea", marks=pytest.mark.needs("node", "rhea")),
]


@pytest.mark.parametrize("kind", CLIENTS)
@pytest.mark.parametrize("missing", [0, 1, 2 * MIB], ids=["the last transfer", "a byte", "half of it"])
async def test_a_stock_subscriber_never_reads_a_message_that_was_aborted(
    kind: str, missing: int, tmp_path: Path
) -> None:
    """rhea knows no aborts: it cannot read what has come, and connects again."""
    async with (
        running_router("--standalone") as router,
        stock_client(kind, "receive", [router.url], tmp_path / "events.jsonl") as reader,
    ):
        await until(lambda: bool(reader.events("attached")), reader)
        watcher = await PartSubscriber.attach(router.port, topic="stock")
        publisher = await PartPublisher.attach(router.port, topic="stock")
        publisher.begin(b"1", MESSAGE[: len(MESSAGE) - missing])
        begun = await watcher.begun()
        publisher.abort()
        assert (await watcher.rest(begun))[1]
        if kind == "rhea":
            await until(lambda: len(reader.events("attached")) == 2, reader)
        # The reader's credit for the next message is its proof of life. When that comes late, the publisher is
        # to send again (L-7), which ours does.
        client = await oncewire.connect(router.url, container_id="later")
        async with client, client.publisher("stock") as again:
            sent = asyncio.ensure_future(again.send(SENT))
            watcher.accept((await watcher.message())[0])
            await sent
        await until(lambda: bool(reader.events("received")), reader)
        (found,) = reader.events("received")
        assert found["body"] == BODY.decode()
