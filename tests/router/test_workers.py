"""Several workers behind one port, on real processes: one entry for clients and one for operators, and one parent."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from oncewire.client import connect
from oncewire.wire import ConnectionClosed, ConnectionOpened, Symbol
from router.commands.local_network import LocalNetwork, LocalRouter
from tests.router.processes import run_to_end
from tests.router.raw_client import RawClient, until
from tests.router.relay import assert_no_internal_error
from tests.router.test_drain import run_drain
from tests.router.worker_group import ask, folder_of, states, wait_restarted, workers_of
from topology.etcd.gateway_store import GatewayStore
from topology.etcd.server import free_port
from topology.etcd.store import PREFIX

DEADLINE_S = 120.0
SETTINGS = {"workers": "2", "limits.drain_limit_s": "5", "listen.idle_timeout_s": "600"}
"""Raw clients send no heartbeats."""


pytestmark = pytest.mark.routers(1, settings=SETTINGS)


@pytest.fixture
def router(network: LocalNetwork) -> LocalRouter:
    return network.routers["r1"]


async def clients_at(router: LocalRouter, number: int, count: int) -> list[RawClient]:
    """Connect until a worker has so many clients; the others stay where the kernel has put them."""
    clients: list[RawClient] = []
    for attempt in range(200):
        clients.append(await RawClient.connect(router.amqp_port, f"box-{attempt}"))
        if (await states(router, 2))[number]["connections"] >= count:
            return clients
    raise AssertionError("200 connections, and a worker has hardly any")


# --- one entry --------------------------------------------------------------------------------------------------------


async def test_workers_are_routers_that_one_entry_speaks_for(network: LocalNetwork, router: LocalRouter) -> None:
    assert await ask(router, "/healthz") == (200, {"status": "ok"})
    assert await ask(router, "/readyz") == (200, {"ready": True, "waiting_for": []})
    listed = (await ask(router, "/api/v1/routers"))[1]["items"]
    assert [(row["id"], row["group"], row["amqp"]) for row in listed] == [
        ("r1-1", "r1", router.url),
        ("r1-2", "r1", router.url),
    ]
    assert [row["http"] for row in listed] == [router.http, f"{router.http}/workers/2"]
    assert (await ask(router, "/workers/2/api/v1/overview"))[1]["router"] == "r1-2"
    assert (await ask(router, "/workers/3/api/v1/overview"))[0] == 404
    # What is passed on by an id: an operation of one worker, asked of the one that has the port.
    trace = {"on": True, "sample": 0.5}
    assert (await ask(router, "/api/v1/management/router/r1-2/trace", "POST", trace))[1]["sample"] == 0.5
    assert (await ask(router, "/api/v1/management/router/r1-3/trace", "POST", trace))[0] == 404
    assert (await ask(router, "/api/v1/management/router/r1/trace", "POST", trace))[0] == 409

    await metrics_have_the_label(router)
    await a_watcher_sees_another_worker(router)


async def metrics_have_the_label(router: LocalRouter) -> None:
    """Those of both workers are on one page, distinguished."""
    async with aiohttp.ClientSession() as session, session.get(f"{router.http}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    assert [line.partition(" ")[0] for line in lines if line.startswith("oncewire_ready{")] == [
        'oncewire_ready{router="r1-1"}',
        'oncewire_ready{router="r1-2"}',
    ]
    assert lines.count("# TYPE oncewire_ready gauge") == 1
    linked = 'oncewire_neighbour_waiting_bytes{router="r1-2",neighbour="r1-1"}'
    assert any(line.startswith(linked) for line in lines), [line for line in lines if "_neighbour" in line]


async def a_watcher_sees_another_worker(router: LocalRouter) -> None:
    """By the one that has the port."""
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{router.http}/workers/2/api/v1/watch") as socket,
        asyncio.timeout(DEADLINE_S),
    ):
        await socket.send_json({"tables": ["routers"]})
        rows = (await socket.receive_json())["items"]
    assert [row["id"] for row in rows if row["is_self"]] == ["r1-2"]


async def nobody_else_can_state_who_asks(router: LocalRouter) -> None:
    """The header between workers counts for nothing at the port."""
    stated = {"Oncewire-Caller": json.dumps({"role": "admin", "user": "eve", "peer": "", "misnamed": ""})}
    elsewhere = {"Host": "evil.example", **stated}
    for path in ("/api/v1/overview", "/workers/2/api/v1/overview"):
        async with aiohttp.ClientSession() as session, session.get(router.http + path, headers=elsewhere) as answer:
            assert answer.status == 403, path


async def test_links_between_workers_are_in_a_folder_of_their_own_and_in_no_key(
    network: LocalNetwork, router: LocalRouter
) -> None:
    folder = folder_of(router)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {path.name for path in folder.iterdir()} == {"1.links", "2.links", "1.http", "2.http"}
    neighbours = (await ask(router, "/api/v1/neighbours"))[1]["items"]
    assert [row["router"] for row in neighbours] == ["r1-2"]
    assert links_in(folder)
    keys = await every_value(network)
    assert keys
    assert not any(str(folder) in value or "unix" in value for value in keys)
    await nobody_else_can_state_who_asks(router)
    await network.terminate("r1")
    assert not folder.exists()


def links_in(folder: Path) -> int:
    """Connections between routers by the folder's Unix sockets: state 03 (proc(5))."""
    lines = Path("/proc/net/unix").read_text().splitlines()
    return sum(str(folder) in line and ".links" in line and line.split()[5] == "03" for line in lines)


async def every_value(network: LocalNetwork) -> list[str]:
    """All values that the routers have written to etcd."""
    store = GatewayStore(network.etcd_urls)
    try:
        _, found = await store.snapshot(PREFIX)
    finally:
        await store.close()
    return [each.value.decode(errors="replace") for each in found]


