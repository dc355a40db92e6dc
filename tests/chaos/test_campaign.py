"""The campaign: its ledger survives whatever ends a run, its sums are right, its page says what they say."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from chaos.campaign.campaign import Plan, Summary, run_campaign, write_campaign_page
from chaos.campaign.corpus import read_corpus
from chaos.campaign.goals import DELIVERIES, SEEDS, SIMULATED_HOURS
from chaos.campaign.ledger import Block, blocks_ledger, missing, read_ledger, total_of
from chaos.campaign.mutants_table import MutantsTable, read_table
from chaos.campaign.page import write_page
from chaos.campaign.seeds import Seeds, run_seeds
from chaos.campaign.summary import compact, read_blocks, read_summary, recorded_code, summary_of, write_summary
from chaos.campaign.tally import FINDINGS, Failing, Tally
from chaos.campaign.version import code_version
from chaos.evidence.commits import Commit, read_commits
from chaos.evidence.ledger import LedgerError
from chaos.mutants.catalogue import ALL, EDITS
from chaos.mutants.edits import load
from chaos.simulator.coverage import expected
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
EVIDENCE = ROOT / "docs" / "evidence"
MUTANT_S = 600.0
"""For the first mutant: 10 s of one core, which took more than 180 s beside twenty others."""
END_S = 120.0
SHORT_SEEDS = 300
PLANTED = next(edit for edit in EDITS if edit.name == "C11-sync-when-moved")
PROGRAM = """
import sys, click
from chaos.cli import chaos
from oncewire.cli.run import run
sys.exit(run(["chaos", *sys.argv[1:]], click.Group("oncewire", commands={"chaos": chaos})))
"""


def plan_in(folder: Path, seeds: int = 5) -> Plan:
    """Blocks of three seeds and one mutant."""
    return Plan(folder / "simulation.jsonl", seeds, None, 2, [PLANTED], seeds_each=60, block_seeds=3)


def go_on(plan: Plan) -> Summary:
    return run_campaign(plan, Console(quiet=True))


def rows_of(plan: Plan) -> list[dict[str, Any]]:
    """The ledger's lines without what differs from run to run."""
    rows = [json.loads(line) for line in plan.ledger.read_text().splitlines()]
    for row in rows:
        for measured in ("cpu_s", "deliveries_per_cpu_s", "memory_mb"):
            del row[measured]
    return rows


def ranges_of(plan: Plan) -> list[tuple[int, int]]:
    return [(row["first_seed"], row["seeds"]) for row in rows_of(plan)]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Plan, Summary]:
    """A campaign that ran to its end in one go."""
    plan = plan_in(tmp_path_factory.mktemp("campaign"))
    return plan, go_on(plan)


def copy_of(done: tuple[Plan, Summary], folder: Path, *without: str) -> Plan:
    for file in done[0].ledger.parent.iterdir():
        if file.name not in without:
            shutil.copy(file, folder)
    return plan_in(folder)


def test_a_campaign_writes_down_each_block_and_its_sums_are_those_of_the_seeds(done: tuple[Plan, Summary]) -> None:
    plan, summary = done
    assert ranges_of(plan) == [(0, 3), (3, 2)]
    direct = run_seeds(Seeds(0, 5), 2).tally
    tally = summary.tally
    assert (tally.seeds, tally.deliveries, tally.steps) == (5, direct.deliveries, direct.steps)
    assert (tally.faults, tally.coverage) == (direct.faults, direct.coverage)
    assert tally.virtual_s == pytest.approx(direct.virtual_s, abs=0.01)
    assert (summary.seeds_left, summary.table.killed, list(summary.table.rows)) == (0, 1, [PLANTED.name])


def test_a_campaign_that_is_done_runs_nothing_again(done: tuple[Plan, Summary], tmp_path: Path) -> None:
    plan = copy_of(done, tmp_path)
    files = {file: file.read_bytes() for file in tmp_path.iterdir()}
    assert {file.name for file in files} == {"simulation.jsonl", "simulation.json", "simulation.md", "mutants.json"}
    summary = go_on(plan)
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == files
    assert summary.tally.seeds == 5


