"""CO-12: messages that consumers have set aside are seen, retried once and dropped, also while the consumer runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from oncewire.cli.errors import CliError
from oncewire.client import Message, connect
from oncewire.client.transactions import Consumer, Producer, ProducerId, ReceivedMessage, Transaction
from oncewire.client.transactions.cli import consumer as commands
from oncewire.testing import AmqpNetwork
from oncewire.wire import BodyKind
from tests.client.output_readers import until
from tests.client.store_world import Database

LONG = 60.0


@pytest.fixture(scope="module")
def network() -> Iterator[AmqpNetwork]:
    with AmqpNetwork(1) as found:
        yield found


class Billing:
    """A consumer of one database, and what its function does."""

    def __init__(self, network: AmqpNetwork, database: Database, topic: str) -> None:
        self.bad = {"bad", "worse"}
        self.database = database
        self._urls = network.urls
        self._topic = topic

    def process(self, tx: Transaction, message: ReceivedMessage) -> None:
        tx.execute("INSERT INTO effects VALUES (?)", (message.body,))
        if message.body in self.bad:
            raise ValueError(f"{message.body} cannot be processed")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        schema = ["CREATE TABLE IF NOT EXISTS effects (message TEXT)"]
        billing = Consumer(
            self._urls,
            store=self.database.url,
            name="billing",
            topics=[self._topic],
            schema=schema,
            attempts=1,
            skip=True,
        )
        async with billing, asyncio.timeout(LONG), asyncio.TaskGroup() as group:
            _ = group.create_task(billing.run(self.process))
            yield
            await until(lambda: billing.is_idle, self.effects)
            billing.stop()

    async def publish(self, *bodies: str | Message) -> None:
        async with connect(self._urls) as client, client.publisher(self._topic) as publisher:
            for body in bodies:
                _ = await publisher.submit(body)

    def effects(self) -> list[str]:
        return [body for (body,) in self.database.rows("SELECT message FROM effects")]

    def run(self, *words: str) -> list[dict[str, Any]]:
        """A command with --json."""
        command = [words[0], "--store", self.database.url, "--json", *words[1:]]
        done = CliRunner().invoke(commands, command, catch_exceptions=False, standalone_mode=False)
        return [json.loads(line) for line in done.output.splitlines()]


@pytest.fixture
def billing(network: AmqpNetwork, database: Database, request: pytest.FixtureRequest) -> Billing:
    return Billing(network, database, request.node.name[:60])


async def test_a_message_is_retried_while_its_consumer_runs_and_leaves_one_effect(billing: Billing) -> None:
    async with billing.running():
        await billing.publish("one", "bad", "two")
        await until(lambda: billing.effects() == ["one", "two"], billing.effects)
        (shown,) = await asyncio.to_thread(billing.run, "dead")
        assert (shown["consumer"], shown["position"], shown["body"], shown["retry"]) == ("billing", 2, "bad", False)
        assert shown["why"] == "failed 1 times: ValueError: bad cannot be processed"
        billing.bad.clear()
        assert await asyncio.to_thread(billing.run, "retry", "billing", "2") == [{"retried": 1}]
        await until(lambda: billing.effects() == ["one", "two", "bad"], billing.effects)
    assert billing.run("dead") == []


async def test_a_message_is_retried_when_its_consumer_is_started_and_may_fail_again(billing: Billing) -> None:
    async with billing.running():
        await billing.publish("bad", "worse")
        await until(lambda: len(billing.run("dead")) == 2, billing.effects)
    assert billing.run("retry", "billing", "--all") == [{"retried": 2}]
    assert [each["retry"] for each in billing.run("dead", "billing")] == [True, True]
    billing.bad = {"worse"}
    async with billing.running():
        await until(lambda: billing.effects() == ["bad"], billing.effects)
    ((body, is_marked),) = [(each["body"], each["retry"]) for each in billing.run("dead")]
    assert (body, is_marked) == ("worse", False)


async def test_a_message_with_a_sequence_is_retried_as_one_that_nobody_has_numbered(billing: Billing) -> None:
    producer = Producer(ProducerId("shop", 1))
    async with billing.running():
        await billing.publish(
            Message("bad", BodyKind.VALUE, annotations=producer.pending().annotations()),
            Message("", BodyKind.VALUE, annotations=producer.ack().annotations()),
            Message("one", BodyKind.VALUE, annotations=producer.pending().annotations()),
            Message("", BodyKind.VALUE, annotations=producer.ack().annotations()),
        )
        await until(lambda: len(billing.run("dead")) == 1, billing.effects)
        billing.bad.clear()
        assert await asyncio.to_thread(billing.run, "retry", "billing", "--all") == [{"retried": 1}]
        await until(lambda: "bad" in billing.effects(), billing.effects)
    assert billing.effects().count("bad") == 1
    assert billing.run("dead") == []


async def test_a_message_is_dropped_and_what_is_not_there_or_not_chosen_is_refused(billing: Billing) -> None:
    async with billing.running():
        await billing.publish("bad", "worse")
        await until(lambda: len(billing.run("dead")) == 2, billing.effects)
    with pytest.raises(CliError, match="has set no message 7 aside"):
        billing.run("drop", "billing", "7")
    with pytest.raises(CliError, match="no messages are chosen"):
        billing.run("drop", "billing")
    with pytest.raises(CliError, match="chosen in two ways"):
        billing.run("retry", "billing", "1", "--all")
    assert billing.run("drop", "billing", "1") == [{"dropped": 1}]
    assert [each["body"] for each in billing.run("dead")] == ["worse"]
    billing.database.run("UPDATE oncewire_store_refused SET why = 'duplicate: producer x'")
    with pytest.raises(CliError, match="message 2 of the consumer 'billing' cannot be retried"):
        billing.run("retry", "billing", "2")
    assert billing.run("retry", "billing", "--all") == [{"retried": 0}]


def test_a_database_that_is_none_is_refused_and_none_is_made(tmp_path: Path) -> None:
    for url in ("mysql://x", f"sqlite:///{tmp_path}/misspelt.db"):
        with pytest.raises(CliError, match="cannot be opened"):
            CliRunner().invoke(commands, ["dead", "--store", url], catch_exceptions=False, standalone_mode=False)
    assert not list(tmp_path.iterdir())
