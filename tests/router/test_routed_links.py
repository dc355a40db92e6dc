"""Links to services through real routers: the service and its clients are engines on sockets."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from oncewire.wire import (
    ACCEPTED,
    AmqpError,
    ConnectionClosed,
    DispositionReceived,
    LinkAttached,
    LinkDetached,
    LinkFlow,
    Modified,
    ReceiverLink,
    Rejected,
    SaslClient,
    SenderLink,
    Source,
    Symbol,
    Target,
    decode_message,
)
from router.commands.local_network import LocalNetwork, chain
from tests.router.processes import RouterProcess, running_router
from tests.router.raw_client import RawClient, RawPublisher, RawSubscriber
from tests.router.relay import assert_no_internal_error

SERVES = Symbol("x-opt-router-serves")
SERVICE = Symbol("oncewire-service")


async def serve(
    port: int, name: str = "bridge", prefixes: object = "queue://", sasl: SaslClient | None = None
) -> RawClient:
    """Connect as a service of queue://."""
    client = RawClient(name, sasl or SaslClient("ANONYMOUS"), 1 << 20, {SERVES: prefixes}, [SERVICE])
    await RawClient.dial_with(client, port)
    client.session = await client.begun()
    return client


async def incoming(service: RawClient) -> ReceiverLink | SenderLink:
    """The next link that a client attaches through the network."""
    event = await service.wait_for(LinkAttached, lambda event: event.link.local_attach is None)
    assert isinstance(event.link, ReceiverLink | SenderLink)
    return event.link


async def sender(
    client: RawClient, service: RawClient, name: str = "push", **terms: object
) -> tuple[SenderLink, ReceiverLink]:
    """A client's sending link to queue://mails, answered by the service with its own terms."""
    ours = client.session.attach_sender(name, target=Target(address="queue://mails"), **terms)  # type: ignore[arg-type]
    client.flush()
    theirs = await incoming(service)
    assert isinstance(theirs, ReceiverLink)
    assert theirs.remote_attach is not None
    theirs.reply(source=theirs.remote_attach.source, target=theirs.remote_attach.target)
    service.flush()
    await client.attached(ours)
    return ours, theirs


async def receiver(client: RawClient, service: RawClient, name: str = "work") -> tuple[ReceiverLink, SenderLink]:
    """A client's receiving link from queue://mails."""
    ours = client.session.attach_receiver(name, source=Source(address="queue://mails"))
    client.flush()
    theirs = await incoming(service)
    assert isinstance(theirs, SenderLink)
    assert theirs.remote_attach is not None
    theirs.reply(source=theirs.remote_attach.source, target=theirs.remote_attach.target)
    service.flush()
    await client.attached(ours)
    return ours, theirs


pytestmark = [
    pytest.mark.router("--listen-idle-timeout-s=300"),
    pytest.mark.routers(3, edges=chain(["r1", "r2", "r3"]), settings={"listen.idle_timeout_s": "300"}),
]


async def known(client: RawClient, prefix: str = "queue://") -> None:
    """Wait until the client's router knows of a service: attach until the refusal ends."""
    while True:
        link = client.session.attach_sender("probe", target=Target(address=f"{prefix}probe"))
        client.flush()
        await client.attached(link)
        heard = [each for each in client.heard if isinstance(each, LinkDetached) and each.link is link]
        if not heard and link.remote_attach is not None and link.remote_attach.target is not None:
            link.detach(True)
            client.flush()
            await client.detached(link)
            return
        await client.detached(link)
        await asyncio.sleep(0.05)


async def serve_probes(service: RawClient, until_done: asyncio.Task[None]) -> None:
    """Answer the probes of `known`."""
    while not until_done.done():
        for event in list(service.heard):
            if isinstance(event, LinkAttached) and event.link.local_attach is None and event.link.is_attached is False:
                service.heard.remove(event)
                attach = event.link.remote_attach
                assert attach is not None
                event.link.reply(source=attach.source, target=attach.target)
            elif isinstance(event, LinkDetached) and event.needs_answer:
                service.heard.remove(event)
                event.link.detach(True)
        service.flush()
        await asyncio.sleep(0.02)


async def reachable(client: RawClient, service: RawClient) -> None:
    """Wait until links of the client reach the service."""
    probing = asyncio.create_task(known(client))
    await serve_probes(service, probing)
    await probing