@pytest.mark.slow
def test_a_campaign_goes_on_where_the_last_one_ended(done: tuple[Plan, Summary], tmp_path: Path) -> None:
    plan = copy_of(done, tmp_path, "simulation.json")
    lines = plan.ledger.read_text().splitlines(keepends=True)
    plan.ledger.write_text(lines[0])
    go_on(plan)
    assert rows_of(plan) == rows_of(done[0])
    go_on(replace(plan, seeds=6))
    assert ranges_of(plan) == [(0, 3), (3, 2), (5, 1)]


@pytest.mark.slow
def test_a_torn_last_line_is_cut_off_and_its_block_run_again(done: tuple[Plan, Summary], tmp_path: Path) -> None:
    plan = copy_of(done, tmp_path)
    whole = plan.ledger.read_bytes()
    for torn in (whole[:-1], whole[:-40], whole[: whole.index(b"\n") + 2]):
        summary_of(plan.ledger).unlink()
        plan.ledger.write_bytes(torn)
        go_on(plan)
        assert rows_of(plan) == rows_of(done[0])


def test_a_time_limit_ends_the_campaign_after_the_block_that_runs(done: tuple[Plan, Summary], tmp_path: Path) -> None:
    plan = replace(copy_of(done, tmp_path), seconds=1e-6, seeds=1000)
    summary = go_on(plan)
    assert (summary.seeds_left, len(rows_of(plan))) == (995, 2)


def test_numbers_of_other_code_are_kept_and_not_added(done: tuple[Plan, Summary], tmp_path: Path) -> None:
    plan = copy_of(done, tmp_path)
    for file in (plan.ledger, summary_of(plan.ledger)):
        file.write_text(file.read_text().replace(done[1].code, "0123456789ab"))
    summary = go_on(replace(plan, seeds=2))
    assert (summary.tally.seeds, len(rows_of(plan))) == (2, 3)
    page = plan.page.read_text()
    totals, others = page.split("## Other versions of the code")
    assert "| seeds | 2 |" in totals
    assert "| `0123456789ab` | 5 |" in others


# --- the summary, which is in the repository, where the ledger is not ------------------------------------------------


def test_a_campaign_goes_on_from_the_summary_where_there_is_no_ledger(
    done: tuple[Plan, Summary], tmp_path: Path
) -> None:
    plan = copy_of(done, tmp_path, "simulation.jsonl")
    assert go_on(plan).tally == total_of(read_blocks(plan.ledger), done[1].code)
    assert plan.ledger.read_bytes() == b""
    assert summary_of(plan.ledger).read_bytes() == summary_of(done[0].ledger).read_bytes()
    go_on(replace(plan, seeds=6))
    assert ranges_of(plan) == [(5, 1)]
    [whole] = read_summary(summary_of(plan.ledger))
    assert (whole.seeds, whole.tally.seeds) == (Seeds(0, 6), 6)


def test_the_page_is_written_from_the_summary_alone_as_from_the_ledger(
    done: tuple[Plan, Summary], tmp_path: Path
) -> None:
    for absent in ("simulation.jsonl", "simulation.json"):
        folder = tmp_path / absent
        folder.mkdir()
        plan = copy_of(done, folder, absent, "simulation.md")
        write_campaign_page(plan)
        assert plan.page.read_text() == done[0].page.read_text()
        assert summary_of(plan.ledger).read_bytes() == summary_of(done[0].ledger).read_bytes()


def test_a_summary_has_all_sums_and_failing_seeds_of_its_ledger(tmp_path: Path) -> None:
    failing = [Failing(seed, "lost", "LOST: x", "routers=3") for seed in range(60)]
    counts = Counter({"crash": 2})
    parts = [
        Block(
            Seeds(first, 30),
            "now",
            "3.11",
            "a machine",
            Tally(
                30,
                9,
                8,
                7,
                6,
                5.125,
                4.5,
                3 + first,
                counts,
                Counter({"met": 1, "never": 0}),
                Counter(lost=30),
                failing[first : first + 30],
            ),
        )
        for first in (0, 30)
    ]
    write_summary(tmp_path / "simulation.json", compact(parts))
    [read] = read_summary(tmp_path / "simulation.json")
    assert (read.seeds, read.tally) == (Seeds(0, 60), total_of(parts, "now"))
    assert read.tally.failing == failing
    assert read.tally.never_met == ["never"]


