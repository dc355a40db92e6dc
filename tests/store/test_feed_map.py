"""Rows of a subscription's map: few for many deliveries, and at each moment they say exactly what the map is."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from bridges.store.client_journals import FeedJournal
from bridges.store.feed_map_core import ROW_TAGS, Entry, FeedMap, MapRow, RowChanges, entries_of
from oncewire.client.journal_records import DoneId, MessageIdentity, SubscriberChanges, SubscriberState
from oncewire.client.outcomes import ACCEPTED, Outcome, rejected
from oncewire.store.contents import Contents
from oncewire.store.open_store import OpenStore
from oncewire.store.owners import Owner, take_over
from oncewire.store.store import Transaction
from tests.store.databases import SqlDatabase
from tests.support.effort import rounds


def network_tag(session: int, number: int) -> bytes:
    return bytes(5) + session.to_bytes(6, "big") + number.to_bytes(8, "big")


class Table:
    """Rows as a database has them: in order of their insertion, and no two of one tag."""

    def __init__(self) -> None:
        self.rows: list[MapRow] = []

    def _place(self, tag: bytes) -> int:
        (place,) = (place for place, row in enumerate(self.rows) if row.tag == tag)
        return place

    def carry_out(self, changes: RowChanges) -> None:
        for tag in changes.gone:
            del self.rows[self._place(tag)]
        for row, tag in changes.changed:
            self.rows[self._place(tag)] = row
            self._place(row.tag)
        for row in changes.added:
            self.rows.append(row)
            self._place(row.tag)

    def entries(self) -> list[Entry]:
        return [entry for row in self.rows for entry in entries_of(row)]


def changed(known: dict[bytes, str | None], entries: list[Entry], forgotten: list[bytes]) -> None:
    """What SubscriberChanges says of a map."""
    for tag in forgotten:
        known.pop(tag, None)
    known.update(entries)


@pytest.mark.parametrize("seed", range(rounds(160)))
def test_rows_say_what_the_map_is_after_any_changes_and_restarts(seed: int) -> None:
    chance = random.Random(seed)
    table, known = Table(), dict[bytes, str | None]()
    feed_map = FeedMap()
    sessions = [0] * chance.choice([1, 3, 40])
    for _ in range(30):
        forgotten = [tag for tag in known if chance.random() < chance.choice([0, 0.1, 0.9, 1])]
        entries: list[Entry] = [(tag, "accepted") for tag in known if chance.random() < 0.05 and tag not in forgotten]
        for _ in range(chance.choice([0, 1, 7, ROW_TAGS, 3 * ROW_TAGS])):
            session = chance.randrange(len(sessions))
            sessions[session] += chance.choice([1, 1, 1, 1, 2])
            tag = network_tag(session, sessions[session]) if chance.random() < 0.99 else chance.randbytes(20)
            entries.append((tag, chance.choice(["accepted"] * 20 + [None, "rejected"])))
        entries += [(tag, "again") for tag in forgotten if chance.random() < 0.05]  # E-3: another delivery of that tag
        table.carry_out(feed_map.change(entries, [*forgotten, b"unknown"]))
        changed(known, entries, forgotten)
        assert table.entries() == list(known.items())
        if chance.random() < 0.3:
            feed_map = FeedMap(table.rows)
    table.carry_out(feed_map.change([], list(known)))
    assert not table.rows


def test_deliveries_of_one_publisher_are_one_run_and_a_row_is_never_long() -> None:
    feed_map = FeedMap()
    tags = [network_tag(1, number) for number in range(3 * ROW_TAGS)]
    rows = feed_map.change([(tag, "accepted") for tag in tags], []).added
    assert [(row.tag, row.run, row.rest) for row in rows] == [(tags[n * ROW_TAGS], ROW_TAGS, None) for n in range(3)]
    changes = feed_map.change([], tags[: ROW_TAGS + 1])
    assert (changes.gone, len(changes.changed), changes.added) == ([tags[0]], 1, [])
    apart = [(bytes(random.Random(number).randbytes(32)), "accepted") for number in range(ROW_TAGS)]
    (row,) = FeedMap().change(apart, []).added
    assert row.rest is not None
    assert len(row.rest) < 100 * ROW_TAGS


def test_the_last_number_of_a_length_is_followed_by_none() -> None:
    entries = [(b"\xff", "accepted"), (b"\x01\x00", "accepted"), (b"\x00", "accepted"), (b"\x01", "accepted")]
    (row,) = FeedMap().change(entries, []).added
    assert list(entries_of(row)) == entries


@asynccontextmanager
async def opened(database: SqlDatabase) -> AsyncIterator[tuple[OpenStore[Transaction], Owner]]:
    store: OpenStore[Transaction] = OpenStore(database.open_with(Contents()))
    yield store, await store.transact(lambda do: take_over(do, "feed"))
    await store.close()


def commit(journal: FeedJournal, changes: SubscriberChanges) -> None:
    journal.begin()
    journal.write_subscriber("feed", changes)
    journal.commit()


async def test_the_next_owner_reads_the_map_that_the_one_before_wrote(sql_database: SqlDatabase) -> None:
    tags = [network_tag(number % 3, number) for number in range(2000)]
    no_item = rejected("no:item", "it is 7")

    def outcome(number: int) -> Outcome | None:
        return None if number % 500 == 0 else no_item if number % 700 == 0 else ACCEPTED

    entries = tuple((tag, outcome(number)) for number, tag in enumerate(tags))
    async with opened(sql_database) as (store, owner):
        journal = FeedJournal(store, owner)
        assert journal.open_subscriber("feed") == SubscriberState()
        commit(journal, SubscriberChanges(7, entries))
        commit(journal, SubscriberChanges(7, ((tags[500], ACCEPTED),), tuple(tags[:400])))
    async with opened(sql_database) as (store, owner):
        journal = FeedJournal(store, owner)
        left = dict(entries[400:]) | {tags[500]: ACCEPTED}
        assert journal.open_subscriber("feed") == SubscriberState(7, tuple(left.items()))
        commit(journal, SubscriberChanges(8, (), tuple(left)))
    assert sql_database.rows("SELECT tag FROM oncewire_feed_tags") == []


async def test_the_next_owner_knows_the_ids_of_what_is_done_the_newest_last(sql_database: SqlDatabase) -> None:
    """D-3."""
    one, two, three = (MessageIdentity(user, bytes([7]) * 16) for user in ("ann", "bob", ""))
    done = (DoneId(one), DoneId(two, is_rejected=True), DoneId(three))
    async with opened(sql_database) as (store, owner):
        journal = FeedJournal(store, owner)
        journal.open_subscriber("feed")
        commit(journal, SubscriberChanges(7, done_ids=done))
        commit(journal, SubscriberChanges(7, done_ids=(DoneId(one),), forgotten_ids=(three,)))
    async with opened(sql_database) as (store, owner):
        assert FeedJournal(store, owner).open_subscriber("feed").done_ids == (done[1], done[0])


async def test_a_map_of_the_release_before_goes_on(sql_database: SqlDatabase) -> None:
    """It had a row for each delivery."""
    async with opened(sql_database) as (store, owner):
        put = "INSERT INTO oncewire_feed_tags (feed, tag, outcome) VALUES (?, ?, ?)"
        tags = [network_tag(1, number) for number in range(3)]
        await store.transact(lambda do: do.write_many(put, [("feed", tag, None) for tag in tags]))
        journal = FeedJournal(store, owner)
        assert journal.open_subscriber("feed").entries == tuple((tag, None) for tag in tags)
        commit(journal, SubscriberChanges(1, ((tags[2], ACCEPTED),), (tags[0],)))
        assert FeedJournal(store, owner).open_subscriber("feed").entries == ((tags[1], None), (tags[2], ACCEPTED))