async def test_a_delivery_its_outcome_and_its_settlement_pass_unchanged(router: RouterProcess) -> None:
    #
    service = await serve(router.port)
    client = await RawClient.connect(router.port, "shop")
    ours, theirs = await sender(client, service, unsettled={b"old": None})
    attach = theirs.remote_attach
    assert attach is not None
    assert attach.unsettled == {b"old": None}
    theirs.grant(2)
    service.flush()
    await client.wait_for(LinkFlow, lambda flow: flow.credit_limit == 2)
    publisher, worker = RawPublisher(client, ours, attach), RawSubscriber(service, theirs, attach)
    number = publisher.send(b"t1", b"hello")
    delivery = await worker.delivery()
    assert (delivery.tag, decode_message(delivery.payload).body) == (b"t1", b"hello")
    assert delivery.settled is False
    rejected = Rejected(AmqpError(Symbol("amqp:precondition-failed"), "no such item", {Symbol("why"): "test"}))
    theirs.dispose([delivery.delivery_id], rejected, False)
    service.flush()
    outcome = await publisher.outcome(b"t1")
    assert (outcome.state, outcome.settled) == (rejected, False)
    publisher.settle(number)
    assert (await worker.settled(b"t1")).settled


async def test_the_service_learns_who_the_client_is_and_the_client_cannot_forge_it(router: RouterProcess) -> None:
    #
    service = await serve(router.port)
    client = await RawClient.connect(router.port, "shop")
    forged = {Symbol("x-opt-router-container"): "bank", Symbol("x-opt-router-user"): "root", Symbol("mine"): "kept"}
    _, theirs = await sender(client, service, properties=forged)
    assert theirs.remote_attach is not None
    assert theirs.remote_attach.properties == {
        Symbol("x-opt-router-container"): "shop",
        Symbol("x-opt-router-link"): "push",
        Symbol("mine"): "kept",
    }


async def test_credit_and_drain_are_the_receivers_own(router: RouterProcess) -> None:
    #
    service = await serve(router.port)
    client = await RawClient.connect(router.port)
    ours, theirs = await receiver(client, service)
    ours.grant(5)
    client.flush()
    await service.wait_for(LinkFlow, lambda flow: flow.credit_limit == 5)
    theirs.send(b"a", b"\x00Sw\xa1\x01x", settled=True)
    service.flush()
    await RawSubscriber(client, ours, theirs.remote_attach).delivery()  # type: ignore[arg-type]
    ours.grant(4, drain=True)
    client.flush()
    await service.wait_for(LinkFlow, lambda flow: flow.drain)
    assert theirs.credit == 4
    theirs.drained()
    service.flush()
    flow = await client.wait_for(LinkFlow, lambda flow: flow.link is ours and flow.skipped > 0)
    assert (flow.skipped, ours.credit) == (4, 0)
    ours.grant(1)
    client.flush()
    await service.wait_for(LinkFlow, lambda flow: flow.credit_limit == 6)


async def test_credit_that_is_given_and_taken_back_in_one_write_moves_nothing_and_ends_nothing(
    router: RouterProcess,
) -> None:
    #
    service = await serve(router.port)
    client = await RawClient.connect(router.port)
    ours, theirs = await receiver(client, service)

    async def asked(end: RawClient, link: ReceiverLink | SenderLink) -> None:
        link.flow(echo=True)
        end.flush()
        await end.wait_for(LinkFlow, lambda flow: flow.link is link)

    ours.grant(2)
    client.flush()
    await service.wait_for(LinkFlow, lambda flow: flow.credit_limit == 2)
    service.pause()
    ours.grant(0)
    await asked(client, ours)
    for tag in (b"a", b"b"):
        theirs.send(tag, b"\x00Sw\xa1\x01x", settled=True)
    service.flush()
    service.resume()
    await service.wait_for(LinkFlow, lambda flow: flow.credit_limit == 0)
    await asked(service, theirs)  # the router holds both
    for credit in (2, 0):
        ours.grant(credit)
    await asked(client, ours)
    worker = RawSubscriber(client, ours, theirs.remote_attach)  # type: ignore[arg-type]
    assert (worker.take_deliveries(), ours.is_attached) == ([], True)
    ours.grant(2)
    client.flush()
    assert [(await worker.delivery()).tag for _ in range(2)] == [b"a", b"b"]


async def test_without_a_service_the_refusal_says_what_to_do(router: RouterProcess) -> None:
    #
    client = await RawClient.connect(router.port)
    link = client.session.attach_sender("push", target=Target(address="queue://mails"))
    client.flush()
    event = await client.detached(link)
    assert event.error is not None
    assert event.error.condition == "amqp:not-found"
    assert "oncewire edge serve" in str(event.error.description)


