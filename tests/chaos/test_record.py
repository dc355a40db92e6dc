"""The record of faults on real processes: its ledger survives whatever ends a run, and its page says the same."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click
import pytest

from chaos.checker import SubscriberVerdict, Verdict
from chaos.cli import chaos
from chaos.evidence.commits import Commit, read_commits
from chaos.evidence.ledger import LedgerError
from chaos.experiments.catalogue import MIXED, catalogue
from chaos.experiments.plans import UNSETTLED_AT_FAULT, Expectation
from chaos.experiments.results import COUNTS, ExperimentResult, Step
from chaos.network.faults import Fault
from chaos.network.recovery import RoundCost
from chaos.record import FAULTS
from chaos.record.page import write_page
from chaos.record.plots import PLOTS, digest_in, draw
from chaos.record.record import Plan, Summary, make_record, never_fired
from chaos.record.runs import Run, read_runs, recorded_code, run_of, runs_ledger, runs_of
from oncewire.cli.run import run

ROOT = Path(__file__).parents[2]
EVIDENCE = ROOT / "docs" / "evidence"
NAMES = list(catalogue(1))
FAULTS_OF_ONE_SEED = sum(experiment.faults for experiment in catalogue(1).values())


def result_of(name: str, seed: int, *, lost: int = 0) -> ExperimentResult:
    """A run in which every planned fault fired; recoveries differ from fault to fault."""
    experiment = replace(catalogue(seed)[name], expectation=Expectation(resumes=False))
    subscriber = SubscriberVerdict(
        "s",
        received=9,
        processed=9,
        lost=lost,
        duplicated=0,
        repeated=0,
        reordered=0,
        unexpected=0,
        stuck=0,
        excused=0,
        redelivered=1,
        resumed=1,
        incarnations=1,
        longest_gap=None,
        examples={"lost": ["p/1"]} if lost else {},
    )
    rounds = [
        RoundCost(
            [Fault(float(number), "r1", experiment.kind_of(fault), UNSETTLED_AT_FAULT + number) for fault in together],
            repaired_s=2.0 + seed,
            recovery_s=number / 4,
            wait_s=number / 8,
        )
        for number, together in enumerate(experiment.rounds)
    ]
    verdict = Verdict([], [subscriber], [])
    return ExperimentResult(
        experiment, seed, verdict, rounds, [], [Step(1.0, "begins")], [], 12.0, "Toxiproxy 2, etcd 3"
    )


class Processes:
    """Stands in front of the experiments: remembers what was run, and can let one of them fail."""

    def __init__(self, fails: tuple[str, int] | None = None) -> None:
        self.asked: list[tuple[str, int]] = []
        self._fails = fails

    def __call__(self, name: str, seed: int, folder: Path) -> ExperimentResult:
        self.asked.append((name, seed))
        (folder / "p1.jsonl").touch()
        return result_of(name, seed, lost=int((name, seed) == self._fails))


def plan_in(folder: Path, faults: int) -> Plan:
    return Plan(folder / "chaos.jsonl", faults, 1, None)


@pytest.fixture(autouse=True)
def no_drawing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes a second each time; the tests of plots do it."""
    if "needs" not in request.keywords:
        monkeypatch.setattr("chaos.record.record.PLOTS", {})


def go_on(plan: Plan, processes: Callable[[str, int, Path], ExperimentResult]) -> Summary:
    return make_record(plan, processes)


# --- the ledger -------------------------------------------------------------------------------------------------------


def test_all_experiments_are_run_seed_after_seed_until_there_are_enough_faults(tmp_path: Path) -> None:
    processes = Processes()
    summary = go_on(plan_in(tmp_path, FAULTS_OF_ONE_SEED + 1), processes)
    assert processes.asked == [*((name, 1) for name in NAMES), (NAMES[0], 2)]
    assert summary.faults >= FAULTS_OF_ONE_SEED + 1
    assert summary.passed
    assert summary.as_json()["faults_left"] == 0


def test_a_record_goes_on_where_it_ended_and_has_nothing_twice(tmp_path: Path) -> None:
    go_on(plan_in(tmp_path, 12), Processes())
    with (tmp_path / "chaos.jsonl").open("a") as file:
        file.write('{"experiment": "kill", "se')  # broken off while it was written
    processes = Processes()
    summary = go_on(plan_in(tmp_path, 22), processes)
    assert processes.asked[0] == (NAMES[3], 1)
    assert [run.experiment for run in summary.runs] == NAMES[: len(summary.runs)]
    again = Processes()
    assert go_on(plan_in(tmp_path, 22), again).faults == summary.faults
    assert again.asked == []


def test_a_line_of_the_ledger_is_read_as_it_was_written(tmp_path: Path) -> None:
    go_on(plan_in(tmp_path, 5), Processes())
    [read] = read_runs(tmp_path / "chaos.jsonl")
    assert read == run_of(result_of(NAMES[0], 1), read.code, read.python, read.machine)


