"""O-8: what becomes of rows whose session the network has forgotten, at a real router."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from bridges.node.arrow_bodies import count_topics, encode_rows
from bridges.node.identity import identity_of
from bridges.node.outbox import Outbox, Publishing, StagedPart, Writer
from bridges.node.publisher import SinkPublisher
from oncewire.client import ClientEvent, NewIncarnation, connect
from oncewire.wire import encode_data_message
from tests.client.shell_helpers import LONG, until
from tests.router.processes import start_router

WRITER = Writer("query", "run")


@asynccontextmanager
async def publishing(path: Path, url: str) -> AsyncIterator[SinkPublisher]:
    publisher = SinkPublisher(path, "sink", [url])
    running = asyncio.create_task(publisher.run())
    try:
        yield publisher
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


def decide(outbox: Outbox, *values: bytes, how: Publishing) -> None:
    body = encode_rows(["out"] * len(values), [encode_data_message(value) for value in values])
    part = StagedPart(0, "a", 1, len(values))
    outbox.stage(WRITER, 0, part, 0, count_topics(body), body)
    outbox.commit(WRITER, 0, [part], how)


@pytest.mark.parametrize("resends", [True, False], ids=["exactly-once", "at-most-once"])
async def test_rows_of_a_session_that_the_network_forgot_come_again_as_they_were_or_are_given_up(
    resends: bool, tmp_path: Path
) -> None:
    """The only router dies when the rows are delivered and not accepted; sessions were in its memory."""
    outbox = Outbox(tmp_path / "sink.db", "sink")
    events: list[ClientEvent] = []
    router = await start_router("--standalone")
    port = router.port
    try:
        async with connect(router.url, container_id="reader", on_event=events.append) as client:
            subscriber = await client.subscriber("out", name="s")
            async with publishing(outbox.path, router.url) as publisher:
                decide(outbox, b"one", b"two", how=Publishing(resends_in_doubt=resends))
                publisher.wake()
                before = [await subscriber.receive(LONG) for _ in range(2)]
            await router.stop(signal.SIGKILL)
            router = await start_router("--standalone", f"--listen-port={port}")
            await until(lambda: any(isinstance(event, NewIncarnation) for event in events))
            await subscriber._opened()
            for delivery in before:
                await delivery.accept()
            async with publishing(outbox.path, router.url):
                if resends:
                    after = [await subscriber.receive(LONG) for _ in range(2)]
                    assert [identity_of(each.payload) for each in after] == [
                        identity_of(each.payload) for each in before
                    ]
                    for delivery in after:
                        await delivery.accept()
                await until(lambda: outbox.marks().waiting_manifests == 0)
            assert subscriber.waiting == 0
            manifest = outbox.manifest(0)
            assert manifest is not None
            assert manifest.not_accepted == (0 if resends else 2)
    finally:
        await router.stop(signal.SIGKILL)
        outbox.close()
