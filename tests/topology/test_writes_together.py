"""Writes and reads that go together in one transaction (`ClusterStore.write_each`, A-2e): each decides for itself."""

from __future__ import annotations

from collections import Counter
from contextlib import aclosing

import pytest

from tests.support.stores import StorePlace, next_batch, watch_events
from topology.etcd.store import (
    ABSENT,
    MAX_WRITE_BYTES,
    MAX_WRITES,
    UNCONDITIONAL,
    EventKind,
    StoreRejected,
    StoreTimeout,
    Write,
)


async def test_each_write_is_carried_out_by_its_own_compare(place: StorePlace) -> None:
    store = place.client()
    names = [f"{place.prefix}{number}" for number in range(6)]
    held = [(await store.compare_and_put(name, b"before", ABSENT)).revision for name in names[:4]]
    done = await store.write_each(
        [
            Write(names[0], b"new", held[0]),
            Write(names[1], b"new", held[0]),
            Write(names[2], None, held[2]),
            Write(names[3], None, held[2]),
            Write(names[4], b"new", ABSENT),
            Write(names[5], b"new", held[0]),
        ]
    )
    assert done == [True, False, True, False, True, False]
    found = await store.get_each(names)
    assert [None if each is None else each.value for each in found] == [
        b"new",
        b"before",
        None,
        b"before",
        b"new",
        None,
    ]


async def test_what_goes_together_has_one_revision_and_its_events_come_whole_and_in_order(place: StorePlace) -> None:
    store = place.client()
    start, _ = await store.snapshot(place.prefix)
    names = [f"{place.prefix}{number:03}" for number in range(MAX_WRITES)]
    assert all(await store.write_each([Write(name, name.encode(), ABSENT) for name in reversed(names)]))
    async with aclosing(store.watch(place.prefix, start + 1)) as batches:
        batch = await next_batch(batches)
    assert [event.key for event in batch.events] == names[::-1]
    assert {(event.create_revision, event.mod_revision) for event in batch.events} == {(batch.revision, batch.revision)}
    revision, stored = await store.snapshot(place.prefix)
    assert revision >= batch.revision
    assert [each.mod_revision for each in stored] == [batch.revision] * MAX_WRITES


async def test_a_watch_that_catches_up_with_large_transactions_gets_each_as_a_whole(place: StorePlace) -> None:
    store = place.client()
    start, _ = await store.snapshot(place.prefix)
    value = bytes(MAX_WRITE_BYTES // MAX_WRITES - 100)
    # Six megabytes: more than etcd sends in one message.
    for number in range(12):
        assert all(
            await store.write_each([Write(f"{place.prefix}{number}/{n}", value, ABSENT) for n in range(MAX_WRITES)])
        )
    seen: dict[int, int] = {}
    async with aclosing(store.watch(place.prefix, start + 1)) as batches:
        while sum(seen.values()) < 12 * MAX_WRITES:
            batch = await next_batch(batches)
            counts = Counter(event.mod_revision for event in batch.events)
            assert not counts.keys() & seen.keys()
            seen |= counts
    assert list(seen.values()) == [MAX_WRITES] * 12


async def test_deletions_that_go_together_have_one_revision(place: StorePlace) -> None:
    store = place.client()
    names = [f"{place.prefix}{number}" for number in range(5)]
    puts = [await store.compare_and_put(name, b"", ABSENT) for name in names]
    assert all(await store.write_each([Write(name, None, put.revision) for name, put in zip(names, puts, strict=True)]))
    events = await watch_events(store, place.prefix, puts[-1].revision + 1, len(names))
    assert [(event.kind, event.key) for event in events] == [(EventKind.DELETE, name) for name in names]
    assert len({event.mod_revision for event in events}) == 1


async def test_where_no_compare_holds_the_revision_stays(place: StorePlace) -> None:
    store = place.client()
    put = await store.compare_and_put(place.prefix + "a", b"", ABSENT)
    writes = [Write(place.prefix + "a", b"", ABSENT), Write(place.prefix + "b", None, put.revision)]
    assert await store.write_each(writes) == [False, False]
    # Others that use the server may have revisions in between; none is of these keys.
    later = await store.compare_and_put(place.prefix + "a", b"later", UNCONDITIONAL)
    (event,) = await watch_events(store, place.prefix, put.revision + 1, 1)
    assert event.mod_revision == later.revision


async def test_reads_that_go_together_see_every_write_that_was_answered_before(place: StorePlace) -> None:
    writer, reader = place.client(), place.client()
    names = [f"{place.prefix}{number}" for number in range(3)]
    for round_number in range(10):
        for name in names[:2]:
            await writer.compare_and_put(name, b"%d" % round_number, UNCONDITIONAL)
        found = await reader.get_each([names[1], names[2], names[0]])
        assert [None if each is None else (each.key, each.value) for each in found] == [
            (names[1], b"%d" % round_number),
            None,
            (names[0], b"%d" % round_number),
        ]


async def test_as_many_and_as_large_as_the_bounds_are_accepted(place: StorePlace) -> None:
    store = place.client()
    size = MAX_WRITE_BYTES // MAX_WRITES - 100
    writes = [Write(f"{place.prefix}{number}", bytes(size), ABSENT) for number in range(MAX_WRITES)]
    assert await store.write_each(writes) == [True] * MAX_WRITES
    found = await store.get_each([write.key for write in writes])
    assert [len(each.value) for each in found if each is not None] == [size] * MAX_WRITES


async def test_a_key_that_stands_twice_is_refused_and_nothing_is_written(place: StorePlace) -> None:
    store = place.client()
    writes = [Write(place.prefix + name, b"", ABSENT) for name in ("a", "b", "a")]
    with pytest.raises(StoreRejected):
        await store.write_each(writes)
    assert await store.get_each([write.key for write in writes]) == [None] * 3


async def test_a_key_that_is_written_with_others_leaves_its_lease(place: StorePlace) -> None:
    store = place.client()
    lease = await store.grant_lease(60)
    put = await store.compare_and_put(place.prefix + "a", b"", ABSENT, lease)
    writes = [Write(place.prefix + "a", b"free", put.revision), Write(place.prefix + "b", b"", ABSENT)]
    assert await store.write_each(writes) == [True, True]
    await store.revoke(lease)
    assert await store.get(place.prefix + "a") is not None


async def test_without_an_answer_the_fate_of_each_is_unknown(place: StorePlace) -> None:
    store = place.client()
    await store.get(place.prefix + "a")  # connected
    await place.hang()
    try:
        with pytest.raises(StoreTimeout):
            await store.write_each([Write(place.prefix + name, b"", ABSENT) for name in ("a", "b")])
    finally:
        await place.unhang()
