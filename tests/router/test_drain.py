"""K-8a on real processes: SIGTERM and `oncewire drain` send clients elsewhere, and nobody gets anything twice."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from oncewire.wire import (
    ConnectionClosed,
    ConnectionOpened,
    LinkDetached,
    LinkFlow,
    ReceiverSettleMode,
    Symbol,
    Target,
    UnsettledMap,
)
from router.commands.local_network import LocalNetwork
from tests.router.processes import RouterProcess, running_router, start_router
from tests.router.raw_client import RawClient, RawSubscriber, until
from tests.support.commands import run

FAILOVER_LIST = Symbol("failover-server-list")
DEADLINE_S = 40.0


pytestmark = pytest.mark.routers(3)


def port_of(network: LocalNetwork, name: str) -> int:
    return network.routers[name].amqp_port


async def state_of(network: LocalNetwork, name: str) -> Any:
    async with aiohttp.ClientSession() as session, session.get(f"{network.routers[name].http}/api/v1/state") as answer:
        return await answer.json()


async def stock_subscriber(port: int, container_id: str, **options: Any) -> RawSubscriber:
    """It keeps no map and settles as it accepts (rcv-settle-mode first)."""
    client = await RawClient.connect(port, container_id, resumes=False)
    return await client.subscriber("orders", exactly_once=False, rcv_settle_mode=ReceiverSettleMode.FIRST, **options)


async def closed_with(client: RawClient) -> tuple[str, dict[str, Any]]:
    """Condition and info of the router's close."""
    closed = await client.wait_for(ConnectionClosed)
    assert closed.error is not None
    return closed.error.condition, {str(name): value for name, value in (closed.error.info or {}).items()}


PROGRAM = """
import sys, click
from oncewire.cli.run import run
from router.commands.drain import drain
sys.exit(run(["drain", *sys.argv[1:]], click.Group("oncewire", commands={"drain": drain})))
"""
run_drain = partial(run, program=PROGRAM)


async def test_the_open_of_a_router_lists_the_others_and_never_begins_with_the_same(network: LocalNetwork) -> None:
    others = {port_of(network, "r2"), port_of(network, "r3")}
    first: Counter[int] = Counter()
    for _ in range(4):
        client = await RawClient.dial(port_of(network, "r1"))
        opened = await client.wait_for(ConnectionOpened)
        listed: Any = (opened.open.properties or {})[FAILOVER_LIST]
        assert {entry[Symbol("port")] for entry in listed} == others
        first[listed[0][Symbol("port")]] += 1
    assert first == dict.fromkeys(others, 2)


async def test_a_client_with_the_smallest_frames_gets_a_list_that_fits(network: LocalNetwork) -> None:
    client = await RawClient.dial(port_of(network, "r1"), max_frame_size=512)
    opened = await client.wait_for(ConnectionOpened)
    assert (opened.open.properties or {})[FAILOVER_LIST]


@pytest.mark.parametrize(
    ("resumes", "expected"), [(True, "amqp:connection:redirect"), (False, "amqp:connection:forced")]
)
async def test_the_clients_of_a_router_are_spread_over_the_others(
    network: LocalNetwork, resumes: bool, expected: str
) -> None:
    """Stock clients connect again after no condition but forced: after a redirect their programs end."""
    names = [f"box-{number}" for number in range(24)]
    clients = [await RawClient.connect(port_of(network, "r1"), name, resumes=resumes) for name in names]
    for client in clients[:12]:
        await client.publisher("orders")
    await network.terminate("r1")
    reported: Counter[int] = Counter()
    for client in clients:
        condition, info = await closed_with(client)
        assert condition == expected
        assert info["network-host"] == info["hostname"] == "127.0.0.1"
        assert {entry[Symbol("port")] for entry in info["failover-server-list"]} == {
            port_of(network, "r2"),
            port_of(network, "r3"),
        }
        reported[info["port"]] += 1
    assert set(reported) == {port_of(network, "r2"), port_of(network, "r3")}
    assert min(reported.values()) > 24 // 6, reported


