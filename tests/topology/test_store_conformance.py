"""What every store promises (`topology.etcd.store.Store`): one suite for the memory store and a real etcd."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from itertools import pairwise

import pytest

from tests.support.stores import DEADLINE_S, StorePlace, next_batch, watch_events
from tests.support.waiting import eventually
from topology.etcd.store import (
    ABSENT,
    UNCONDITIONAL,
    CompactedError,
    EventKind,
    LeaseLost,
    Stored,
    StoreRejected,
    StoreTimeout,
    StoreUnavailable,
)

TTL_S = 2


async def test_a_read_sees_every_write_that_was_answered_before_it(place: StorePlace) -> None:
    writer, reader = place.client(), place.client()
    key = place.prefix + "a"
    for number in range(20):
        put = await writer.compare_and_put(key, str(number).encode(), UNCONDITIONAL)
        found = await reader.get(key)
        assert found is not None
        assert (found.value, found.mod_revision) == (str(number).encode(), put.revision)


async def test_an_absent_key_reads_as_none(place: StorePlace) -> None:
    assert await place.client().get(place.prefix + "nothing") is None


async def test_values_are_any_bytes(place: StorePlace) -> None:
    store = place.client()
    for value in (b"", bytes(range(256)), b"x" * 100_000):
        await store.compare_and_put(place.prefix + "a", value, UNCONDITIONAL)
        found = await store.get(place.prefix + "a")
        assert found is not None
        assert found.value == value


async def test_create_revision_stays_and_mod_revision_moves_until_the_key_is_deleted(place: StorePlace) -> None:
    store = place.client()
    key = place.prefix + "a"
    first = await store.compare_and_put(key, b"1", ABSENT)
    second = await store.compare_and_put(key, b"2", first.revision)
    assert second.revision > first.revision
    assert await store.get(key) == Stored(key, b"2", first.revision, second.revision, 0)
    assert (await store.compare_and_delete(key, second.revision)).succeeded
    again = await store.compare_and_put(key, b"3", ABSENT)
    assert await store.get(key) == Stored(key, b"3", again.revision, again.revision, 0)


async def test_a_put_that_expects_no_key_fails_when_there_is_one(place: StorePlace) -> None:
    store = place.client()
    key = place.prefix + "a"
    first = await store.compare_and_put(key, b"1", ABSENT)
    assert first.succeeded
    second = await store.compare_and_put(key, b"2", ABSENT)
    assert not second.succeeded
    assert second.revision >= first.revision
    found = await store.get(key)
    assert found is not None
    assert found.value == b"1"


async def test_a_put_that_expects_an_older_revision_fails(place: StorePlace) -> None:
    store = place.client()
    key = place.prefix + "a"
    first = await store.compare_and_put(key, b"1", UNCONDITIONAL)
    await store.compare_and_put(key, b"2", UNCONDITIONAL)
    assert not (await store.compare_and_put(key, b"3", first.revision)).succeeded
    assert not (await store.compare_and_put(place.prefix + "b", b"3", first.revision)).succeeded
    assert await store.get(place.prefix + "b") is None


async def test_one_of_many_compare_and_puts_wins(place: StorePlace) -> None:
    stores = [place.client() for _ in range(8)]
    results = await asyncio.gather(
        *(s.compare_and_put(place.prefix + "a", str(n).encode(), ABSENT) for n, s in enumerate(stores))
    )
    (winner,) = [n for n, result in enumerate(results) if result.succeeded]
    found = await stores[0].get(place.prefix + "a")
    assert found is not None
    assert found.value == str(winner).encode()


async def test_a_delete_needs_the_expected_revision(place: StorePlace) -> None:
    store = place.client()
    key = place.prefix + "a"
    put = await store.compare_and_put(key, b"1", ABSENT)
    assert not (await store.compare_and_delete(key, put.revision - 1)).succeeded
    assert not (await store.compare_and_delete(place.prefix + "b", put.revision)).succeeded
    assert await store.get(key) is not None
    deleted = await store.compare_and_delete(key, put.revision)
    assert deleted.succeeded
    assert deleted.revision > put.revision
    assert await store.get(key) is None
    assert not (await store.compare_and_delete(key, put.revision)).succeeded


async def test_every_write_increases_the_revision_and_no_failed_compare_does(place: StorePlace) -> None:
    store = place.client()
    revisions = []
    for number in range(5):
        key = f"{place.prefix}{number}"
        revisions.append((await store.compare_and_put(key, b"", ABSENT)).revision)
        revisions.append((await store.compare_and_put(key, b"", UNCONDITIONAL)).revision)
        assert (await store.compare_and_put(key, b"", ABSENT)).revision == revisions[-1]
    assert all(later == earlier + 1 for earlier, later in pairwise(revisions))


async def test_a_snapshot_holds_the_keys_under_its_prefix_at_one_revision(place: StorePlace) -> None:
    store = place.client()
    for name in ("b", "a", "c/d", "c"):
        last = await store.compare_and_put(f"{place.prefix}in/{name}", name.encode(), ABSENT)
    await store.compare_and_put(place.prefix + "in", b"beside", ABSENT)
    await store.compare_and_put(place.prefix + "in0", b"behind", ABSENT)
    revision, found = await store.snapshot(place.prefix + "in/")
    assert revision == last.revision + 2
    assert [stored.key.removeprefix(place.prefix) for stored in found] == ["in/a", "in/b", "in/c", "in/c/d"]
    assert all(stored.value.decode() == stored.key.removeprefix(f"{place.prefix}in/") for stored in found)


async def test_a_snapshot_of_nothing_is_empty_and_has_a_revision(place: StorePlace) -> None:
    revision, found = await place.client().snapshot(place.prefix + "nothing/")
    assert found == []
    assert revision >= 1


async def test_clients_of_one_cluster_see_one_cluster_id(place: StorePlace) -> None:
    assert await place.client().cluster_id() == await place.client().cluster_id() != 0


# --- leases


async def test_a_lease_that_is_not_kept_alive_takes_its_keys_with_it(place: StorePlace) -> None:
    store = place.client()
    lease = await store.grant_lease(TTL_S)
    put = await store.compare_and_put(place.prefix + "leased", b"", ABSENT, lease)
    await store.compare_and_put(place.prefix + "free", b"", ABSENT)
    found = await store.get(place.prefix + "leased")
    assert found is not None
    assert found.lease == lease
    await place.pass_time(TTL_S)
    (event,) = await watch_events(store, place.prefix + "leased", put.revision + 1, 1)
    assert (event.kind, event.key) == (EventKind.DELETE, place.prefix + "leased")
    assert await store.get(place.prefix + "leased") is None
    assert await store.get(place.prefix + "free") is not None
    with pytest.raises(LeaseLost):
        await store.keep_alive(lease)


async def test_keep_alives_hold_a_lease_beyond_its_time_to_live(place: StorePlace) -> None:
    store = place.client()
    lease = await store.grant_lease(TTL_S)
    await store.compare_and_put(place.prefix + "a", b"", ABSENT, lease)
    for _ in range(9):
        assert await store.keep_alive(lease) >= TTL_S
        await place.pass_time(TTL_S / 6)
    assert await store.get(place.prefix + "a") is not None


async def test_a_revoked_lease_deletes_its_keys_in_one_revision(place: StorePlace) -> None:
    store = place.client()
    lease = await store.grant_lease(60)
    for name in ("a", "b", "c"):
        put = await store.compare_and_put(place.prefix + name, b"", ABSENT, lease)
    await store.revoke(lease)
    async with aclosing(store.watch(place.prefix, put.revision + 1)) as batches:
        batch = await next_batch(batches)
    assert sorted(event.key for event in batch.events) == [place.prefix + name for name in ("a", "b", "c")]
    assert {event.mod_revision for event in batch.events} == {batch.revision}
    assert {event.kind for event in batch.events} == {EventKind.DELETE}


async def test_revoking_twice_is_no_error(place: StorePlace) -> None:
    store = place.client()
    lease = await store.grant_lease(60)
    await store.revoke(lease)
    await store.revoke(lease)


async def test_nothing_can_be_put_under_a_lease_that_is_gone(place: StorePlace) -> None:
    store = place.client()
    lease = await store.grant_lease(60)
    await store.revoke(lease)
    for expect in (ABSENT, UNCONDITIONAL):
        with pytest.raises(LeaseLost) as caught:
            await store.compare_and_put(place.prefix + "a", b"", expect, lease)
        assert caught.value.lease_id == lease
    with pytest.raises(LeaseLost):
        await store.keep_alive(lease)
    assert await store.get(place.prefix + "a") is None


async def test_a_key_that_was_put_again_without_the_lease_outlives_it(place: StorePlace) -> None:
    store = place.client()
    lease = await store.grant_lease(60)
    await store.compare_and_put(place.prefix + "a", b"", ABSENT, lease)
    await store.compare_and_put(place.prefix + "a", b"", UNCONDITIONAL)
    await store.revoke(lease)
    assert await store.get(place.prefix + "a") is not None


async def test_no_two_leases_have_one_id(place: StorePlace) -> None:
    stores = [place.client() for _ in range(4)]
    leases = await asyncio.gather(*(store.grant_lease(60) for store in stores * 5))
    assert len(set(leases)) == len(leases)
    assert all(0 < lease < 2**63 for lease in leases)
    await asyncio.gather(*(stores[0].revoke(lease) for lease in leases))


async def test_a_lease_needs_a_second_at_least(place: StorePlace) -> None:
    with pytest.raises(StoreRejected):
        await place.client().grant_lease(0)


# --- watches


async def test_a_watch_returns_everything_since_a_past_revision_in_order(place: StorePlace) -> None:
    store = place.client()
    key = place.prefix + "a"
    first = await store.compare_and_put(key, b"1", ABSENT)
    second = await store.compare_and_put(key, b"2", UNCONDITIONAL)
    await store.compare_and_put("/elsewhere", b"", UNCONDITIONAL)
    third = await store.compare_and_delete(key, second.revision)
    events = await watch_events(store, place.prefix, first.revision, 3)
    assert [(e.kind, e.value, e.create_revision, e.mod_revision) for e in events] == [
        (EventKind.PUT, b"1", first.revision, first.revision),
        (EventKind.PUT, b"2", first.revision, second.revision),
        (EventKind.DELETE, b"", 0, third.revision),
    ]


async def test_a_watch_goes_on_with_what_happens_later(place: StorePlace) -> None:
    store, writer = place.client(), place.client()
    revision, _ = await store.snapshot(place.prefix)
    async with aclosing(store.watch(place.prefix, revision + 1)) as batches:
        for number in range(5):
            put = await writer.compare_and_put(f"{place.prefix}{number}", b"", ABSENT)
            batch = await next_batch(batches)
            assert batch.revision == put.revision
            assert [event.key for event in batch.events] == [f"{place.prefix}{number}"]


async def test_a_watch_and_its_successor_notify_each_event_once(place: StorePlace) -> None:
    store = place.client()
    # Others that use the server may have revisions in between.
    puts = [await store.compare_and_put(f"{place.prefix}{number}", b"", ABSENT) for number in range(10)]
    seen: list[int] = []
    next_revision = puts[0].revision
    for count in (1, 4, 5):
        async with aclosing(store.watch(place.prefix, next_revision)) as batches:
            events = list((await next_batch(batches)).events)
            while len(events) < count:
                events += (await next_batch(batches)).events
        # Only some of them were handled; the successor begins right behind.
        seen += [event.mod_revision for event in events[:count]]
        next_revision = seen[-1] + 1
    assert seen == [put.revision for put in puts]


async def test_a_batch_never_ends_within_a_revision(place: StorePlace) -> None:
    store = place.client()
    start, _ = await store.snapshot(place.prefix)
    expected: list[int] = []  # events of each revision; others that use the server may have revisions in between
    for size in (1, 30, 2, 7):
        lease = await store.grant_lease(60)
        for number in range(size):
            await store.compare_and_put(f"{place.prefix}{number}", b"x" * 1000, ABSENT, lease)
        await store.revoke(lease)
        expected += [1] * size + [size]
    seen: dict[int, int] = {}
    async with aclosing(store.watch(place.prefix, start + 1)) as batches:
        while len(seen) < len(expected):
            batch = await next_batch(batches)
            in_batch: dict[int, int] = {}
            for event in batch.events:
                in_batch[event.mod_revision] = in_batch.get(event.mod_revision, 0) + 1
            assert not set(in_batch) & set(seen)
            assert batch.revision == batch.events[-1].mod_revision == max(in_batch)
            seen |= in_batch
    assert list(seen.values()) == expected


async def test_two_watches_of_one_client_both_see_all(place: StorePlace) -> None:
    store = place.client()
    revision, _ = await store.snapshot(place.prefix)
    async with (
        aclosing(store.watch(place.prefix, revision + 1)) as one,
        aclosing(store.watch(place.prefix, revision + 1)) as other,
    ):
        await store.compare_and_put(place.prefix + "a", b"", ABSENT)
        assert await next_batch(one) == await next_batch(other)


@pytest.mark.parametrize("last", ["put", "delete"])
async def test_a_watch_into_compacted_history_says_so(place: StorePlace, last: str) -> None:
    store = place.client()
    key = place.prefix + "a"
    first = await store.compare_and_put(key, b"1", ABSENT)
    if last == "put":
        compacted = (await store.compare_and_put(key, b"2", UNCONDITIONAL)).revision
    else:
        compacted = (await store.compare_and_delete(key, first.revision)).revision
    later = await store.compare_and_put(key, b"3", UNCONDITIONAL)
    await place.compact(compacted)
    # Also from the compacted revision itself: what was deleted in it is not reported any more.
    for revision in (first.revision, compacted):
        async with aclosing(store.watch(place.prefix, revision)) as batches:
            with pytest.raises(CompactedError) as caught:
                await next_batch(batches)
            assert caught.value.compacted_revision == compacted
    (event,) = await watch_events(store, place.prefix, compacted + 1, 1)
    assert event.mod_revision == later.revision


async def test_compaction_does_not_disturb_a_watch_that_is_up_to_date(place: StorePlace) -> None:
    store = place.client()
    first = await store.compare_and_put(place.prefix + "a", b"", ABSENT)
    async with aclosing(store.watch(place.prefix, first.revision)) as batches:
        await next_batch(batches)
        await place.compact(first.revision)
        second = await store.compare_and_put(place.prefix + "a", b"", UNCONDITIONAL)
        assert (await next_batch(batches)).revision == second.revision


# --- faults


async def test_calls_fail_quickly_while_the_store_is_down_and_work_when_it_is_back(place: StorePlace) -> None:
    store = place.client()
    put = await store.compare_and_put(place.prefix + "a", b"kept", ABSENT)
    lease = await store.grant_lease(60)
    await place.crash()
    calls = (
        lambda: store.get(place.prefix + "a"),
        lambda: store.snapshot(place.prefix),
        lambda: store.compare_and_put(place.prefix + "a", b"lost", UNCONDITIONAL),
        lambda: store.compare_and_delete(place.prefix + "a", put.revision),
        lambda: store.grant_lease(60),
        lambda: store.keep_alive(lease),
        lambda: store.revoke(lease),
    )
    for call in calls:
        async with asyncio.timeout(DEADLINE_S):
            with pytest.raises(StoreUnavailable):
                await call()
    await place.recover()
    # Nothing of it was applied.
    assert await store.get(place.prefix + "a") == Stored(place.prefix + "a", b"kept", put.revision, put.revision, 0)
    assert await store.keep_alive(lease) > 0


async def test_a_write_without_an_answer_is_unknown_and_a_read_is_not(place: StorePlace) -> None:
    store = place.client(is_hurried=True)
    key = place.prefix + "a"
    put = await store.compare_and_put(key, b"old", ABSENT)
    await place.hang()
    with pytest.raises(StoreTimeout):
        await store.compare_and_put(key, b"new", put.revision)
    with pytest.raises(StoreTimeout):
        await store.compare_and_delete(place.prefix + "b", put.revision)
    await place.unhang()

    async def settled() -> bool:
        # Until it answers again it may be unavailable; then the key shows whether the write was applied.
        try:
            found = await store.get(key)
        except StoreUnavailable:
            return False
        return found is not None and found.value in (b"old", b"new")

    await eventually(settled, "the store answers after it hung")


async def test_no_event_is_missed_or_repeated_while_the_store_is_killed_and_restarted(place: StorePlace) -> None:
    store, writer = place.client(is_hurried=True), place.client(is_hurried=True)
    revision, _ = await store.snapshot(place.prefix)
    done = place.prefix + "done"
    seen: list[int] = []
    is_enough = False
    writing = asyncio.Lock()

    async def write() -> None:
        number = 0
        while not is_enough:
            number += 1
            try:
                async with writing:
                    await writer.compare_and_put(f"{place.prefix}{number % 7}", b"", UNCONDITIONAL)
            except (StoreUnavailable, StoreTimeout):
                await asyncio.sleep(0.01)
            await asyncio.sleep(0)
        await writer.compare_and_put(done, b"", UNCONDITIONAL)

    async def read() -> None:
        async with aclosing(store.watch(place.prefix, revision + 1)) as batches:
            while True:
                batch = await next_batch(batches)
                seen.extend(event.mod_revision for event in batch.events)
                if batch.events[-1].key == done:
                    return

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(read())
        tasks.create_task(write())
        for _ in range(2):
            enough = len(seen) + 30
            await eventually(lambda enough=enough: len(seen) >= enough, "the watch is under way")
            async with writing:
                # A single member of etcd before 3.5.5 answers a write before it is in its log
                # (etcd-io/etcd#14370): killed at that moment it forgets what it answered, which K-9 detects.
                await asyncio.sleep(0.1)
                await place.crash()
            await asyncio.sleep(0.1)
            await place.recover()
        enough = len(seen) + 30
        await eventually(lambda: len(seen) >= enough, "the watch goes on")
        is_enough = True
    assert seen == sorted(set(seen))
    # The whole history, read anew, is what the watch reported over the crashes.
    truth = await watch_events(place.client(), place.prefix, revision + 1, len(seen))
    assert [event.mod_revision for event in truth] == seen


async def test_a_closed_client_ends_its_watches_and_takes_no_calls(place: StorePlace) -> None:
    store = place.client()
    revision, _ = await store.snapshot(place.prefix)

    async def read() -> None:
        async with aclosing(store.watch(place.prefix, revision + 1)) as batches:
            async for _ in batches:
                pytest.fail("nothing was written")

    reading = asyncio.create_task(read())
    await asyncio.sleep(0.05)
    await store.close()
    async with asyncio.timeout(DEADLINE_S):
        await reading
    with pytest.raises(StoreUnavailable):
        await store.get(place.prefix + "a")


async def test_the_log_gains_on_the_revision(place: StorePlace) -> None:
    store = place.client()
    before = await store.log_progress()
    assert before is not None
    for number in range(20):
        await store.compare_and_put(place.prefix + "a", b"%d" % number, UNCONDITIONAL)
    after = await store.log_progress()
    assert after is not None
    assert after.revision >= before.revision + 20
    assert after.lead >= before.lead