@pytest.mark.parametrize(
    ("flags", "prefixes", "condition", "words"),
    [
        (["--http-loopback-role=viewer"], "queue://", "amqp:unauthorized-access", "services.role"),
        ([], "mail://", "amqp:not-allowed", "services.prefixes"),
    ],
)
async def test_a_service_that_may_not_serve_is_closed(
    flags: list[str], prefixes: str, condition: str, words: str
) -> None:
    async with running_router("--standalone", *flags) as router:
        client = RawClient("bridge", SaslClient("ANONYMOUS"), 1 << 20, {SERVES: prefixes}, [SERVICE])
        await RawClient.dial_with(client, router.port)
        event = await client.wait_for(ConnectionClosed)
        assert event.error is not None
        assert event.error.condition == condition
        assert words in str(event.error.description)


async def test_each_end_is_detached_when_the_other_is_lost(router: RouterProcess) -> None:
    #
    service = await serve(router.port)
    client = await RawClient.connect(router.port)
    ours, _ = await sender(client, service)
    service.cut()
    event = await client.detached(ours)
    assert event.error is not None
    assert (event.error.condition, event.closed) == ("amqp:link:detach-forced", False)
    service = await serve(router.port)
    ours, theirs = await sender(client, service)
    client.cut()
    event = await service.detached(theirs)
    assert event.error is not None
    assert (event.error.condition, event.closed) == ("amqp:link:detach-forced", False)


async def test_a_close_is_answered_when_the_service_has_answered_it(router: RouterProcess) -> None:
    #
    service = await serve(router.port)
    client = await RawClient.connect(router.port)
    ours, theirs = await sender(client, service)
    ours.detach(True)
    client.flush()
    event = await service.detached(theirs)
    assert event.needs_answer
    assert not [each for each in client.heard if isinstance(each, LinkDetached)]
    theirs.detach(True)
    service.flush()
    assert (await client.detached(ours)).closed


async def test_a_client_that_does_not_read_stops_the_service_and_not_the_router(router: RouterProcess) -> None:
    #
    service = await serve(router.port)
    client = await RawClient.connect(router.port)
    ours, theirs = await receiver(client, service)
    client.pause()
    ours.grant(100_000)
    client.flush()
    await service.wait_for(LinkFlow, lambda flow: flow.credit_limit == 100_000)
    body, sent = bytes(60_000), 0
    while not theirs.session.is_queueing:
        theirs.send(b"%d" % sent, b"\x00Su\xb0" + len(body).to_bytes(4, "big") + body, settled=True)
        sent += 1
        service.flush()
        await asyncio.sleep(0)
        assert sent < 5_000, "nothing stops the service"
    client.resume()
    worker = RawSubscriber(client, ours, theirs.remote_attach)  # type: ignore[arg-type]
    for number in range(sent):
        assert (await worker.delivery()).tag == b"%d" % number


async def test_links_reach_a_service_two_routers_away_and_return_when_a_router_between_is_killed(
    network: LocalNetwork,
) -> None:
    ports = {name: network.routers[name].amqp_port for name in network.routers}
    service = await serve(ports["r3"])
    client = await RawClient.connect(ports["r1"], "shop")
    await reachable(client, service)
    ours, theirs = await sender(client, service)
    assert theirs.remote_attach is not None
    assert theirs.remote_attach.properties == {
        Symbol("x-opt-router-container"): "shop",
        Symbol("x-opt-router-link"): "push",
    }
    theirs.grant(1_000)
    service.flush()
    await client.wait_for(LinkFlow, lambda flow: flow.credit_limit == 1_000)
    publisher = RawPublisher(client, ours, theirs.remote_attach)
    worker = RawSubscriber(service, theirs, theirs.remote_attach)
    large = bytes(range(256)) * 12_000
    publisher.send(b"large", large)
    delivery = await worker.delivery()
    assert decode_message(delivery.payload).body == large
    worker.accept(delivery, settled=True)
    assert (await publisher.outcome(b"large")).state == ACCEPTED
    for number in range(500):
        publisher.send(b"%d" % number, b"m%d" % number)
    for number in range(500):
        delivery = await worker.delivery()
        assert delivery.tag == b"%d" % number
        theirs.dispose([delivery.delivery_id], Modified(delivery_failed=True), True)
    service.flush()
    outcome = await publisher.outcome(b"499")
    assert outcome.state == Modified(delivery_failed=True)
    await network.kill("r2")
    for end, link in ((client, ours), (service, theirs)):
        event = await end.detached(link)
        assert event.error is not None
        assert event.error.condition == "amqp:link:detach-forced"
    await network.restart("r2")
    await reachable(client, service)


