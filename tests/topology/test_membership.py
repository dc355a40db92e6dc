"""K-1 to K-4, K-7, K-8: a router joins, follows the watch, stops in time and leaves, with real leases in real time."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from delivery_records.model.inputs import StoreHealth, ViewChanges, ViewSnapshot
from delivery_records.model.tags import link_key
from delivery_records.model.view import Change, Kind, PublisherRecord, RouterRecord, View
from tests.support.stores import DEADLINE_S
from tests.support.waiting import eventually
from topology.etcd.gateway_http import GatewayOptions
from topology.etcd.gateway_store import GatewayStore
from topology.etcd.memory_store import MemoryEtcd
from topology.etcd.server import EtcdServer
from topology.etcd.store import PREFIX, UNCONDITIONAL, ClusterStore, StoreRejected, StoreUnavailable
from topology.keys.attachments import CLUSTER_KEY, encode_record, router_store_key, store_key
from topology.keys.epochs import epoch_of, revision_of
from topology.members import keep_alive
from topology.members.lease_clock import FENCE_FRACTION
from topology.members.membership import FenceReason, Membership, MembershipInput

TTL_S = 10
# For tests that wait for its end.
SHORT_TTL_S = 3
RECORD = RouterRecord("node", 0, "127.0.0.1:1", "amqp://127.0.0.1:2")
PUBLISHER = PublisherRecord("container", "link", "orders", 1, "1/1")
KEY = link_key("container", "link")


class Network:
    """A store all keys of which belong to one network, as the routers of a test share it."""

    def __init__(self, open_store: Callable[[], ClusterStore], memory: MemoryEtcd | None, etcd: EtcdServer) -> None:
        self.open_store = open_store
        self._memory = memory
        self._etcd = etcd

    async def cut_off(self) -> None:
        if self._memory is not None:
            self._memory.faults.unavailable = True
        else:
            await self._etcd.kill()

    async def restore(self) -> None:
        if self._memory is not None:
            self._memory.faults.unavailable = False
            self._memory.wake_watches()
        else:
            await self._etcd.restart()

    async def clear(self) -> None:
        store = self.open_store()
        for stored in (await store.snapshot(PREFIX))[1]:
            await store.compare_and_delete(stored.key, stored.mod_revision)
        await store.close()


@pytest.fixture(params=["memory", "gateway"])
async def network(request: pytest.FixtureRequest, etcd: EtcdServer) -> AsyncIterator[Network]:
    if request.param == "memory":
        memory = MemoryEtcd()
        yield Network(memory.client, memory, etcd)
        return
    options = GatewayOptions(call_timeout_s=1.0, watch_silence_s=0.5)
    made = Network(lambda: GatewayStore(etcd.urls, options), None, etcd)
    yield made
    await made.clear()


class Follower:
    """What a membership hands over, and how it ended."""

    def __init__(self, membership: Membership) -> None:
        self.membership = membership
        self.inputs: list[MembershipInput] = []
        self.view = View()
        self.task = asyncio.create_task(membership.follow(self._on_inputs))

    def _on_inputs(self, inputs: list[MembershipInput]) -> None:
        self.inputs += inputs
        for given in inputs:
            if isinstance(given, ViewSnapshot):
                for change in self.view.difference(list(given.entries)):
                    self.view.apply(change)
                self.view.applied = given.revision
            elif isinstance(given, ViewChanges):
                assert given.revision > self.view.applied
                for change in given.changes:
                    self.view.apply(change)
                self.view.applied = given.revision

    async def ended(self) -> FenceReason:
        async with asyncio.timeout(DEADLINE_S):
            return await self.task

    @property
    def health(self) -> list[bool]:
        return [given.available for given in self.inputs if isinstance(given, StoreHealth)]


@asynccontextmanager
async def member(network: Network, node_id: str = "node", ttl_s: int = TTL_S) -> AsyncIterator[Follower]:
    """A router that has joined and follows."""
    record = RouterRecord(node_id, 0, "127.0.0.1:1", "amqp://127.0.0.1:2")
    membership = await Membership.join(network.open_store, record, ttl_s)
    follower = Follower(membership)
    try:
        await eventually(lambda: membership.is_joined or follower.task.done(), "the router has joined")
        yield follower
    finally:
        follower.task.cancel()
        await asyncio.gather(follower.task, return_exceptions=True)
        await membership.close()


async def write(network: Network, key: str, value: bytes) -> int:
    """Returns the epoch."""
    store = network.open_store()
    result = await store.compare_and_put(key, value, UNCONDITIONAL)
    await store.close()
    return epoch_of(result.revision)


async def delete(network: Network, key: str) -> None:
    store = network.open_store()
    found = await store.get(key)
    assert found is not None
    assert (await store.compare_and_delete(key, found.mod_revision)).succeeded
    await store.close()


async def test_the_first_thing_reported_is_a_snapshot_that_holds_the_routers_own_key(network: Network) -> None:
    await write(network, store_key(f"pubs/{KEY}"), encode_record(PUBLISHER))
    async with member(network) as follower:
        health, snapshot = follower.inputs[:2]
        assert health == StoreHealth(True)
        assert isinstance(snapshot, ViewSnapshot)
        rid = follower.membership.rid
        own = follower.view.routers[rid]
        assert own.record == RouterRecord("node", rid, "127.0.0.1:1", "amqp://127.0.0.1:2")
        assert snapshot.revision >= own.create_revision
        assert follower.view.publishers[KEY].record == PUBLISHER


async def test_the_incarnation_is_the_id_of_the_lease_its_key_lives_under(network: Network) -> None:
    async with member(network) as follower:
        store = network.open_store()
        found = await store.get(router_store_key(RouterRecord("node", follower.membership.rid)))
        assert found is not None
        assert found.lease == follower.membership.rid
        await store.close()


async def test_changes_follow_the_snapshot_without_a_gap(network: Network) -> None:
    async with member(network) as follower:
        epochs = [await write(network, store_key(f"pubs/{KEY}"), encode_record(PUBLISHER)) for _ in range(20)]
        await eventually(lambda: follower.view.applied >= epochs[-1], "all changes are applied")
        changes = [c for given in follower.inputs if isinstance(given, ViewChanges) for c in given.changes]
        assert [change.mod_revision for change in changes] == epochs
        assert changes[0] == Change(Kind.PUBLISHER, KEY, PUBLISHER, epochs[0], epochs[0])


async def test_routers_see_each_other_and_share_the_nonce(network: Network) -> None:
    async with member(network, "a") as one, member(network, "b") as other:
        rids = {one.membership.rid, other.membership.rid}
        assert len(rids) == 2
        await eventually(lambda: set(one.view.routers) == set(other.view.routers) == rids, "both see both")
        assert one.membership.nonce == other.membership.nonce
        assert len(one.membership.nonce) == 4


async def test_routers_that_start_a_network_at_once_agree_on_the_nonce(network: Network) -> None:
    joined = await asyncio.gather(*(Membership.join(network.open_store, RECORD, TTL_S) for _ in range(6)))
    assert len({membership.nonce for membership in joined}) == 1
    await asyncio.gather(*(membership.close() for membership in joined))


async def test_a_key_that_makes_no_sense_is_skipped_and_the_rest_goes_on(network: Network) -> None:
    await write(network, store_key(f"subs/{KEY}"), b"rubbish")
    async with member(network) as follower:
        await write(network, store_key("routers/nonsense"), b"{}")
        last = await write(network, store_key(f"pubs/{KEY}"), encode_record(PUBLISHER))
        await eventually(lambda: follower.view.applied >= last, "the good key is applied")
        assert list(follower.view.publishers) == [KEY]
        assert not follower.view.subscriptions


# --- K-3


async def test_a_router_whose_key_is_deleted_fences_itself(network: Network) -> None:
    async with member(network) as follower:
        assert follower.membership.vet(time.monotonic())
        await delete(network, router_store_key(RouterRecord("node", follower.membership.rid)))
        assert await follower.ended() is FenceReason.KEY_DELETED
        assert not follower.membership.vet(time.monotonic())
        # What made it stop is not handed over: the core of this incarnation handles nothing any more.
        assert follower.membership.rid in follower.view.routers


async def test_a_router_whose_lease_is_revoked_fences_itself(network: Network) -> None:
    async with member(network) as follower:
        store = network.open_store()
        await store.revoke(follower.membership.rid)
        await store.close()
        assert await follower.ended() in (FenceReason.KEY_DELETED, FenceReason.DEADLINE)
        assert not follower.membership.vet(time.monotonic())


async def test_an_outage_shorter_than_the_deadline_fences_no_router_and_is_logged(network: Network) -> None:
    async with member(network) as follower:
        rid = follower.membership.rid
        await network.cut_off()
        await eventually(lambda: follower.health[-1] is False, "the outage is reported")
        assert follower.membership.vet(time.monotonic())
        await network.restore()
        await eventually(lambda: follower.health[-1] is True, "its end is reported")
        assert follower.health == [True, False, True]
        last = await write(network, store_key(f"pubs/{KEY}"), encode_record(PUBLISHER))
        await eventually(lambda: follower.view.applied >= last, "the watch goes on")
        assert follower.membership.rid == rid
        assert not follower.task.done()
        assert follower.membership.vet(time.monotonic())


async def test_an_outage_longer_than_the_deadline_fences_before_the_lease_can_end(network: Network) -> None:
    async with member(network, ttl_s=SHORT_TTL_S) as follower:
        cut_at = time.monotonic()
        await network.cut_off()
        assert follower.membership.lease_left() <= FENCE_FRACTION * SHORT_TTL_S
        assert await follower.ended() is FenceReason.DEADLINE
        assert follower.membership.lease_left() == 0.0
        assert not follower.membership.vet(cut_at)
        await network.restore()


async def test_an_event_loop_stalled_beyond_the_lease_keeps_it(network: Network) -> None:
    async with member(network, ttl_s=SHORT_TTL_S) as follower:
        time.sleep(SHORT_TTL_S * 1.5)  # noqa: ASYNC251  (the stall is the point)
        assert follower.membership.vet(time.monotonic())
        last = await write(network, store_key(f"pubs/{KEY}"), encode_record(PUBLISHER))
        await eventually(lambda: follower.view.applied >= last, "the router goes on")
        assert follower.membership.rid in follower.view.routers


async def test_an_event_loop_stalled_for_too_long_loses_its_lease(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with member(network, ttl_s=SHORT_TTL_S) as follower:
        await asyncio.sleep(0)
        monkeypatch.setattr(keep_alive, "STALL_LIMIT_S", 0.2)
        time.sleep(1.5)  # noqa: ASYNC251  (as above)
        assert not follower.membership.vet(time.monotonic())
        assert await follower.ended() is FenceReason.DEADLINE


async def test_a_loop_that_runs_keeps_its_lease_however_long(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keep_alive, "STALL_LIMIT_S", 1.0)
    monkeypatch.setattr("topology.members.membership.PULSE_S", 0.1)
    async with member(network, ttl_s=SHORT_TTL_S) as follower:
        await asyncio.sleep(2.5)
        assert follower.membership.vet(time.monotonic())


async def test_a_process_stopped_beyond_its_lease_fences_itself_when_it_goes_on(etcd: EtcdServer) -> None:
    program = """
