"""`oncewire chaos simulate` and `oncewire chaos mutants`: their numbers, their verdicts, their ends."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import click
import pytest
from rich.console import Console

from chaos.campaign.kills import Kill, Kills, run_mutants
from chaos.campaign.report import Report, print_report
from chaos.campaign.seeds import Seeds, run_seeds
from chaos.campaign.story import _PHRASES, shortened_story_of
from chaos.campaign.tally import FINDINGS
from chaos.campaign.workers import WorkerDied, Workers
from chaos.cli import chaos
from chaos.mutants import catalogue
from chaos.mutants.edits import Edit, load
from chaos.simulator.actions import ACTIONS
from chaos.simulator.cores import Cores
from chaos.simulator.schedule import run_seed
from oncewire.cli.run import run
from tests.support.effort import partly, rounds
from tests.support.golden import assert_golden
from tests.support.processes import MARK, left_behind
from tests.support.waiting import wait_until

GOLDEN = Path(__file__).parent / "golden"
END_S = 60.0
CLEAN = rounds(50)
PROGRAM = """
import sys, click
from chaos.cli import chaos
from oncewire.cli.run import run
sys.exit(run(["chaos", *sys.argv[1:]], click.Group("oncewire", commands={"chaos": chaos})))
"""


def run_chaos(*arguments: str) -> int:
    return run(["chaos", *arguments], click.Group("oncewire", commands={"chaos": chaos}))


def last_line(text: str) -> dict[str, object]:
    content = json.loads(text.splitlines()[-1])
    assert isinstance(content, dict)
    return content


def planted() -> Edit:
    """A mutant that nearly every fault shows."""
    return next(edit for edit in catalogue.EDITS if edit.name == "C11-sync-when-moved")


def broken_cores() -> Callable[[], Cores]:
    return partial(load, (planted(),))


def show(report: Report, *, verbose: bool = False) -> str:
    console = Console(width=100, force_terminal=False)
    with console.capture() as captured:
        print_report(console, report, verbose=verbose)
    return captured.get()


# --- seeds ------------------------------------------------------------------------------------------------------------


def test_seeds_break_nothing_and_the_last_line_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    """tests/delivery_records/test_seeded_schedules.py runs those before them."""
    assert run_chaos("simulate", "--first-seed", "150", "--seeds", str(CLEAN), "--json") == 0
    out, err = capfd.readouterr()
    result = last_line(out)
    assert (result["seeds"], result["first_seed"], result["failing"]) == (CLEAN, 150, [])
    assert {result[word] for word in FINDINGS} == {0}
    for count in ("attempted", "acknowledged", "deliveries", "simulated_hours", "cpu_s", "deliveries_per_cpu_s"):
        number = result[count]
        assert isinstance(number, int | float)
        assert number > 0, count
    assert isinstance(result["faults"], dict)
    assert len(result["faults"]) >= 10
    assert isinstance(result["coverage"], dict)
    assert f"{CLEAN} seeds: 0 lost, 0 duplicated, 0 reordered, 0 unexpected, 0 stuck" in err


@pytest.mark.slow
def test_the_totals_do_not_depend_on_the_number_of_processes() -> None:
    one, three = (run_seeds(Seeds(7, 24), jobs).tally for jobs in (1, 3))
    for tally in (one, three):
        tally.cpu_s, tally.memory_mb = 0.0, 0
    assert one == three
    assert one.seeds == 24


@pytest.mark.slow
def test_a_failing_seed_is_reported_with_its_knobs_and_the_one_command_that_replays_it() -> None:
    seeds = Seeds(0, 40)
    outcome = run_seeds(seeds, 2, broken_cores())
    tally = outcome.tally
    assert tally.seeds == 40
    assert tally.found.total() == len(tally.failing) >= 1
    assert [each.seed for each in tally.failing] == sorted(each.seed for each in tally.failing)
    first = tally.failing[0]
    result = run_seed(first.seed, broken_cores()())
    assert (result.violation, result.found_as) == (first.violation, first.found_as)
    report = Report(seeds, outcome, "code")
    text = show(report)
    assert f"seed {first.seed}: {first.found_as}: {first.violation}" in text
    assert f"  replay: oncewire chaos simulate --first-seed {first.seed} --seeds 1 --story\n" in text
    assert re.search(rf"^  drawn: routers={result.setting.routers} .*\btimeout_s=\d+", text, re.MULTILINE)
    counters = ("faults: ", "situations met: ", "checked deliveries per CPU second")
    assert [words for words in counters if words in text] == []
    assert [words for words in counters if words not in show(report, verbose=True)] == []
    assert f"FAILED: {len(tally.failing)} of 40 seeds broke a guarantee" in text
    (row, *_) = json.loads(json.dumps(report.as_json()))["failing"]
    assert row == first.as_json()


def test_a_story_has_a_line_for_each_event_and_the_answers_below_it(capfd: pytest.CaptureFixture[str]) -> None:
    seed = next(seed for seed in range(50) if run_seed(seed).deliveries > 5)
    assert run_chaos("simulate", "--first-seed", str(seed), "--seeds", "1", "--story") == 0
    out, _ = capfd.readouterr()
    events = re.findall(r"^ +\d+\.\d{3} s  \S+", out, re.MULTILINE)
    assert len(events) == run_seed(seed).steps
    assert re.search(r"^ +\d+\.\d{3} s  s\.connect 0 \d +s0 attaches at r\d\n", out, re.MULTILINE)
    assert re.search(r"^ {12} +r\d: link \d+: attach, ", out, re.MULTILINE)
    assert "ends with: everything at rest" in out


def test_every_step_of_the_simulator_can_be_reported_in_words() -> None:
    assert set(_PHRASES) == set(ACTIONS), "chaos/campaign/story.py has a phrase for each step"


@pytest.mark.slow
def test_a_shortened_story_breaks_the_same_guarantee_with_fewer_steps() -> None:
    cores = broken_cores()()
    # One that needs no schedule at all would be shown undisturbed, from the start to rest.
    # Seed 74 did once, and is tried first.
    result = next(
        r
        for seed in (74, *range(100))
        if (r := run_seed(seed, cores)).violation and len(r.story) > 200 and str(r.violation).startswith("LEAK")
    )
    assert result.violation is not None
    story = shortened_story_of(result, cores, seconds=3.0)
    assert (story.violation or "").partition(":")[0] == result.violation.partition(":")[0]
    steps = [line for line in story.lines if not line.startswith(" " * 12)]
    assert 0 < len(steps) < len(result.story)
    assert story.head[0] == f"seed {result.seed}: {len(steps)} steps, shortened from {len(result.story)}"


# --- mutants ----------------------------------------------------------------------------------------------------------


def test_a_mutant_is_killed_and_the_last_line_says_by_what(capfd: pytest.CaptureFixture[str]) -> None:
    name = planted().name
    assert run_chaos("mutants", name, "--json") == 0
    out, err = capfd.readouterr()
    result = last_line(out)
    assert (result["total"], result["killed"], result["survivors"]) == (1, 1, [])
    assert isinstance(result["rows"], list)
    (row,) = result["rows"]
    assert (row["name"], row["rule"], row["killed"]) == (name, planted().rule, True)
    assert row["found_as"] in FINDINGS
    assert row["seeds"] >= 1
    assert "1 of 1 mutants killed" in err


def test_a_directed_mutant_is_killed_by_its_written_schedule(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    assert run_chaos("mutants", "fence-late", "--json") == 0
    out, _ = capfd.readouterr()
    result = last_line(out)
    assert (result["total"], result["killed"]) == (1, 1)
    assert isinstance(result["rows"], list)
    assert result["rows"][0]["directed"] is True


def test_a_fault_of_the_shipped_cores_fails_the_run_and_names_seed_and_aim() -> None:
    kill = Kill("m", "I-1", "w", ("drop-p",), 9, "lost", "LOST: x", None, 7, "DUP: y at /a/b/c.py:3", 0.0)
    kills = Kills(1, (kill,))
    assert kill.is_killed
    assert not kills.is_good
    said = "the shipped cores break a guarantee at seed 7 aimed at drop-p (mutant m): DUP: y at c.py:3"
    assert kills.shipped_failures == [said]
    assert kill.as_json()["shipped_violation"] == "DUP: y at c.py:3"


def test_a_mutant_that_survives_fails_the_run(capfd: pytest.CaptureFixture[str]) -> None:
    name = planted().name
    assert run_chaos("mutants", name, "--seconds", "0.000001", "--json") == 1
    out, err = capfd.readouterr()
    assert last_line(out)["survivors"] == [name]
    assert f"{name} survives: no guarantee was broken in 0 seeds" in err


@pytest.mark.slow
def test_an_edit_that_changes_nothing_survives() -> None:
    edit = planted()
    harmless = Edit("harmless", edit.rule, edit.old, edit.old, "nothing", edit.where)
    kills = run_mutants([harmless], 30, None, 1)
    assert (kills.killed, kills.survivors, kills.rows[0].tried) == (0, ["harmless"], 30)


def test_an_edit_whose_old_text_is_gone_is_refused_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = Edit("lost", "I-5", "text that is not there", "", "nothing")
    monkeypatch.setattr(catalogue, "ALL", (*catalogue.ALL, lost))
    assert run_chaos("mutants", "lost") == 2
    assert_golden(GOLDEN / "mutants-old-text-gone.txt", capsys.readouterr().err)


# --- bad input, and ends that nobody wished for -----------------------------------------------------------------------


def test_without_a_command_the_help_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_chaos() == 0
    text = capsys.readouterr().out
    assert all(command in text for command in ("simulate", "mutants", "campaign"))


@pytest.fixture
def endless(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A run that does not end by itself, with three processes."""
    mark = tmp_path.name + str(os.getpid())
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", PROGRAM, "simulate", "--seeds", "100000000", "--jobs", "2", "--json"],
        env={**os.environ, MARK: mark},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(lambda: len(left_behind(mark)) == 3, "the workers did not start")
        yield process, mark
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", partly([signal.SIGINT, signal.SIGTERM]))
def test_a_run_that_is_broken_off_ends_its_workers_and_says_what_was_done(
    endless: tuple[subprocess.Popen[str], str], number: signal.Signals
) -> None:
    process, mark = endless
    process.send_signal(number)
    out, err = process.communicate(timeout=END_S)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    result = last_line(out)
    assert (result["interrupted"], result["failing"]) == (True, [])
    assert f"interrupted: {result['seeds']:,} seeds of 100,000,000 were run" in err
    assert left_behind(mark) == []