def login(vhost: str) -> SaslClient:
    """Of the user who is bound to a virtual host."""
    return SaslClient("PLAIN", f"x@{vhost}", "word")


async def test_a_service_serves_the_virtual_host_of_its_connection_and_no_other(tmp_path: Path) -> None:
    #
    settings = {
        "vhosts": '[{"name": "sales"}, {"name": "crm"}]',
        "users": "x@sales:word,x@crm:word",
        "services.role": "viewer",
    }
    async with LocalNetwork(2, log_folder=tmp_path, settings=settings) as network:
        near, far = (router.amqp_port for router in network.routers.values())
        of_sales = await serve(far, sasl=login("sales"))
        sales = await RawClient.connect(near, "shop", sasl=login("sales"))
        await reachable(sales, of_sales)
        for port in (near, far):
            for sasl in (login("crm"), None):
                other = await RawClient.connect(port, "shop", sasl=sasl)
                link = other.session.attach_sender("push", target=Target(address="queue://mails"))
                other.flush()
                refused = (await other.detached(link)).error
                assert refused is not None
                assert refused.condition == "amqp:not-found"
        of_crm = await serve(near, sasl=login("crm"))
        crm = await RawClient.connect(near, "shop", sasl=login("crm"))
        _, theirs = await sender(crm, of_crm)
        _, far_theirs = await sender(sales, of_sales)
        for each in (theirs, far_theirs):
            assert each.remote_attach is not None
            names = {Symbol("x-opt-router-container"): "shop", Symbol("x-opt-router-link"): "push"}
            assert {key: (each.remote_attach.properties or {}).get(key) for key in names} == names
            assert Symbol("x-opt-router-vhost") not in (each.remote_attach.properties or {})
    assert_no_internal_error(tmp_path)


async def test_links_spread_over_the_services_of_a_router(router: RouterProcess) -> None:
    #
    services = [await serve(router.port, f"bridge{number}") for number in range(2)]
    client = await RawClient.connect(router.port)
    for number in range(4):
        client.session.attach_sender(f"push{number}", target=Target(address="queue://mails"))
    client.flush()
    for service in services:
        for _ in range(2):
            await incoming(service)


async def test_a_session_of_its_own_keeps_one_link_from_stopping_another(network: LocalNetwork) -> None:
    ports = {name: network.routers[name].amqp_port for name in network.routers}
    service = await serve(ports["r3"])
    slow, quick = await RawClient.connect(ports["r1"], "slow"), await RawClient.connect(ports["r1"], "quick")
    await reachable(slow, service)
    ours, theirs = await receiver(slow, service)
    slow.pause()
    ours.grant(100_000)
    slow.flush()
    await service.wait_for(LinkFlow, lambda flow: flow.credit_limit == 100_000)
    sent = 0
    while not theirs.session.is_queueing:
        theirs.send(b"%d" % sent, b"\x00Su\xb0" + (50_000).to_bytes(4, "big") + bytes(50_000), settled=True)
        sent += 1
        service.flush()
        await asyncio.sleep(0)
        assert sent < 5_000
    others, other = await receiver(quick, service, "quick")
    assert theirs.session is not other.session
    others.grant(1)
    quick.flush()
    await service.wait_for(LinkFlow, lambda flow: flow.link is other and flow.credit_limit == 1)
    other.send(b"q", b"\x00Su\xa0\x01q", settled=True)
    service.flush()
    assert (await RawSubscriber(quick, others, other.remote_attach).delivery()).tag == b"q"  # type: ignore[arg-type]
    slow.cut()


async def test_a_topic_client_is_served_as_before_beside_a_service(router: RouterProcess) -> None:
    service = await serve(router.port)
    client = await RawClient.connect(router.port)
    subscriber = await client.subscriber("orders")
    publisher = await client.publisher("orders")
    publisher.send(b"t", b"m")
    subscriber.accept(await subscriber.delivery())
    assert (await publisher.outcome(b"t")).state == ACCEPTED
    assert not [each for each in service.heard if isinstance(each, LinkAttached | DispositionReceived)]
