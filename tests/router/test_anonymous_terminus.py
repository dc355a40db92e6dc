"""The anonymous terminus (X-1), over the wire of a router process."""

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
    DispositionReceived,
    Message,
    ReceiverLink,
    ReceiverSettleMode,
    Rejected,
    SaslClient,
    Source,
    Symbol,
    Target,
    decode_message,
    encode_message,
)
from router.clients.anonymous_link import ADDRESSES, WINDOW
from router.commands.local_network import LocalNetwork
from tests.router.anonymous_links import anonymous, made, outcome, publishers, send, taken, to
from tests.router.processes import RouterProcess, running_router
from tests.router.raw_client import RawClient, until
from tests.router.test_routed_links import incoming, serve


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
