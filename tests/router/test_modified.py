"""What a *modified* adds to a message, and what counts as an attempt, at router processes (E-4b, SH-5)."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncewire.wire import (
    RELEASED,
    DeliveryReceived,
    DeliveryState,
    Modified,
    Source,
    Symbol,
    Target,
    decode_message,
    read_annotations,
)
from router.commands.local_network import LocalNetwork
from tests.router.processes import running_router
from tests.router.raw_client import RawClient, RawSubscriber

WHO, WHY = Symbol("x-opt-who"), Symbol("x-opt-why")
REDELIVERED = Symbol("x-opt-topic-redelivered")


async def member(port: int, name: str, credit: int) -> RawSubscriber:
    """A stock client: it presents no map."""
    client = await RawClient.connect(port)
    source = Source(address="orders", capabilities=(Symbol("shared"), Symbol("global")))
    link = client.session.attach_receiver(f"pool|{name}", source=source, target=Target("in"))
    client.flush()
    subscriber = RawSubscriber(client, link, await client.attached(link))
    link.grant(credit)
    client.flush()
    return subscriber


def answer(subscriber: RawSubscriber, delivery: DeliveryReceived, state: DeliveryState) -> None:
    subscriber.link.dispose([delivery.delivery_id], state, settled=True)
    subscriber.client.flush()


def grant(subscriber: RawSubscriber) -> None:
    subscriber.link.grant(10)
    subscriber.client.flush()


def stated(delivery: DeliveryReceived) -> tuple[int, dict[object, object]]:
    """The delivery-count, and the annotations but for those that name the delivery."""
    header = decode_message(delivery.payload).header
    found = read_annotations(delivery.payload)
    kept: dict[object, object] = {key: found[key] for key in (WHO, WHY, REDELIVERED) if key in found}
    return 0 if header is None else header.delivery_count, kept


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (RELEASED, (0, {})),
        (Modified(message_annotations={WHY: "busy"}), (0, {WHY: "busy"})),
        (Modified(undeliverable_here=True, message_annotations={WHY: "busy"}), (0, {WHY: "busy"})),
        (Modified(delivery_failed=True, message_annotations={WHY: "busy"}), (1, {WHY: "busy"})),
        (Modified(delivery_failed=True, undeliverable_here=True), (1, {})),
    ],
    ids=["released", "modified", "undeliverable here", "failed", "failed and undeliverable here"],
)
async def test_the_next_member_gets_what_the_last_one_added_and_a_count_of_failed_attempts_alone(
    tmp_path: Path, state: DeliveryState, expected: tuple[int, dict[object, object]]
) -> None:
    async with LocalNetwork(2, log_folder=tmp_path) as network:
        near, far = network.routers["r1"].amqp_port, network.routers["r2"].amqp_port
        one, other = await member(near, "1", 1), await member(far, "2", 0)
        publisher = await (await RawClient.connect(near)).publisher("orders")
        publisher.send(b"1", b"one")
        first = await one.delivery()
        assert stated(first) == (0, {})
        answer(one, first, state)
        grant(other)
        assert stated(await other.delivery()) == expected


async def test_a_subscriber_that_adds_more_than_is_kept_is_detached_and_reported_the_limit() -> None:
    async with running_router("--standalone") as router:
        client = await RawClient.connect(router.port)
        subscriber, publisher = await client.subscriber("orders"), await client.publisher("orders")
        publisher.send(b"1", b"one")
        said: list[dict[Symbol, object]] = [{WHY: "x" * 3000}, {WHY: "y" * 3000}, {WHO: "z" * 3000}]
        for added in said:
            state = Modified(delivery_failed=WHO in added, message_annotations=added)
            answer(subscriber, await subscriber.delivery(), state)
        detach = (await client.detached(subscriber.link)).error
        assert detach is not None
        assert detach.condition == "amqp:resource-limit-exceeded"
        assert "4096 bytes" in str(detach.description)
        again = await client.subscriber("orders", unsettled={})
        assert stated(await again.delivery()) == (1, {WHY: "y" * 3000, REDELIVERED: True})
