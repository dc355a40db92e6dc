"""Several router processes with a real etcd: across routers, over hops, through killed and stopped ones."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest

from oncewire.wire import ACCEPTED, ConnectionClosed, decode_message
from router.commands.local_network import LocalNetwork, chain
from tests.router.raw_client import RawClient
from tests.support.commands import start
from tests.support.waiting import eventually
from topology.etcd.server import free_port

DEADLINE_S = 40.0


def port_of(network: LocalNetwork, name: str) -> int:
    return network.routers[name].amqp_port


async def state_of(network: LocalNetwork, name: str) -> Any:
    url = f"{network.routers[name].http}/api/v1/state"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return await answer.json()


pytestmark = pytest.mark.routers(3, settings={"etcd.lease_ttl_s": "3"})


def is_running(pid: int) -> bool:
    """Whether the process lives; a zombie does not."""
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


async def test_a_router_that_stood_still_beyond_its_lease_fences_itself(network: LocalNetwork) -> None:
    client = await RawClient.connect(port_of(network, "r2"))
    await client.subscriber("orders")
    before = (await state_of(network, "r2"))["rid"]
    network.sigstop("r2")

    async def key_is_gone() -> bool:
        return all(router["id"] != "r2" for router in (await state_of(network, "r1"))["routers"])

    await eventually(key_is_gone)
    network.sigcont("r2")
    closed = await client.wait_for(ConnectionClosed)
    assert closed.error is not None
    assert closed.error.condition == "amqp:connection:forced"
    await network.wait_ready("r2")
    state = await state_of(network, "r2")
    assert state["incarnations"] == 2
    assert state["rid"] != before


async def test_sigterm_takes_the_router_out_of_the_network_at_once(network: LocalNetwork) -> None:
    await network.terminate("r3")
    routers = (await state_of(network, "r1"))["routers"]

    async def gone() -> bool:
        return len((await state_of(network, "r1"))["routers"]) == 2

    await eventually(gone)
    assert len(routers) <= 3


async def test_messages_cross_a_chain_and_go_on_when_the_middle_is_replaced(tmp_path: Path) -> None:
    names = ["r1", "r2", "r3"]
    settings = {"etcd.lease_ttl_s": "3"}
    async with LocalNetwork(3, edges=chain(names), log_folder=tmp_path, log_level="info", settings=settings) as network:
        subscriber = await (await RawClient.connect(port_of(network, "r3"))).subscriber("orders")
        publisher = await (await RawClient.connect(port_of(network, "r1"))).publisher("orders")
        publisher.send(b"t0", b"m0")
        subscriber.accept(await subscriber.delivery())
        await publisher.outcome(b"t0")
        await network.kill("r2")
        publisher.send(b"t1", b"m1")
        await network.restart("r2")
        again = await subscriber.delivery()
        assert decode_message(again.payload).body == b"m1"
        subscriber.accept(again)
        assert (await publisher.outcome(b"t1")).state == ACCEPTED
        links = (await state_of(network, "r1"))["links"]
        assert {(link["from"], link["to"]) for link in links} == {
            ("r1", "r2"),
            ("r2", "r1"),
            ("r2", "r3"),
            ("r3", "r2"),
        }


async def test_local_prints_one_line_when_all_are_ready_and_leaves_nothing_behind() -> None:
    arguments = ("local", "--routers=2", "--json", f"--port={free_port()}", f"--http-port={free_port()}")
    process = await start(*arguments)
    assert process.stdout is not None
    described = json.loads(await asyncio.wait_for(process.stdout.readline(), DEADLINE_S))
    assert set(described) == {"routers", "etcd"}
    pids = []
    for router in described["routers"]:
        assert set(router) == {"id", "url", "http", "pid"}
        async with aiohttp.ClientSession() as session, session.get(router["http"] + "/readyz") as answer:
            assert answer.status == 200
        await RawClient.connect(urlsplit(router["url"]).port or 0)
        pids.append(router["pid"])
    process.send_signal(signal.SIGTERM)
    rest, log = await asyncio.wait_for(process.communicate(), DEADLINE_S)
    assert (rest, process.returncode) == (b"", 0), log
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectionError):
            await session.get(described["etcd"] + "/health")


async def test_routers_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    code = (
        "import asyncio, json; from pathlib import Path; from router.commands.local_network import LocalNetwork\n"
        "async def main():\n"
        f"    network = LocalNetwork(2, log_folder=Path({str(tmp_path)!r}))\n"
        "    await network.start()\n"
        "    print(json.dumps(network.describe()), flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-P", "-c", code, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    described = json.loads(await asyncio.wait_for(process.stdout.readline(), DEADLINE_S))
    process.kill()
    await process.communicate()

    async def all_gone() -> bool:
        return not any(is_running(router["pid"]) for router in described["routers"])

    await eventually(all_gone)