async def test_a_subscriber_that_settles_as_it_accepts_gets_no_repeat_through_a_drain(network: LocalNetwork) -> None:
    """Its publisher moves, too: what is not settled then would be repeated by the publisher's next router."""
    source = await RawClient.connect(port_of(network, "r1"), "till")
    publisher = await source.publisher("orders")
    subscriber = await stock_subscriber(port_of(network, "r1"), "store", credit=3)
    ids = [publisher.send(b"%d" % number, b"%d" % number) for number in range(5)]
    received = []
    for _ in range(3):
        received.append(delivery := await subscriber.delivery())
        subscriber.accept(delivery, settled=True)
    for number in range(3):
        while b"%d" % number not in publisher.accepted_tags():
            await publisher.next_outcome()
    draining = asyncio.create_task(network.terminate("r1"))
    condition, info = await closed_with(source)  # it resumes, and takes five unsettled deliveries along
    assert condition == "amqp:connection:redirect"
    assert not subscriber.client.is_gone
    moved = await RawClient.connect(info["port"], "till")
    presented: UnsettledMap = {b"%d" % number: None for number in range(5)}
    publisher = await moved.publisher("orders", unsettled=presented)
    ids = [publisher.send(b"%d" % number, b"%d" % number) for number in range(5)]
    for number in range(3):
        while b"%d" % number not in publisher.accepted_tags():
            await publisher.next_outcome()
    publisher.settle(*ids[:3])
    condition, info = await closed_with(subscriber.client)  # now everything it was sent is settled
    assert condition == "amqp:connection:forced"
    await draining
    again = await stock_subscriber(info["port"], "store")
    rest = [await again.delivery() for _ in range(2)]
    assert [d.tag[11:] for d in (*received, *rest)] == [b"%d" % number for number in range(5)]
    assert len({d.tag for d in (*received, *rest)}) == 5


async def test_a_draining_router_takes_no_links_says_so_everywhere_and_takes_credit_back(network: LocalNetwork) -> None:
    busy = await stock_subscriber(port_of(network, "r1"), "store")
    source = await RawClient.connect(port_of(network, "r1"), "till")
    publisher = await source.publisher("orders", exactly_once=False)
    publisher.send(b"1", b"1")
    delivery = await busy.delivery()
    draining = asyncio.create_task(network.terminate("r1"))
    await source.wait_for(LinkFlow, lambda flow: flow.link is publisher.link and flow.credit_limit == 1)
    late = busy.client.session.attach_receiver("late", source=None, target=Target(), unsettled=None)
    busy.client.flush()
    refused = await busy.client.wait_for(LinkDetached, lambda event: event.link is late)
    assert refused.error is not None
    assert refused.error.condition == "amqp:link:redirect"
    assert refused.error.info is not None
    assert refused.error.info[Symbol("port")] in (port_of(network, "r2"), port_of(network, "r3"))
    with pytest.raises(OSError, match="Connect"):
        await RawClient.dial(port_of(network, "r1"))
    state = await state_of(network, "r1")
    assert state["draining"]["limit_s"] == 10.0
    assert state["waiting_for"] == ["its end: it drains, and takes no clients"]
    async with aiohttp.ClientSession() as session, session.get(network.routers["r1"].http + "/readyz") as answer:
        assert answer.status == 503
    seen = await until(lambda: state_of(network, "r2"), lambda state: any(row["draining"] for row in state["routers"]))
    assert [row["id"] for row in seen["routers"] if row["draining"]] == ["r1"]
    other = await RawClient.dial(port_of(network, "r2"))
    opened = await other.wait_for(ConnectionOpened)
    listed: Any = (opened.open.properties or {})[FAILOVER_LIST]
    assert [entry[Symbol("port")] for entry in listed] == [port_of(network, "r3")]
    busy.accept(delivery, settled=True)
    outcome = await publisher.outcome(b"1")
    publisher.settle(*(delivery_id for delivery_id, _ in outcome.deliveries))
    assert (await closed_with(source))[0] == "amqp:connection:redirect"
    assert (await closed_with(busy.client))[0] == "amqp:connection:forced"
    await draining