@pytest.mark.slow
def test_no_worker_outlives_a_run_that_is_killed(endless: tuple[subprocess.Popen[str], str]) -> None:
    process, mark = endless
    process.kill()
    process.communicate(timeout=END_S)
    wait_until(lambda: not left_behind(mark), "a worker is left")


def test_a_worker_that_ends_early_is_named_with_what_it_was_doing() -> None:
    exits: Any = partial(partial, os._exit)
    with Workers[int, int](1, exits) as workers, pytest.raises(WorkerDied) as died:
        list(workers.answers([7, 8]))
    assert (died.value.task, died.value.code) == (7, 7)


# --- one story everywhere ---------------------------------------------------------------------------------------------

HOME = Path.home()
"""Of whoever runs the tests: while they run it is another one."""
SEEDS = range(0, 60, 8)
NOTIFY = """
import hashlib, sys
sys.path.insert(0, sys.argv[1])
from chaos.simulator.scenario import Scenario, replay
from chaos.simulator.schedule import run_seed
for seed in map(int, sys.argv[2:]):
    result = run_seed(seed)
    verdict = replay(Scenario(result.setting, tuple(result.story)))
    sums = (result.attempted, result.accepted, result.deliveries, result.virtual_s, result.faults, result.coverage)
    text = repr((result.setting, result.story, result.violation, sums, verdict))
    print(seed, hashlib.sha256(text.encode()).hexdigest())
"""