# --- clients ----------------------------------------------------------------------------------------------------------


async def test_no_client_is_reported_to_come_to_the_address_where_it_is(tmp_path: Path) -> None:
    network = LocalNetwork(2, log_folder=tmp_path, log_level="info", settings=SETTINGS)
    async with network:
        first, second = network.routers["r1"], network.routers["r2"]
        for router, other in ((first, second), (second, first)):
            client = await RawClient.dial(router.amqp_port)
            opened = await client.wait_for(ConnectionOpened)
            listed: Any = (opened.open.properties or {})[Symbol("failover-server-list")]
            assert [entry[Symbol("port")] for entry in listed] == [other.amqp_port]  # once, not once for each worker
        client = await RawClient.connect(first.amqp_port, "box")
        await client.publisher("orders")
        await network.terminate("r1")
        closed = await client.wait_for(ConnectionClosed)
        assert closed.error is not None
        assert (closed.error.condition, (closed.error.info or {})[Symbol("port")]) == (
            "amqp:connection:redirect",
            second.amqp_port,
        )
    assert_no_internal_error(tmp_path)


@pytest.mark.slow
async def test_a_worker_that_is_drained_is_started_again_and_its_clients_go_to_the_others(
    network: LocalNetwork, router: LocalRouter
) -> None:
    clients = await clients_at(router, 2, 3)
    former = workers_of(router)
    status, reported = await ask(router, "/api/v1/management/router/r1-2/drain", "POST", {})
    assert status == 200, reported
    await wait_restarted(network, "r1", 2, former[2])
    gone = [client for client in clients if any(isinstance(event, ConnectionClosed) for event in client.heard)]
    assert len(gone) >= 3
    for client in gone:
        closed = await client.wait_for(ConnectionClosed)
        assert closed.error is not None
        assert closed.error.condition == "amqp:connection:forced"  # there is no other address to name
    assert workers_of(router)[1] == former[1]


@pytest.mark.slow
async def test_drain_without_a_name_drains_all_workers_and_nothing_is_started_again(
    network: LocalNetwork, router: LocalRouter
) -> None:
    await clients_at(router, 2, 1)
    process = router.process
    code, out, err = await run_drain("--url", router.http, "--json")
    assert code == 0, (out, err)
    assert json.loads(out)["router"] == "r1"
    assert process is not None

    async def ended() -> int | None:
        return process.poll()

    assert await until(ended, lambda found: found is not None) == 0


# --- the parent -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_a_worker_that_is_killed_is_started_again_while_the_others_serve(
    network: LocalNetwork, router: LocalRouter, tmp_path: Path
) -> None:
    async with connect(router.url, container_id="a") as sending, connect(router.url, container_id="b") as receiving:
        subscriber = await receiving.subscriber("t", name="s")
        publisher = await sending.publisher("t", name="p")
        for number in (2, 1):
            former = workers_of(router)
            os.kill(former[number], signal.SIGKILL)
            sent = asyncio.create_task(publisher.send(b"%d" % number))
            delivery = await subscriber.receive(DEADLINE_S)
            assert delivery.body == b"%d" % number
            await delivery.accept()
            assert (await sent).is_accepted
            await wait_restarted(network, "r1", number, former[number])
            other = 3 - number
            assert workers_of(router)[other] == former[other]
    log = (tmp_path / "r1.log").read_text()
    assert 'worker_ended router=r1 worker=r1-2 why="killed by SIGKILL"' in log


@pytest.mark.slow
async def test_a_reload_reaches_all_workers(tmp_path: Path) -> None:
    file = tmp_path / "router.toml"
    file.write_text("limits.max_links = 10\n")
    network = LocalNetwork(1, log_folder=tmp_path, settings=SETTINGS)
    router = network.routers["r1"]
    router.environment["ONCEWIRE_CONFIG"] = str(file)

    async def limits() -> list[object]:
        paths = [f"/workers/{number}/api/v1/management/config/router" for number in (1, 2)]
        return [(await ask(router, path))[1].get("limits.max_links") for path in paths]

    async with network:
        assert await limits() == [10, 10]
        file.write_text("limits.max_links = 11\n")
        os.kill(router.pid, signal.SIGHUP)
        await until(limits, lambda found: found == [11, 11])
        file.write_text("limits.max_links = 12\n")
        status, reported = await ask(router, "/api/v1/management/router/r1/reload", "POST", {})
        assert (status, reported["changed"]) == (200, ["limits.max_links: 11 -> 12"])
        await until(limits, lambda found: found == [12, 12])
    assert_no_internal_error(tmp_path)


async def test_wrong_settings_are_reported_once(tmp_path: Path) -> None:
    flags = ("--workers=3", f"--etcd-endpoints=http://127.0.0.1:{free_port()}", "--listen-port=0", "--http-port=0")
    code, out, err = await run_to_end("--workers=2", "--standalone", timeout_s=DEADLINE_S)
    assert (code, out) == (2, "")
    assert "a standalone router keeps all attachments in one process" in err
    missing = str(tmp_path / "none.pem")
    code, _, err = await run_to_end(*flags, "--listen-tls", f"--tls-cert-file={missing}", timeout_s=DEADLINE_S)
    assert code == 2
    assert err.count(missing) == 1, err
    taken = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
    port = taken.sockets[0].getsockname()[1]
    code, _, err = await run_to_end(*flags[:2], f"--listen-port={port}", "--http-port=0", timeout_s=DEADLINE_S)
    taken.close()
    assert code == 2
    assert err.count("the port is in use") == 1, err
