"""`oncewire demo-spark`: its checker, its errors, its end by Ctrl-C, and one small run with real kills."""

from __future__ import annotations

import importlib.util
import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import click
import pytest

from bridges.spark import java
from chaos.experiments.spark_demo.cli import demo_spark
from chaos.experiments.spark_demo.kills import Kind, Phase, phase_of
from chaos.experiments.spark_demo.outputs_core import OutputVerdict, expected_output, judge_outputs
from chaos.experiments.spark_demo.run import SparkOptions
from chaos.experiments.spark_demo.sessions import kill_session, members
from oncewire.cli.run import run
from oncewire.client.transactions.sequence_header import Producer, ProducerId, SequenceHeader
from oncewire.wire import Message, encode_message
from tests.chaos.demo_process import break_off, run_to_its_end
from tests.support.golden import assert_golden

GOLDEN = Path(__file__).parent / "golden"
END_S = 300.0
"""Seconds that no process needs to end."""

# --- the checker ------------------------------------------------------------------------------------------------------

ROWS = [
    b"2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z",
    b"2013,1,1,1525,1530,-5,1934,1805,NA,MQ,4525,N719MQ,LGA,XNA,NA,1147,15,30,2013-01-01T20:00:00Z",
    b"2013,1,1,544,545,-1,1004,1022,-18,B6,725,N804JB,JFK,BQN,183,1576,5,45,2013-01-01T10:00:00Z",
    b"2013,1,1,554,600,-6,812,837,-25,DL,461,N668DN,LGA,ATL,116,762,6,0,2013-01-01T11:00:00Z",
]


def body(number: int, run_number: int = 1, **changes: object) -> bytes:
    return json.dumps(expected_output(number, ROWS[number - 1]) | {"run": run_number} | changes).encode()


def encoded(header: SequenceHeader | None, content: bytes) -> bytes:
    return encode_message(Message(content, annotations={} if header is None else header.annotations()))


def batches(*contents: Sequence[bytes]) -> list[bytes]:
    """What the job's sink publishes: each batch as one transaction that its last message commits."""
    producer = Producer(ProducerId("delays", 1))
    found = []
    for batch in contents:
        headers = [producer.pending() for _ in batch[:-1]] + [producer.last()]
        found += [encoded(header, content) for header, content in zip(headers, batch, strict=True)]
    return found


def counts(verdict: OutputVerdict) -> tuple[int, int, int]:
    return verdict.lost, verdict.duplicated, verdict.torn


def test_what_came_exactly_once_is_exact() -> None:
    verdict = judge_outputs(ROWS, batches([body(2), body(1)], [body(3, 2), body(4, 2)]))
    assert (verdict.received, verdict.batches, verdict.runs) == (4, 2, {1, 2})
    assert counts(verdict) == (0, 0, 0)
    assert verdict.is_exact
    assert verdict.findings == []
    assert verdict.late_minutes == {"UA": 11, "B6": -18, "DL": -25}


def test_a_row_without_an_output_is_lost() -> None:
    verdict = judge_outputs(ROWS, batches([body(1), body(2)], [body(4)]))
    assert counts(verdict) == (1, 0, 0)
    assert verdict.findings == ["row 3 has no output"]


def test_a_row_with_two_outputs_is_duplicated() -> None:
    verdict = judge_outputs(ROWS, batches([body(1), body(2)], [body(3), body(4)], [body(2, 2)]))
    assert counts(verdict) == (0, 1, 0)
    assert not verdict.is_exact


def test_a_message_that_comes_again_is_duplicated_though_its_identity_is_known() -> None:
    sent = batches([body(1), body(2)], [body(3), body(4)])
    assert counts(judge_outputs(ROWS, [*sent, sent[1]])) == (0, 1, 0)


def test_an_identity_with_two_contents_is_torn() -> None:
    sent = batches([body(1), body(2), body(3), body(4)])
    other = batches([body(1), body(2, 2), body(3), body(4)])
    assert counts(judge_outputs(ROWS, [*sent, other[1]])) == (0, 1, 1)


def test_a_batch_of_which_a_part_came_is_torn_and_its_rows_are_lost() -> None:
    sent = batches([body(1), body(2)], [body(3), body(4)])
    assert counts(judge_outputs(ROWS, sent[:-1])) == (2, 0, 1)


def test_a_batch_of_two_runs_is_torn() -> None:
    verdict = judge_outputs(ROWS, batches([body(1), body(2, 2), body(3)], [body(4)]))
    assert counts(verdict) == (0, 0, 3)
    assert verdict.findings == ["batch 1 is of several runs: 2 of run 1, 1 of run 2"]


