"""One router process and raw wire clients over loopback: publish, accept, settle, refuse, resume, steal."""

from __future__ import annotations

import pytest

from oncewire.wire import (
    ACCEPTED,
    ConnectionClosed,
    Described,
    DispositionReceived,
    LinkDetached,
    LinkFlow,
    ReceiverSettleMode,
    Source,
    Symbol,
    Target,
    ULong,
    decode_message,
    read_annotations,
)
from tests.router.processes import RouterProcess, running_router
from tests.router.raw_client import EXACTLY_ONCE, RawClient, until


async def test_publisher_is_accepted_only_after_every_subscription_accepted(router: RouterProcess) -> None:
    publishing = await RawClient.connect(router.port)
    subscribing = await RawClient.connect(router.port)
    first = await subscribing.subscriber("orders", "first")
    second = await subscribing.subscriber("orders", "second")
    publisher = await publishing.publisher("orders")
    delivery_id = publisher.send(b"t1", b"hello")
    got_first, got_second = await first.delivery(), await second.delivery()
    assert decode_message(got_first.payload).body == b"hello"
    assert got_first.tag == got_second.tag
    first.accept(got_first)
    # A message sent behind the first acceptance has been handled when its transfer is here: no accept came meanwhile.
    publisher.send(b"t2", b"second")
    await first.delivery()
    assert not [event for event in publishing.heard if isinstance(event, DispositionReceived)]
    second.accept(got_second)
    outcome = await publisher.outcome(b"t1")
    assert outcome.state == ACCEPTED
    assert not outcome.settled
    publisher.settle(delivery_id)
    await first.settled(got_first.tag)
    await second.settled(got_second.tag)


async def test_messages_name_their_publisher_tag_and_session(router: RouterProcess) -> None:
    client = await RawClient.connect(router.port, "box")
    subscriber = await client.subscriber("orders")
    publisher = await client.publisher("orders", "till")
    publisher.send(b"\x00\x01", b"x")
    annotations = read_annotations((await subscriber.delivery()).payload)
    assert annotations[Symbol("x-opt-topic-publisher")] == "box/till"
    assert annotations[Symbol("x-opt-topic-tag")] == b"\x00\x01"
    assert annotations[Symbol("x-opt-topic-session")] == publisher.session_number > 0


async def test_the_attach_replies_say_what_was_granted(router: RouterProcess) -> None:
    client = await RawClient.connect(router.port)
    subscriber = await client.subscriber("orders", timeout=10**9)
    source = subscriber.reply.source
    assert source is not None
    assert (source.address, source.expiry_policy, source.timeout) == ("orders", "link-detach", 60)
    assert subscriber.granted[Symbol("x-opt-topic-timeout")] == 86_400, "what it has from its proof of life on (A-10)"
    assert EXACTLY_ONCE in subscriber.reply.offered_capabilities
    assert subscriber.reply.unsettled == {}
    assert subscriber.reply.properties == {
        Symbol("x-opt-topic-resume"): "new",
        Symbol("x-opt-topic-incarnation"): subscriber.incarnation,
    }
    publisher = await client.publisher("orders")
    assert EXACTLY_ONCE in publisher.reply.offered_capabilities
    assert publisher.reply.unsettled == {}
    assert publisher.reply.max_message_size == 64 << 20
    assert publisher.reply.rcv_settle_mode == ReceiverSettleMode.SECOND


async def test_a_map_of_an_unknown_session_is_refused_as_expired(router: RouterProcess) -> None:
    client = await RawClient.connect(router.port)
    link = client.session.attach_sender(
        "pub",
        source=Source(),
        target=Target(address="orders"),
        unsettled={b"t": None},
        desired_capabilities=[EXACTLY_ONCE],
    )
    client.flush()
    reply = await client.attached(link)
    assert (reply.source, reply.target, reply.unsettled) == (None, None, None)
    detached = await client.detached(link)
    assert detached.closed
    assert detached.error is not None
    assert detached.error.condition == "oncewire:session-expired"
    assert detached.error.info == {Symbol("x-opt-topic-resume"): "expired"}


