"""Receiver and publisher against a real router: what is decided arrives in a journal once, whatever ends in between."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from bridges.node.errors import BadRequest
from bridges.node.journal import JournalControl
from bridges.node.model import Subscription
from bridges.node.outbox import Outbox
from bridges.node.receiver import Receiver
from oncewire.client import Message, NotAccepted, StillOwed, connect
from oncewire.wire import Symbol, ULong
from tests.client.shell_helpers import LONG, until
from tests.node.parts import decide, publishing, receiving, stored
from tests.router.processes import RouterProcess


def subscription(*topics: str, **settings: object) -> Subscription:
    return Subscription("flights", "node.flights", topics, **settings)  # type: ignore[arg-type]


async def test_a_message_is_accepted_when_it_is_in_the_journal(router: RouterProcess, tmp_path: Path) -> None:
    path = tmp_path / "flights.db"
    async with receiving(router.url, subscription("orders", "trains.#"), path) as receiver:
        async with connect(router.url, container_id="shop") as client:
            orders = await client.publisher("orders", name="p")
            trains = await client.publisher("trains.late", name="q")
            for number in range(300):
                _ = await orders.submit(b"%d" % number)
            await orders.flush(LONG)
            assert stored(path) == [("orders", b"%d" % number) for number in range(300)]
            await trains.send(b"late", timeout=LONG)
        assert stored(path)[-1] == ("trains.#", b"late")
        assert receiver.numbers.messages["new"] == 301
        assert receiver.numbers.groups < 301


async def test_a_copy_with_the_same_identity_is_accepted_and_not_stored_again(
    router: RouterProcess, tmp_path: Path
) -> None:
    """The network sees two deliveries; the producer's own number shows that they are one message."""
    path = tmp_path / "flights.db"

    def message(number: int) -> Message:
        return Message(
            b"%d" % number,
            annotations={
                Symbol("x-opt-topic-producer"): "p",
                Symbol("x-opt-topic-seq"): ULong(number),
                Symbol("x-opt-topic-floor"): ULong(0),
            },
        )

    async with (
        receiving(router.url, subscription("orders"), path) as receiver,
        connect(router.url, container_id="shop") as client,
    ):
        publisher = await client.publisher("orders", name="p")
        for number in (0, 2, 1, 2, 0, 3):
            await publisher.send(message(number), timeout=LONG)
        assert [body for _, body in stored(path)] == [b"0", b"2", b"1", b"3"]
        assert receiver.numbers.messages["duplicate"] == 2


async def test_a_producer_whose_floor_stands_still_is_rejected_and_others_are_not(
    router: RouterProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bridges.node.producers_core.MAX_GAPS", 2)
    path = tmp_path / "flights.db"
    async with (
        receiving(router.url, subscription("orders", group_s=0.05), path) as receiver,
        connect(router.url, container_id="shop") as client,
    ):
        publisher = await client.publisher("orders", name="p")
        sendings = []
        for number in (0, 2, 4, 6, 1):
            annotations: dict[Symbol, object] = {
                Symbol("x-opt-topic-producer"): "p",
                Symbol("x-opt-topic-seq"): ULong(number),
            }
            sendings.append(await publisher.submit(Message(b"%d" % number, annotations=annotations)))
        sendings.append(await publisher.submit(b"plain"))
        with suppress(NotAccepted):
            await publisher.flush(LONG)
        assert [body for _, body in stored(path)] == [b"0", b"2", b"plain"]
        assert receiver.numbers.messages["too-many-gaps"] == 3


async def test_a_full_journal_holds_publishers_back_until_it_is_trimmed(router: RouterProcess, tmp_path: Path) -> None:
    path = tmp_path / "flights.db"
    settings = subscription("orders", max_journal_bytes=20_000, credit=8, group_count=4)
    async with receiving(router.url, settings, path) as receiver, connect(router.url, container_id="shop") as client:
        publisher = await client.publisher("orders", name="p", window=200)
        sendings = [await publisher.submit(bytes(1000)) for _ in range(100)]
        await until(lambda: receiver.numbers.is_full)
        with pytest.raises(StillOwed) as caught:
            await publisher.send(b"waits", timeout=0.3)
        assert caught.value.subscriptions == ("node.flights/orders",)
        assert 19 <= len(stored(path)) <= 24
        control = JournalControl(path)
        last = asyncio.ensure_future(caught.value.sending)
        async with asyncio.timeout(LONG):
            while not last.done():
                # In a thread: the receiver's transaction may be open, and ends in this loop.
                await asyncio.to_thread(control.trim, control.marks().last, 1.0)
                while await asyncio.to_thread(control.delete_expired, 1.0):
                    pass
                receiver.trimmed()
                await asyncio.wait([last], timeout=0.02)
        assert last.result().is_accepted
        assert all(sending.outcome is not None and sending.outcome.is_accepted for sending in sendings)
        control.close()


async def test_decided_rows_arrive_once_whichever_end_is_broken_off(router: RouterProcess, tmp_path: Path) -> None:
    """Both ends are ended hard again and again (their tasks are cancelled in the middle of whatever they do)."""
    journal, outbox_path = tmp_path / "flights.db", tmp_path / "sink.db"
    settings = subscription("orders", "errors", credit=64, group_count=16)
    outbox = Outbox(outbox_path, "sink")
    expected: dict[str, list[bytes]] = {"orders": [], "errors": []}
    batch = 0
    for _ in range(4):
        async with (
            receiving(router.url, settings, journal) as receiver,
            publishing(outbox_path, router.url, inflight=50) as publisher,
        ):
            goal = len(stored(journal)) + 400
            for _ in range(6):
                rows = [("errors" if n % 10 == 9 else "orders", b"%d/%d" % (batch, n)) for n in range(100)]
                decide(outbox, batch, rows)
                publisher.wake()
                for topic, value in rows:
                    expected[topic].append(value)
                batch += 1
            await until(lambda goal=goal, receiver=receiver: receiver._journal.last >= goal)  # type: ignore[misc]
    async with receiving(router.url, settings, journal), publishing(outbox_path, router.url) as publisher:
        await until(lambda: outbox.marks().waiting_manifests == 0)
    found = stored(journal)
    for topic, bodies in expected.items():
        assert [body for where, body in found if where == topic] == bodies
    outbox.close()


async def test_rows_that_nobody_subscribes_to_are_published(router: RouterProcess, tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "sink.db", "sink")
    async with publishing(outbox.path, router.url) as publisher:
        decide(outbox, 0, [("orders", b"1"), ("orders", b"2")])
        publisher.wake()
        await until(lambda: outbox.marks().waiting_manifests == 0)
        assert publisher.numbers.outcomes == {"accepted": 2}
    outbox.close()


def test_a_subscription_needs_topics(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="has 0 topics"):
        Receiver(subscription(), tmp_path / "j.db", [])