import asyncio, sys, time
from delivery_records.model.view import RouterRecord
from topology.etcd.gateway_store import GatewayStore
from topology.members.membership import Membership
async def main():
    membership = await Membership.join(lambda: GatewayStore([sys.argv[1]]), RouterRecord("stopped", 0), 2)
    print(f"{membership.rid:x}", flush=True)
    reason = await membership.follow(lambda inputs: print("reported", flush=True))
    print(reason.value, membership.vet(time.monotonic()), flush=True)
    await membership.close()
asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, etcd.urls[0], stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    rid = int(await process.stdout.readline(), 16)
    assert await process.stdout.readline() == b"reported\n"
    process.send_signal(signal.SIGSTOP)
    store = GatewayStore(etcd.urls)

    async def is_gone() -> bool:
        return await store.get(router_store_key(RouterRecord("stopped", rid))) is None

    await eventually(is_gone, "the lease ends")
    process.send_signal(signal.SIGCONT)
    async with asyncio.timeout(DEADLINE_S):
        *_, last = (await process.stdout.read()).decode().splitlines()
        assert await process.wait() == 0
    assert last in ("deadline False", "key_deleted False")
    await store.close()


async def test_another_nonce_in_the_store_ends_the_incarnation(network: Network) -> None:
    async with member(network) as follower:
        await write(network, CLUSTER_KEY, b'{"nonce": "00000000"}')
        assert await follower.ended() is FenceReason.CLUSTER_CHANGED
    async with member(network) as follower:
        assert follower.membership.nonce == bytes(4)
        await delete(network, CLUSTER_KEY)
        assert await follower.ended() is FenceReason.CLUSTER_CHANGED