@pytest.mark.parametrize(
    "content", [body(1, carrier="XX"), body(1, minutes_late=12), body(2, minutes_late=0), body(1, row=5), b"7", b"{"]
)
def test_a_content_that_no_row_gives_is_torn(content: bytes) -> None:
    verdict = judge_outputs(ROWS, batches([body(1), body(2), body(3), body(4)], [content]))
    assert counts(verdict) == (0, 0, 1)


def test_a_message_without_an_identity_is_torn() -> None:
    assert counts(judge_outputs(ROWS[:1], [*batches([body(1)]), encoded(None, body(1))])) == (0, 0, 1)


def test_findings_are_some_and_numbers_are_all() -> None:
    verdict = judge_outputs(ROWS * 25, [])
    assert verdict.lost == 100
    assert len(verdict.findings) == 5


# --- parts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kills", "workers", "seed"), [(4, 2, 1), (6, 0, 1), (8, 2, 5)])
def test_kills_are_of_all_kinds_and_spread_over_the_rows(kills: int, workers: int, seed: int) -> None:
    schedule = SparkOptions(12_000, kills, 3, seed, workers).schedule()
    outputs = [output for output, _ in schedule]
    assert len(schedule) == kills
    assert outputs == sorted(set(outputs))
    assert 0 < outputs[0] < outputs[-1] < 12_000
    kinds = [kind for kind in Kind if workers or kind is not Kind.WORKER]
    numbers = [[kind for _, kind in schedule].count(kind) for kind in kinds]
    assert sum(numbers) == kills
    assert max(numbers) - min(numbers) <= 1


def test_the_phase_of_a_batch_is_read_off_the_bridge_node() -> None:
    def state(waiting: int, staged: int) -> dict[str, object]:
        return {"sinks": {"delays-of-flights": {"waiting_manifests": waiting, "staged_bytes": staged}}}

    assert phase_of(None) is None
    assert phase_of({"sinks": {}}) is None
    assert phase_of(state(0, 0)) is None
    assert phase_of(state(0, 700)) is Phase.STAGED
    assert phase_of(state(1, 700)) is Phase.DECIDED


def test_a_session_is_killed_with_the_groups_inside_it() -> None:
    program = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], process_group=0)\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert len(members(process.pid)) == 2
        kill_session(process.pid)
        assert members(process.pid) == []
        assert process.wait(END_S) == -signal.SIGKILL


# --- the command ------------------------------------------------------------------------------------------------------


def run_demo(*arguments: str) -> int:
    return run(["demo-spark", *arguments], click.Group(commands={"demo-spark": demo_spark}))


def test_without_spark_the_error_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, package=None: None)
    assert run_demo() == 2
    assert_golden(GOLDEN / "demo-spark-no-spark.txt", capsys.readouterr().err)


def test_without_java_the_error_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, package=None: name)
    monkeypatch.setattr(java, "find_java", lambda: None)
    monkeypatch.setattr(java, "packaged_java", lambda: None)
    assert run_demo() == 2
    assert_golden(GOLDEN / "demo-spark-no-java.txt", capsys.readouterr().err)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.needs("spark")
@pytest.mark.timeout(1000)
def test_a_run_is_exact_and_ends_with_its_json_line_and_leaves_nothing_behind(tmp_path: Path) -> None:
    result, _ = run_to_its_end(tmp_path / "temporary", "demo-spark", "--messages", "1000", "--kills", "4")
    assert (result["published"], result["received"]) == (1000, 1000)
    assert (result["lost"], result["duplicated"], result["torn"]) == (0, 0, 0)
    assert result["kills"] == {"driver": 1, "node": 1, "router": 1, "worker": 1}
    history = result["history"]
    assert (history["kept"], history["lost"], history["duplicated"], history["torn"]) == (1000, 0, 0, 0)
    assert history["counts"] >= 10
    assert history["kills"] == {"driver": 1, "edge": 1, "worker": 1}
    of_network = [each for each in result["strikes"] if each["what"] in {"router", "bridge node"}]
    assert all(each["unsettled_then"] >= 20 for each in of_network)


@pytest.mark.spark
@pytest.mark.needs("spark")
@pytest.mark.timeout(1000)
@pytest.mark.parametrize(
    ("number", "line"),
    [(signal.SIGINT, r"  flights \d+/12000, delays [1-9]"), (signal.SIGKILL, r"  flights ")],
    ids=["at-work", "while-spark-starts"],
)
def test_no_process_outlives_a_run_that_is_broken_off(tmp_path: Path, number: signal.Signals, line: str) -> None:
    break_off(tmp_path / "temporary", number, "demo-spark", line=line)
