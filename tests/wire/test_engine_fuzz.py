"""Seeded fuzz of the engine: more than 20,000 streams, two thirds of them inside an established, resumed link."""

from __future__ import annotations

import random
import sys
from types import FrameType
from typing import Any

import pytest

from chaos.fuzz.streams import established, feed, fresh, legal_frame, mutated_start, mutated_stream
from oncewire.wire import ACCEPTED, ConnectionState, Disposition, DispositionReceived, Role
from tests.support.effort import rounds
from tests.support.engines import frame, one

STREAMS = rounds(2_000)


@pytest.mark.parametrize("role", list(Role), ids=lambda role: role.name.lower())
@pytest.mark.parametrize("batch", [0, *(pytest.param(batch, marks=pytest.mark.slow) for batch in range(1, 4))])
def test_mutated_frames_on_an_established_link_end_in_order(role: Role, batch: int) -> None:
    """In all 16,000 streams: 8,000 for either role."""
    alive = ended = 0
    for number in range(STREAMS):
        rng = random.Random(f"established {role.name} {batch} {number}")
        owner = established(role, rng)
        feed(owner, mutated_stream(rng), rng)
        if owner.engine.state is ConnectionState.ENDED:
            ended += 1
        else:
            alive += 1
    # Neither everything is refused nor everything taken: the streams reach deep and still break rules.
    assert alive > STREAMS // 20
    assert ended > STREAMS // 5


@pytest.mark.parametrize("batch", [0, *(pytest.param(batch, marks=pytest.mark.slow) for batch in range(1, 3))])
def test_mutated_first_bytes_end_in_order(batch: int) -> None:
    """In all 6,000 streams from the protocol header on, with and without SASL, for either role."""
    for number in range(STREAMS):
        rng = random.Random(f"start {batch} {number}")
        owner, sasl = fresh(rng)
        feed(owner, mutated_start(rng, sasl), rng)


def test_long_runs_of_legal_frames_in_any_order_end_in_order() -> None:
    for number in range(rounds(200)):
        rng = random.Random(f"legal {number}")
        owner = established(rng.choice(list(Role)), rng)
        feed(owner, b"".join(frame(*legal_frame(rng)) for _ in range(60)), rng)


def test_a_stream_takes_steps_in_proportion_to_its_bytes() -> None:
    """Every call, of Python and C functions alike, is a step."""
    steps = 0

    def count(at: FrameType, event: str, argument: Any) -> None:
        nonlocal steps
        steps += 1

    for number in range(300):
        rng = random.Random(f"steps {number}")
        owner = established(rng.choice(list(Role)), rng)
        stream = mutated_stream(rng)
        engine = owner.engine
        steps = 0
        sys.setprofile(count)
        try:
            engine.receive_data(stream, 0.0)
        finally:
            sys.setprofile(None)
        assert steps < 2_000 + 60 * len(stream)


@pytest.mark.parametrize("role", list(Role), ids=lambda role: role.name.lower())
def test_a_frame_of_size_0_ends_the_connection(role: Role) -> None:
    rng = random.Random(0)
    owner = established(role, rng)
    feed(owner, bytes(1000), rng)
    assert owner.engine.state is ConnectionState.ENDED


@pytest.mark.parametrize("role", list(Role), ids=lambda role: role.name.lower())
@pytest.mark.parametrize(
    ("first", "last"), [(0, 0xFFFFFFFF), (1, 0), (0xFFFFFFFF, 0xFFFFFFFE), (0x80000000, 0x7FFFFFFF)]
)
def test_a_disposition_of_2_to_the_32_means_what_is_unsettled(role: Role, first: int, last: int) -> None:
    owner = established(role, random.Random(0))
    owner.engine.receive_data(frame(Disposition(True, first, last, True, ACCEPTED)), 0.0)
    reported = one(owner.engine.events(), DispositionReceived)
    assert sorted(number for number, _ in reported.deliveries) == [0, 1, 2, 3, 4]
    assert owner.engine.state is ConnectionState.OPENED
