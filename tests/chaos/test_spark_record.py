"""The record of kills of Spark jobs: it goes on where it ended and stops where something is wrong, as its page says."""

from __future__ import annotations

import signal
from pathlib import Path

from chaos.evidence.commits import read_commits
from chaos.experiments.spark_demo.history_core import HistoryVerdict
from chaos.experiments.spark_demo.kills import Kill, Kind
from chaos.experiments.spark_demo.outputs_core import OutputVerdict
from chaos.experiments.spark_demo.record import Plan, make_record
from chaos.experiments.spark_demo.record_page import write_page
from chaos.experiments.spark_demo.record_rows import read_kills, recorded_code
from chaos.experiments.spark_demo.report import SparkResult
from chaos.experiments.spark_demo.run import SparkOptions
from chaos.network.faults import Fault

EVIDENCE = Path(__file__).parents[2] / "docs" / "evidence"


class Demo:
    """Stands in front of the processes: remembers what was run; the run with this seed loses a row."""

    def __init__(self, loses: int = 0) -> None:
        self.seeds: list[int] = []
        self._loses = loses

    def __call__(self, wanted: SparkOptions) -> SparkResult:
        self.seeds.append(wanted.seed)
        assert wanted.keep is not None
        assert wanted.keep.is_dir()
        lost = int(wanted.seed == self._loses)
        verdict = OutputVerdict(wanted.messages - lost, 20, {1, 2}, lost=lost, findings=["row 7 has no output"] * lost)
        kills = [
            Kill(kind, Fault(float(at), "r1", signal.SIGKILL.name, 20 + at), "deliveries unsettled through router r1")
            for at, (_, kind) in enumerate(wanted.schedule())
        ]
        late = HistoryVerdict(wanted.messages, 40)
        late_kills = {"driver": 1, "edge": 1, "worker": 1}
        return SparkResult(
            wanted.messages, wanted.messages, verdict, kills, wanted.kills, 2, [], 0.0, 70.0, [], late, late_kills
        )


def plan_in(folder: Path, kills: int) -> Plan:
    return Plan(folder / "spark-kills.jsonl", kills, 4, 1, None)


def test_it_runs_seed_after_seed_until_there_are_enough_kills_and_goes_on_where_it_ended(tmp_path: Path) -> None:
    first, second = Demo(), Demo()
    assert make_record(plan_in(tmp_path, 8), first).kills == 14
    with (tmp_path / "spark-kills.jsonl").open("a") as file:
        file.write('{"code": "broken o')
    summary = make_record(plan_in(tmp_path, 15), second)
    assert (first.seeds, second.seeds) == ([1, 2], [3])
    assert (summary.kills, summary.passed) == (21, True)
    page = (tmp_path / "spark-kills.md").read_text()
    assert "**21 kills: 0 lost, 0 duplicated, 0 torn.** 3 of 3 runs passed. A kill took 10 s" in page
    assert "| Spark worker | deliveries unsettled | 3 |" in page
    assert "| worker of the late query | the late query reads a journal | 3 |" in page


def test_the_first_run_that_fails_ends_it_and_its_folder_is_kept(tmp_path: Path) -> None:
    demo = Demo(loses=2)
    summary = make_record(plan_in(tmp_path, 100), demo)
    assert demo.seeds == [1, 2]
    assert not summary.passed
    assert summary.kept is not None
    assert summary.kept.is_dir()
    summary.kept.rmdir()
    page = (tmp_path / "spark-kills.md").read_text()
    assert "1 lost" in page
    assert "| 2 | row 7 has no output |" in page


def test_each_run_has_a_worker_killed_and_room_for_its_kills(tmp_path: Path) -> None:
    options = plan_in(tmp_path, 1).options(5, tmp_path)
    assert options.messages == 1_000
    assert {kind for _, kind in options.schedule()} == set(Kind)


def test_the_page_is_what_its_ledger_says() -> None:
    runs = read_kills(EVIDENCE / "spark-kills.jsonl")
    written = write_page(runs, recorded_code(runs), read_commits(EVIDENCE))
    assert (EVIDENCE / "spark-kills.md").read_text() == written
