"""What routers know of etcd's history, and whom they notify (K-9)."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace

import pytest

from delivery_records.model.view import RouterRecord
from topology.etcd.memory_store import MemoryEtcd
from topology.etcd.store import ABSENT, PREFIX, UNCONDITIONAL, EventKind, StoreReplaced, WatchEvent, Write
from topology.keys.attachments import CLUSTER_KEY, LOST_KEY, ClusterLife, encode_life, why_marked
from topology.members.cluster import begin_new_life, read_cluster
from topology.members.history import why_from_snapshot
from topology.members.history_core import KEPT_LIVES, MalformedMemory, SeenHistory, digest, why_restored
from topology.members.membership import FenceReason, Membership

ROUTER = RouterRecord("r1", 5)
FIRST, SECOND = b"\1\2\3\4", b"\5\6\7\x08"
EVENT = WatchEvent(EventKind.PUT, "/topics/v1/cluster", b"secret", 7, 7)


def test_what_is_remembered_survives_a_file_and_holds_no_values() -> None:
    seen = SeenHistory()
    seen.note(FIRST, 7, EVENT)
    seen.note(FIRST, 9, None)
    text = seen.as_text()
    assert "secret" not in text
    again = SeenHistory()
    again.load(text)
    assert again.lives == seen.lives
    last = again.last_event(FIRST)
    assert last is not None
    assert (last.revision, last.last_revision, last.last_digest) == (9, 7, digest(EVENT))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"lives": [{"nonce": "zz"}]}', '{"lives": 5}', "\0"])
def test_a_memory_that_makes_no_sense_is_an_error(text: str) -> None:
    with pytest.raises(MalformedMemory):
        SeenHistory().load(text)


def test_a_history_behind_what_was_seen_is_lost_and_one_that_goes_on_is_not() -> None:
    seen = SeenHistory()
    seen.note(FIRST, 9, EVENT)
    assert "revision 8 after it was at 9" in seen.why_lost(FIRST, 8)
    assert seen.why_lost(FIRST, 9) == ""
    assert seen.why_lost(SECOND, 1) == "", "of another life nothing is known"


def test_a_nonce_that_was_replaced_is_lost_history_however_far_it_has_come() -> None:
    seen = SeenHistory()
    seen.note(FIRST, 9, EVENT)
    seen.note(SECOND, 20, None)
    assert "was replaced" in seen.why_lost(FIRST, 100)


def test_another_life_is_joined_only_when_an_operator_drew_it() -> None:
    seen = SeenHistory()
    assert seen.why_strange(None, is_confirmed=False) == "", "every network begins so"
    assert seen.why_strange(FIRST, is_confirmed=False) == ""
    seen.note(FIRST, 9, EVENT)
    assert seen.why_strange(FIRST, is_confirmed=False) == ""
    assert "new-nonce" in seen.why_strange(None, is_confirmed=False)
    assert "new-nonce" in seen.why_strange(SECOND, is_confirmed=False)
    assert seen.why_strange(SECOND, is_confirmed=True) == ""


def test_the_oldest_lives_are_forgotten() -> None:
    seen = SeenHistory()
    for number in range(KEPT_LIVES + 3):
        seen.note(number.to_bytes(4, "big"), 1, None)
    assert len(seen.lives) == KEPT_LIVES
    assert (3).to_bytes(4, "big") == next(iter(seen.lives))


def test_a_log_that_is_shorter_than_its_revisions_ask_for_was_begun_by_a_restore() -> None:
    assert "4 entries shorter" in why_restored(3, -1)
    for lead, lead_now in ((3, 3), (3, 5), (None, 1), (3, None)):
        assert why_restored(lead, lead_now) == ""


async def joined(etcd: MemoryEtcd, seen: SeenHistory) -> None:
    await (await Membership.join(etcd.client, ROUTER, seen=seen)).close()


async def nonce_of(etcd: MemoryEtcd) -> bytes:
    life = (await read_cluster(etcd.client())).life
    assert life is not None
    return life.nonce


async def test_a_router_that_knows_a_later_past_says_so_to_all_others() -> None:
    etcd, seen = MemoryEtcd(), SeenHistory()
    await joined(etcd, seen)
    seen.note(await nonce_of(etcd), 1000, None)
    with pytest.raises(StoreReplaced, match="after it was at 1000"):
        await joined(etcd, seen)
    for _ in range(2000):
        await etcd.client().compare_and_put("/other", b"", UNCONDITIONAL)
    for others in (seen, SeenHistory()):
        with pytest.raises(StoreReplaced, match="after it was at 1000"):
            await joined(etcd, others)
    assert "after it was at 1000" in (await read_cluster(etcd.client())).why_restored
    assert (await begin_new_life(etcd.client())).why_restored == ""
    await joined(etcd, SeenHistory())


async def test_whichever_event_of_a_transaction_was_seen_last_the_history_that_has_it_goes_on() -> None:
    etcd = MemoryEtcd()
    store = etcd.client()
    await joined(etcd, SeenHistory())
    nonce = await nonce_of(etcd)
    revision, _ = await store.snapshot(PREFIX)
    await store.write_each([Write(f"{PREFIX}subs/{name}", name.encode(), ABSENT) for name in ("a", "b", "c")])
    async with aclosing(store.watch(PREFIX, revision + 1)) as batches:
        batch = await anext(batches)
    assert len(batch.events) == 3
    for event in batch.events:
        seen = SeenHistory()
        seen.note(nonce, batch.revision, event)
        await joined(etcd, seen)
    other = SeenHistory()
    other.note(nonce, batch.revision, replace(batch.events[1], value=b"another"))
    with pytest.raises(StoreReplaced, match="another history"):
        await joined(etcd, other)


async def test_a_router_at_work_ends_when_another_one_says_that_history_was_lost() -> None:
    etcd = MemoryEtcd()
    member = await Membership.join(etcd.client, ROUTER)
    knowing = SeenHistory()
    knowing.note(member.nonce, 1000, None)

    has_begun = asyncio.Event()
    following = asyncio.create_task(member.follow(lambda _inputs: has_begun.set()))
    async with asyncio.timeout(60):
        await has_begun.wait()
        with pytest.raises(StoreReplaced):
            await joined(etcd, knowing)
        assert await following is FenceReason.CLUSTER_CHANGED
    await member.close()


async def test_a_fallen_lead_of_the_log_is_found_without_any_memory_and_kept_for_good() -> None:
    etcd = MemoryEtcd()
    etcd.log_lead = 4
    await joined(etcd, SeenHistory())
    etcd.log_lead = -20  # a snapshot was restored
    assert "24 entries shorter" in (await read_cluster(etcd.client())).why_restored
    with pytest.raises(StoreReplaced, match="shorter"):
        await joined(etcd, SeenHistory())
    etcd.log_lead = 100  # others have written to its log
    with pytest.raises(StoreReplaced, match="shorter"):
        await joined(etcd, SeenHistory())
    await begin_new_life(etcd.client())
    etcd.log_lead = 50
    assert "50 entries shorter" in (await read_cluster(etcd.client())).why_restored
    etcd.log_lead = 100
    await joined(etcd, SeenHistory())


async def test_a_member_that_has_not_come_to_the_nonce_yet_shows_nothing() -> None:
    etcd = MemoryEtcd()
    store = etcd.client()
    life = ClusterLife(FIRST, 1, etcd.cluster_id, log_lead=4)
    put = await store.compare_and_put(CLUSTER_KEY, encode_life(life), ABSENT)
    assert await why_from_snapshot(store, life, put.revision + 1) == ""
    assert await why_from_snapshot(store, life, put.revision) != ""


async def test_an_unreadable_mark_and_one_of_another_life_are_no_reason() -> None:
    assert why_marked(None, FIRST) == ""
    assert why_marked(b"{", FIRST) == ""
    etcd = MemoryEtcd()
    await joined(etcd, SeenHistory())
    await etcd.client().compare_and_put(LOST_KEY, b'{"nonce": "00000000", "why": "x"}', UNCONDITIONAL)
    await joined(etcd, SeenHistory())
