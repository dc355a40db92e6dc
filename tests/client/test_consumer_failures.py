"""Messages at which a consumer's function keeps failing: dead letters, and those that are kept in the store (CO-7)."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from oncewire.client import Delivery, Message, MessageSetAside, Properties, UsageError, connect
from oncewire.client.transactions import (
    Consumer,
    CrashPoint,
    ProcessFailed,
    Producer,
    ProducerId,
    ReceivedMessage,
    Transaction,
)
from oncewire.wire import Header, Symbol
from tests.client.failing_child import ATTEMPTS, SCHEMA
from tests.client.output_readers import OutputReaders, until
from tests.client.store_world import Database
from tests.router.processes import RouterProcess

CHILD = Path(__file__).parent / "failing_child.py"
CHILD_PATH = os.pathsep.join([*sys.path, str(Path(__file__).parents[2])])
LONG = 60.0


def consumer_of(router: RouterProcess, database: Database, **options: Any) -> Consumer:
    given = {"store": database.url, "name": "billing", "topics": ["orders"], "schema": SCHEMA, "attempts": 2, **options}
    return Consumer(router.url, **given)


def effects(database: Database) -> list[str]:
    return [body for (body,) in database.rows("SELECT message FROM effects")]


def fail_at_bad(tx: Transaction, message: ReceivedMessage) -> None:
    body = message.body.decode()
    tx.execute("INSERT INTO effects VALUES (?)", (body,))
    if body.startswith("bad"):
        raise ValueError(f"{body} cannot be processed")


@asynccontextmanager
async def running(consumer: Consumer, process: Callable[[Transaction, ReceivedMessage], object]) -> AsyncIterator[None]:
    """A consumer that runs for the time of the block and then stops in good order."""
    async with consumer, asyncio.timeout(LONG), asyncio.TaskGroup() as group:
        task = group.create_task(consumer.run(process))
        try:
            yield
        except BaseException:
            task.cancel()
            raise
        consumer.stop()


async def publish(router: RouterProcess, *messages: bytes | Message) -> None:
    shop = connect(router.url, container_id="shop")
    async with asyncio.timeout(LONG), shop, shop.publisher("orders", name="till") as publisher:
        for message in messages:
            _ = await publisher.submit(message)


@asynccontextmanager
async def dead_letters(router: RouterProcess) -> AsyncIterator[Callable[[], Any]]:
    """The next letters of the topic `dead`."""
    async with connect(router.url) as client, client.subscriber("dead") as letters:

        async def take() -> Delivery:
            async with asyncio.timeout(LONG):
                letter: Delivery = await letters.receive()
            await letter.accept()
            return letter

        yield take


async def test_a_message_at_which_the_function_keeps_failing_becomes_a_dead_letter_and_the_input_goes_on(
    router: RouterProcess, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    events: list[object] = []
    consumer = consumer_of(router, database, dead_letters="dead", on_event=events.append)
    bad = Message(
        b"bad one",
        header=Header(priority=7),
        properties=Properties(message_id="m1", subject="s"),
        application_properties={"a": 1},
        annotations={Symbol("x-opt-mine"): "kept", Symbol("x-opt-failed-error"): "of an earlier letter"},
    )
    with caplog.at_level(logging.WARNING, "oncewire.client"):
        async with dead_letters(router) as take, running(consumer, fail_at_bad):
            await publish(router, b"one", bad, b"two", b"bad two", b"three")
            first, second = await take(), await take()
            await until(lambda: len(effects(database)) == 3, lambda: effects(database))
    assert effects(database) == ["one", "two", "three"]
    message = first.message
    assert (first.body, message.properties.subject, message.properties.message_id) == (b"bad one", "s", "m1")
    assert (message.header.priority, message.application_properties) == (7, {"a": 1})
    assert message.annotations[Symbol("x-opt-mine")] == "kept"
    assert message.annotations[Symbol("x-opt-failed-publisher")] == "shop/till"
    letter = first.dead_letter
    assert (letter.reason, letter.topic, letter.subscription) == ("max-attempts", "orders", "billing/orders")
    assert (letter.attempts, letter.count, letter.error) == (2, 1, "ValueError: bad one cannot be processed")
    assert first.publisher.startswith("billing/")
    assert second.body == b"bad two"
    reported = [event for event in events if isinstance(event, MessageSetAside)]
    assert reported[0] == MessageSetAside("orders", 2, 2, "ValueError: bad one cannot be processed", "dead")
    counts = consumer.statistics
    assert (counts.messages, counts.dead_letters, counts.skipped, len(reported)) == (3, 2, 0, 2)
    assert "has set message 2 of 'orders' aside after 2 attempts" in caplog.text


async def test_a_message_that_is_skipped_stays_in_the_store_with_the_reason(
    router: RouterProcess, database: Database
) -> None:
    consumer = consumer_of(router, database, skip=True)
    async with running(consumer, fail_at_bad):
        await publish(router, b"one", b"bad", b"two")
        await until(lambda: effects(database) == ["one", "two"], lambda: effects(database))
    ((position, source, why, payload),) = database.rows(
        "SELECT position, source, why, payload FROM oncewire_store_refused"
    )
    assert (position, source, why) == (2, "orders", "failed 2 times: ValueError: bad cannot be processed")
    assert b"bad" in bytes(payload)
    assert (consumer.statistics.messages, consumer.statistics.skipped) == (2, 1)


async def test_of_a_transaction_only_the_messages_that_fail_become_dead_letters(
    router: RouterProcess, database: Database
) -> None:
    """SQ-3 holds for the others: they are processed in one transaction, once all bad ones are known."""
    producer = Producer(ProducerId("shop", 1))
    bodies = [b"one", b"bad one", b"two", b"bad two"]
    messages = [Message(body, annotations=producer.pending().annotations()) for body in bodies]
    messages.append(Message(b"", annotations=producer.ack().annotations()))
    async with dead_letters(router) as take, running(consumer_of(router, database, dead_letters="dead"), fail_at_bad):
        await publish(router, *messages, b"three")
        assert [(await take()).body, (await take()).body] == [b"bad one", b"bad two"]
        await until(lambda: len(effects(database)) == 3, lambda: effects(database))
    assert effects(database) == ["one", "two", "three"]


async def test_a_message_at_which_the_end_of_its_transaction_fails_is_found_and_set_aside(
    router: RouterProcess, database: Database
) -> None:
    """What is gathered in a transaction fails in `finalize`; a value that AMQP has no type for fails behind it."""

    class Gathering(Consumer):
        def process(self, tx: Transaction, message: ReceivedMessage) -> None:
            self.gathered = [*getattr(self, "gathered", []), message.body.decode()]
            if message.body == b"object":
                tx.publish("totals", Message(b"", application_properties={"o": object()}))

        def finalize(self, tx: Transaction) -> None:
            gathered, self.gathered = self.gathered, []
            for body in gathered:
                tx.execute("INSERT INTO effects VALUES (?)", (body,))
            if "bad" in gathered:
                raise ValueError("bad is among them")

    consumer = Gathering(
        router.url,
        store=database.url,
        name="billing",
        topics=["orders"],
        schema=SCHEMA,
        attempts=2,
        dead_letters="dead",
    )
    async with dead_letters(router) as take, consumer:
        task = asyncio.create_task(consumer.run())
        await publish(router, b"one", b"bad", b"two", b"object", b"three")
        assert [(await take()).body, (await take()).body] == [b"bad", b"object"]
        await until(lambda: len(effects(database)) == 3, lambda: effects(database))
        consumer.stop()
        await asyncio.wait_for(task, LONG)
    assert effects(database) == ["one", "two", "three"]


async def test_a_consumer_that_was_not_reported_what_to_do_still_stops(
    router: RouterProcess, database: Database
) -> None:
    async with consumer_of(router, database) as consumer:
        task = asyncio.create_task(consumer.run(fail_at_bad))
        await publish(router, b"bad")
        with pytest.raises(ProcessFailed):
            await asyncio.wait_for(task, LONG)


def test_what_cannot_be_done_with_failed_messages_is_explained(tmp_path: Path) -> None:
    given: dict[str, Any] = {"store": f"sqlite:///{tmp_path / 'x.db'}", "name": "billing", "topics": ["orders"]}
    with pytest.raises(UsageError, match=r"both dead_letters= and skip="):
        Consumer("amqp://127.0.0.1:1", dead_letters="dead", skip=True, **given)
    with pytest.raises(UsageError, match=r"no token \* or #"):
        Consumer("amqp://127.0.0.1:1", dead_letters="dead.*", **given)


# --- crashes ----------------------------------------------------------------------------------------------------------

AT_A_LETTER = (
    CrashPoint.PROCESSED,
    CrashPoint.DECIDED,
    CrashPoint.COMMITTED,
    CrashPoint.EXPOSED,
    CrashPoint.PUBLISHED_IN_PART,
    CrashPoint.ACCEPTED,
    CrashPoint.CONFIRMED,
)


@asynccontextmanager
async def child(
    database: Database, router: RouterProcess, point: str, note: Path
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A consumer's process, killed at the end of the block."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(CHILD), database.url, router.url, point, str(note)),
        env={**os.environ, "PYTHONPATH": CHILD_PATH},
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def check_kills(
    router: RouterProcess, database: Database, tmp_path: Path, points: tuple[CrashPoint, ...]
) -> None:
    """Kill a consumer at each point of setting a message aside; each message ends in one place, once."""
    letters = OutputReaders()
    async with letters.reading([router.url], "dead"), connect(router.url) as client:
        async with consumer_of(router, database):
            pass  # what is published from now on is processed
        publisher = await client.publisher("orders")
        for point in points:
            _ = await publisher.submit(f"good {point.name}".encode())
            _ = await publisher.submit(f"bad {point.name}".encode())
            async with child(database, router, point.name, tmp_path / point.name) as process:
                assert await asyncio.wait_for(process.wait(), LONG) == -signal.SIGKILL
            assert (tmp_path / point.name).read_text().startswith("bad ")
        _ = await publisher.submit(b"good last")
        wanted = [*(f"good {point.name}" for point in points), "good last"]
        async with child(database, router, "-", tmp_path / "none"):
            await until(
                lambda: (
                    len(effects(database)) >= len(wanted)
                    and letters.have(len(points))
                    and not database.rows("SELECT number FROM oncewire_store_intents")
                ),
                lambda: (effects(database), letters.by_kind),
            )
    assert effects(database) == wanted
    letters.check([f"bad {point.name}" for point in points])
    attempts = {message.message.annotations[Symbol("x-opt-failed-attempts")] for message in letters.messages}
    assert attempts == {ATTEMPTS}
    assert not letters.flagged


async def test_a_consumer_killed_while_it_sets_a_message_aside_publishes_one_letter(
    router: RouterProcess, database: Database, tmp_path: Path
) -> None:
    await check_kills(router, database, tmp_path, (CrashPoint.COMMITTED,))


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_consumer_killed_at_every_point_of_setting_a_message_aside_publishes_one_letter(
    router: RouterProcess, database: Database, tmp_path: Path
) -> None:
    await check_kills(router, database, tmp_path, AT_A_LETTER)
