"""Attaches of members of shared subscriptions at a real router: what is granted, and what is refused (SH-1)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial

import aiohttp
import pytest

from oncewire.wire import LinkDetached, Source, Symbol, Target, TerminusDurability
from tests.router.processes import RouterProcess
from tests.router.raw_client import RawClient, until

SHARED, GLOBAL, GROUP_ORDER = Symbol("shared"), Symbol("global"), Symbol("topic-group-order")


def shared(topic: str = "orders", *capabilities: Symbol) -> Source:
    return Source(address=topic, capabilities=(SHARED, *capabilities))


async def test_the_reply_says_what_was_granted_and_the_connection_offers_it(router: RouterProcess) -> None:
    client = await RawClient.connect(router.port)
    assert Symbol("SHARED-SUBS") in client.engine.remote_open.offered_capabilities  # type: ignore[union-attr]  # it is open
    link = client.session.attach_receiver("pool|1", source=shared("orders", GLOBAL), target=Target("in"))
    client.flush()
    reply = await client.attached(link)
    assert reply.source is not None
    assert {SHARED, GLOBAL} <= set(reply.source.capabilities)


async def test_the_reply_says_that_groups_come_in_order_whoever_asked_for_it(router: RouterProcess) -> None:  # SH-6
    client = await RawClient.connect(router.port)
    for name, asked in (("pool|1", (GROUP_ORDER,)), ("pool|2", ())):
        link = client.session.attach_receiver(name, source=shared("orders", *asked), target=Target("in"))
        client.flush()
        reply = await client.attached(link)
        assert reply.source is not None
        assert GROUP_ORDER in reply.source.capabilities


@pytest.mark.parametrize(
    ("name", "source", "condition", "says"),
    [
        ("|1", shared(), "amqp:invalid-field", "has none"),
        ("pool|2", shared("bills"), "amqp:precondition-failed", "has the topic orders"),
        ("pool|2", shared("orders", GROUP_ORDER), "amqp:precondition-failed", "keeps no groups in order"),
    ],
    ids=["no name", "another topic", "group order"],
)
async def test_a_member_that_cannot_be_one_is_refused_and_reported_why(
    router: RouterProcess, name: str, source: Source, condition: str, says: str
) -> None:
    client = await RawClient.connect(router.port)
    first = client.session.attach_receiver("pool|1", source=shared(), target=Target("in"))
    client.flush()
    await client.attached(first)
    link = client.session.attach_receiver(name, source=source, target=Target("in"))
    client.flush()
    reply = await client.attached(link)
    assert reply.source is None
    detached = await client.wait_for(LinkDetached)
    assert detached.error is not None
    assert detached.error.condition == condition
    assert says in (detached.error.description or "")


@pytest.mark.parametrize("capabilities", [(), (GLOBAL,)], ids=["of a container", "global"])
@pytest.mark.parametrize("durable", [TerminusDurability.NONE, TerminusDurability.UNSETTLED_STATE])
@pytest.mark.parametrize("name", ["pool", "pool|1", "pool|2"])
async def test_a_shared_subscription_is_looked_up_by_its_name_alone(
    router: RouterProcess, capabilities: tuple[Symbol, ...], durable: int, name: str
) -> None:  # 2.6.3: a null source looks it up, and the reply says what it is
    client = await RawClient.connect(router.port, "box")
    source = replace(shared("orders", *capabilities), durable=durable)
    first = client.session.attach_receiver("pool|1", source=source, target=Target("in"))
    client.flush()
    await client.attached(first)
    second = await RawClient.connect(router.port, "box")
    link = second.session.attach_receiver(name, source=None, target=Target("in"))
    second.flush()
    found = (await second.attached(link)).source
    assert found is not None
    assert found.address == "orders"
    assert set(found.capabilities) == {SHARED, *capabilities}


async def decided(router: RouterProcess, decision: str) -> float:
    """How often the router has taken a decision."""
    async with aiohttp.ClientSession() as session, session.get(router.http + "/metrics") as answer:
        text = await answer.text()
    await asyncio.sleep(0)  # the session's transport closes in the next turn of the loop
    return float(text.split(f'oncewire_decisions_total{{decision="{decision}"}} ')[1].split("\n")[0])


async def test_members_without_credit_that_leave_together_cost_one_message_each(router: RouterProcess) -> None:  # SH-2
    count = 100
    client = await RawClient.connect(router.port)
    links = [
        client.session.attach_receiver(f"pool|{number}", source=shared(), target=Target("in"))
        for number in range(count)
    ]
    client.flush()
    for link in links:
        await client.attached(link)
    publisher = await (await RawClient.connect(router.port)).publisher("orders")
    publisher.send(b"1", b"waits")
    await until(partial(decided, router, "transfer_stored"), bool)
    client.cut()
    await until(partial(decided, router, "subscriber_lost"), lambda lost: lost >= count)
    assert await decided(router, "returned_by_member") <= count
