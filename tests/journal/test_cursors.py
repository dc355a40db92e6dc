"""Cursors in the store: what is read stays read, one link moves it (J-21 to J-24)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridges.journal import cursors, log
from bridges.journal import model as journal_model
from bridges.journal.errors import CursorTaken, PositionTrimmed
from bridges.journal.model import Cursor, KeyOf, Place, Start
from oncewire.store.errors import LimitReached
from tests.journal.journal_world import NAME, JournalWorld


def attach(world: JournalWorld, start: Start | None = None, read: tuple[int, ...] = (), reader: str = "r") -> Cursor:
    return world.do(lambda do: cursors.attach_cursor(do, NAME, reader, start, read))[1]


def mark(world: JournalWorld, generation: int, *positions: int) -> Cursor:
    return world.do(lambda do: cursors.mark_read(do, NAME, "r", generation, positions))


@given(st.lists(st.integers(1, 12)))
def test_a_cursor_knows_exactly_what_was_read(positions: list[int]) -> None:
    cursor = Cursor(1, 0)
    for position in positions:
        cursor = cursors.moved(cursor, [position])
    assert {each for each in range(1, 14) if cursors.is_read(cursor, each)} == set(positions)
    assert not cursors.is_read(cursor, cursor.low + 1)
    assert list(cursor.behind) == sorted(set(cursor.behind))


def test_a_new_cursor_begins_at_its_start_and_an_old_one_where_it_was(world: JournalWorld) -> None:
    world.make()
    world.append(*"abcd")
    assert attach(world, reader="late").low == 4
    assert attach(world, Place.FIRST) == Cursor(1, 0)
    assert mark(world, 1, 1, 2, 4) == Cursor(1, 2, (4,))
    assert attach(world, Place.FIRST) == Cursor(2, 2, (4,))
    assert attach(world, read=(3,)) == Cursor(3, 4)


def test_only_the_newest_link_moves_a_cursor(world: JournalWorld) -> None:
    world.make()
    world.append(*"ab")
    first = attach(world, Place.FIRST).generation
    second = attach(world).generation
    with pytest.raises(CursorTaken, match="attach again"):
        mark(world, first, 1)
    assert mark(world, second, 1).low == 1
    world.do(lambda do: cursors.seek(do, NAME, "r", Place.FIRST))
    with pytest.raises(CursorTaken):
        mark(world, second, 2)
    assert attach(world).low == 0


def test_two_attaches_that_find_no_cursor_get_generations_of_their_own(
    world: JournalWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.make()
    world.append("a")
    first = attach(world, Place.FIRST).generation
    monkeypatch.setattr(cursors, "find_cursor", lambda *_arguments: None)  # as the other process has read it
    second = attach(world, Place.FIRST).generation
    monkeypatch.undo()
    assert second > first
    with pytest.raises(CursorTaken):
        mark(world, first, 1)


def test_positions_that_a_map_cannot_have_do_not_count(world: JournalWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursors, "MAX_AHEAD", 3)
    world.make()
    world.append(*"abcdefgh")
    attach(world, Place.FIRST)
    assert attach(world, read=(3, 4, 9, 1 << 39)) == Cursor(2, 0, (3,))


def test_a_cursor_whose_next_message_was_trimmed_is_refused_until_it_is_moved(world: JournalWorld) -> None:
    world.make()
    world.append(*"abcd")
    attach(world, Place.FIRST)
    world.do(lambda do: log.trim(do, NAME, 2))
    with pytest.raises(PositionTrimmed, match="keeps 3 to 4"):
        attach(world)
    with pytest.raises(PositionTrimmed):
        attach(world, Place.FIRST)
    world.do(lambda do: cursors.seek(do, NAME, "r", Place.FIRST))
    assert attach(world).low == 2


def test_readers_make_so_many_cursors_and_unused_ones_go(world: JournalWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursors, "MAX_CURSORS", 2)
    world.make()
    attach(world, reader="a")
    attach(world, reader="b")
    with pytest.raises(LimitReached, match="2 readers with a cursor"):
        attach(world, reader="c")
    attach(world, reader="a")
    world.clock.now += journal_model.CURSOR_EXPIRY_S / 2
    attach(world, reader="a")
    world.clock.now += journal_model.CURSOR_EXPIRY_S / 2 + 1
    attach(world, reader="c")
    journal = world.do(lambda do: log.state(do, NAME))
    assert list(world.do(lambda do: cursors.cursors(do, journal))) == ["a", "c"]


def test_a_user_makes_so_many_cursors_and_leaves_room_for_others(
    world: JournalWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cursors, "MAX_CURSORS_OF_USER", 2)
    world.make()
    name = cursors.reader_name
    for link in ("1", "2"):
        attach(world, reader=name("ann|a", "app", link))
    for more in (name("ann|a", "app", "3"), name("ann|a", "x" * 300, "3")):
        with pytest.raises(LimitReached, match="this user has 2 readers with a cursor"):
            attach(world, reader=more)
    attach(world, reader=name("ann|a", "app", "2"))
    for user in ("ann", "", "", ""):  # who has not logged in counts for the journal alone
        journal = world.do(lambda do: log.state(do, NAME))
        attach(world, reader=name(user, "a|app", str(len(world.do(lambda do: cursors.cursors(do, journal))))))  # noqa: B023
    long = "u" * 300
    for link in ("1", "2"):
        attach(world, reader=name(long, "app", link))
    with pytest.raises(LimitReached):
        attach(world, reader=name(long, "app", "3"))


def test_a_deleted_cursor_is_gone_and_its_link_cannot_store(world: JournalWorld) -> None:
    world.make()
    world.append("a")
    generation = attach(world, Place.FIRST).generation
    assert world.do(lambda do: cursors.delete_cursor(do, NAME, "r"))
    assert not world.do(lambda do: cursors.delete_cursor(do, NAME, "r"))
    with pytest.raises(CursorTaken):
        mark(world, generation, 1)


def test_what_was_replaced_counts_as_read_so_that_a_cursor_is_never_left_behind(world: JournalWorld) -> None:
    world.make(compact_by=KeyOf.SUBJECT)
    world.append(*"abcd", keys="kkkl")
    first = attach(world, Place.FIRST)
    assert first == Cursor(1, 2)
    assert mark(world, first.generation, 3) == Cursor(1, 3)
    world.append(*"efg", keys="xkx")
    assert mark(world, first.generation, 4) == Cursor(1, 5)
    assert mark(world, first.generation, 7) == Cursor(1, 5, (7,))
    world.append("h", keys="k")
    assert mark(world, first.generation) == Cursor(1, 7)
    assert mark(world, first.generation, 8) == Cursor(1, 8)


def test_what_was_trimmed_before_it_was_replaced_does_not_count_as_read(world: JournalWorld) -> None:
    world.make(compact_by=KeyOf.SUBJECT)
    world.append(*"abcd", keys="klmn")
    generation = attach(world, Place.FIRST).generation
    world.do(lambda do: log.trim(do, NAME, 2))
    assert mark(world, generation, 3) == Cursor(generation, 0, (3,))
    with pytest.raises(PositionTrimmed):
        mark(world, generation)