async def test_an_unreadable_nonce_is_named(network: Network) -> None:
    await write(network, CLUSTER_KEY, b"rubbish")
    with pytest.raises(StoreRejected, match="new-nonce"):
        await Membership.join(network.open_store, RECORD, TTL_S)


# --- K-4


async def test_a_watch_that_fell_behind_compaction_is_replaced_by_a_snapshot() -> None:
    memory = MemoryEtcd()
    network = Network(memory.client, memory, None)  # type: ignore[arg-type]
    async with member(network) as follower:
        memory.faults.hold_watches = True
        await write(network, store_key(f"pubs/{KEY}"), encode_record(PUBLISHER))
        await delete(network, store_key(f"pubs/{KEY}"))
        last = await write(network, store_key(f"subs/{KEY}"), b"rubbish")
        memory.compact(revision_of(last))
        memory.faults.hold_watches = False
        memory.wake_watches()
        await eventually(lambda: follower.view.applied >= last, "the snapshot is handed over")
        assert isinstance(follower.inputs[-1], ViewSnapshot)
        assert not follower.view.publishers
        last = await write(network, store_key(f"pubs/{KEY}"), encode_record(PUBLISHER))
        await eventually(lambda: follower.view.applied >= last, "the new watch goes on")


async def test_a_snapshot_with_another_nonce_ends_the_incarnation() -> None:
    memory = MemoryEtcd()
    network = Network(memory.client, memory, None)  # type: ignore[arg-type]
    async with member(network) as follower:
        memory.faults.hold_watches = True
        memory.compact(revision_of(await write(network, CLUSTER_KEY, b'{"nonce": "00000000"}')))
        memory.faults.hold_watches = False
        memory.wake_watches()
        assert await follower.ended() is FenceReason.CLUSTER_CHANGED


