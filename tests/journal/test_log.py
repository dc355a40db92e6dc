"""A journal in its store: what is appended, where it is read, what goes (J-16, J-17, J-19, J-24 to J-27)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridges.journal import log
from bridges.journal.errors import JournalFull, PositionAhead, PositionTrimmed, UnknownJournal
from bridges.journal.model import ROW_BYTES, AtTime, JournalSettings, KeyOf, NewMessage, Place, Start, WhenFull
from oncewire.store.errors import EdgeError, InvalidRequest
from oncewire.store.store import Transaction
from tests.journal.journal_world import NAME, JournalWorld
from tests.store.databases import START

SIZE = 100
"""Of a message in the tests of limits."""


def resolved(world: JournalWorld, start: Start) -> int:
    return world.do(lambda do: log.resolve(do, log.state(do, NAME), start))


def of_size(count: int) -> list[NewMessage]:
    return [NewMessage(bytes(SIZE - ROW_BYTES))] * count


def test_positions_follow_each_other_from_1_and_messages_come_back_as_they_were(world: JournalWorld) -> None:
    world.make()
    assert world.append("a", "b") == range(1, 3)
    assert world.append("c", source="") == range(3, 4)
    first, second, third = world.read()
    assert [message.position for message in (first, second, third)] == [1, 2, 3]
    assert first.payload.endswith(b"a")
    assert [first.source, third.source] == ["orders.#", ""]
    assert first.arrived_us == START * 1e6


def test_what_a_failed_transaction_appended_was_never_there(world: JournalWorld) -> None:
    world.make()

    def fails(do: Transaction) -> None:
        log.append(do, NAME, [NewMessage(b"x")])
        raise InvalidRequest("no", "the test", "says so")

    with pytest.raises(EdgeError):
        world.do(fails)
    assert world.append("a") == range(1, 2)
    assert world.positions() == [1]


def test_two_journals_share_a_store_and_nothing_else(world: JournalWorld) -> None:
    world.make()
    world.make("mails")
    world.append("a", "b")
    world.append("c", name="mails")
    assert world.positions() == [1, 2]
    assert world.positions(name="mails") == [1]


def test_time_never_runs_back_in_a_journal_though_the_clock_does(world: JournalWorld) -> None:
    world.make()
    world.append("a")
    world.clock.now -= 3600
    world.append("b")
    first, second = world.read()
    assert second.arrived_us == first.arrived_us


def test_a_start_is_a_place_a_position_or_a_time(world: JournalWorld) -> None:
    world.make()
    assert [resolved(world, place) for place in Place] == [0, 0, 0]
    for body in "abcd":
        world.append(body)
        world.clock.now += 10
    assert [resolved(world, place) for place in Place] == [0, 3, 4]
    assert [resolved(world, 1), resolved(world, 4), resolved(world, 5)] == [0, 3, 4]
    times = [AtTime(round((START + seconds) * 1e6)) for seconds in (-5, 0, 10, 11, 30, 31)]
    assert [resolved(world, time) for time in times] == [0, 0, 1, 2, 3, 4]


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(-1, 60))
def test_a_time_finds_the_first_message_that_is_not_older(steps: list[int], wanted: int) -> None:
    from tests.journal.memory import memory_world  # one for each example

    with memory_world() as world:
        world.make()
        times = []
        for step in steps:
            world.clock.now += step
            times.append(world.clock.now - START)
            world.append("x")
        expected = sum(time < wanted for time in times)
        assert resolved(world, AtTime(round((START + wanted) * 1e6))) == expected


def test_a_position_that_nobody_can_read_names_those_that_can_be_read(world: JournalWorld) -> None:
    world.make()
    world.append(*"abcdef")
    world.do(lambda do: log.trim(do, NAME, 2))
    with pytest.raises(PositionTrimmed, match="it keeps 3 to 6"):
        resolved(world, 2)
    with pytest.raises(PositionAhead, match="its next message gets position 7"):
        resolved(world, 8)
    with pytest.raises(PositionTrimmed, match="from position 2"):
        world.read(1)
    with pytest.raises(UnknownJournal, match="oncewire journal list"):
        world.read(name="nothing")


def test_positions_go_on_when_everything_was_trimmed(world: JournalWorld) -> None:
    world.make()
    world.append("a", "b")
    trimmed = world.do(lambda do: log.trim(do, NAME, 2))
    assert (trimmed.kept, trimmed.kept_bytes, trimmed.trimmed) == (0, 0, 2)
    assert world.append("c") == range(3, 4)
    assert world.positions(2) == [3]


def test_a_read_ends_at_its_count_and_before_its_bytes_are_too_many(world: JournalWorld) -> None:
    world.make()
    world.do(lambda do: log.append(do, NAME, [NewMessage(bytes(size)) for size in (10, 10, 500, 10)]))
    assert len(world.read(count=2)) == 2
    assert [message.position for message in world.read(max_bytes=2 * (10 + ROW_BYTES))] == [1, 2]
    assert [message.position for message in world.read(max_bytes=2 * (10 + ROW_BYTES) - 1)] == [1]
    assert [message.position for message in world.read(2, max_bytes=15)] == [3]


def test_a_full_journal_that_refuses_takes_all_of_an_append_or_nothing(world: JournalWorld) -> None:
    world.make(max_bytes=3 * SIZE)
    world.do(lambda do: log.append(do, NAME, of_size(2)))
    with pytest.raises(JournalFull, match="trim it, raise its max_bytes"):
        world.do(lambda do: log.append(do, NAME, of_size(2)))
    assert world.do(lambda do: log.append(do, NAME, of_size(1))) == range(3, 4)
    world.do(lambda do: log.trim(do, NAME, 1))
    assert world.do(lambda do: log.append(do, NAME, of_size(1))) == range(4, 5)


def test_a_full_journal_that_drops_lets_the_oldest_go(world: JournalWorld) -> None:
    world.make(max_bytes=3 * SIZE, when_full=WhenFull.DROP)
    for _ in range(7):
        world.do(lambda do: log.append(do, NAME, of_size(1)))
    assert world.positions(4) == [5, 6, 7]
    found = world.do(lambda do: log.state(do, NAME))
    assert (found.kept, found.kept_bytes) == (3, 3 * SIZE)
    with pytest.raises(JournalFull):
        world.do(lambda do: log.append(do, NAME, of_size(4)))


def test_what_is_too_old_or_too_much_is_trimmed_in_portions(
    world: JournalWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "PORTION", 4)
    monkeypatch.setattr(log, "SUMMED_AT_ONCE", 3)
    world.make(keep_s=60.0)
    world.append(*"abcdefghij")
    world.clock.now += 59
    world.append("k")
    assert not world.do(lambda do: log.maintain(do, NAME))
    world.clock.now += 2
    rounds = 1
    while world.do(lambda do: log.maintain(do, NAME)):
        rounds += 1
    assert rounds == 3
    assert world.positions(10) == [11]
    world.do(lambda do: log.configure(do, NAME, JournalSettings(max_messages=2)))
    world.append(*"lmno")
    while world.do(lambda do: log.maintain(do, NAME)):
        pass
    assert world.positions(13) == [14, 15]


def test_a_compacted_journal_keeps_the_last_message_of_each_key(world: JournalWorld) -> None:
    world.make(compact_by=KeyOf.SUBJECT)
    world.append(*"abcde", keys="xyxzx")
    assert world.positions() == [2, 4, 5]
    world.append("f", keys="y")
    found = world.do(lambda do: log.state(do, NAME))
    assert world.positions() == [4, 5, 6]
    assert found.kept == 3
    assert found.kept_bytes == sum(len(message.payload) + ROW_BYTES for message in world.read())
    world.do(lambda do: log.trim(do, NAME, 4))
    world.append("g", keys="z")
    assert world.positions(4) == [5, 6, 7]


def test_a_compacted_journal_is_trimmed_to_its_number_of_messages_too(
    world: JournalWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "PORTION", 2)
    world.make(compact_by=KeyOf.SUBJECT, max_messages=2)
    world.append(*"abcdefg", keys="xyxzuvw")
    assert world.positions() == [2, 3, 4, 5, 6, 7]
    while world.do(lambda do: log.maintain(do, NAME)):
        pass
    assert world.do(lambda do: log.state(do, NAME)).trimmed == 5
    assert world.positions(5) == [6, 7]


def test_compaction_is_decided_before_the_first_message(world: JournalWorld) -> None:
    world.make()
    world.make(compact_by=KeyOf.SUBJECT)
    world.append("a", keys="x")
    with pytest.raises(InvalidRequest, match="make another journal"):
        world.make()


def test_a_journal_that_is_made_again_is_another_one(world: JournalWorld) -> None:
    world.make()
    world.append(*"abc")
    before = world.do(lambda do: log.state(do, NAME))
    world.do(lambda do: log.delete(do, NAME))
    with pytest.raises(UnknownJournal):
        world.append("d")
    world.make()
    after = world.do(lambda do: log.state(do, NAME))
    assert before.uuid != after.uuid
    assert world.append("e") == range(1, 2)
    assert [message.payload[-1:] for message in world.read()] == [b"e"]


def test_what_a_deleted_journal_leaves_is_deleted_in_portions(
    world: JournalWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "PORTION", 2)
    world.make()
    world.make("mails")
    world.append(*"abcde")
    world.append("f", name="mails")
    world.do(lambda do: log.delete(do, NAME))
    rounds = 0
    while world.do(log.clear_remains):
        rounds += 1
    assert rounds == 4
    assert world.do(lambda do: do.execute("SELECT count(*) FROM oncewire_journal_messages")) == [(1,)]
    assert world.positions(name="mails") == [1]


@pytest.mark.parametrize("settings", [{"max_bytes": 0}, {"max_messages": -1}, {"keep_s": -1.0}, {"keep_s": 1e30}])
def test_settings_that_cannot_be_are_refused(world: JournalWorld, settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        world.make(**settings)
    assert world.do(log.journals) == []
