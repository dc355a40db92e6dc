"""Addresses that routers make for dynamic sources and targets (X-2), over the wire of a router process."""

from __future__ import annotations

import json
from functools import partial

import pytest

from oncewire.wire import (
    ACCEPTED,
    RELEASED,
    Described,
    ReceiverLink,
    ReceiverSettleMode,
    Rejected,
    SaslClient,
    SenderLink,
    Source,
    Symbol,
    Target,
    ULong,
    decode_message,
)
from tests.router.anonymous_links import Made, anonymous, made, outcome, send, subscriptions, to
from tests.router.processes import RouterProcess, running_router
from tests.router.raw_client import RawClient, until


async def refused(client: RawClient, link: SenderLink | ReceiverLink) -> str:
    client.flush()
    reported = await client.detached(link)
    assert reported.error is not None
    return str(reported.error.condition)


async def test_a_dynamic_source_gets_an_address_that_ends_with_its_link(router: RouterProcess) -> None:
    requester = await RawClient.connect(router.port, "requester")
    replies = await made(requester)
    source = replies.reply.source
    assert source is not None
    assert (source.dynamic, source.durable, source.expiry_policy, source.timeout) == (True, 0, "link-detach", 0)
    assert source.dynamic_node_properties == {Symbol("lifetime-policy"): Described(ULong(0x2B), [])}
    second = await made(requester, "others")
    assert second.address != replies.address
    client = await RawClient.connect(router.port, "responder")
    link = await anonymous(client, rcv_settle_mode=ReceiverSettleMode.FIRST)
    named = await client.publisher(replies.address, "named", exactly_once=False)
    await send(client, link, b"1", to(replies.address, b"by to"))
    replies.accept(await replies.delivery())
    assert (await outcome(client, link, b"1")).state == ACCEPTED
    named.send(b"2", b"by name")
    replies.accept(await replies.delivery())
    assert (await named.outcome(b"2")).state == ACCEPTED
    replies.link.detach(True)
    requester.flush()
    await requester.detached(replies.link)
    await until(partial(subscriptions, router), lambda found: found == ["requester/others"])
    await send(client, link, b"3", to(replies.address))
    assert (await outcome(client, link, b"3")).state == RELEASED  # as of any topic without subscriptions
    other = await anonymous(client, "later", rcv_settle_mode=ReceiverSettleMode.FIRST)
    await send(client, other, b"4", to(replies.address))
    reported = (await outcome(client, other, b"4")).state
    assert isinstance(reported, Rejected)
    assert reported.error is not None
    assert reported.error.condition == "amqp:not-found"


async def test_credit_that_comes_with_the_attach_of_a_dynamic_source_counts(router: RouterProcess) -> None:
    requester = await RawClient.connect(router.port, "requester")
    link = requester.session.attach_receiver("replies", source=Source(dynamic=True), target=Target())
    link.grant(10)
    requester.flush()
    replies = Made(requester, link, await requester.attached(link))
    client = await RawClient.connect(router.port, "responder")
    relay = await anonymous(client, rcv_settle_mode=ReceiverSettleMode.FIRST)
    await send(client, relay, b"1", to(replies.address, b"hello"))
    assert decode_message((await replies.delivery()).payload).body == b"hello"


async def test_nobody_else_receives_from_an_address_that_was_made(router: RouterProcess) -> None:
    spy = await RawClient.connect(router.port, "spy")
    everything = await spy.subscriber("#")
    requester = await RawClient.connect(router.port, "requester")
    replies = await made(requester)
    locked, nothing = "amqp:resource-locked", "amqp:not-found"
    wanted = {replies.address: locked, f"topic://{replies.address}": locked, "_reply/*": nothing, "_reply/#": nothing}
    for address, condition in wanted.items():
        spying = spy.session.attach_receiver(f"spy-{address}", source=Source(address=address), target=Target())
        assert await refused(spy, spying) == condition
    client = await RawClient.connect(router.port, "responder")
    link = await anonymous(client, rcv_settle_mode=ReceiverSettleMode.FIRST)
    await send(client, link, b"1", to(replies.address, b"private"))
    await send(client, link, b"2", to("public", b"public"))
    replies.accept(await replies.delivery())
    assert (await outcome(client, link, b"1")).state == ACCEPTED
    delivery = await everything.delivery()
    assert decode_message(delivery.payload).body == b"public"
    everything.accept(delivery)


RULES = '[{"users": ["*"], "publish": ["#"], "subscribe": ["#"]}]'


@pytest.mark.parametrize("flags", [(), (f"--access-rules={RULES}",)], ids=["no rules", "rules"])
async def test_an_address_that_was_made_is_not_taken_over_by_its_links_name(flags: tuple[str, ...]) -> None:
    """A look-up by container-id and link name names no address: what it finds is looked at."""
    async with running_router("--standalone", *flags) as router:
        requester = await RawClient.connect(router.port, "requester")
        replies = await made(requester)
        thief = await RawClient.connect(router.port, "requester")
        taking = thief.session.attach_receiver("replies", source=None, target=Target())
        assert await refused(thief, taking) == "amqp:resource-locked"
        client = await RawClient.connect(router.port, "responder")
        link = await anonymous(client, rcv_settle_mode=ReceiverSettleMode.FIRST)
        await send(client, link, b"1", to(replies.address, b"private"))
        replies.accept(await replies.delivery())
        assert (await outcome(client, link, b"1")).state == ACCEPTED