def test_a_summary_joins_what_was_run_alike_and_counts_nothing_twice() -> None:
    blocks = [
        block(0, 10, "old"),
        block(0, 10),
        block(10, 10),
        block(5, 5),
        replace(block(20, 5), python="3.13"),
        block(40, 5),
        block(25, 5),
    ]
    found = compact(blocks)
    assert [(each.code, each.seeds.first, each.seeds.count) for each in found] == [
        ("old", 0, 10),
        ("now", 0, 20),
        ("now", 20, 5),
        ("now", 25, 5),
        ("now", 40, 5),
    ]
    assert compact([*found, *blocks]) == found
    assert total_of(found, "now") == total_of(blocks, "now")


def test_a_summary_that_is_none_is_refused(tmp_path: Path) -> None:
    plan = plan_in(tmp_path)
    for bad in ("", "{}", "[1]", '{"blocks": [{"first_seed": 0}]}'):
        summary_of(plan.ledger).write_text(bad)
        with pytest.raises(LedgerError, match=r"the summary .* cannot be read"):
            go_on(plan)


def large(code: str, **found: int) -> Block:
    return Block(
        Seeds(0, SEEDS),
        code,
        "3.11",
        "a machine",
        Tally(SEEDS, deliveries=DELIVERIES, virtual_s=SIMULATED_HOURS * 3600, found=Counter(found)),
    )


def test_a_campaign_of_newer_code_that_has_only_begun_does_not_take_the_place_of_one_that_is_whole() -> None:
    assert recorded_code([]) == ""
    assert recorded_code([block(0, 5, "a"), block(0, 5, "b")]) == "b"
    assert recorded_code([large("a"), block(0, 5, "b")]) == "a"
    assert recorded_code([large("a"), large("b"), block(0, 5, "c")]) == "b"
    page = write_page([large("a"), block(0, 5, "b")], MutantsTable(), [], {"a": Commit("0a1b2c3d4e5f", "2026-11-28")})
    totals, others = page.split("## Other versions of the code")
    assert "Code version `a`, commit `0a1b2c3d4e5f` of 2026-11-28." in totals
    assert "| `b` | 5 |" in others


def test_a_finding_in_newer_code_stands_on_the_page_however_few_seeds_were_run() -> None:
    found = Block(Seeds(0, 5), "b", "3.11", "a machine", Tally(5, found=Counter(lost=1)))
    assert recorded_code([large("a"), found]) == "b"
    assert recorded_code([large("a"), found, block(0, 5, "fixed")]) == "a"
    assert recorded_code([large("a", lost=1), block(0, 5, "fixed")]) == "fixed"
    assert "1 seeds broke a guarantee" in write_page([large("a"), found], MutantsTable(), [], {})


@pytest.mark.slow
def test_failing_seeds_stand_on_the_page_and_fail_the_campaign(tmp_path: Path) -> None:
    plan = replace(plan_in(tmp_path, 20), edits=[], make_cores=partial(load, (PLANTED,)))
    summary = go_on(plan)
    assert not summary.is_clean
    first = summary.tally.failing[0]
    assert f"| {first.seed} | {first.found_as} |" in plan.page.read_text()
    assert sum(block.tally.found.total() for block in read_ledger(plan.ledger)) == summary.tally.found.total()


@pytest.mark.slow
def test_a_mutant_that_survives_fails_the_campaign_and_stands_on_the_page(tmp_path: Path) -> None:
    harmless = replace(PLANTED, name="harmless", new=PLANTED.old)
    plan = replace(plan_in(tmp_path, 1), edits=[PLANTED, harmless], seeds_each=20)
    summary = go_on(plan)
    assert not summary.is_clean
    assert (summary.table.killed, list(read_table(plan.table).rows)) == (1, [PLANTED.name, "harmless"])
    assert "**1 of 2 killed.**" in plan.page.read_text()


