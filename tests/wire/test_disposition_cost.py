"""What a disposition costs: the deliveries it changes, whatever range it names and however often it comes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from oncewire.wire import (
    ACCEPTED,
    RELEASED,
    DeliveryReceived,
    DeliveryState,
    Disposition,
    DispositionReceived,
    LinkDetached,
    Received,
    ReceiverLink,
    SenderLink,
)
from oncewire.wire.unsettled import SERIAL_MASK, IdRanges, Unsettled
from tests.support.effort import partly
from tests.support.engines import Pipe, frame, only

WINDOW = 2000
HOSTILE_RANGE = (0, 0x80000000)


class CountingRow(list[Any]):
    """The row of a session's table, which counts how many of its places are looked at."""

    visits = 0

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        self.visits += len(found) if isinstance(at, slice) else 1
        return found

    def __iter__(self) -> Iterator[Any]:
        for each in super().__iter__():
            self.visits += 1
            yield each


def counted(table: Unsettled) -> CountingRow:
    """Have the visits of a session's table counted from now on."""
    counting = CountingRow(table._links)
    table._links = counting
    return counting


def window(credit: int = WINDOW, links: int = 1) -> tuple[Pipe, list[tuple[SenderLink, ReceiverLink]]]:
    """Links toward the server on which deliveries are unsettled, in turn."""
    pipe = Pipe()
    pairs = [pipe.link_to_server(f"link{number}", credit=credit) for number in range(links)]
    for number in range(credit):
        sender, _ = pairs[number % links]
        sender.send(b"%d" % number, b"")
        if number % 500 == 0:
            pipe.forget()
    pipe.forget()
    return pipe, pairs


@pytest.mark.parametrize("state", [None, Received(0, 1), ACCEPTED, RELEASED])
def test_a_thousand_dispositions_over_everything_visit_each_delivery_once_at_most(state: DeliveryState | None) -> None:
    pipe, ((sender, _),) = window()
    counting = counted(sender.session.sent_unsettled)
    for _ in range(1000):
        pipe.client.receive_data(frame(Disposition(True, *HOSTILE_RANGE, False, state)), 0.0)
    reported = only(pipe.client.events(), DispositionReceived)
    answers = state in (ACCEPTED, RELEASED)
    assert [len(event.deliveries) for event in reported] == ([WINDOW] if answers else [])
    assert counting.visits == (WINDOW if answers else 0)


def test_alternating_outcomes_visit_each_delivery_once() -> None:
    pipe, ((sender, _),) = window()
    counting = counted(sender.session.sent_unsettled)
    for number in range(0, WINDOW, 2):
        pipe.client.receive_data(frame(Disposition(True, number, number, False, ACCEPTED)), 0.0)
    for number in range(WINDOW):
        state = RELEASED if number % 3 else ACCEPTED
        pipe.client.receive_data(frame(Disposition(True, 0, number, False, state)), 0.0)
    reported = only(pipe.client.events(), DispositionReceived)
    assert sorted(number for event in reported for number, _ in event.deliveries) == list(range(WINDOW))
    assert counting.visits == WINDOW


def test_a_settlement_of_numbers_that_are_not_there_visits_nothing() -> None:
    pipe, ((sender, _),) = window()
    counting = counted(sender.session.sent_unsettled)
    for _ in range(1000):
        pipe.client.receive_data(frame(Disposition(True, WINDOW + 5, 0x7FFFFFFF, True, ACCEPTED)), 0.0)
    pipe.client.receive_data(frame(Disposition(True, WINDOW - 1, 0x7FFFFFFF, True, ACCEPTED)), 0.0)
    (reported,) = only(pipe.client.events(), DispositionReceived)
    assert reported.deliveries == [(WINDOW - 1, b"%d" % (WINDOW - 1))]
    assert counting.visits == 1


def test_a_link_that_ends_visits_only_its_own_deliveries() -> None:
    pipe, ((sender, _), (other, _)) = window(links=2)
    other.settle(range(1, WINDOW, 2))
    counting = counted(sender.session.sent_unsettled)
    other.detach(False)
    assert counting.visits == 0
    assert len(sender.session.sent_unsettled) == WINDOW // 2
    pipe.forget()


def test_a_settlement_by_the_sender_visits_only_what_is_left() -> None:
    pipe, ((_, receiver),) = window()
    counting = counted(receiver.session.received_unsettled)
    for _ in range(1000):
        pipe.server.receive_data(frame(Disposition(False, *HOSTILE_RANGE, True)), 0.0)
    (reported,) = only(pipe.server.events(), DispositionReceived)
    assert len(reported.deliveries) == counting.visits == WINDOW