def test_the_first_failure_ends_the_record_and_what_is_needed_to_understand_it_is_kept(tmp_path: Path) -> None:
    processes = Processes(fails=(NAMES[1], 1))
    summary = go_on(plan_in(tmp_path, 500), processes)
    assert processes.asked == [(NAMES[0], 1), (NAMES[1], 1)]
    assert not summary.passed
    assert summary.as_json()["failed"] == [f"{NAMES[1]}, seed 1"]
    assert summary.kept is not None
    assert sorted(path.name for path in summary.kept.iterdir()) == ["p1.jsonl", "timeline.txt"]
    shutil.rmtree(summary.kept)
    page = (tmp_path / "chaos.md").read_text()
    assert "1 lost" in page
    assert "Runs that failed" in page
    assert f"| {NAMES[1]} | 1 | subscriber s: lost 1: p/1 |" in page


def test_a_line_that_is_no_run_is_named(tmp_path: Path) -> None:
    (tmp_path / "chaos.jsonl").write_text("{}\n")
    with pytest.raises(LedgerError, match=r"line 1 of the ledger .* is no run of an experiment"):
        go_on(plan_in(tmp_path, 5), Processes())


VERSION = (
    "import sys; sys.path.insert(0, sys.argv[1]); from chaos.campaign.version import *; print(processes_version())"
)


@pytest.mark.slow
def test_the_code_version_changes_with_whatever_routers_clients_and_experiments_execute(tmp_path: Path) -> None:
    import chaos as package

    packages = Path(package.__file__).parents[1]
    for name in ("chaos", "delivery_records", "oncewire", "topology", "router"):
        shutil.copytree(packages / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))

    def version() -> str:
        command = [sys.executable, "-c", VERSION, str(tmp_path)]
        environment = {**os.environ, "PYTHONPATH": "", "PYTHONSAFEPATH": "1"}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        return done.stdout.strip()

    seen = [version()]
    for path in ("chaos/record/page.py", "chaos/simulator/judge.py"):
        with (tmp_path / path).open("a") as file:
            file.write("# changed\n")
        assert version() == seen[0], path
    for path in (
        "router/node.py",
        "delivery_records/__init__.py",
        "oncewire/client/publisher_core.py",
        "topology/etcd/store.py",
        "chaos/experiments/injection.py",
        "chaos/checker.py",
        "chaos/clients/load.py",
    ):
        with (tmp_path / path).open("a") as file:
            file.write("# changed\n")
        seen.append(version())
    assert len(set(seen)) == len(seen)


# --- the page ---------------------------------------------------------------------------------------------------------


def runs_of_seeds(*seeds: int, code: str = "now") -> list[Run]:
    return [run_of(result_of(name, seed), code, "3.11", "a machine") for seed in seeds for name in NAMES]


def test_every_fault_is_counted_in_one_row_of_the_page() -> None:
    runs = runs_of_seeds(1, 2)
    page = write_page(runs, {})
    total = sum(run.faults for run in runs)
    assert page.count(f"**{total} faults: 0 lost, 0 duplicated, 0 reordered, 0 stuck.**") == 1
    tables = page[page.index("## By kind of fault") : page.index("## Plots")].splitlines()
    rows = [line.split(" | ") for line in tables if line.startswith("| ") and line[2] not in "-f"]
    rows += [line.split(" | ") for line in tables if line.startswith("| full disk")]
    assert sum(int(row[1]) for row in rows) == total
    assert all(row[2:6] == ["0"] * len(COUNTS) for row in rows)
    assert all(int(row[6]) >= UNSETTLED_AT_FAULT for row in rows)


def test_percentiles_of_a_kind_are_over_its_rounds_alone() -> None:
    first = run_of(result_of("kill", 1), "now", "3.11", "a machine")
    slower = replace(first, seed=2, rounds=[replace(each, recovery_ms=9_000) for each in first.rounds])
    page = write_page([first, slower], {})
    # Three rounds of one SIGKILL each in either run: 0, 0.25 and 0.5 s, and 9 s three times.
    assert "| SIGKILL | 6 | 0 | 0 | 0 | 0 | 100 | 3.00 | 0.50 | 9.00 | 9.00 | 0.25 |" in page
    assert "| 2 x SIGKILL | 4 |" in page


def test_numbers_of_other_code_are_never_added_up() -> None:
    page = write_page([*runs_of_seeds(1, code="before"), *runs_of_seeds(1)], {})
    assert f"**{FAULTS_OF_ONE_SEED} faults:" in page
    assert f"| `before` | {len(NAMES)} | {FAULTS_OF_ONE_SEED} | 0 | nothing |" in page


def test_a_page_without_any_run_says_so() -> None:
    assert "No experiment has been run yet." in write_page([], {})


def test_the_committed_page_says_what_its_ledger_says() -> None:
    page = (EVIDENCE / "chaos.md").read_text(encoding="utf-8")
    written = write_page(read_runs(EVIDENCE / "chaos.jsonl"), read_commits(EVIDENCE))
    assert page == written, "run `oncewire chaos record --page-only` in the project's folder"


