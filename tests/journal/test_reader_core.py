"""One link of a reader: what goes out, what is stored before it is settled, what a map changes (J-20 to J-26)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridges.journal import cursors
from bridges.journal import reader_core as core
from bridges.journal.errors import CursorTaken, trimmed, unknown_journal
from bridges.journal.model import Cursor, JournalSettings, JournalState, StoredMessage
from bridges.store.amqp_errors import error_of
from bridges.store.push_core import Detach
from oncewire.store.errors import StoreUnreachable
from oncewire.wire import (
    ACCEPTED,
    RELEASED,
    Connection,
    DeliveryState,
    DispositionReceived,
    Modified,
    ReceiverLink,
    Rejected,
    Role,
)


def any_link() -> ReceiverLink:
    """What an event names; the core looks at none."""
    connection = Connection(Role.CLIENT, container_id="reader")
    connection.open()
    return connection.begin().attach_receiver("reader")


LINK = any_link()


def journal_with(last: int, uuid: str = "00112233aabbccdd") -> JournalState:
    return JournalState(7, "orders", uuid, last, 0, last, 0, 0, JournalSettings())


class Reader:
    """A core, the rows that its store has, and what its reader has got."""

    def __init__(
        self,
        last: int,
        cursor: Cursor | None = None,
        presented: Iterable[int] = (),
        after: int = 0,
        missing: Iterable[int] = (),
        is_settled: bool = False,
    ) -> None:
        self.journal = journal_with(last)
        self.missing = set(missing)
        self.core = core.ReaderCore(is_settled, cursor is not None)
        self.cursor = cursor or Cursor(0, after)
        tags = [core.tag_of(self.journal, position) for position in presented]
        self.map = self.core.on_opened(self.journal, self.cursor.low, cursor, tags)
        self.got: list[int] = []
        self.resumed: list[int] = []
        self.abandoned: list[int] = []
        self.settled: list[int] = []
        self.numbers: dict[int, int] = {}
        self.reads: list[core.Read] = []
        self.stores: list[core.Store] = []
        self.others: list[Any] = []
        self._count = 0

    def do(self, effects: Iterable[core.ReaderEffect]) -> None:
        for effect in effects:
            if isinstance(effect, core.Send):
                positions = [message.position for message in effect.messages]
                assert [core.position_of(self.journal, tag) for tag in effect.tags] == positions
                (self.resumed if effect.resume else self.got).extend(positions)
                numbers = range(self._count, self._count + len(positions))
                self.core.sent(effect.messages, numbers)
                if not effect.is_settled:
                    self.numbers.update(zip(positions, numbers, strict=True))
                self._count += len(positions)
            elif isinstance(effect, core.Abandon):
                self._count += 1
                self.abandoned.append(core.position_of(self.journal, effect.tag) or 0)
            elif isinstance(effect, core.Read):
                self.reads.append(effect)
            elif isinstance(effect, core.Store):
                self.stores.append(effect)
            elif isinstance(effect, core.Settle):
                self.settled += effect.numbers
            else:
                self.others.append(effect)

    def flow(self, limit: int, drain: bool = False) -> None:
        self.do(self.core.on_flow(limit, drain))
        self.run_reads()

    def run_reads(self) -> None:
        while self.reads:
            read = self.reads.pop(0)
            positions = [p for p in range(read.after + 1, self.journal.last + 1) if p not in self.missing]
            found = [StoredMessage(p, 0, "", b"m", 0) for p in positions[: read.count]]
            self.do(self.core.on_read(read, (self.journal, found)))

    def state(self, positions: Iterable[int], state: DeliveryState | None = ACCEPTED, is_settled: bool = False) -> None:
        ids = [self.numbers[position] for position in positions]
        self.do(self.core.on_disposition(DispositionReceived(LINK, ids, [b""] * len(ids), state, is_settled)))
        self.run_reads()

    def store(self) -> None:
        stored = self.stores.pop(0)
        self.cursor = cursors.moved(self.cursor, stored.positions)
        self.do(self.core.on_stored(stored, self.cursor))
        self.run_reads()


def test_a_reader_gets_what_lies_behind_its_start_as_its_credit_allows_and_then_waits() -> None:
    reader = Reader(5, after=2)
    reader.flow(2)
    assert reader.got == [3, 4]
    reader.flow(10)
    assert reader.got == [3, 4, 5]
    assert reader.others == [core.Wait()]
    reader.journal = journal_with(6)
    reader.do(reader.core.on_changed())
    reader.run_reads()
    assert reader.got == [3, 4, 5, 6]


def test_a_drain_gives_the_credit_back_when_all_is_sent() -> None:
    reader = Reader(2)
    reader.flow(10, drain=True)
    assert (reader.got, reader.others) == ([1, 2], [core.Drained(), core.Wait()])
    reader.flow(10)
    assert not reader.reads


def test_a_reader_without_a_cursor_stores_nothing_and_is_answered_at_once() -> None:
    reader = Reader(2)
    reader.flow(2)
    reader.state([1, 2])
    assert (reader.settled, reader.stores) == ([0, 1], [])


def test_an_outcome_is_settled_when_it_is_stored_and_not_before() -> None:
    reader = Reader(5, Cursor(1, 0))
    reader.flow(5)
    reader.state([1])
    reader.state([2, 3], Rejected())
    assert reader.settled == []
    reader.store()  # the first; the others wait for one transaction
    assert reader.settled == [0]
    reader.store()
    assert (reader.settled, reader.cursor.low) == ([0, 1, 2], 3)


def test_what_was_stated_before_the_link_ended_is_stored_behind_it() -> None:
    reader = Reader(3, Cursor(1, 0))
    reader.flow(3)
    reader.state([1])
    reader.state([2, 3])
    reader.core.on_detached()
    reader.store()
    reader.store()
    assert (reader.cursor.low, reader.settled, reader.stores) == (3, [], [])


def test_what_the_reader_has_settled_itself_is_not_answered() -> None:
    reader = Reader(1, Cursor(1, 0))
    reader.flow(1)
    reader.state([1], is_settled=True)
    reader.store()
    assert (reader.settled, reader.cursor.low) == ([], 1)


@pytest.mark.parametrize("state", [RELEASED, Modified(delivery_failed=True), None])
def test_what_is_not_read_comes_again_before_later_messages(state: DeliveryState | None) -> None:
    reader = Reader(6, Cursor(1, 0))
    reader.flow(3)
    reader.state([1, 3], state)
    assert (reader.settled, reader.stores) == ([0, 2], [])
    reader.flow(6)
    assert reader.got == [1, 2, 3, 1, 3, 4]


def test_modified_that_is_undeliverable_here_counts_as_read() -> None:
    reader = Reader(1, Cursor(1, 0))
    reader.flow(1)
    reader.state([1], Modified(undeliverable_here=True))
    assert [store.positions for store in reader.stores] == [(1,)]


def test_presented_deliveries_are_resumed_and_the_others_are_new_in_the_order_of_positions() -> None:
    reader = Reader(8, Cursor(4, 2, (5,)), presented=[1, 3, 5, 6, 9])
    assert reader.map == {core.tag_of(reader.journal, 3): None, core.tag_of(reader.journal, 6): None}
    reader.flow(10)
    assert (reader.resumed, reader.got) == ([3, 6], [4, 7, 8])


def test_a_presented_delivery_that_was_replaced_is_settled() -> None:
    reader = Reader(8, Cursor(1, 0), presented=[2, 5, 8], missing=[2, 5, 8])
    reader.flow(2)
    assert (reader.got, reader.abandoned) == ([1], [2])
    reader.flow(20)
    assert (reader.got, reader.abandoned) == ([1, 3, 4, 6, 7], [2, 5, 8])


def test_a_released_message_that_was_replaced_counts_as_read() -> None:
    reader = Reader(2, Cursor(1, 0))
    reader.flow(5)
    reader.missing = {1}
    reader.state([1], RELEASED)
    assert [store.positions for store in reader.stores] == [(1,)]


def test_the_map_of_another_journal_means_nothing_here() -> None:
    reader = Reader(3, Cursor(1, 0))
    other = core.tag_of(journal_with(3, "ffffffffffffffff"), 2)
    assert reader.core.on_opened(reader.journal, 0, Cursor(1, 0), [other, b"", b"J" * 19]) == {}
    assert core.presented_as_read(reader.journal, {other: ACCEPTED, core.tag_of(reader.journal, 1): ACCEPTED}) == [1]


def test_outcomes_of_a_map_count_as_read_only_where_they_are_final() -> None:
    journal = journal_with(4)
    unsettled = {core.tag_of(journal, p): state for p, state in enumerate([ACCEPTED, None, RELEASED, Rejected()], 1)}
    assert core.presented_as_read(journal, unsettled) == [1, 4]


def test_no_more_is_under_way_than_the_map_of_an_attach_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "MAX_UNDER_WAY", 3)
    reader = Reader(9, Cursor(1, 0))
    reader.flow(100)
    assert reader.got == [1, 2, 3]
    reader.state([2])
    reader.store()
    assert reader.got == [1, 2, 3, 4]


def test_nothing_is_sent_far_ahead_of_the_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "MAX_AHEAD", 3)
    reader = Reader(9, Cursor(1, 0))
    reader.flow(100)
    reader.state([2, 3])
    reader.store()
    assert (reader.got, reader.cursor) == ([1, 2, 3], Cursor(1, 0, (2, 3)))
    reader.state([1])
    reader.store()
    assert reader.got == [1, 2, 3, 4, 5, 6]


def test_a_released_message_comes_again_though_later_ones_are_too_far_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "MAX_AHEAD", 3)
    reader = Reader(9, Cursor(1, 0))
    reader.flow(1)
    reader.flow(9)
    reader.state([1], RELEASED)
    assert reader.got == [1, 2, 3, 1]
    reader.state([1, 2, 3])
    reader.store()
    assert reader.got == [1, 2, 3, 1, 4, 5, 6]


def test_a_reader_goes_on_where_more_was_replaced_than_it_may_be_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "MAX_AHEAD", 3)
    reader = Reader(9, Cursor(1, 0), missing=range(2, 9))
    reader.flow(9)
    assert (reader.got, reader.stores) == ([1], [])
    reader.state([1])
    reader.do(reader.core.on_stored(reader.stores.pop(), Cursor(1, 1)))  # they were replaced a moment later
    (asked,) = reader.stores
    assert asked == core.Store((), ())
    reader.do(reader.core.on_stored(asked, Cursor(1, 8)))
    assert reader.got == [1, 9]


def test_a_store_that_may_have_failed_ends_the_link_and_the_next_attach_shows_it() -> None:
    reader = Reader(1, Cursor(1, 0))
    reader.flow(1)
    reader.state([1])
    reader.do(reader.core.on_stored(reader.stores.pop(), StoreUnreachable("no", "it broke", "again")))
    (detach,) = [each for each in reader.others if isinstance(each, Detach)]
    assert not detach.closed
    assert reader.settled == []


def test_another_link_takes_the_cursor_and_this_one_ends() -> None:
    reader = Reader(1, Cursor(1, 0))
    reader.do(reader.core.on_taken())
    (detach,) = reader.others
    assert detach.error.condition == "amqp:link:stolen"
    assert error_of(CursorTaken("a", "b", "c")).condition == "amqp:link:stolen"


@pytest.mark.parametrize(
    ("error", "condition"),
    [(trimmed("orders", 1, 3, 9), "amqp:precondition-failed"), (unknown_journal("orders"), "amqp:resource-deleted")],
)
def test_a_reader_whose_messages_are_gone_is_detached_with_the_reason(error: Any, condition: str) -> None:
    reader = Reader(2)
    reader.do(reader.core.on_flow(5, False))
    reader.do(reader.core.on_read(reader.reads.pop(), error))
    (detach,) = reader.others
    assert (detach.closed, detach.error.condition) == (True, condition)


def test_a_journal_that_was_made_again_ends_the_link() -> None:
    reader = Reader(2)
    reader.do(reader.core.on_flow(5, False))
    reader.do(reader.core.on_read(reader.reads.pop(), (journal_with(1, "99"), [])))
    (detach,) = reader.others
    assert detach.error.condition == "amqp:resource-deleted"


def test_a_store_that_cannot_be_read_is_asked_again() -> None:
    reader = Reader(2)
    reader.do(reader.core.on_flow(5, False))
    reader.do(reader.core.on_read(reader.reads.pop(), StoreUnreachable("no", "it broke", "again")))
    assert reader.others == [core.Wait()]
    reader.do(reader.core.on_changed())
    reader.run_reads()
    assert reader.got == [1, 2]


@given(st.data())
def test_over_any_crashes_a_reader_with_a_map_gets_each_message_once_and_in_order(data: st.DataObject) -> None:
    """The reader's map and the cursor are all that a crash of the edge leaves."""
    last = data.draw(st.integers(1, 12))
    cursor = Cursor(1, 0)
    unsettled: dict[int, DeliveryState | None] = {}
    delivered: list[int] = []
    for _ in range(data.draw(st.integers(1, 6)) + 1):
        journal = journal_with(last)
        presented: Mapping[bytes, DeliveryState | None] = {
            core.tag_of(journal, position): state for position, state in unsettled.items()
        }
        cursor = cursors.moved(cursor, core.presented_as_read(journal, presented))
        reader = Reader(last, cursor, presented=unsettled)
        kept = {core.position_of(journal, tag) for tag in reader.map}
        unsettled = {position: state for position, state in unsettled.items() if position in kept}
        reader.flow(data.draw(st.integers(0, last)))
        lost = data.draw(st.integers(0, len(reader.got)))
        for position in sorted(reader.resumed + reader.got[: len(reader.got) - lost]):
            if position not in unsettled:
                delivered.append(position)
                unsettled[position] = None
        done = data.draw(st.lists(st.sampled_from(sorted(unsettled)), unique=True)) if unsettled else []
        for position in done:
            unsettled[position] = ACCEPTED
        known = [position for position in done if position in reader.numbers and data.draw(st.booleans())]
        reader.state(known)
        is_stored, is_settled = data.draw(st.booleans()), data.draw(st.booleans())
        if reader.stores and is_stored:
            reader.store()
            cursor = reader.cursor
            if is_settled:
                for position in known:
                    del unsettled[position]
    reader = Reader(last, cursors.moved(cursor, [p for p, s in unsettled.items() if s is not None]), unsettled)
    reader.flow(last + len(unsettled))
    assert delivered + reader.got == list(range(1, last + 1))