async def test_a_snapshot_without_the_routers_own_key_ends_the_incarnation() -> None:
    memory = MemoryEtcd()
    network = Network(memory.client, memory, None)  # type: ignore[arg-type]
    async with member(network) as follower:
        memory.faults.hold_watches = True
        await delete(network, router_store_key(RouterRecord("node", follower.membership.rid)))
        memory.compact(revision_of(await write(network, store_key(f"pubs/{KEY}"), encode_record(PUBLISHER))))
        memory.faults.hold_watches = False
        memory.wake_watches()
        assert await follower.ended() is FenceReason.KEY_DELETED


# --- start and end


@pytest.mark.parametrize("fault", ["lose_answers", "lose_requests", "unavailable"])
async def test_a_first_put_of_unknown_fate_is_repeated(fault: str) -> None:
    memory = MemoryEtcd()
    network = Network(memory.client, memory, None)  # type: ignore[arg-type]
    membership = await Membership.join(network.open_store, RECORD, TTL_S)
    setattr(memory.faults, fault, True)
    follower = Follower(membership)
    await asyncio.sleep(0.3)
    assert not follower.inputs
    setattr(memory.faults, fault, False)
    await eventually(lambda: membership.is_joined, "the router has joined")
    assert set(follower.view.routers) == {membership.rid}
    follower.task.cancel()
    await membership.close()


async def test_who_leaves_says_so_first_and_its_key_is_gone_at_once(network: Network) -> None:
    async with member(network, "other") as other, member(network) as follower:
        rid = follower.membership.rid
        await eventually(lambda: rid in other.view.routers, "the others see it")
        await follower.membership.leave()
        await eventually(lambda: rid not in other.view.routers, "its key is gone")
        reported = [
            change
            for given in other.inputs
            if isinstance(given, ViewChanges)
            for change in given.changes
            if change.key.endswith(f".{rid:x}")
        ]
        leaving, gone = reported[-2:]
        assert isinstance(leaving.record, RouterRecord)
        assert leaving.record.leaving
        assert gone.record is None


async def test_leaving_without_a_store_takes_no_longer_than_its_time_limit(network: Network) -> None:
    async with member(network) as follower:
        await network.cut_off()
        async with asyncio.timeout(DEADLINE_S):
            await follower.membership.leave()
        await network.restore()


async def test_an_incarnation_that_is_over_makes_nobody_wait_for_its_lease(network: Network) -> None:
    async with member(network, "other", ttl_s=60) as other:
        async with member(network, ttl_s=60) as follower:
            rid = follower.membership.rid
            await eventually(lambda: rid in other.view.routers, "the others see it")
        await eventually(lambda: rid not in other.view.routers, "its key is gone")


async def test_a_fenced_router_joins_again_as_a_new_incarnation(network: Network) -> None:
    async with member(network) as follower:
        first = follower.membership.rid
        await delete(network, router_store_key(RouterRecord("node", first)))
        await follower.ended()
    async with member(network) as follower:
        assert follower.membership.rid != first
        assert set(follower.view.routers) == {follower.membership.rid}


async def test_joining_without_a_store_fails_and_leaves_no_thread(unused_tcp_port: int) -> None:
    before = threading.active_count()
    with pytest.raises(StoreUnavailable):
        await Membership.join(lambda: GatewayStore([f"http://127.0.0.1:{unused_tcp_port}"]), RECORD, TTL_S)
    assert threading.active_count() == before


async def test_no_thread_and_no_connection_outlives_a_membership(network: Network) -> None:
    def threads() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name == "lease keep-alive"]

    async with member(network):
        assert threads()
    assert not threads()
