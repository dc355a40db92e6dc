"""Next attempts at router processes (E-4a): when a subscriber wants them, and what is counted on after a crash."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from oncewire.client import OutcomeKind, connect
from oncewire.wire import ACCEPTED, DeliveryReceived, Modified, Symbol, Timestamp, UInt, decode_message
from router.commands.local_network import LocalNetwork
from tests.router.processes import running_router
from tests.router.raw_client import RawClient, RawSubscriber

DELAY, TIME, NOTE = Symbol("x-opt-delivery-delay"), Symbol("x-opt-delivery-time"), Symbol("x-opt-note")
USER = Symbol("x-opt-topic-user")
RULES = [{"topics": ["orders"], "on_reject": "report", "max_attempts": 2, "retry_first_s": 3600, "retry_cap_s": 3600}]
"""A retry comes an hour later: what comes sooner was repeated to another router."""


def fail(subscriber: RawSubscriber, delivery: DeliveryReceived, **annotations: object) -> None:
    found = {Symbol(f"x-opt-{name}".replace("_", "-")): value for name, value in annotations.items()}
    state = Modified(delivery_failed=True, message_annotations=found or None)
    subscriber.link.dispose([delivery.delivery_id], state, settled=True)
    subscriber.client.flush()


def count_of(delivery: DeliveryReceived) -> int:
    header = decode_message(delivery.payload).header
    return 0 if header is None else header.delivery_count


def in_ms(delay_ms: int) -> dict[str, object]:
    return {"delivery_delay": UInt(delay_ms)}


def at_ms(delay_ms: int) -> dict[str, object]:
    return {"delivery_time": Timestamp(int(1000 * time.time()) + delay_ms)}


@pytest.mark.parametrize("when", [in_ms, at_ms])
async def test_a_subscriber_says_when_it_wants_the_next_attempt_and_the_message_does_not_carry_it(
    when: Callable[[int], dict[str, object]],
) -> None:
    async with running_router("--standalone") as router:
        client = await RawClient.connect(router.port)
        subscriber = await client.subscriber("orders")
        publisher = await client.publisher("orders")
        for tag in (b"1", b"2", b"3"):
            publisher.send(tag, tag)
        first, second, third = [await subscriber.delivery() for _ in range(3)]
        fail(subscriber, first, **when(4000), note="later", topic_user="forged")
        fail(subscriber, second)  # after a second
        fail(subscriber, third, **when(0))
        again = [await subscriber.delivery() for _ in range(3)]
        assert [decode_message(each.payload).body for each in again] == [b"3", b"2", b"1"]
        assert [count_of(each) for each in again] == [1, 1, 1]
        annotations = decode_message(again[2].payload).annotations
        assert annotations.get(NOTE) == "later"
        assert not {DELAY, TIME, USER} & set(annotations)
        for each in again:
            subscriber.accept(each)
        assert (await publisher.outcome(b"1")).state == ACCEPTED


async def test_what_a_subscriber_failed_is_counted_on_after_its_publishers_router_was_killed(tmp_path: Path) -> None:
    settings = {"etcd.lease_ttl_s": "3", "topics.rules": json.dumps(RULES)}
    async with LocalNetwork(2, log_folder=tmp_path, settings=settings) as network:
        r1, r2 = network.routers["r1"], network.routers["r2"]
        client = await RawClient.connect(r2.amqp_port, "till")
        subscriber = await client.subscriber("orders")
        async with connect([r1.url, r2.url], container_id="shop") as shop:
            publisher = await shop.publisher("orders", name="p")
            sending = await publisher.submit(b"x")
            first = await subscriber.delivery()
            assert count_of(first) == 0
            fail(subscriber, first)
            await network.kill("r1")
            second = await subscriber.delivery()
            assert (second.tag, count_of(second)) == (first.tag, 1)
            fail(subscriber, second)
            outcome = await sending
        assert (outcome.kind, outcome.condition) == (OutcomeKind.REJECTED, "oncewire:rejected")
    assert "delivery_poisoned" in (tmp_path / "r2.log").read_text()