def test_the_committed_record_has_all_the_faults_it_promises_and_none_cost_a_message() -> None:
    # Of the code that the page names: code that is newer asks for no new record.
    every = read_runs(EVIDENCE / "chaos.jsonl")
    runs = runs_of(every, recorded_code(every))
    assert sum(run.faults for run in runs) >= FAULTS
    assert [run.reasons for run in runs if not run.passed] == []
    assert {count: sum(getattr(run, count) for run in runs) for count in COUNTS} == dict.fromkeys(COUNTS, 0)
    assert never_fired(every) == [], "run `oncewire chaos record --faults 1`: it begins with these"


def test_a_record_of_newer_code_that_has_only_begun_does_not_take_the_place_of_one_that_is_whole() -> None:
    seeds = range(1, FAULTS // FAULTS_OF_ONE_SEED + 2)
    whole, begun = runs_of_seeds(*seeds, code="before"), runs_of_seeds(1)[:2]
    assert recorded_code([]) == ""
    assert recorded_code(begun) == "now"
    assert recorded_code([*whole, *begun]) == "before"
    page = write_page([*whole, *begun], {"before": Commit("0a1b2c3d4e5f", "2026-11-28")})
    assert "Code version `before`, commit `0a1b2c3d4e5f` of 2026-11-28." in page
    assert f"| `now` | 2 | {sum(run.faults for run in begun)} | 0 | nothing |" in page.split("## Other versions")[1]
    assert [digest_in(name, [*whole, *begun]) for name in PLOTS] == [digest_in(name, whole) for name in PLOTS]
    failed = run_of(result_of(NAMES[0], 1, lost=1), "now", "3.11", "a machine")
    assert recorded_code([*whole, failed]) == "now", "a failure is not hidden behind a record that is whole"
    assert recorded_code([*whole, failed, *runs_of_seeds(1, code="fixed")[:1]]) == "before"


def test_experiments_with_kinds_of_faults_that_no_run_has_fired_come_first(tmp_path: Path) -> None:
    new = NAMES[4]
    with runs_ledger(tmp_path / "chaos.jsonl") as ledger:
        for run in runs_of_seeds(1, code="before"):
            if run.experiment not in (new, MIXED):
                ledger.append(run)
        assert new in never_fired(ledger.rows)
    processes = Processes()
    go_on(plan_in(tmp_path, 1), processes)
    assert processes.asked == [(new, 1)]


@pytest.mark.parametrize("name", PLOTS)
def test_the_committed_plots_show_the_numbers_of_the_ledger(name: str) -> None:
    plot = (EVIDENCE / name).read_text(encoding="utf-8")
    digest = digest_in(name, read_runs(EVIDENCE / "chaos.jsonl"))
    assert digest in plot, "run `oncewire chaos record --page-only` in the project's folder"


@pytest.mark.needs("matplotlib")
@pytest.mark.parametrize("name", PLOTS)
def test_a_plot_is_the_same_whenever_the_numbers_are(name: str) -> None:
    runs = runs_of_seeds(1)
    plot = draw(name, runs)
    assert plot == draw(name, runs)
    assert digest_in(name, runs) in plot
    assert digest_in(name, runs_of_seeds(1, 2)) not in plot


@pytest.mark.needs("matplotlib")
@pytest.mark.parametrize("name", PLOTS)
def test_a_plot_of_runs_that_fired_nothing_says_so(name: str) -> None:
    plot = draw(name, [replace(run, rounds=[]) for run in runs_of_seeds(1)])
    assert "No fault was fired" in plot


# --- the command ------------------------------------------------------------------------------------------------------


def run_chaos(*arguments: str) -> int:
    return run(["chaos", *arguments], click.Group("oncewire", commands={"chaos": chaos}))


def test_a_ledger_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_chaos("record", "--state", "chaos.txt") == 2
    assert "chaos.txt is no ledger" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.needs("toxiproxy", "matplotlib")
def test_the_command_records_real_faults_and_writes_page_and_plots(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code = run_chaos("record", "--faults", "1", "--state", str(tmp_path / "chaos.jsonl"), "--json")
    out, err = capfd.readouterr()
    assert code == 0, err
    summary = json.loads(out)
    assert (summary["experiments"], summary["faults"], summary["passed"]) == (1, 5, True)
    [recorded] = read_runs(tmp_path / "chaos.jsonl")
    assert recorded.accepted == recorded.published > 0
    assert all(fault.unsettled_then >= UNSETTLED_AT_FAULT for each in recorded.rounds for fault in each.faults)
    assert {path.name for path in tmp_path.iterdir()} == {"chaos.jsonl", "chaos.md", *PLOTS}
    assert (tmp_path / "chaos.md").read_text() == write_page([recorded], read_commits(tmp_path))
    for first, second in itertools.pairwise(recorded.rounds):
        assert first.kind != second.kind
