"""etcd comes back from an older backup (K-9): everybody is notified, nothing is silently doubled or dropped."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from oncewire.wire import ACCEPTED, Source, Symbol, Target, decode_message
from router.commands.cluster import cluster
from router.commands.doctor_checks import check_etcd
from router.commands.local_network import LocalNetwork
from router.settings.config import RouterConfig
from tests.router.processes import run_to_end, running_router
from tests.router.raw_client import (
    DEADLINE_S,
    EXACTLY_ONCE,
    AttachRefused,
    RawClient,
    RawPublisher,
    RawSubscriber,
    until,
)
from tests.router.relay import assert_no_internal_error
from tests.support.etcd_backup import BackedUpEtcd

LEASE_S = 3
POLL_S = 0.05


def network_of(etcd: BackedUpEtcd, folder: Path, store: str = "gateway", memory: str = "") -> LocalNetwork:
    settings = {"etcd.lease_ttl_s": f"{LEASE_S}", "store": store, "etcd.memory_folder": memory}
    return LocalNetwork(2, etcd_urls=etcd.urls, settings=settings, log_folder=folder, log_level="info")


async def oncewire_cluster(*arguments: str) -> dict[str, Any]:
    """`oncewire cluster ... --json`, in a thread: it has an event loop of its own."""
    runner = CliRunner()
    result = await asyncio.to_thread(
        runner.invoke, click.Group("oncewire", commands={"cluster": cluster}), ["cluster", *arguments, "--json"]
    )
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


async def doctor_says(etcd: BackedUpEtcd) -> list[tuple[str, str]]:
    """What `oncewire doctor` finds of the network: how each check ended, and its text."""
    found = await check_etcd(RouterConfig(etcd_endpoints=tuple(etcd.urls)), "0", time.time)
    return [(each.state.value, each.text) for each in found if each.check == "network"]


async def refuses_to_start(etcd: BackedUpEtcd, *flags: str, about: str = "oncewire cluster new-nonce") -> str:
    """A router with these flags ends at once; returns what it says."""
    code, _, said = await run_to_end("--etcd", etcd.urls[0], "--listen-port=0", "--http-port=0", *flags)
    assert code == 2, said
    assert about in said
    return said


def kept_revision(memory: Path) -> int:
    """How far etcd had come, as the file of a router has it; 0: there is none yet."""
    lives = json.loads(memory.read_text("utf-8"))["lives"] if memory.exists() else []
    return max((life["revision"] for life in lives), default=0)


async def remembers_more(memory: Path, revision: int) -> None:
    """Wait until a router has kept that it saw etcd behind this revision."""
    await until(lambda: asyncio.to_thread(kept_revision, memory), lambda found: found > revision)


class Clients:
    """Two publishers and two subscribers; the new ones come after the backup."""

    def __init__(self, network: LocalNetwork) -> None:
        self._ports = [router.amqp_port for router in network.routers.values()]

    async def subscriber(self, name: str, unsettled: dict[bytes, Any] | None = None) -> RawSubscriber:
        """Attached as soon as its router reaches etcd, which may have been started again just now."""
        ends_at = time.monotonic() + DEADLINE_S
        while True:
            client = await RawClient.connect(self._ports[0], name)
            try:
                return await client.subscriber("orders", unsettled=unsettled or {})
            except AttachRefused as refused:
                if not refused.is_passing or time.monotonic() > ends_at:
                    raise
                client.cut()
                await client.closed()
                await asyncio.sleep(POLL_S)

    async def publisher(self, name: str) -> RawPublisher:
        return await (await RawClient.connect(self._ports[1], name)).publisher("orders")

    async def expired(self, name: str, tag: bytes) -> None:
        """The publisher learns that the outcome of this delivery is unknown (A-5)."""
        client = await RawClient.connect(self._ports[1], name)
        link = client.session.attach_sender(
            "pub",
            source=Source(address="pub"),
            target=Target(address="orders"),
            unsettled={tag: None},
            desired_capabilities=[EXACTLY_ONCE],
        )
        client.flush()
        refused = await client.detached(link)
        assert refused.error is not None
        assert refused.error.condition == "oncewire:session-expired"
        assert (refused.error.info or {}).get(Symbol("x-opt-topic-resume")) == "expired"
        client.cut()
        await client.closed()


@pytest.mark.slow
async def test_after_a_restore_and_a_new_nonce_everybody_is_reported_and_no_message_is_taken_for_another(
    tmp_path: Path,
) -> None:
    async with BackedUpEtcd(tmp_path) as etcd:
        network = network_of(etcd, tmp_path)
        clients = Clients(network)
        async with network:
            old_subscriber = await clients.subscriber("store")
            old_publisher = await clients.publisher("box")
            await etcd.back_up()
            new_subscriber = await clients.subscriber("late-store")
            new_publisher = await clients.publisher("late-box")
            old_publisher.send(b"t0", b"old")
            new_publisher.send(b"t0", b"new")
            # Both processed both; that they did is known to nobody but to their maps.
            maps: dict[str, dict[bytes, Any]] = {}
            for name, subscriber in (("store", old_subscriber), ("late-store", new_subscriber)):
                deliveries = [await subscriber.delivery() for _ in range(2)]
                assert {decode_message(delivery.payload).body for delivery in deliveries} == {b"old", b"new"}
                maps[name] = {delivery.tag: ACCEPTED for delivery in deliveries}
            incarnations = {"store": old_subscriber.incarnation, "late-store": new_subscriber.incarnation}
        await etcd.go_back()
        before = await oncewire_cluster("show", f"--etcd={etcd.urls[0]}")
        assert (before["subscriptions"], before["publishers"], before["ended_sessions"]) == (1, 1, 0)
        reported = await oncewire_cluster("new-nonce", f"--etcd={etcd.urls[0]}")
        assert reported["nonce"] != before["nonce"]
        assert (reported["subscriptions"], reported["publishers"], reported["ended_sessions"]) == (1, 1, 1)
        async with network:
            # Also the one whose session is in the backup: its subscribers' maps hold t0 under the former nonce.
            await clients.expired("box", b"t0")
            await clients.expired("late-box", b"t0")
            subscribers = []
            for name, unsettled in maps.items():
                subscriber = await clients.subscriber(name, unsettled)
                assert subscriber.incarnation != incarnations[name], "a new incarnation shows it"
                assert set(subscriber.reply.unsettled or {}) == set(unsettled), "kept until the application decides"
                subscribers.append(subscriber)
            for name, body in (("box", b"old"), ("late-box", b"new")):
                publisher = await clients.publisher(name)
                publisher.send(b"t0", body)  # in doubt, and its application sends it again
                for subscriber, unsettled in zip(subscribers, maps.values(), strict=True):
                    again = await subscriber.delivery()
                    assert decode_message(again.payload).body == body
                    assert again.tag not in unsettled, "a new message, and not one the map answers for"
                    subscriber.accept(again)
                assert (await publisher.outcome(b"t0")).state == ACCEPTED
        assert_no_internal_error(tmp_path)


@pytest.mark.parametrize("store", ["gateway", pytest.param("etcd3", marks=pytest.mark.slow)])
async def test_routers_that_live_through_a_restore_end_and_wait_for_a_new_nonce(tmp_path: Path, store: str) -> None:
    async with BackedUpEtcd(tmp_path) as etcd, network_of(etcd, tmp_path, store) as network:
        clients = Clients(network)
        subscriber = await clients.subscriber("store")
        publisher = await clients.publisher("box")
        await etcd.back_up()
        await clients.subscriber("late-store")
        await etcd.go_back()
        await subscriber.client.closed()
        await publisher.client.closed()
        # etcd is healthy and takes their leases; only their memory of its revisions shows it.
        for name in network.routers:
            log = tmp_path / f"{name}.log"

            async def logged(log: Path = log) -> str:
                return await asyncio.to_thread(log.read_text)

            await until(logged, lambda text: "new-nonce" in text)
        reported = await oncewire_cluster("new-nonce", f"--etcd={etcd.urls[0]}")
        assert reported["ended_sessions"] == 1
        for name in network.routers:
            await network.wait_ready(name)
        await clients.expired("box", b"t0")
        again = await clients.subscriber("store")
        assert again.incarnation != subscriber.incarnation
        assert_no_internal_error(tmp_path)


async def test_a_snapshot_restored_under_the_same_name_address_and_token_is_refused_until_there_is_a_new_nonce(
    tmp_path: Path,
) -> None:
    async with BackedUpEtcd(tmp_path) as etcd:
        network = network_of(etcd, tmp_path)
        async with network:
            clients = Clients(network)
            for number in range(12):
                await clients.subscriber(f"store-{number}")
            await etcd.back_up()
            await clients.subscriber("late-store")
        before = await oncewire_cluster("show", f"--etcd={etcd.urls[0]}")
        assert (before["needs_new_nonce"], before["why"]) == (False, "")
        await etcd.go_back()
        found = await oncewire_cluster("show", f"--etcd={etcd.urls[0]}")
        assert found["etcd_id"] == before["etcd_id"], "to its clients it is the same etcd"
        assert found["needs_new_nonce"] is True
        assert "shorter than its revisions" in found["why"]
        assert await doctor_says(etcd) == [("failed", f"its data have no new nonce: {found['why']}")]
        await refuses_to_start(etcd)
        reported = await oncewire_cluster("new-nonce", f"--etcd={etcd.urls[0]}")
        assert reported["needs_new_nonce"] is False
        assert await doctor_says(etcd) == []
        async with network:
            pass


@pytest.mark.slow
async def test_older_data_put_back_are_refused_by_a_router_that_remembers_and_then_by_all_others(
    tmp_path: Path,
) -> None:
    memory = tmp_path / "memory"
    async with BackedUpEtcd(tmp_path) as etcd:
        network = network_of(etcd, tmp_path, memory=str(memory))
        async with network:
            await etcd.copy()
            for name in network.routers:
                await network.wait_ready(name)
            await Clients(network).subscriber("late-store")
        await etcd.put_copy_back()
        assert (await oncewire_cluster("show", f"--etcd={etcd.urls[0]}"))["needs_new_nonce"] is False
        async with running_router("--etcd", etcd.urls[0], "--id=forgetful", "--log-level=info") as forgetful:
            client = await RawClient.connect(forgetful.port, "store")
            await client.subscriber("orders")
            await refuses_to_start(etcd, "--id=r1", f"--etcd-memory-folder={memory}")
            await client.closed()
            await until(
                lambda: forgetful.get("/readyz"),
                lambda answer: answer[0] == 503 and "oncewire cluster new-nonce" in str(answer[1]["waiting_for"]),
            )
        found = await oncewire_cluster("show", f"--etcd={etcd.urls[0]}")
        assert "after it was at" in found["why"], "also when new revisions hide it"
        await refuses_to_start(etcd)
        await oncewire_cluster("new-nonce", f"--etcd={etcd.urls[0]}")
        async with network:
            pass


@pytest.mark.slow
async def test_an_emptied_etcd_is_refused_by_a_router_that_remembers_until_an_operator_begins_anew(
    tmp_path: Path,
) -> None:
    memory = tmp_path / "memory"
    async with BackedUpEtcd(tmp_path) as etcd:
        network = network_of(etcd, tmp_path, memory=str(memory))
        async with network:
            first = await oncewire_cluster("show", f"--etcd={etcd.urls[0]}")
        await etcd.wipe()
        said = await refuses_to_start(etcd, "--id=r1", f"--etcd-memory-folder={memory}")
        assert "its data was lost" in said
        found = await oncewire_cluster("show", f"--etcd={etcd.urls[0]}")
        assert found["nonce"] is None
        # A router that remembers nothing begins anew by itself. Whoever remembers still asks an operator.
        async with running_router("--etcd", etcd.urls[0], "--id=forgetful"):
            assert "its data was lost" in await refuses_to_start(etcd, "--id=r1", f"--etcd-memory-folder={memory}")
        reported = await oncewire_cluster("new-nonce", f"--etcd={etcd.urls[0]}")
        assert reported["nonce"] != first["nonce"]
        async with network:
            pass


async def test_a_damaged_memory_is_not_taken_for_none(tmp_path: Path) -> None:
    (tmp_path / "r1.json").write_text("{")
    async with BackedUpEtcd(tmp_path) as etcd:
        flags = ("--id=r1", f"--etcd-memory-folder={tmp_path}")
        said = await refuses_to_start(etcd, *flags, about="oncewire cluster show")
        assert str(tmp_path / "r1.json") in said


@pytest.mark.slow
async def test_data_restored_into_another_etcd_cluster_are_refused_until_there_is_a_new_nonce(tmp_path: Path) -> None:
    async with BackedUpEtcd(tmp_path) as etcd:
        network = network_of(etcd, tmp_path)
        async with network:
            await etcd.back_up()
        await etcd.go_back(token="restored")
        found = await oncewire_cluster("show", f"--etcd={etcd.urls[0]}")
        assert found["needs_new_nonce"] is True
        await refuses_to_start(etcd)
        reported = await oncewire_cluster("new-nonce", f"--etcd={etcd.urls[0]}")
        assert reported["needs_new_nonce"] is False
        async with network:
            pass


async def test_a_new_nonce_is_refused_while_routers_are_at_work_and_can_be_forced(tmp_path: Path) -> None:
    async with LocalNetwork(1, log_folder=tmp_path, log_level="info") as network:
        url = network.etcd_urls[0]
        group = click.Group("oncewire", commands={"cluster": cluster})
        refused = await asyncio.to_thread(
            CliRunner().invoke, group, ["cluster", "new-nonce", f"--etcd={url}", "--wait=0"]
        )
        assert refused.exit_code == 2
        assert "r1" in refused.output
        assert "stop all routers" in refused.output
        client = await RawClient.connect(network.routers["r1"].amqp_port, "store")
        subscriber = await client.subscriber("orders")
        before = await oncewire_cluster("show", f"--etcd={url}")
        reported = await oncewire_cluster("new-nonce", f"--etcd={url}", "--force")
        assert reported["nonce"] != before["nonce"]
        await client.closed()
        await network.wait_ready("r1")
        client = await RawClient.connect(network.routers["r1"].amqp_port, "store")
        assert (await client.subscriber("orders")).incarnation != subscriber.incarnation


@pytest.mark.parametrize("command", ["show", "new-nonce"])
async def test_without_an_etcd_the_command_says_so(command: str) -> None:
    group = click.Group("oncewire", commands={"cluster": cluster})
    refused = await asyncio.to_thread(CliRunner().invoke, group, ["cluster", command, "--etcd=http://127.0.0.1:1"])
    assert refused.exit_code == 2
    assert "http://127.0.0.1:1" in refused.output
    assert "--etcd" in refused.output
