"""A subscriber whose map does not fit a frame comes down to one that fits, by resumption alone (C-4, AMQP 2.6.13)."""

from __future__ import annotations

from pathlib import Path

import oncewire
from oncewire.client import SqliteJournal
from oncewire.wire import DispositionReceived
from tests.router.processes import running_router
from tests.router.raw_client import RawClient

SMALL_FRAME = 1024
"""A map of ten entries: (1024 - 512) / 48."""
MESSAGES = 40
SMALLEST_FRAME = 4096
"""The smallest that our client takes: a map of 74 entries."""
MANY = 120
GONE = 100
"""Publishers that leave an entry each."""
LATER = 15
DEADLINE_S = 60.0


async def test_a_client_that_presents_no_outcomes_gets_every_entry_again_and_can_answer_it() -> None:
    """The client does what AMQP says and no more: present a part, answer what is resumed, attach again."""
    async with running_router("--standalone") as router:
        client = await RawClient.connect(router.port, "reader")
        subscriber = await client.subscriber("orders", timeout=3600)
        publisher = await (await RawClient.connect(router.port, "writer")).publisher("orders")
        for number in range(MESSAGES):
            publisher.send(b"%d" % number, b"body")
        held = [(await subscriber.delivery()).tag for _ in range(MESSAGES)]
        client.cut()
        await client.closed()
        client = await RawClient.connect(router.port, "reader", max_frame_size=SMALL_FRAME)
        answered: list[bytes] = []
        while held:
            part, rest = held[:10], held[10:]
            subscriber = await client.subscriber(
                "orders", timeout=3600, unsettled=dict.fromkeys(part), incomplete_unsettled=bool(rest)
            )
            assert subscriber.reply.unsettled == dict.fromkeys(part)
            for tag in part:
                resumed = await subscriber.delivery()
                assert (resumed.tag, resumed.resume, resumed.settled) == (tag, True, False)
                subscriber.accept(resumed)
                answered.append(tag)
            settled: set[bytes] = set()
            while settled != set(part):
                reported = await publisher.next_outcome()
                publisher.settle(*(number for number, _ in reported.deliveries))
                event = await client.wait_for(DispositionReceived, lambda event: event.settled)
                settled |= {tag for _, tag in event.deliveries}
            held = rest
            if held:
                assert not (await client.detached(subscriber.link)).closed
        publisher.send(b"new", b"body")
        assert (await subscriber.delivery()).tag.endswith(b"new")


async def test_our_client_works_off_a_map_that_no_longer_fits_its_frames(tmp_path: Path) -> None:
    """Its process ends with half of the deliveries processed, out of order, and comes back with small frames."""
    journal = SqliteJournal(tmp_path / "reader.db")
    async with running_router("--standalone") as router:
        url = f"amqp://127.0.0.1:{router.port}"
        async with oncewire.connect(url, container_id="writer") as writer:
            async with oncewire.connect(url, container_id="reader") as reader:
                subscriber = await reader.subscriber("orders", name="s", timeout=3600, journal=journal)
                publisher = await writer.publisher("orders", name="p")
                for number in range(MANY):
                    _ = await publisher.submit(b"%d" % number)
                deliveries = [await subscriber.receive(DEADLINE_S) for _ in range(MANY)]
                processed = [delivery.body for delivery in deliveries[1::2]]
                for delivery in deliveries[1::2]:
                    await delivery.accept()
                await subscriber.suspend()
            async with oncewire.connect(url, container_id="reader", max_frame_size=SMALLEST_FRAME) as reader:
                subscriber = await reader.subscriber("orders", name="s", timeout=3600, journal=journal)
                while len(processed) < MANY:
                    delivery = await subscriber.receive(DEADLINE_S)
                    processed.append(delivery.body)
                    await delivery.accept()
                await publisher.flush(DEADLINE_S)
                assert processed == [b"%d" % number for number in (*range(1, MANY, 2), *range(0, MANY, 2))]
                sending = await publisher.submit(b"new")
                delivery = await subscriber.receive(DEADLINE_S)
                assert delivery.body == b"new"
                await delivery.accept()
                await sending


async def test_publishers_that_are_gone_do_not_keep_new_messages_from_a_reader_that_comes_back(tmp_path: Path) -> None:
    """Each has one delivery in a map that is full without it, and never settles it; their sessions last for a day."""
    journal = SqliteJournal(tmp_path / "reader.db")
    async with running_router("--standalone", f"--limits-max-frame-size={SMALLEST_FRAME}") as router:
        url = f"amqp://127.0.0.1:{router.port}"
        async with oncewire.connect(url, container_id="reader") as reader:
            subscriber = await reader.subscriber("orders", name="s", timeout=3600, journal=journal)
            for number in range(GONE):
                killed = await RawClient.connect(router.port, f"gone-{number}")
                (await killed.publisher("orders")).send(b"1", b"of one that is gone")
                delivery = await subscriber.receive(DEADLINE_S)
                await delivery.accept()
                killed.cut()
                await killed.closed()
            await subscriber.suspend()
        async with (
            oncewire.connect(url, container_id="reader") as reader,
            oncewire.connect(url, container_id="writer") as writer,
        ):
            subscriber = await reader.subscriber("orders", name="s", timeout=3600, journal=journal)
            publisher = await writer.publisher("orders", name="p")
            sendings = [await publisher.submit(b"%d" % number) for number in range(LATER)]
            got = []
            for _ in range(LATER):
                delivery = await subscriber.receive(DEADLINE_S)
                got.append(delivery.body)
                await delivery.accept()
            assert got == [b"%d" % number for number in range(LATER)]
            assert all([(await sending).is_accepted for sending in sendings])
