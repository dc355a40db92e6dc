"""Dispositions one by one over deliveries in a row are one range; nothing else about them differs."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from oncewire.wire import (
    ACCEPTED,
    RELEASED,
    ConnectionState,
    Disposition,
    DispositionReceived,
    Performative,
    SenderLink,
)
from tests.support.engines import Pipe, frame, only

WINDOW = 600


def window() -> tuple[Pipe, tuple[SenderLink, SenderLink]]:
    """Two links of one session; deliveries 0 to 599 are the first one's, but each hundredth is the other's."""
    pipe = Pipe()
    one, other = (pipe.link_to_server(name, credit=WINDOW)[0] for name in ("one", "other"))
    for number in range(WINDOW):
        (other if number % 100 == 99 else one).send(b"%d" % number, b"")
    pipe.forget()
    return pipe, (one, other)


def received(frames: list[bytes], chunks: Iterator[int]) -> dict[str, list[tuple[object, bool, bytes]]]:
    """What is reported of the deliveries of each link, in order, when the frames come in pieces of these sizes."""
    pipe, _ = window()
    data = b"".join(frames)
    reported: dict[str, list[tuple[object, bool, bytes]]] = {"one": [], "other": []}
    while data:
        size = next(chunks)
        pipe.client.receive_data(data[:size], 0.0)
        data = data[size:]
        for event in only(pipe.client.events(), DispositionReceived):
            reported[event.link.name] += [(event.state, event.settled, tag) for tag in event.tags]
    return reported


def each(numbers: range, settled: bool = True, state: object = None) -> list[Performative]:
    return [Disposition(True, number, None, settled, state) for number in numbers]  # type: ignore[arg-type]


def test_settlements_one_by_one_are_reported_as_ranges() -> None:
    pipe, _ = window()
    pipe.client.receive_data(b"".join(frame(each_one) for each_one in each(range(1, 90))), 0.0)
    (event,) = only(pipe.client.events(), DispositionReceived)
    assert list(event.ids) == list(range(1, 90))
    assert event.settled


@pytest.mark.parametrize("state", [ACCEPTED, RELEASED])
def test_outcomes_one_by_one_are_reported_as_ranges(state: object) -> None:
    pipe, _ = window()
    pipe.client.receive_data(b"".join(frame(each_one) for each_one in each(range(1, 90), False, state)), 0.0)
    (event,) = only(pipe.client.events(), DispositionReceived)
    assert (list(event.ids), event.state, event.settled) == (list(range(1, 90)), state, False)


def hostile_mixture(seed: int) -> list[bytes]:
    """Runs that break off for any reason there is: gaps, repetitions, other states, other forms."""
    choice = random.Random(seed)
    frames: list[bytes] = []
    number = 0
    while number < WINDOW:
        length, settled = choice.randrange(1, 40), choice.random() < 0.5
        state = choice.choice([None, ACCEPTED, RELEASED])
        for at in range(number, min(number + length, WINDOW)):
            last = at if choice.random() < 0.05 else None
            frames.append(frame(Disposition(True, at, last, settled, state)))
        number += choice.choice([length, length, length - 1, length + 3, max(1, length // 2)])
    return frames


@pytest.mark.parametrize("seed", range(30))
def test_runs_report_the_same_of_each_delivery_as_frames_that_come_alone(seed: int) -> None:
    frames = hostile_mixture(seed)
    alone = iter([len(each_one) for each_one in frames])
    whole = iter([10**9])
    choice = random.Random(seed)
    cut = iter(lambda: choice.randrange(1, 900), 0)
    expected = received(frames, alone)
    assert all(expected.values())
    assert received(frames, whole) == expected
    assert received(frames, cut) == expected


def test_a_run_ends_where_a_frame_is_longer_or_its_bytes_are_not_all_there() -> None:
    frames = [frame(each_one) for each_one in each(range(250, 262))]  # a uint of a byte, then of four
    assert len({len(each_one) for each_one in frames}) == 2
    pipe, _ = window()
    pipe.client.receive_data(b"".join(frames)[:-1], 0.0)
    found = [number for event in only(pipe.client.events(), DispositionReceived) for number in event.ids]
    assert found == list(range(250, 261))
    pipe.client.receive_data(frames[-1][-1:], 0.0)
    (event,) = only(pipe.client.events(), DispositionReceived)
    assert list(event.ids) == [261]


def test_a_run_does_not_go_on_over_another_session() -> None:
    pipe, _ = window()
    frames = [frame(each_one, channel=number % 2) for number, each_one in enumerate(each(range(2)))]
    pipe.client.receive_data(b"".join(frames), 0.0)
    assert [list(event.ids) for event in only(pipe.client.events(), DispositionReceived)] == [[0]]
    assert pipe.client.state is not ConnectionState.OPENED  # nothing is on channel 1
