"""O-12: rows to a topic without enough subscriptions wait, at a real router; nothing is lost, doubled or overtaken."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridges.node.model import Publishing
from bridges.node.outbox import Outbox
from bridges.node.publisher import SinkPublisher
from oncewire.client import Subscriber, connect
from tests.client.shell_helpers import LONG, until
from tests.node.parts import decide, publishing
from tests.router.processes import RouterProcess

ONE = Publishing(require=1)


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridges.node.publisher.RETRY_S", 0.05)


def rows(*values: int, topic: str = "out") -> list[tuple[str, bytes]]:
    return [(topic, b"%d" % value) for value in values]


async def taken(subscriber: Subscriber, count: int) -> list[int]:
    found = []
    for _ in range(count):
        delivery = await subscriber.receive(LONG)
        assert isinstance(delivery.body, bytes)
        found.append(int(delivery.body))
        await delivery.accept()
    return found


async def until_waiting(publisher: SinkPublisher) -> None:
    await until(lambda: "fewer than 1 subscription" in publisher.numbers.trouble.get("out", ""))


async def until_published(outbox: Outbox) -> None:
    await until(lambda: outbox.marks().waiting_manifests == 0)


@pytest.fixture
def outbox(tmp_path: Path) -> Iterator[Outbox]:
    found = Outbox(tmp_path / "sink.db", "sink")
    yield found
    found.close()


async def test_rows_wait_in_order_until_their_topic_has_a_subscription(
    router: RouterProcess, outbox: Outbox, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "oncewire.bridge"):
        async with (
            publishing(outbox.path, router.url, inflight=20) as publisher,
            connect(router.url, container_id="reader") as client,
        ):
            decide(outbox, 0, rows(*range(50)), ONE)
            await until_waiting(publisher)
            decide(outbox, 1, rows(*range(50, 60)), ONE)
            subscriber = await client.subscriber("out")
            assert await taken(subscriber, 60) == list(range(60))
            await until_published(outbox)
            assert publisher.numbers.trouble == {}
            await subscriber.unsubscribe()
            decide(outbox, 2, rows(60), ONE)
            publisher.wake()
            await until_waiting(publisher)
            subscriber = await client.subscriber("out")
            assert await taken(subscriber, 1) == [60]
            await until_published(outbox)
            assert subscriber.waiting == 0
        assert publisher.numbers.outcomes == {"accepted": 61}
        for number in range(3):
            manifest = outbox.manifest(number)
            assert manifest is not None
            assert manifest.not_accepted == 0
    assert sum("it has fewer than 1 subscription" in record.getMessage() for record in caplog.records) == 2


async def test_rows_that_wait_are_neither_lost_nor_doubled_when_the_publisher_dies(
    router: RouterProcess, outbox: Outbox
) -> None:
    async with connect(router.url, container_id="reader") as client:
        subscriber = await client.subscriber("out")
        async with publishing(outbox.path, router.url) as publisher:
            decide(outbox, 0, rows(0, 1), ONE)
            assert await taken(subscriber, 2) == [0, 1]
            await until_published(outbox)
            await subscriber.unsubscribe()
            decide(outbox, 1, rows(2, 3), ONE)
            publisher.wake()
            await until_waiting(publisher)
        for _ in range(3):
            async with publishing(outbox.path, router.url) as publisher:
                await until_waiting(publisher)
        subscriber = await client.subscriber("out")
        async with publishing(outbox.path, router.url):
            assert await taken(subscriber, 2) == [2, 3]
            await until_published(outbox)
        assert subscriber.waiting == 0


async def test_rows_go_to_nobody_when_a_later_commit_no_longer_requires_anybody(
    router: RouterProcess, outbox: Outbox
) -> None:
    async with publishing(outbox.path, router.url) as publisher:
        decide(outbox, 0, rows(0, 1), ONE)
        await until_waiting(publisher)
        assert outbox.marks().waiting_manifests == 1
        decide(outbox, 1, rows(2), Publishing())
        await until_published(outbox)
    assert publisher.numbers.outcomes == {"accepted": 3}


async def test_rows_of_other_topics_do_not_wait(router: RouterProcess, outbox: Outbox) -> None:
    async with publishing(outbox.path, router.url) as publisher, connect(router.url, container_id="reader") as client:
        subscriber = await client.subscriber("heard")
        decide(outbox, 0, rows(0), ONE)
        decide(outbox, 1, rows(1, topic="heard"), ONE)
        assert await taken(subscriber, 1) == [1]
        await until_waiting(publisher)