@pytest.mark.parametrize("settled", [False, True])
def test_a_long_disposition_is_carried_out_in_parts_and_in_order(settled: bool) -> None:
    pipe, ((sender, _),) = window()
    data = frame(Disposition(True, *HOSTILE_RANGE, settled, ACCEPTED)) + frame(
        Disposition(True, *HOSTILE_RANGE, True, RELEASED)
    )
    more = pipe.client.receive_data(data, 0.0, 300)
    steps = [only(pipe.client.events(), DispositionReceived)]
    while more:
        more = pipe.client.receive_data(b"", 0.0, 300)
        steps.append(only(pipe.client.events(), DispositionReceived))
    assert max(sum(len(event.deliveries) for event in reported) for reported in steps) <= 300
    reported = [event for step in steps for event in step]
    numbers = [number for event in reported for number, _ in event.deliveries]
    assert numbers == [*range(WINDOW)] * (1 if settled else 2)
    assert {event.settled for event in reported} == {settled, True}
    assert not sender.session.sent_unsettled


def test_what_is_left_of_a_disposition_goes_with_its_link() -> None:
    pipe, ((sender, _),) = window()
    assert pipe.client.receive_data(frame(Disposition(True, *HOSTILE_RANGE, True)), 0.0, 300)
    sender.session.end()
    pipe.client.events()
    while pipe.client.receive_data(b"", 0.0, 300):
        pass
    assert only(pipe.client.events(), DispositionReceived) == []


def test_frames_are_taken_a_few_at_a_time_and_none_is_lost() -> None:
    pipe = Pipe()
    sender, receiver = pipe.link_to_server(credit=100)
    for number in range(100):
        sender.send(b"%d" % number, b"")
    sender.detach(False)
    data, steps, more = pipe.client.data_to_send(), 0, True
    events = []
    while more:
        more = pipe.server.receive_data(data, 0.0, 7)
        found = pipe.server.events()
        assert len(found) <= 8
        events += found
        data, steps = b"", steps + 1
    assert steps >= 100 // 7
    assert [event.tag for event in only(events, DeliveryReceived)] == [b"%d" % number for number in range(100)]
    assert isinstance(events[-1], LinkDetached)
    assert receiver.unsettled_count == 0


def test_ranges_hold_what_a_plain_set_holds() -> None:
    rng = random.Random(13)
    for _ in range(300):
        ranges, plain = IdRanges(), set(range(-5, 0))
        for _ in range(rng.randrange(30)):
            first = rng.randrange(40)
            last = first + rng.randrange(6)
            if rng.random() < 0.7:
                ranges.add(first, last)
                plain.update(range(first, last + 1))
            else:
                ranges.discard(first)
                plain.discard(first)
            low, high = rng.randrange(-5, 50), rng.randrange(-5, 50)
            missing = [number for start, stop in ranges.gaps(low, high) for number in range(start, stop + 1)]
            assert missing == [number for number in range(low, high + 1) if number not in plain]


@pytest.mark.parametrize("origin", [0, 5, 0x7FFFFFFE, 0xFFFFFFF0])
def test_the_table_of_a_session_agrees_with_a_plain_dictionary(origin: int) -> None:
    rng = random.Random(origin)
    pipe = Pipe()
    links = [pipe.link_to_server(name)[0] for name in "ab"]
    table, plain, answered = Unsettled(), dict[int, SenderLink](), set[int]()
    tags = dict[int, bytes]()
    numbers = iter(range(origin, origin + 400))
    for _ in range(600):
        kind = rng.randrange(5)
        first = (origin + rng.randrange(400)) & SERIAL_MASK
        span = rng.choice([0, 3, 50, SERIAL_MASK])
        inside = [number for number in plain if (number - first) & SERIAL_MASK <= span]
        if kind <= 1:
            number = next(numbers, None)
            if number is not None and rng.random() < 0.8:
                link = rng.choice(links)
                table.add(number & SERIAL_MASK, link, b"%d" % number)
                plain[number & SERIAL_MASK], tags[number & SERIAL_MASK] = link, b"%d" % number
        elif kind == 2:
            link = rng.choice(links)
            named = [number for number in inside if plain[number] is link]
            settled = rng.random() < 0.5
            spans = table.merge(link, inside, settled)
            assert sum((last - start) + 1 for start, last in spans) == len(named)
            for number in named if settled else ():
                del plain[number]
        else:
            settled = kind == 3
            found, visited, rest = table.select(first, (first + span) & SERIAL_MASK, settled, 1 << 40)
            expected = inside if settled else [number for number in inside if number not in answered]
            assert rest is None
            assert visited == len(expected)
            assert sorted(number for named in found.values() for number in named.ids) == sorted(expected)
            assert all(plain[number] is link for link, named in found.items() for number in named.ids)
            reported = {
                number: tag for named in found.values() for number, tag in zip(named.ids, named.tags, strict=True)
            }
            assert reported == {number: tags[number] for number in expected}
            answered.update(expected)
            for number in expected if settled else ():
                del plain[number]
        assert sorted(table) == sorted(plain)