def interpreters() -> dict[str, str]:
    """Other Pythons of this machine that run: version -> path. There may be none."""
    found: dict[str, str] = {}
    for minor in range(11, 16):
        name = f"python3.{minor}"
        kept = sorted(HOME.glob(f".pyenv/versions/3.{minor}.*/bin/{name}"))
        for path in filter(None, [shutil.which(name), *map(str, kept)]):
            code = "import sys; print(*sys.version_info[:3], sep='.')"
            said = subprocess.run([path, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
            if said.returncode == 0 and said.stdout.startswith(f"3.{minor}."):
                found[said.stdout.strip()] = path
    return found


@pytest.fixture
def ours_alone(tmp_path: Path) -> Path:
    """A folder in which our packages are, and what they were compiled to, and no others."""
    found = next(Path(folder) for folder in sys.path if (Path(folder) / "chaos" / "simulator").is_dir())
    for name in ("chaos", "delivery_records", "oncewire", *(path.name for path in found.glob("*__mypyc*"))):
        (tmp_path / name).symlink_to(found / name)
    return tmp_path


def stories(python: str, hash_seed: str, folder: Path) -> str:
    """Without `site`, so that nothing but the standard library and our packages can be used."""
    environment = {"PYTHONHASHSEED": hash_seed, "PATH": os.environ["PATH"]}
    done = subprocess.run(
        [python, "-S", "-c", NOTIFY, str(folder), *map(str, SEEDS)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=END_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_same_seed_notifies_the_same_story_under_every_python_and_without_other_packages(
    capsys: pytest.CaptureFixture[str], ours_alone: Path
) -> None:
    reported = stories(sys.executable, "1", ours_alone)
    assert len(reported.splitlines()) == len(SEEDS)
    assert stories(sys.executable, "2", ours_alone) == reported
    others = interpreters()
    for version, path in others.items():
        assert stories(path, "3", ours_alone) == reported, f"Python {version} has another story"
    with capsys.disabled():
        names = ", ".join(others) or "no other Python of 3.11 to 3.15 is here, so none was compared"
        sys.stdout.write(f"[same stories: this Python, {names}] ")