def test_a_campaign_is_not_clean_before_every_situation_was_met(done: tuple[Plan, Summary]) -> None:
    plan, summary = done
    assert summary.tally.never_met
    assert not summary.is_clean
    assert replace(summary, seeds_left=1).is_clean
    page = plan.page.read_text()
    assert all(f"| {name} | **never** |" in page for name in summary.tally.never_met)
    assert all(f"| {name} | " in page for name in expected())


def test_a_campaign_without_seeds_left_is_not_clean_before_every_mutant_was_tried(done: tuple[Plan, Summary]) -> None:
    summary = replace(done[1], tally=replace(done[1].tally, coverage=Counter(expected())))
    assert summary.is_clean
    untried = MutantsTable(names=[PLANTED.name, "other"], rows=dict(summary.table.rows))
    assert not replace(summary, table=untried).is_clean
    assert replace(summary, table=untried, seeds_left=1).is_clean


def test_a_ledger_is_written_by_one_campaign_at_a_time(tmp_path: Path) -> None:
    plan = plan_in(tmp_path)
    with blocks_ledger(plan.ledger), pytest.raises(LedgerError, match="another campaign"):
        go_on(plan)


def test_a_line_in_the_middle_that_is_no_block_is_named(done: tuple[Plan, Summary], tmp_path: Path) -> None:
    plan = copy_of(done, tmp_path)
    first, *others = plan.ledger.read_text().splitlines(keepends=True)
    for bad in ("\n", "[]\n", "{}\n", first.replace('"seeds": 3', '"seeds": -3'), first[:50] + "\n"):
        plan.ledger.write_text("".join([first, bad, *others]))
        with pytest.raises(LedgerError, match="line 2 of the ledger"):
            go_on(plan)


def block(first: int, count: int, code: str = "now") -> Block:
    return Block(Seeds(first, count), code, "3.11", "a machine", Tally(seeds=count))


@pytest.mark.parametrize(
    ("done_before", "left"),
    [
        ([], [(0, 10), (10, 10), (20, 5)]),
        ([(0, 10)], [(10, 10), (20, 5)]),
        ([(0, 4)], [(4, 6), (10, 10), (20, 5)]),
        ([(3, 4), (10, 10)], [(0, 3), (7, 3), (20, 5)]),
        ([(0, 10), (5, 10)], [(15, 5), (20, 5)]),
        ([(0, 100)], []),
    ],
)
def test_what_is_missing_is_run_in_whole_blocks(
    done_before: list[tuple[int, int]], left: list[tuple[int, int]]
) -> None:
    blocks = [block(0, 25, "earlier"), *(block(*each) for each in done_before)]
    pieces = missing(blocks, "now", Seeds(0, 25), 10)
    assert [(each.first, each.count) for each in pieces] == left


def test_a_seed_that_stands_in_two_blocks_counts_once() -> None:
    assert (
        total_of([block(0, 10), block(0, 10), block(5, 10), block(10, 5), block(0, 99, "earlier")], "now").seeds == 15
    )


@pytest.mark.slow
@pytest.mark.timeout(MUTANT_S + 2 * END_S)
def test_ctrl_c_keeps_the_mutants_that_were_tried_and_writes_the_page(tmp_path: Path) -> None:
    plan = plan_in(tmp_path)
    arguments = ["campaign", "--state", str(plan.ledger), "--jobs", "1", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        wait_until(lambda: plan.table.exists() or process.poll() is not None, "no mutant was tried", MUTANT_S)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=END_S)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert json.loads(out.splitlines()[-1])["interrupted"] is True
    table = read_table(plan.table)
    assert 1 <= len(table.rows) < len(table.names) == len(ALL)
    assert "Not tried to the end yet" in plan.page.read_text()


VERSION = "import sys; sys.path.insert(0, sys.argv[1]); from chaos.campaign.version import *; print(code_version())"