async def test_unsubscribing_is_answered_when_the_subscription_is_gone(router: RouterProcess) -> None:
    client = await RawClient.connect(router.port)
    subscriber = await client.subscriber("orders")
    assert len((await router.state())["subscriptions"]) == 1
    subscriber.link.detach(True)
    client.flush()
    detached = await client.detached(subscriber.link)
    assert detached.closed
    assert detached.error is None
    await until(router.state, lambda state: state["subscriptions"] == [])  # a page is kept for a moment


async def test_a_null_source_looks_the_subscription_up(router: RouterProcess) -> None:
    client = await RawClient.connect(router.port, "store")
    subscriber = await client.subscriber("orders")
    subscriber.link.detach(False)
    client.flush()
    await client.detached(subscriber.link)
    found = await client.subscriber(None)
    assert found.reply.source is not None
    assert found.reply.source.address == "orders"
    nothing = client.session.attach_receiver("never", source=None, target=Target(), unsettled={})
    client.flush()
    detached = await client.detached(nothing)
    assert detached.error is not None
    assert detached.error.condition == "amqp:not-found"


async def test_a_waiting_publisher_can_ask_who_owes(router: RouterProcess) -> None:
    client = await RawClient.connect(router.port, "box")
    await client.subscriber("orders", "slow")
    publisher = await client.publisher("orders")
    publisher.send(b"t", b"x")
    publisher.link.flow({Symbol("x-opt-topic-ask"): b"t"})
    client.flush()
    answer = await client.wait_for(LinkFlow, lambda flow: Symbol("x-opt-topic-asked") in (flow.properties or {}))
    assert answer.properties is not None
    assert answer.properties[Symbol("x-opt-topic-owing")] == ["box/slow"]
    assert answer.properties[Symbol("x-opt-topic-owing-count")] == 1


async def test_a_pattern_gets_every_matching_topic(router: RouterProcess) -> None:
    client = await RawClient.connect(router.port)
    subscriber = await client.subscriber("orders.#")
    for name in ("orders", "orders.eu", "orders.eu.de"):
        publisher = await client.publisher(name, name)
        publisher.send(b"t", name.encode())
        assert decode_message((await subscriber.delivery()).payload).body == name.encode()


REFUSED_TARGETS = {
    "transactions": (Described(ULong(0x30), []), "amqp:not-implemented"),
    "null": (None, "amqp:invalid-field"),
    "anonymous queue": (Target(capabilities=(Symbol("queue"),)), "amqp:not-implemented"),
    "an address that was not made": (Target(address="_reply/1"), "amqp:not-found"),
    "wildcard": (Target(address="orders.*"), "amqp:invalid-field"),
    "empty": (Target(address=""), "amqp:invalid-field"),
    "queue": (Target(address="orders", capabilities=(Symbol("queue"),)), "amqp:not-implemented"),
    "reserved": (Target(address="$cbs"), "amqp:not-found"),
}


@pytest.mark.parametrize("name", REFUSED_TARGETS)
async def test_a_target_that_is_not_offered_is_refused_and_says_why(router: RouterProcess, name: str) -> None:
    target, condition = REFUSED_TARGETS[name]
    client = await RawClient.connect(router.port)
    link = client.session.attach_sender("pub", source=Source(), target=target)
    client.flush()
    reply = await client.attached(link)
    assert reply.target is None
    detached = await client.wait_for(LinkDetached)
    assert detached.closed
    assert detached.error is not None
    assert detached.error.condition == condition
    assert detached.error.description
    assert (await client.publisher("orders", "other")).link.credit > 0, "the session goes on"


REFUSED_SOURCES = {
    "no address": (Source(address=None), "amqp:invalid-field"),
    "mixed separators": (Source(address="a.*/b"), "amqp:invalid-field"),
}


