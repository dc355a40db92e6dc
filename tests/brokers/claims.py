"""What the client does at every stock broker: the rows of docs/brokers.md that all of them have."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import pytest

from oncewire.client import (
    AuthenticationFailed,
    Client,
    ClientEvent,
    Connected,
    Disconnected,
    Guarantee,
    Header,
    LinkRefused,
    Message,
    Properties,
    Publisher,
    Subscriber,
    connect,
)
from tests.support.brokers import LOGIN, Broker
from tests.support.slow_relay import slow_relay_to
from tests.support.waiting import eventually
from topology.etcd.server import free_port

LONG = 60.0
LARGE = 5_000_000
names = count()


def at(broker: Broker, *urls: str, **options: Any) -> Client:
    """A client of the broker."""
    return connect(urls or broker.url, hostname=broker.hostname, **options)


def subscribed(client: Client, broker: Broker, **terms: Any) -> Any:
    """A subscriber to what `publishing` sends."""
    return client.subscriber(broker.pattern, exactly_once=False, timeout=None, **terms)


def publishing(client: Client, broker: Broker, **terms: Any) -> Any:
    """A publisher that the broker can serve."""
    return client.publisher(broker.topic, exactly_once=False, **terms)


@asynccontextmanager
async def both(broker: Broker, **options: Any) -> AsyncIterator[tuple[Publisher, Subscriber]]:
    """A publisher and a subscriber who has all that it sends, and nothing of earlier tests."""
    async with at(broker, **options) as client, subscribed(client, broker) as subscriber:
        await empty(subscriber)
        async with publishing(client, broker) as publisher:
            yield publisher, subscriber


async def empty(subscriber: Subscriber) -> None:
    """Take what earlier tests left in a queue."""
    while True:
        try:
            await (await subscriber.receive(0.3)).accept()
        except TimeoutError:
            return


async def bodies(subscriber: Subscriber, number: int) -> list[object]:
    """Accept so many messages."""
    found = []
    for _ in range(number):
        delivery = await subscriber.receive(LONG)
        found.append(delivery.body)
        await delivery.accept()
    return found


class Claims:
    """Of each broker; a subclass adds its own."""

    async def test_a_login_is_checked(self, broker: Broker) -> None:
        async with at(broker):
            pass
        with pytest.raises(AuthenticationFailed):
            async with at(broker, broker.url.replace(LOGIN, "guest:wrong")):
                pass

    async def test_exactly_once_is_refused_with_what_to_do(self, broker: Broker) -> None:
        async with at(broker) as client:
            for opening in (client.publisher(broker.topic), client.subscriber(broker.pattern)):
                with pytest.raises(LinkRefused, match="exactly_once=False"):
                    await opening
            assert client.statistics.connections == 1  # nothing was attached for which it would end the session

    async def test_a_requirement_is_refused_with_what_to_do(self, broker: Broker) -> None:
        async with at(broker) as client:
            with pytest.raises(LinkRefused, match="without require"):
                await publishing(client, broker, require=1)

    async def test_journals_and_groups_are_refused_with_what_to_do(self, broker: Broker) -> None:
        async with at(broker) as client:
            with pytest.raises(LinkRefused, match="connect to an Oncewire router"):
                await client.journal("orders", settled=True)
            with pytest.raises(LinkRefused, match="leave by_group out"):
                await subscribed(client, broker, share="team", by_group=True)

    async def test_a_subscription_for_a_limited_time_is_refused_with_what_to_do(self, broker: Broker) -> None:
        async with at(broker) as client:
            with pytest.raises(LinkRefused, match="timeout=None"):
                await client.subscriber(broker.pattern, exactly_once=False)

    async def test_a_link_says_what_it_guarantees(self, broker: Broker) -> None:
        async with both(broker) as (publisher, subscriber):
            assert publisher.guarantee is subscriber.guarantee is Guarantee.BROKER_AT_LEAST_ONCE
        async with at(broker) as client:
            settled = await client.settled_publisher(broker.topic)
            receiving = await client.subscriber(broker.pattern, settled=True)
            assert settled.guarantee is receiving.guarantee is Guarantee.AT_MOST_ONCE

    async def test_a_message_is_accepted_by_the_broker_before_a_subscriber_has_processed_it(
        self, broker: Broker
    ) -> None:
        async with both(broker) as (publisher, subscriber):
            assert (await publisher.send(b"x", timeout=LONG)).is_accepted
            assert await bodies(subscriber, 1) == [b"x"]
            await eventually(lambda: subscriber._core.unfinished == 0)

    async def test_messages_come_in_order_and_no_more_ahead_than_prefetch(self, broker: Broker) -> None:
        async with at(broker) as client, subscribed(client, broker, prefetch=10) as subscriber:
            await empty(subscriber)
            async with publishing(client, broker, window=32) as publisher:
                for number in range(200):
                    await publisher.submit(b"%d" % number)
                await publisher.flush()
                await eventually(lambda: subscriber.waiting == 10)
                assert await bodies(subscriber, 200) == [b"%d" % number for number in range(200)]
                assert subscriber.waiting == 0

    async def test_a_large_message_comes_whole(self, broker: Broker) -> None:
        async with both(broker) as (publisher, subscriber):
            body = bytes(range(256)) * (LARGE // 256)
            await publisher.send(body, timeout=LONG)
            assert await bodies(subscriber, 1) == [body]

    async def test_a_subscriber_has_what_its_pattern_matches(self, broker: Broker) -> None:
        async with at(broker) as client, subscribed(client, broker) as subscriber:
            await empty(subscriber)
            other_topic = broker.topic.replace("orders", "mails")
            async with (
                publishing(client, broker) as publisher,
                client.publisher(other_topic, exactly_once=False) as other,
            ):
                await publisher.send(b"matches", timeout=LONG)
                sending = await other.submit(b"does not")
                await sending
                await publisher.send(b"matches too", timeout=LONG)
            assert await bodies(subscriber, 2) == [b"matches", b"matches too"]

    async def test_messages_that_are_sent_settled_come_once(self, broker: Broker) -> None:
        async with at(broker) as client, client.subscriber(broker.pattern, settled=True) as subscriber:
            await empty(subscriber)
            async with client.settled_publisher(broker.topic) as publisher:
                for number in range(50):
                    await publisher.send(b"%d" % number, timeout=LONG)
                assert await bodies(subscriber, 50) == [b"%d" % number for number in range(50)]

    async def test_what_a_lost_subscriber_had_not_finished_comes_again(self, broker: Broker) -> None:
        container = f"lost-{next(names)}"
        async with at(broker, container_id=container) as client:
            subscriber = await subscribed(client, broker, name="kept")
            await empty(subscriber)
            async with publishing(client, broker) as publisher:
                await publisher.send(durable(b"1"), timeout=LONG)
                await publisher.send(durable(b"2"), timeout=LONG)
            assert await bodies(subscriber, 1) == [b"1"]
            assert (await subscriber.receive(LONG)).body == b"2"
            await client.abandon()
        async with at(broker, container_id=container) as client:
            again = await subscribed(client, broker, name="kept")
            assert await bodies(again, 1) == [b"2"]
            await again.unsubscribe()

    async def test_what_had_no_outcome_is_sent_again_over_the_next_connection(self, broker: Broker) -> None:
        async with at(broker) as client, slow_relay_to(broker.port) as relay:
            plain = await subscribed(client, broker)
            await empty(plain)
            events: list[ClientEvent] = []
            url = broker.url.replace(str(broker.port), relay.url.rsplit(":", 1)[1])
            async with at(broker, url, on_event=events.append) as sender:
                publisher = await publishing(sender, broker)
                relay.stall()
                sending = await publisher.submit(b"x")
                first = await plain.receive(LONG)
                await eventually(has(events, Disconnected))
                relay.go_on()
                assert (await sending).is_accepted
            second = await plain.receive(LONG)
            assert first.body == second.body == b"x"
            await plain.finish([first, second])

    async def test_copies_of_a_message_are_dropped_where_that_is_asked_for(self, broker: Broker) -> None:
        async with at(broker) as client, subscribed(client, broker, deduplicate=True) as subscriber:
            await empty(subscriber)
            async with publishing(client, broker) as publisher:
                for number in (1, 1, 2):
                    await publisher.send(
                        b"%d" % number, properties=Properties(message_id=f"{id(publisher)}-{number}"), timeout=LONG
                    )
                assert await bodies(subscriber, 2) == [b"1", b"2"]

    async def test_the_client_goes_on_when_the_broker_was_killed_and_has_kept_durable_messages(
        self, broker: Broker
    ) -> None:
        events: list[ClientEvent] = []
        async with at(broker, container_id=f"killed-{next(names)}", on_event=events.append) as client:
            subscriber, publisher = await subscribed(client, broker, name="kept"), await publishing(client, broker)
            await empty(subscriber)
            assert (await publisher.send(durable(b"before"), timeout=LONG)).is_accepted
            broker.kill()
            await eventually(has(events, Disconnected))
            sending = await publisher.submit(durable(b"behind"))
            broker.start()
            assert (await sending).is_accepted
            found: set[object] = set()
            while found != {b"before", b"behind"}:
                found |= set(await bodies(subscriber, 1))
            await subscriber.unsubscribe()

    async def test_a_client_takes_the_next_address_when_one_does_not_answer(self, broker: Broker) -> None:
        events: list[ClientEvent] = []
        async with at(broker, f"amqp://{LOGIN}@127.0.0.1:{free_port()}", broker.url, on_event=events.append):
            assert [type(event) for event in events] == [Disconnected, Connected]

    async def test_an_address_that_it_does_not_have_is_refused_and_other_links_go_on(self, broker: Broker) -> None:
        async with at(broker) as client, subscribed(client, broker) as subscriber:
            await empty(subscriber)
            async with publishing(client, broker) as publisher:
                for opening in self.not_there(client):
                    with pytest.raises(LinkRefused) as caught:
                        await opening
                    assert caught.value.condition == self.not_there_condition
                await publisher.send(b"x", timeout=LONG)
                assert await bodies(subscriber, 1) == [b"x"]

    not_there_condition = "amqp:not-found"

    def not_there(self, client: Client) -> list[Any]:
        """Openings that the broker refuses."""
        return [
            client.subscriber("/queues/none", exactly_once=False, timeout=None),
            client.publisher("/queues/none", exactly_once=False),
        ]

    async def test_a_shared_subscription_divides_its_messages(self, broker: Broker) -> None:
        async with (
            at(broker) as client,
            at(broker) as another,
            subscribed(client, broker, share="team", prefetch=1) as one,
            subscribed(another, broker, share="team", prefetch=1) as two,
        ):
            await empty(one)
            async with publishing(client, broker) as publisher:
                for number in range(2):
                    await publisher.send(b"%d" % number, timeout=LONG)
            assert sorted([*await bodies(one, 1), *await bodies(two, 1)]) == [b"0", b"1"]  # type: ignore[type-var]
            assert one.waiting == two.waiting == 0


def durable(body: bytes) -> Message:
    """A message that a broker keeps over its own restart."""
    return Message(body, header=Header(durable=True))


def has(events: list[ClientEvent], kind: type[ClientEvent]) -> Callable[[], bool]:
    """Whether such an event came."""
    return lambda: any(isinstance(event, kind) for event in events)
