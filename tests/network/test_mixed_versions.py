"""Routers of the previous release and of this tree in one network, under load: an upgrade router by router (K-8a)."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from oncewire.client import Client, connect
from router.commands.local_network import LocalNetwork
from tests.network.harness import (
    Experiment,
    Load,
    assert_no_internal_error,
    assert_nothing_wrong,
    network_under_load,
)
from tests.network.test_workers import kill_worker
from tests.router.worker_group import ask
from tests.support.previous_release import install_previous_release

pytestmark = [pytest.mark.slow, pytest.mark.needs("previous-release")]

DEADLINE_S = 60.0
LOAD = Load(
    publishers={"p1": "r1", "p2": "r2"},
    subscribers={"s1": "r2", "s2": "r3", "s3": "r1"},
    messages=6_000,
    seconds=8.0,
    batch=50,
    batch_s=0.05,
)


def package_in_use(environment: dict[str, str]) -> Path:
    """Where a router process with these variables has its code from."""
    command = [sys.executable, "-P", "-c", "import router; print(router.__file__)"]
    found = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    return Path(found.stdout.strip())


async def restart_with(experiment: Experiment, router: str, environment: dict[str, str]) -> None:
    """End a router in good order and start it as another version."""
    network = experiment.network
    await network.terminate(router)
    network.routers[router].environment = environment
    await network.restart(router)


async def test_a_network_of_the_previous_release_is_upgraded_router_by_router(tmp_path: Path) -> None:
    old = await asyncio.to_thread(install_previous_release, tmp_path / "release")
    previous = {"PYTHONPATH": str(old)}
    assert package_in_use(previous).is_relative_to(old)
    assert not package_in_use({}).is_relative_to(old)
    async with network_under_load(tmp_path, LOAD, environment=previous) as experiment:
        # The last step takes one back: an upgrade that disappoints can be undone.
        for part, router, version in ((0.1, "r1", {}), (0.3, "r2", {}), (0.5, "r3", {}), (0.7, "r2", previous)):
            await experiment.until_published(part)
            await experiment.trial.meanwhile(restart_with(experiment, router, version))
        verdict = await experiment.verdict()
        assert_nothing_wrong(experiment, verdict)


async def test_a_router_becomes_two_workers_beside_one_of_the_previous_release(tmp_path: Path) -> None:
    """The older one links to each worker by TCP, and meets nothing in their keys that it would not understand."""
    old = await asyncio.to_thread(install_previous_release, tmp_path / "release")
    load = Load({"p1": "r1", "p2": "r2"}, {"s1": "r2", "s2": "r1"}, messages=6_000, seconds=8.0)
    async with network_under_load(tmp_path, load, routers=2, environment={"PYTHONPATH": str(old)}) as experiment:
        await experiment.until_published(0.1)
        experiment.network.routers["r2"].settings["workers"] = "2"
        await experiment.trial.meanwhile(restart_with(experiment, "r2", {}))
        await experiment.until_published(0.4)
        await kill_worker(experiment, "r2", 1)  # its clients may be at r1 by now
        links = (await ask(experiment.network.routers["r1"], "/api/v1/state"))[1]["neighbours"]
        assert sorted(row["id"] for row in links) == ["r2-1", "r2-2"]
        verdict = await experiment.verdict()
        assert_nothing_wrong(experiment, verdict)


async def received(client: Client, name: str, bodies: list[bytes]) -> bool:
    """Attach under this name, get these messages, and tell whether the subscription was there before."""
    subscriber = await client.subscriber("orders", name=name)
    for body in bodies:
        delivery = await subscriber.receive(DEADLINE_S)
        assert delivery.body == body
        await delivery.accept()
    is_resumed = subscriber.statistics.resumed_links > 0
    await subscriber.suspend()
    return is_resumed


async def publish(client: Client, body: bytes) -> asyncio.Task[bool]:
    """Publish to orders; whether every subscription has accepted it, once that is known."""
    publisher = await client.publisher("orders")
    sending = await publisher.submit(body)

    async def outcome() -> bool:
        return (await sending).is_accepted

    return asyncio.create_task(outcome())


async def test_users_keep_their_subscriptions_and_virtual_hosts_stay_apart_beside_a_router_of_the_previous_release(
    tmp_path: Path,
) -> None:
    old = await asyncio.to_thread(install_previous_release, tmp_path / "release")
    network = LocalNetwork(2, log_folder=tmp_path, log_level="info", settings={"users": "ann:a,x@sales:s"})
    network.routers["r1"].environment["PYTHONPATH"] = str(old)
    network.routers["r2"].settings |= {"vhosts": '[{"name": "sales"}]', "adopts_links": "ann"}
    async with network, asyncio.timeout(3 * DEADLINE_S):
        older, newer = (f"amqp://{{}}127.0.0.1:{router.amqp_port}" for router in network.routers.values())
        of_user = newer.format("x%40sales:s@")
        async with connect(newer.format("")) as shop, connect(of_user, container_id="app") as sales:
            of_sales = await sales.subscriber("#", name="in")
            # A-2c: the older router writes no user; the newer one finds the key that it wrote, and the other way round.
            for number, url in enumerate((older, newer, older, newer)):
                body = b"%d" % number
                async with connect(url.format("ann:a@"), container_id="app") as ann:
                    sending = await publish(shop, body) if number else None
                    was_there = await received(ann, "in", [body] if number else [])
                    assert was_there is (number > 0)
                    assert sending is None or await sending
            async with connect(older.format(""), container_id="app") as default:
                of_default = await default.subscriber("#", name="all")
                secret = await publish(sales, b"secret")
                delivery = await of_sales.receive(DEADLINE_S)
                assert delivery.body == b"secret"
                await delivery.accept()
                assert await secret  # by its own subscription alone
                assert of_default.waiting == 0
    assert_no_internal_error(tmp_path)
