"""A new life of the cluster's data (K-9), written over what is there, whatever that is."""

from __future__ import annotations

import pytest

from delivery_records.model.view import PublisherRecord, RouterRecord
from tests.support.stores import MemoryPlace
from topology.etcd.memory_store import MemoryEtcd, MemoryStore
from topology.etcd.store import ABSENT, UNCONDITIONAL, Beside, PutResult, Stored, StoreReplaced, StoreTimeout
from topology.keys.attachments import CLUSTER_KEY, decode_life, encode_record, router_store_key, store_key
from topology.members.cluster import ChangedMeanwhile, RoutersLive, begin_new_life, read_cluster
from topology.members.history_core import SeenHistory
from topology.members.membership import Membership

ROUTER = RouterRecord("r1", 5)
PUBLISHER = PublisherRecord("box", "pub", "orders", 5, "1/1", session=1)


@pytest.mark.parametrize("value", [None, b"rubbish", b'{"nonce": "00000000"}'], ids=["absent", "unreadable", "old"])
async def test_a_new_life_replaces_whatever_was_there(value: bytes | None) -> None:
    store = MemoryEtcd(cluster_id=7).client()
    if value is not None:
        await store.compare_and_put(CLUSTER_KEY, value, ABSENT)
    state = await begin_new_life(store)
    found = await store.get(CLUSTER_KEY)
    assert found is not None
    assert decode_life(found.value) == state.life
    assert state.life is not None
    assert state.life.nonce != bytes(4)
    assert state.life.etcd_id == 7
    assert state.life_revision == found.mod_revision
    assert not state.why_restored


async def test_two_new_lives_of_one_network_differ() -> None:
    store = MemoryEtcd().client()
    first, second = await begin_new_life(store), await begin_new_life(store)
    assert first.life is not None
    assert second.life is not None
    assert first.life.nonce != second.life.nonce
    assert second.life_revision > first.life_revision


async def test_while_a_router_key_is_there_nothing_is_written_unless_it_is_forced() -> None:
    store = MemoryEtcd().client()
    await store.compare_and_put(router_store_key(ROUTER), encode_record(ROUTER), ABSENT)
    with pytest.raises(RoutersLive) as refused:
        await begin_new_life(store)
    assert [record.node_id for record in refused.value.routers.values()] == ["r1"]
    assert await store.get(CLUSTER_KEY) is None
    assert (await begin_new_life(store, force=True)).life is not None


async def test_router_keys_of_a_backup_are_waited_for_until_their_leases_have_ended() -> None:
    place = MemoryPlace()
    store = place.etcd.client()
    lease = await store.grant_lease(10)
    await store.compare_and_put(router_store_key(ROUTER), encode_record(ROUTER), ABSENT, lease)

    class Passing(MemoryStore):
        """Each look takes four seconds."""

        async def snapshot(self, prefix: str) -> tuple[int, list[Stored]]:
            await place.pass_time(4)
            return await super().snapshot(prefix)

    assert (await begin_new_life(Passing(place.etcd), wait_s=60)).routers == {}


async def test_somebody_elses_new_nonce_is_not_written_over() -> None:
    etcd = MemoryEtcd()

    class Rival(MemoryStore):
        """Another operator is quicker."""

        async def compare_and_put(
            self,
            key: str,
            value: bytes,
            expect_mod_revision: int | None,
            lease_id: int = 0,
            beside: Beside | None = None,
        ) -> PutResult:
            await etcd.client().compare_and_put(key, b'{"nonce": "01020304"}', UNCONDITIONAL)
            return await super().compare_and_put(key, value, expect_mod_revision, lease_id, beside)

    with pytest.raises(ChangedMeanwhile):
        await begin_new_life(Rival(etcd))


async def test_a_write_whose_answer_was_lost_is_looked_up() -> None:
    etcd = MemoryEtcd()
    store = etcd.client()
    store.faults.lose_answers = True
    state = await begin_new_life(store)
    assert state.life is not None
    store.faults.lose_answers, store.faults.lose_requests = False, True
    with pytest.raises(StoreTimeout):
        await begin_new_life(store)
    assert (await read_cluster(store)).life == state.life


async def test_sessions_older_than_the_nonce_are_counted_as_over() -> None:
    store = MemoryEtcd().client()
    await store.compare_and_put(store_key("pubs/" + "0" * 40), encode_record(PUBLISHER), ABSENT)
    assert (await begin_new_life(store)).ended_sessions == 1
    await store.compare_and_put(store_key("pubs/" + "1" * 40), encode_record(PUBLISHER), ABSENT)
    state = await read_cluster(store)
    assert (state.publishers, state.ended_sessions) == (2, 2)


async def test_data_that_began_in_another_etcd_cluster_are_joined_only_with_a_new_nonce() -> None:
    etcd = MemoryEtcd(cluster_id=7)
    await (await Membership.join(etcd.client, ROUTER)).close()
    etcd.cluster_id = 8
    assert (await read_cluster(etcd.client())).why_restored
    with pytest.raises(StoreReplaced, match="new-nonce"):
        await Membership.join(etcd.client, ROUTER)
    await begin_new_life(etcd.client())
    await (await Membership.join(etcd.client, ROUTER)).close()


async def grown(writes: int, nonce: bytes = b"") -> MemoryEtcd:
    """An etcd whose history goes on after its first router, and the same nonce as another's."""
    etcd = MemoryEtcd()
    store = etcd.client()
    await store.compare_and_put(CLUSTER_KEY, nonce or b'{"nonce": "01020304"}', ABSENT)
    for number in range(writes):
        await store.compare_and_put(store_key(f"other/{writes}"), b"%d" % number, UNCONDITIONAL)
    return etcd


@pytest.mark.parametrize("writes", [1, 5, 6, 30], ids=["behind", "level", "one-ahead", "far-ahead"])
async def test_a_process_joins_no_history_that_is_not_the_one_it_has_seen(writes: int) -> None:
    first = await grown(5)
    seen = SeenHistory()
    (_, stored), nonce = await first.client().snapshot("/"), bytes.fromhex("01020304")
    async for batch in first.client().watch("/topics/v1/", stored[-1].mod_revision):
        seen.note(nonce, batch.revision, batch.events[-1])
        break
    # In the same history it may join, however far that has come.
    await (await Membership.join(first.client, ROUTER, seen=seen)).close()
    set_back = await grown(writes)
    if writes != 5:
        with pytest.raises(StoreReplaced, match="new-nonce"):
            await Membership.join(set_back.client, ROUTER, seen=seen)
    # With another nonce it may.
    await begin_new_life(set_back.client())
    await (await Membership.join(set_back.client, ROUTER, seen=seen)).close()