def _drive_links(seed: int) -> None:
    """Random steps on a table whose ids partly belong to settled deliveries, against a plain dictionary."""
    rng = random.Random(seed)
    table = Unsettled()
    pipe = Pipe()
    links = [pipe.link_to_server(name)[0] for name in "abc"]
    plain: dict[int, tuple[SenderLink, bytes]] = {}
    number = rng.choice([0, 7, SERIAL_MASK - 40])
    stays = rng.random() < 0.5  # deliveries of the first link are seldom settled
    for step in range(400):
        kind = rng.random()
        link = rng.choice(links)
        if kind < 0.6:
            for _ in range(rng.choice([1, 3, 40])):
                number = (number + rng.choice([1, 1, 1, 1, 1, 1, 2, 90])) & SERIAL_MASK
                assert table.takes(number)
                tag = b"%d" % step
                table.add(number, link, tag)
                plain[number] = (link, tag)
                assert not table.takes(number)
        elif kind < 0.65:
            back = (number - rng.randrange(300)) & SERIAL_MASK  # a peer may use an id again
            if back not in plain:
                assert table.takes(back)
                table.add(back, link, b"again")
                plain[back] = (link, b"again")
        elif kind < 0.72 and not (stays and link is links[0]):
            table.forget(link)
            assert not link.unsettled_count
            plain = {each: value for each, value in plain.items() if value[0] is not link}
        elif kind < 0.85:
            named = [each for each in plain if plain[each][0] is link][: rng.choice([1, 5, 1000])]
            if not (stays and link is links[0]):
                table.merge(link, sorted(named), True)
                for each in named:
                    del plain[each]
        else:
            first, span = (number - rng.randrange(200)) & SERIAL_MASK, rng.choice([0, 10, 300])
            inside = [each for each in plain if (each - first) & SERIAL_MASK <= span]
            found, visited, _ = table.select(first, (first + span) & SERIAL_MASK, True, 1 << 40)
            assert visited == len(inside)
            reported = {}
            for owner, entry in found.items():
                reported.update({each: (owner, tag) for each, tag in zip(entry.ids, entry.tags, strict=True)})
            assert reported == {each: plain.pop(each) for each in inside}
        assert len(table) == len(plain)
        assert sorted(table) == sorted(plain)
        assert [each.unsettled_count for each in links] == [
            sum(owner is each for owner, _ in plain.values()) for each in links
        ]


@pytest.mark.parametrize("seed", partly(range(40)))
def test_links_keep_their_deliveries_whatever_other_links_do(seed: int) -> None:
    _drive_links(seed)


def test_a_delivery_that_stays_does_not_make_the_table_grow_with_those_that_pass_it() -> None:
    table = Unsettled()
    _, ((link, _),) = window(credit=1)
    link.session.sent_unsettled.forget(link)
    table.add(0, link, b"stays")
    for number in range(1, 50_000):
        table.add(number, link, b"passes")
        if number >= 10:
            table.merge(link, [number - 9], True)
    assert len(table) == 10
    assert len(table._links) + len(table._passed_over) < 4096
    found, visited, _ = table.select(0, 0, True, 1)
    assert (visited, found[link].tags) == (1, [b"stays"])


def test_ids_far_apart_take_no_room_for_what_is_between_them() -> None:
    table = Unsettled()
    _, ((link, _),) = window(credit=1)
    link.session.sent_unsettled.forget(link)
    for number in range(0, 1 << 30, 1 << 24):
        table.add(number, link, b"t")
    assert len(table) == len(list(table)) == 64
    assert len(table._links) == 1
