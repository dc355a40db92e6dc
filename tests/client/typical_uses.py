"""What applications write against the Python API: a type checker reads this file, and nobody runs it.

`test_type_checkers.py` has pyright read it in strict mode, as an editor does for an application. A value whose type is
not known is an error there, so each line also says that what it uses has a type.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import oncewire
from oncewire.client import (
    BodyNotDecoded,
    ClientError,
    ClientEvent,
    Delivery,
    Disconnected,
    Guarantee,
    Header,
    LinkRefused,
    Message,
    NotAccepted,
    Outcome,
    OutcomeKind,
    Properties,
    Publisher,
    Request,
    Requester,
    RequestRefused,
    Responder,
    Sending,
    SqliteJournal,
    StillOwed,
    Subscriber,
    connect,
    sync,
)
from oncewire.client.transactions import Consumer, ReceivedMessage, Transaction


@dataclass
class Order:
    """A body."""

    number: int
    item: str


async def publish(urls: list[str], journal: Path) -> Outcome:
    """Send, one at a time and many in flight."""
    async with connect(urls, container_id="shop", journal=journal) as client:
        async with client.publisher("orders", name="till", require=1) as publisher:
            outcome = await publisher.send(b"one", timeout=5.0, properties=Properties(message_id="1"))
            sendings: list[Sending] = [await publisher.submit(f"{number}") for number in range(10)]
            outcomes: list[Outcome] = [await sending for sending in sendings]
            assert outcomes[0].kind is OutcomeKind.ACCEPTED
            assert publisher.guarantee is Guarantee.EXACTLY_ONCE
            await publisher.send(Message("two", header=Header(durable=True)))
            await publisher.flush()
            return outcome


async def publish_with_codec(url: str) -> None:
    """Send what a codec encodes."""
    client = await oncewire.connect(url)
    publisher = await client.publisher("orders", codec=Order)
    try:
        await publisher.send(Order(1, "tea"))
    except NotAccepted as error:
        print(error.outcomes[0].condition)
    except StillOwed as error:
        print(error.subscriptions, (await error.sending).is_accepted)
    await client.close()


async def subscribe(url: str) -> None:
    """Receive, one at a time, many at once, in transactions."""
    events: list[ClientEvent] = []
    async with connect(url, on_event=events.append) as client:
        async with client.subscriber("orders.*", selector="size > 3", codec=Order) as subscriber:
            delivery: Delivery = await subscriber.receive(1.0)
            print(delivery.body, delivery.message.properties, delivery.publisher)
            await delivery.accept()
            async for delivery in subscriber:
                try:
                    order: Order = delivery.value
                except BodyNotDecoded as error:
                    await delivery.reject(str(error))
                    continue
                print(order.item)
                await delivery.accept()
            many: list[Delivery] = await subscriber.receive_many(100)
            await subscriber.finish(many)
    print([event.cause for event in events if isinstance(event, Disconnected)])


async def store_effects(subscriber: Subscriber, journal: SqliteJournal) -> int:
    """Store effects with the acceptance."""
    delivery = await subscriber.receive()
    async with subscriber.transaction(delivery) as database:
        database.execute("INSERT INTO orders (text) VALUES (?)", (delivery.body,))
    return journal.connection.total_changes


async def ask(url: str) -> str:
    """A request."""
    async with connect(url) as client, Requester(client) as requester:
        try:
            answer = await requester.request("doubles", "21", timeout=5.0)
        except RequestRefused as error:
            return str(error)
        return str(answer.body)


async def answer(url: str) -> None:
    """Serve requests."""
    async with connect(url) as client, Responder(client, "doubles") as responder:
        request: Request = await responder.receive()
        await request.answer(f"{request.body}")


class Mail(Consumer):
    """A consumer with a database."""

    def process(self, tx: Transaction, message: ReceivedMessage) -> None:
        """Store an effect and publish, in one transaction."""
        rows = tx.execute("SELECT count(*) FROM seen")
        print(rows, message.body)
        tx.execute("INSERT INTO seen (body) VALUES (?)", (message.body,))
        tx.publish("done", b"x")


async def consume(url: str, database: Path) -> None:
    """Run it."""
    async with Mail(url, store=str(database), name="mail", topics=["orders"]) as mail:
        consumer: Mail = mail
        await consumer.run()


@asynccontextmanager
async def publishing(url: str) -> AsyncGenerator[Publisher]:
    """Hand a publisher on."""
    try:
        async with connect(url) as client, client.publisher("orders") as publisher:
            yield publisher
    except LinkRefused as error:
        print(error.what, error.why, error.fix, error.condition)
    except ClientError as error:
        print(error)


def without_a_loop(url: str) -> None:
    """The same without an event loop."""
    with sync.connect(url) as client:
        with client.publisher("orders") as publisher, client.subscriber("orders") as subscriber:
            publisher.send(b"x")
            subscriber.receive(1.0).accept()
            print(publisher.guarantee)


if __name__ == "__main__":
    asyncio.run(publish(["amqp://127.0.0.1"], Path("shop.db")))