@pytest.mark.slow
def test_the_code_version_changes_with_each_source_that_a_run_executes_and_no_other(tmp_path: Path) -> None:
    import chaos

    packages = Path(chaos.__file__).parents[1]
    for name in ("chaos", "delivery_records", "oncewire", "topology"):
        shutil.copytree(packages / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))

    def version() -> str:
        command = [sys.executable, "-S", "-c", VERSION, str(tmp_path)]
        environment = {**os.environ, "PYTHONPATH": ""}
        return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.strip()

    seen = [version()]
    for path in ("router_is_not_run.py", "oncewire/client/connection.py", "chaos/campaign/report.py"):
        with (tmp_path / path).open("a") as file:
            file.write("# changed\n")
        assert version() == seen[0], path
    for path in (
        "delivery_records/publisher/ingress.py",
        "oncewire/client/publisher_core.py",
        "chaos/simulator/judge.py",
    ):
        with (tmp_path / path).open("a") as file:
            file.write("# changed\n")
        seen.append(version())
    assert len(set(seen)) == len(seen)


def test_the_committed_page_says_what_its_summary_says() -> None:
    written = write_page(
        read_summary(EVIDENCE / "simulation.json"),
        read_table(EVIDENCE / "mutants.json"),
        read_corpus(),
        read_commits(EVIDENCE),
    )
    page = (EVIDENCE / "simulation.md").read_text(encoding="utf-8")
    assert page == written, "run `oncewire chaos campaign --page-only` in the project's folder"


def test_the_committed_campaign_is_as_large_as_promised_and_found_nothing() -> None:
    # Of the code that the page names. What the code as it is does, the short campaign below shows in each run of CI.
    blocks = read_summary(EVIDENCE / "simulation.json")
    tally = total_of(blocks, recorded_code(blocks))
    assert tally.seeds >= SEEDS
    assert tally.simulated_hours >= SIMULATED_HOURS
    assert tally.deliveries >= DELIVERIES
    assert tally.is_clean
    assert tally.never_met == []


def test_every_mutant_of_the_catalogue_was_tried_and_killed_and_no_other_is_in_the_table() -> None:
    table = read_table(EVIDENCE / "mutants.json")
    assert wrong_mutants(table, [edit.name for edit in ALL]) == []


def wrong_mutants(table: MutantsTable, catalogue: list[str]) -> list[str]:
    """What keeps the table from showing that each rule of the catalogue is needed."""
    rows = {row.name: row for row in table.ordered()}
    return [
        *(f"{name} was never tried: oncewire chaos campaign --seeds 0" for name in catalogue if name not in rows),
        *(f"{name} is not in the catalogue" for name in rows if name not in catalogue),
        *(f"{name} survives" for name, row in rows.items() if not row.is_killed),
        *table.shipped_failures,
    ]


def test_a_mutant_that_survives_is_missing_or_is_no_more_is_noticed(done: tuple[Plan, Summary]) -> None:
    table = done[1].table
    assert wrong_mutants(table, [PLANTED.name]) == []
    assert wrong_mutants(table, [PLANTED.name, "new"]) == ["new was never tried: oncewire chaos campaign --seeds 0"]
    assert wrong_mutants(table, []) == [f"{PLANTED.name} is not in the catalogue"]
    table = replace(table, rows={PLANTED.name: replace(table.rows[PLANTED.name], found_as=None)})
    assert wrong_mutants(table, [PLANTED.name]) == [f"{PLANTED.name} survives"]


@pytest.mark.slow
def test_a_short_campaign_on_the_code_as_it_is_finds_nothing() -> None:
    # Each version of the code gets other seeds, so that runs of CI add up. `make test` has the first two hundred.
    code = code_version()
    seeds = Seeds(int(code, 16) % 10**9, SHORT_SEEDS)
    tally = run_seeds(seeds, 2).tally
    assert [(each.violation, each.replay) for each in tally.failing] == [], f"code {code}"
    assert (tally.seeds, {word: tally.found[word] for word in FINDINGS}) == (SHORT_SEEDS, dict.fromkeys(FINDINGS, 0))


def test_a_campaign_without_seeds_tries_the_mutants_alone(tmp_path: Path) -> None:
    plan = plan_in(tmp_path, seeds=0)
    summary = go_on(plan)
    assert (summary.table.killed, summary.tally.seeds, plan.ledger.read_bytes()) == (1, 0, b"")
    assert summary.is_clean


def test_a_page_without_any_run_says_so() -> None:
    page = write_page([], MutantsTable(), [], {})
    assert "The goals are not reached yet: 0 of 100,000 seeds" in page
    assert "No seed has been run yet." in page
    assert "None has been tried yet." in page