async def with_an_unanswered_delivery(router: RouterProcess) -> RawSubscriber:
    """A stock subscriber that has a delivery and says nothing of it."""
    subscriber = await stock_subscriber(router.port, "store")
    source = await RawClient.connect(router.port, "till")
    publisher = await source.publisher("orders")
    publisher.send(b"1", b"1")
    await subscriber.delivery()
    return subscriber


async def is_draining(router: RouterProcess) -> bool:
    return (await router.state())["draining"] is not None


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_ends_at_once(second: signal.Signals) -> None:
    router = await start_router("--standalone", "--limits-drain-limit-s=3600")
    subscriber = await with_an_unanswered_delivery(router)
    router.process.send_signal(signal.SIGTERM)
    await until(lambda: is_draining(router), bool)
    assert not subscriber.client.is_gone
    log = await router.stop(second)
    assert (await closed_with(subscriber.client))[0] == "amqp:connection:forced"
    assert router.process.returncode == 0
    assert "internal_error" not in log


async def test_drain_ends_when_the_router_is_gone_and_finds_it_by_its_name(network: LocalNetwork) -> None:
    client = await RawClient.connect(port_of(network, "r2"))
    await client.subscriber("orders")
    code, out, err = await run_drain("r2", "--url", network.routers["r1"].http, "--json")
    assert (code, err) == (0, "")
    reported = json.loads(out)
    assert (reported["router"], reported["connections"], reported["stopped"], reported["within_limit"]) == (
        "r2",
        1,
        True,
        True,
    )
    assert (await closed_with(client))[0] == "amqp:connection:redirect"
    code, out, _ = await run_drain("--url", network.routers["r1"].http)
    assert code == 0
    assert out.startswith("r1 has drained and stopped after ")


async def test_drain_says_no_when_the_limit_was_over_first() -> None:
    router = await start_router("--standalone", "--id=alpha", "--limits-drain-limit-s=0.3")
    subscriber = await with_an_unanswered_delivery(router)
    code, out, err = await run_drain("--url", router.http)
    assert (code, err) == (1, "")
    assert "its limit of 0.3 s was over before all was settled" in out
    assert (await closed_with(subscriber.client))[0] == "amqp:connection:forced"  # there is no other router
    await router.stop()


async def test_drain_over_http_is_for_operators_who_may_keep_their_password_in_a_file(tmp_path: Path) -> None:
    flags = ("--users=olga:o,vera:v", "--roles=olga=operator,vera=viewer", "--http-loopback-role=viewer")
    async with running_router("--standalone", "--id=alpha", *flags) as router:
        code, out, err = await run_drain("--url", router.http)
        assert (code, out) == (2, "")
        assert "this needs the role operator" in err
        assert "--user NAME" in err
        code, out, err = await run_drain("--url", router.http, "--user=vera", ONCEWIRE_PASSWORD="v")
        assert (code, out) == (2, "")
        assert "vera is viewer" in err
        assert "SIGTERM" in err
        assert not await is_draining(router)
        (tmp_path / "password").write_text("o\n")
        login = "--user=olga", f"--password-file={tmp_path}/password"
        code, out, err = await run_drain("--url", router.http, *login, ONCEWIRE_PASSWORD="v")
        assert (code, err) == (0, "")
        await router.process.wait()


async def test_drain_over_http_is_for_no_web_page() -> None:
    async with (
        running_router("--standalone", "--id=alpha") as router,
        aiohttp.ClientSession() as session,
        session.post(
            router.http + "/api/v1/management/router/alpha/drain", data="{}", headers={"Content-Type": "text/plain"}
        ) as answer,
    ):
        assert answer.status == 415
        assert not await is_draining(router)


async def test_a_router_without_clients_drains_at_once() -> None:
    router = await start_router("--standalone", "--limits-drain-limit-s=3600")
    await router.stop(signal.SIGTERM)
    assert router.process.returncode == 0
