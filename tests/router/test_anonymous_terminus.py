"""The anonymous terminus (X-1) and addresses that routers make (X-2), over the wire of a router process."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path

import pytest

from oncewire.wire import (
    ACCEPTED,
    RELEASED,
    AmqpError,
    DeliveryReceived,
    Described,
    DispositionReceived,
    Message,
    Properties,
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
    encode_message,
)
from router.clients.anonymous_link import ADDRESSES, WINDOW
from router.commands.local_network import LocalNetwork
from tests.router.processes import RouterProcess, running_router
from tests.router.raw_client import RawClient, RawSubscriber, until
from tests.router.test_routed_links import incoming, serve


async def anonymous(client: RawClient, name: str = "relay", **options: object) -> SenderLink:
    """A sender without an address, with credit."""
    link = client.session.attach_sender(name, source=Source(), target=Target(), **options)  # type: ignore[arg-type]
    client.flush()
    reply = await client.attached(link)
    assert isinstance(reply.target, Target)
    assert reply.target.address is None
    return link


async def credited(client: RawClient, link: SenderLink) -> None:
    while not link.credit:
        await client.news()


def to(address: str | None, body: bytes = b"x", **fields: object) -> bytes:
    return encode_message(Message(body, properties=Properties(to=address, **fields)))  # type: ignore[arg-type]


async def publishers(router: RouterProcess) -> list[str]:
    return [row["name"] for row in (await router.state())["publishers"]]


async def subscriptions(router: RouterProcess) -> list[str]:
    return [row["name"] for row in (await router.state())["subscriptions"]]


async def outcome(client: RawClient, link: SenderLink, tag: bytes) -> DispositionReceived:
    return await client.wait_for(
        DispositionReceived, lambda event: event.link is link and any(found == tag for _, found in event.deliveries)
    )


async def send(client: RawClient, link: SenderLink, tag: bytes, message: bytes, settled: bool = False) -> None:
    await credited(client, link)
    link.send(tag, message, settled=settled)
    client.flush()


async def test_messages_go_to_the_topics_they_name_and_their_outcomes_come_back(router: RouterProcess) -> None:
    reader = await RawClient.connect(router.port, "reader")
    eu, us = await reader.subscriber("orders.eu"), await reader.subscriber("orders.us", name="us")
    client = await RawClient.connect(router.port, "sender")
    opened = client.engine.remote_open
    assert opened is not None
    assert "ANONYMOUS-RELAY" in opened.offered_capabilities
    link = await anonymous(client, rcv_settle_mode=ReceiverSettleMode.SECOND)
    await send(client, link, b"1", to("orders.eu", b"eu"))
    await send(client, link, b"2", to("topic://orders.us", b"us"))
    await send(client, link, b"3", to("nobody.reads.this"))
    first, second = await eu.delivery(), await us.delivery()
    assert decode_message(first.payload).body == b"eu"
    assert decode_message(second.payload).body == b"us"
    assert (await outcome(client, link, b"3")).state == RELEASED
    us.accept(second)
    reported = await outcome(client, link, b"2")
    assert (reported.state, reported.settled) == (ACCEPTED, False)
    eu.accept(first)
    assert (await outcome(client, link, b"1")).state == ACCEPTED
    link.settle([number for number, _ in reported.deliveries])
    client.flush()
    await us.settled(second.tag)  # the inner delivery is settled when the outer one is


REFUSED = {
    "no to": (to(None), "amqp:precondition-failed"),
    "no properties": (encode_message(Message(b"x")), "amqp:precondition-failed"),
    "empty": (to(""), "amqp:invalid-field"),
    "wildcard": (to("orders.#"), "amqp:invalid-field"),
    "too long": (to("a" * 300), "amqp:invalid-field"),
    "another virtual host": (to("acme\x1forders"), "amqp:invalid-field"),
    "an inner name": (to("$reply\x1f_reply/1"), "amqp:not-found"),
    "management": (to("$management"), "amqp:not-found"),
    "no such reply address": (to("_reply/" + "0" * 32), "amqp:not-found"),
    "pattern of reply addresses": (to("_reply/#"), "amqp:invalid-field"),
    "no such service": (to("queue://mails"), "amqp:not-found"),
    "malformed": (b"\x00\x53\x73\xc0\xff\xff\xff", "amqp:decode-error"),
    "to is no string": (b"\x00\x53\x73\xc0\x05\x03\x40\x40\x52\x01\x00\x53\x75\xa0\x01x", "amqp:decode-error"),
    "no section": (b"nonsense", "amqp:decode-error"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_refused_message_is_rejected_and_the_link_stays(router: RouterProcess, case: str) -> None:
    message, condition = REFUSED[case]
    reader = await RawClient.connect(router.port, "reader")
    orders = await reader.subscriber("orders")
    client = await RawClient.connect(router.port, "sender")
    link = await anonymous(client, rcv_settle_mode=ReceiverSettleMode.FIRST)
    await send(client, link, b"bad", message)
    reported = await outcome(client, link, b"bad")
    assert isinstance(reported.state, Rejected)
    assert reported.state.error is not None
    assert reported.state.error.condition == condition
    assert reported.state.error.info == {"delivery-tag": b"bad"}
    assert reported.settled
    await send(client, link, b"good", to("orders"))
    orders.accept(await orders.delivery())
    assert (await outcome(client, link, b"good")).state == ACCEPTED


async def test_presettled_messages_are_sent_once_and_a_refused_one_ends_the_link(router: RouterProcess) -> None:
    reader = await RawClient.connect(router.port, "reader")
    orders = await reader.subscriber("orders")
    client = await RawClient.connect(router.port, "sender")
    link = await anonymous(client)
    await send(client, link, b"1", to("orders", b"1"))
    orders.accept(await orders.delivery())
    await outcome(client, link, b"1")
    await send(client, link, b"2", to("orders", b"2"), settled=True)
    await send(client, link, b"3", to("$cbs", b"3"), settled=True)
    delivery = await orders.delivery()
    assert (decode_message(delivery.payload).body, delivery.settled) == (b"2", True)
    reported = await client.detached(link)
    assert reported.error is not None
    assert (reported.closed, reported.error.condition) == (True, "amqp:not-found")
    assert reported.error.info == {"delivery-tag": b"3"}
    log = await router.stop()
    refused = [event for event in map(json.loads, log.splitlines()) if event["event"] == "message_refused"]
    assert [event["condition"] for event in refused] == ["amqp:not-found"]


async def test_messages_of_one_address_keep_their_order_and_credit_is_given_again(router: RouterProcess) -> None:
    reader = await RawClient.connect(router.port, "reader")
    orders = await reader.subscriber("orders", credit=10_000)
    client = await RawClient.connect(router.port, "sender")
    link = await anonymous(client, rcv_settle_mode=ReceiverSettleMode.FIRST)
    sent = 3 * WINDOW

    async def publish() -> None:
        for number in range(sent):
            await send(client, link, b"%d" % number, to("orders", b"%d" % number))

    publishing = asyncio.create_task(publish())
    for number in range(sent):
        delivery = await orders.delivery()
        assert decode_message(delivery.payload).body == b"%d" % number
        orders.accept(delivery)
    await publishing
    await outcome(client, link, b"%d" % (sent - 1))


async def test_more_addresses_than_places_are_served_one_after_the_other(router: RouterProcess) -> None:
    reader = await RawClient.connect(router.port, "reader")
    everything = await reader.subscriber("many.*", credit=10_000)
    client = await RawClient.connect(router.port, "sender")
    link = await anonymous(client, rcv_settle_mode=ReceiverSettleMode.FIRST)
    count = 2 * ADDRESSES
    for number in range(count):
        await send(client, link, b"%d" % number, to(f"many.{number}", b"%d" % number))
    held: list[DeliveryReceived] = [await everything.delivery() for _ in range(ADDRESSES)]
    assert not everything.take_deliveries()  # all places are busy
    heard = {decode_message(each.payload).body for each in held}
    for each in held:
        everything.accept(each)
    for _ in range(count - ADDRESSES):
        delivery = await everything.delivery()
        heard.add(decode_message(delivery.payload).body)
        everything.accept(delivery)
    assert heard == {b"%d" % number for number in range(count)}
    await outcome(client, link, b"%d" % (count - 1))


async def test_the_end_of_the_link_ends_its_inner_publishers(router: RouterProcess) -> None:
    reader = await RawClient.connect(router.port, "reader")
    orders = await reader.subscriber("orders")
    client = await RawClient.connect(router.port, "sender")
    link = await anonymous(client)
    await send(client, link, b"1", to("orders"))
    orders.accept(await orders.delivery())
    await outcome(client, link, b"1")
    assert await publishers(router) == ["sender/relay\x1forders"]
    link.detach(True)
    client.flush()
    await client.detached(link)
    await until(partial(publishers, router), lambda found: not found)
    again = await anonymous(client)
    await send(client, again, b"1", to("orders"))
    orders.accept(await orders.delivery())
    assert (await outcome(client, again, b"1")).state == ACCEPTED
    client.cut()
    await until(partial(publishers, router), lambda found: not found)


async def test_no_client_has_the_name_of_an_inner_publisher(router: RouterProcess) -> None:
    client = await RawClient.connect(router.port, "sender")
    link = client.session.attach_sender("relay\x1forders", source=Source(), target=Target(address="orders"))
    client.flush()
    reported = await client.detached(link)
    assert reported.error is not None
    assert reported.error.condition == "amqp:invalid-field"


async def test_a_user_reaches_the_addresses_that_the_rules_allow() -> None:
    rules = json.dumps([{"users": ["ann"], "publish": ["orders.#"]}, {"users": ["bob"], "subscribe": ["orders.#"]}])
    flags = ("--users=ann:a,bob:b", f"--access-rules={rules}", "--listen-allow-anonymous=never")
    async with running_router("--standalone", *flags) as router:
        reader = await RawClient.connect(router.port, "reader", sasl=SaslClient("PLAIN", "bob", "b"))
        orders = await reader.subscriber("orders.eu")
        replies = await made(reader)
        client = await RawClient.connect(router.port, "sender", sasl=SaslClient("PLAIN", "ann", "a"))
        link = await anonymous(client, rcv_settle_mode=ReceiverSettleMode.FIRST)
        await send(client, link, b"1", to("secret"))
        await send(client, link, b"2", to("orders.eu"))
        reported = (await outcome(client, link, b"1")).state
        assert isinstance(reported, Rejected)
        assert reported.error is not None
        assert reported.error.condition == "amqp:unauthorized-access"
        orders.accept(await orders.delivery())
        assert (await outcome(client, link, b"2")).state == ACCEPTED
        await send(client, link, b"3", to(replies.address))  # no rule is needed for an address that was handed out
        replies.accept(await replies.delivery())
        assert (await outcome(client, link, b"3")).state == ACCEPTED


async def test_messages_to_a_service_go_to_it_and_its_outcomes_come_back(router: RouterProcess) -> None:
    service = await serve(router.port)
    reader = await RawClient.connect(router.port, "reader")
    orders = await reader.subscriber("orders")
    client = await RawClient.connect(router.port, "sender")
    link = await anonymous(client, rcv_settle_mode=ReceiverSettleMode.SECOND)
    await send(client, link, b"1", to("queue://mails", b"first"))
    await send(client, link, b"2", to("orders", b"a topic"))
    await send(client, link, b"3", to("queue://mails", b"second"))
    queue = await incoming(service)
    assert isinstance(queue, ReceiverLink)
    attach = queue.remote_attach
    assert attach is not None
    assert isinstance(attach.target, Target)
    assert (attach.target.address, attach.rcv_settle_mode) == ("queue://mails", ReceiverSettleMode.SECOND)
    queue.reply(source=attach.source, target=attach.target)
    queue.grant(1)
    service.flush()
    orders.accept(await orders.delivery())
    assert (await outcome(client, link, b"2")).state == ACCEPTED
    first = await service.wait_for(DeliveryReceived)
    assert (decode_message(first.payload).body, first.tag) == (b"first", b"1")
    queue.dispose([first.delivery_id], Rejected(AmqpError(Symbol("test:full"), "no room")), False)
    queue.grant(1)
    service.flush()
    reported = await outcome(client, link, b"1")
    assert isinstance(reported.state, Rejected)
    assert (reported.state.error and reported.state.error.condition, reported.settled) == ("test:full", False)
    link.settle([number for number, _ in reported.deliveries])
    client.flush()
    settled = await service.wait_for(DispositionReceived)
    assert (settled.tags, settled.settled) == ([b"1"], True)
    second = await service.wait_for(DeliveryReceived)
    queue.dispose([second.delivery_id], ACCEPTED, True)
    service.flush()
    assert (await outcome(client, link, b"3")).settled
    queue.grant(1)
    service.flush()
    await send(client, link, b"4", to("queue://mails", b"lost"))
    await service.wait_for(DeliveryReceived)
    service.cut()  # whether it has the message nobody knows: the client learns by a detach, and sends it again
    assert (await client.detached(link)).error is not None


async def test_a_service_that_ends_its_links_is_answered_and_they_count_no_longer() -> None:
    async with running_router("--standalone", "--listen-idle-timeout-s=300", "--limits-max-links=3") as router:
        service = await serve(router.port)
        client = await RawClient.connect(router.port, "sender")
        link = await anonymous(client)
        for number in range(4):
            tag = b"%d" % number
            await send(client, link, tag, to("queue://mails"))
            queue = await incoming(service)
            assert isinstance(queue, ReceiverLink)
            attach = queue.remote_attach
            assert attach is not None
            queue.reply(source=attach.source, target=attach.target)
            queue.grant(1)
            service.flush()
            came = await service.wait_for(DeliveryReceived)
            queue.dispose([came.delivery_id], ACCEPTED, True)
            service.flush()
            assert (await outcome(client, link, tag)).state == ACCEPTED
            queue.detach(True)
            service.flush()
            await service.detached(queue)
            service.heard.clear()


async def test_a_service_that_refuses_an_address_rejects_its_messages(router: RouterProcess) -> None:
    service = await serve(router.port)
    client = await RawClient.connect(router.port, "sender")
    link = await anonymous(client, rcv_settle_mode=ReceiverSettleMode.FIRST)
    await send(client, link, b"1", to("queue://unknown"))
    queue = await incoming(service)
    queue.detach(True, AmqpError(Symbol("amqp:not-found"), "no such queue"))
    service.flush()
    reported = (await outcome(client, link, b"1")).state
    assert isinstance(reported, Rejected)
    assert reported.error is not None
    assert reported.error.condition == "amqp:not-found"


async def test_nothing_accepted_is_lost_when_the_router_of_an_anonymous_link_is_killed(tmp_path: Path) -> None:
    async with LocalNetwork(2, settings={"etcd.lease_ttl_s": "3"}, log_folder=tmp_path) as network:
        reader = await RawClient.connect(network.routers["r2"].amqp_port, "reader")
        topics = [await reader.subscriber(f"t.{number}", f"s{number}", credit=1000) for number in range(5)]
        heard: set[bytes] = set()

        async def read() -> None:
            while True:
                for each in topics:
                    for delivery in each.take_deliveries():
                        body = decode_message(delivery.payload).body
                        assert isinstance(body, bytes)
                        heard.add(body)
                        each.accept(delivery)
                await asyncio.sleep(0.01)

        reading = asyncio.create_task(read())
        accepted: set[bytes] = set()
        for router in ("r1", "r2"):
            client = await RawClient.connect(network.routers[router].amqp_port, "sender")
            link = await anonymous(client, rcv_settle_mode=ReceiverSettleMode.FIRST)
            for number in range(100):
                body = b"%d" % number
                if body in accepted:
                    continue
                await send(client, link, body, to(f"t.{number % 5}", body))
                if number == 60 and router == "r1":
                    await network.kill("r1")
                    break
            if router == "r1":
                while not client.is_gone:
                    await client.news()
            else:
                while len(accepted) < 100:
                    accepted |= taken(client)
                    await asyncio.sleep(0.01)
            accepted |= taken(client)
            assert accepted <= heard
        reading.cancel()
        assert heard == {b"%d" % number for number in range(100)}


def taken(client: RawClient) -> set[bytes]:
    """What was accepted of this client's by now."""
    events = [event for event in client.heard if isinstance(event, DispositionReceived) and event.state == ACCEPTED]
    return {tag for event in events for tag in event.tags}


# --- addresses that routers make (X-2) --------------------------------------------------------------------------------


class Made(RawSubscriber):
    """A receiver with a dynamic source."""

    @property
    def address(self) -> str:
        assert self.reply.source is not None
        assert self.reply.source.address is not None
        return self.reply.source.address


async def made(client: RawClient, name: str = "replies", credit: int = 100) -> Made:
    link = client.session.attach_receiver(
        name, source=Source(dynamic=True, durable=2, expiry_policy=Symbol("never")), target=Target()
    )
    client.flush()
    found = Made(client, link, await client.attached(link))
    link.grant(credit)
    client.flush()
    return found


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