@pytest.mark.parametrize("name", REFUSED_SOURCES)
async def test_a_source_that_is_not_offered_is_refused_and_says_why(router: RouterProcess, name: str) -> None:
    source, condition = REFUSED_SOURCES[name]
    client = await RawClient.connect(router.port)
    link = client.session.attach_receiver("sub", source=source, target=Target())
    client.flush()
    detached = await client.detached(link)
    assert detached.closed
    assert detached.error is not None
    assert detached.error.condition == condition


async def test_a_connection_may_not_have_more_links_than_the_limit() -> None:
    async with running_router("--standalone", "--limits-max-links=2") as router:
        client = await RawClient.connect(router.port)
        for number in range(2):
            await client.publisher("orders", f"p{number}")
        link = client.session.attach_sender("p2", source=Source(), target=Target(address="orders"))
        client.flush()
        detached = await client.detached(link)
        assert detached.error is not None
        assert detached.error.condition == "amqp:resource-limit-exceeded"


async def test_sigterm_closes_clients_in_good_order(router: RouterProcess) -> None:
    client = await RawClient.connect(router.port)
    await client.subscriber("orders")
    log = await router.stop()
    closed = await client.wait_for(ConnectionClosed)
    assert closed.error is not None
    assert closed.error.condition == "amqp:connection:forced"
    await client.closed()
    assert router.process.returncode == 0
    assert '"event": "router_stopped"' in log
    assert "traceback" not in log


async def test_a_client_that_does_not_read_holds_its_deliveries_back_and_gets_them_later(router: RouterProcess) -> None:
    client = await RawClient.connect(router.port)
    subscriber = await client.subscriber("bulk", credit=1000)
    publishing = await RawClient.connect(router.port)
    publisher = await publishing.publisher("bulk")
    client.pause()
    body = bytes(200_000)
    for number in range(100):
        while not publisher.link.credit:
            await publishing.wait_for(LinkFlow)
        publisher.send(b"%d" % number, body)

    async def held() -> int:
        (endpoint,) = (await router.state())["endpoints"]
        return int(endpoint["held"])

    await until(held, lambda found: found > 20)
    client.resume()
    for _ in range(100):
        subscriber.accept(await subscriber.delivery())
    await publisher.outcome(b"99")


async def test_a_silent_client_is_disconnected_and_its_subscription_kept() -> None:
    async with running_router("--standalone", "--listen-idle-timeout-s=1") as router:
        client = await RawClient.connect(router.port, "store")
        await client.subscriber("orders")
        lost = await client.wait_for(ConnectionClosed)
        assert lost.error is not None
        assert lost.error.condition == "amqp:resource-limit-exceeded"
        state = await router.state()
        assert [found["name"] for found in state["subscriptions"]] == ["store/sub"]


async def test_a_refusal_reaches_a_client_with_the_smallest_frames(router: RouterProcess) -> None:
    client = await RawClient.connect(router.port, max_frame_size=512)
    link = client.session.attach_sender("p" * 100, source=Source(), target=Target(address="a" * 250 + "." * 20))
    client.flush()
    detached = await client.detached(link)
    assert detached.error is not None
    assert detached.error.condition == "amqp:invalid-field"


async def test_what_is_out_of_date_within_one_read_harms_nobody(router: RouterProcess) -> None:
    client = await RawClient.connect(router.port)
    # Attach, detach, and the end of the session in one piece: every answer of the router comes too late.
    for number in range(20):
        session = client.engine.begin()
        link = session.attach_receiver(f"s{number}", source=Source(address="orders"), target=Target())
        link.grant(10)
        publisher = session.attach_sender(f"p{number}", source=Source(), target=Target(address="orders"))
        if number % 2:
            link.detach(True)
            publisher.detach(False)
        session.end()
    client.flush()
    other = await RawClient.connect(router.port)
    subscriber = await other.subscriber("orders")
    publisher_link = await other.publisher("orders")
    publisher_link.send(b"t", b"x")
    assert decode_message((await subscriber.delivery()).payload).body == b"x"
    assert (await router.state())["incarnations"] == 1