@pytest.mark.parametrize("target", [Target(), Target(dynamic=True)], ids=["anonymous", "dynamic"])
async def test_no_link_is_resumed_whose_deliveries_no_router_keeps(router: RouterProcess, target: Target) -> None:
    """It was answered with an empty map, or none, so that its client sent again under new tags (A-3c)."""
    client = await RawClient.connect(router.port, "resuming")
    link = client.session.attach_sender("p", source=Source(), target=target, unsettled={b"1": None})
    assert await refused(client, link) == "oncewire:unsettled-unknown"
    settled = client.session.attach_sender("q", source=Source(), target=target, unsettled={b"1": ACCEPTED})
    client.flush()
    assert (await client.attached(settled)).target is not None


async def test_a_dynamic_target_is_a_temporary_destination_of_its_connection(router: RouterProcess) -> None:
    client = await RawClient.connect(router.port, "jms")
    node = Target(dynamic=True, capabilities=(Symbol("temporary-queue"),))
    link = client.session.attach_sender("temporary", source=Source(), target=node)
    client.flush()
    target = (await client.attached(link)).target
    assert isinstance(target, Target)
    assert target.dynamic
    address = target.address
    assert address is not None
    inbox = await client.subscriber(address, exactly_once=False)
    other = await RawClient.connect(router.port, "other")
    stranger = other.session.attach_receiver("spy", source=Source(address=address), target=Target())
    assert await refused(other, stranger) == "amqp:resource-locked"
    named = await other.publisher(address, exactly_once=False)
    named.send(b"1", b"hello")
    inbox.accept(await inbox.delivery())
    assert (await named.outcome(b"1")).state == ACCEPTED
    link.detach(True)
    assert await refused(client, inbox.link) == "amqp:resource-deleted"


async def test_others_may_send_to_a_dynamic_target_before_anybody_receives_from_it(router: RouterProcess) -> None:
    client = await RawClient.connect(router.port, "jms")
    link = client.session.attach_sender("temporary", source=Source(), target=Target(dynamic=True))
    client.flush()
    target = (await client.attached(link)).target
    assert isinstance(target, Target)
    assert target.address is not None
    assert (target.timeout, target.expiry_policy) == (0, "link-detach")
    other = await RawClient.connect(router.port, "other")
    named = await other.publisher(target.address, "named", exactly_once=False)
    named.send(b"1", b"too early")
    assert (await named.outcome(b"1")).state == RELEASED
    inbox = await client.subscriber(target.address, exactly_once=False)
    named.send(b"2", b"hello")
    inbox.accept(await inbox.delivery())
    assert (await named.outcome(b"2")).state == ACCEPTED
    link.detach(True)
    assert await refused(client, inbox.link) == "amqp:resource-deleted"
    await until(partial(subscriptions, router), lambda found: not found)
    late = other.session.attach_sender("late", source=Source(), target=Target(address=target.address))
    assert await refused(other, late) == "amqp:not-found"


async def test_a_dynamic_target_ends_with_its_session(router: RouterProcess) -> None:
    client = await RawClient.connect(router.port, "jms")
    second = client.engine.begin()
    link = second.attach_sender("temporary", source=Source(), target=Target(dynamic=True))
    client.flush()
    target = (await client.attached(link)).target
    assert isinstance(target, Target)
    inbox = await client.subscriber(target.address, exactly_once=False)
    second.end()
    assert await refused(client, inbox.link) == "amqp:resource-deleted"


async def test_virtual_hosts_have_addresses_of_their_own() -> None:
    vhosts = json.dumps([{"name": "acme"}])
    async with running_router("--standalone", f"--vhosts={vhosts}", "--users=x@acme:x") as router:
        requester = await RawClient.connect(router.port, "requester", sasl=SaslClient("PLAIN", "x@acme", "x"))
        replies = await made(requester)
        inside = await RawClient.connect(router.port, "inside", sasl=SaslClient("PLAIN", "x@acme", "x"))
        outside = await RawClient.connect(router.port, "outside")
        stranger = await anonymous(outside, rcv_settle_mode=ReceiverSettleMode.FIRST)
        await send(outside, stranger, b"1", to(replies.address))
        assert isinstance((await outcome(outside, stranger, b"1")).state, Rejected)
        link = await anonymous(inside, rcv_settle_mode=ReceiverSettleMode.FIRST)
        await send(inside, link, b"1", to(replies.address))
        replies.accept(await replies.delivery())
        assert (await outcome(inside, link, b"1")).state == ACCEPTED
