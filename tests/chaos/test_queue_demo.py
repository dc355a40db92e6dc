"""`oncewire demo-queue`: its checker, its end by Ctrl-C, and one small run with real kills."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from chaos.experiments.queue_demo.flight_core import FlightFailed, Verdict, body_of, judge, parse
from chaos.experiments.queue_demo.processes import Kind
from chaos.experiments.queue_demo.run import QueueOptions
from tests.chaos.demo_process import break_off, run_to_its_end

ROWS = [
    b"2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z",
    b"2013,1,1,1525,1530,-5,1934,1805,NA,MQ,4525,N719MQ,LGA,XNA,NA,1147,15,30,2013-01-01T20:00:00Z",
    b"2013,1,1,544,545,-1,1004,1022,-18,B6,725,N804JB,JFK,BQN,183,1576,5,45,2013-01-01T10:00:00Z",
]
OUT = [parse(body_of(number, ROWS[number - 1]), 1) for number in (1, 3)]
DEAD = [body_of(2, ROWS[1])]


def test_what_came_out_once_or_died_as_it_should_is_exact() -> None:
    verdict = judge(ROWS, OUT, DEAD, [3, 1])
    assert verdict == Verdict(received=2, dead=1, lost=0, duplicated=0, effects_twice=0, unexpected=0)
    assert verdict.is_exact


@pytest.mark.parametrize(
    ("received", "dead", "effects", "found"),
    [
        (OUT[:1], DEAD, [1, 3], "lost"),
        (OUT, [], [1, 3], "lost"),
        (OUT, DEAD, [1], "lost"),
        ([*OUT, OUT[0]], DEAD, [1, 3], "duplicated"),
        (OUT, DEAD * 2, [1, 3], "duplicated"),
        (OUT, DEAD, [1, 3, 3], "effects_twice"),
        ([*OUT, b"x"], DEAD, [1, 3], "unexpected"),
        (OUT, [*DEAD, body_of(1, ROWS[0])], [1, 3], "unexpected"),
        (OUT, DEAD, [1, 2, 3], "unexpected"),
    ],
)
def test_the_verdict_sees_each_fault(received: list[bytes], dead: list[bytes], effects: list[int], found: str) -> None:
    verdict = judge(ROWS, received, dead, effects)
    assert getattr(verdict, found) == 1
    assert not verdict.is_exact


def test_a_flight_that_never_arrived_fails_always_and_some_others_once() -> None:
    for tries in range(3):
        with pytest.raises(FlightFailed):
            parse(DEAD[0], tries)
    failed = 0
    for number in range(1000):
        body = body_of(number, ROWS[0])
        try:
            parse(body, 0)
        except FlightFailed:
            failed += 1
            parse(body, 1)
    assert 20 < failed < 100


def test_each_kind_is_killed_as_often() -> None:
    schedule = QueueOptions(messages=500, kills=10, routers=3, seed=7).schedule()
    assert sorted(kind.value for kind in schedule) == sorted([kind.value for kind in Kind] * 2)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_is_exact_and_ends_with_its_json_line_and_leaves_nothing_behind(tmp_path: Path) -> None:
    result, _ = run_to_its_end(
        tmp_path / "temporary", "demo-queue", "--messages", "1000", "--kills", "5", "--routers", "2"
    )
    assert result["published"] == result["received"] + result["dead_letters"] == 1000
    assert result["dead_letters"] > 0
    assert (result["lost"], result["duplicated"], result["effects_twice"], result["unexpected"]) == (0, 0, 0, 0)
    assert result["kills"] == dict.fromkeys([kind.value for kind in Kind], 1)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_process_outlives_a_run_that_is_broken_off(tmp_path: Path, number: signal.Signals) -> None:
    break_off(tmp_path / "temporary", number, "demo-queue")
