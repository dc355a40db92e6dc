"""A campaign: all mutants, then block after block of seeds, each written down when done; then summary and page."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from chaos.campaign.corpus import read_corpus
from chaos.campaign.goals import goals
from chaos.campaign.kills import SCENARIOS, SEEDS_EACH, Kill, run_mutants, without_schedule
from chaos.campaign.ledger import MAX_FAILING_IN_BLOCK, Block, blocks_ledger, missing, total_of
from chaos.campaign.mutants_table import MutantsTable, read_table
from chaos.campaign.page import write_page
from chaos.campaign.progress import RunProgress
from chaos.campaign.report import MAX_SHOWN, say
from chaos.campaign.seeds import SeedOutcome, Seeds, run_seeds, shipped
from chaos.campaign.summary import read_blocks, read_summary, summary_of, write_summary
from chaos.campaign.tally import FINDINGS, Tally
from chaos.campaign.version import code_version, mutants_version, simulator_version
from chaos.evidence.commits import note_commit, read_commits
from chaos.evidence.ledger import Ledger, LedgerError, replace_file
from chaos.mutants.edits import Edit
from chaos.simulator.cores import Cores

BLOCK_SEEDS = 1000
"""One line of the ledger: minutes of work at most are lost when a campaign is broken off."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a campaign is to do."""

    ledger: Path
    seeds: int
    """How many seeds, from 0 on, shall have been run with today's code in the end."""
    seconds: float | None
    """No further block is begun after so long, and half of it at most goes to mutants; None: until all is done."""
    jobs: int
    edits: Sequence[Edit]
    """The catalogue of mutants."""
    seeds_each: int = SEEDS_EACH
    block_seeds: int = BLOCK_SEEDS
    make_cores: Callable[[], Cores] = shipped

    @property
    def page(self) -> Path:
        """The page for readers."""
        return self.ledger.with_suffix(".md")

    @property
    def table(self) -> Path:
        """The table of mutants."""
        return self.ledger.with_name("mutants.json")


@dataclass(frozen=True, slots=True)
class Summary:
    """Where the campaign stands."""

    code: str
    tally: Tally
    """All blocks of today's code, earlier runs' included."""
    table: MutantsTable
    is_interrupted: bool
    seeds_left: int

    @property
    def is_clean(self) -> bool:
        """True when neither a seed nor a mutant on the way found a fault, and every mutant tried was killed.

        With no seed left, every mutant must have been tried too, and the seeds have met what they must meet.
        """
        is_as_it_should = not self.table.shipped_failures and self.table.killed == len(self.table.rows)
        if self.seeds_left == 0:
            is_as_it_should = self.table.is_done and not self.tally.never_met
        return self.tally.is_clean and is_as_it_should

    def as_json(self) -> dict[str, object]:
        """Return the content of the JSON line."""
        return {
            "code": self.code,
            "seeds": self.tally.seeds,
            "seeds_left": self.seeds_left,
            "deliveries": self.tally.deliveries,
            "simulated_hours": round(self.tally.simulated_hours, 3),
            **{word: self.tally.found[word] for word in FINDINGS},
            "failing": [each.as_json() for each in self.tally.failing],
            "never_met": self.tally.never_met,
            "mutants": len(self.table.names),
            "killed": self.table.killed,
            "shipped_failures": self.table.shipped_failures,
            "interrupted": self.is_interrupted,
        }


def run_campaign(plan: Plan, console: Console) -> Summary:
    """Do what the ledger does not have yet. Ctrl-C loses no more than the block that runs.

    Raises:
        LedgerError: the ledger or a file beside it cannot be used, or the source changed meanwhile.
        WorkerDied: a worker process was killed from outside.
    """
    ends_at = None if plan.seconds is None else time.monotonic() + plan.seconds
    code = code_version()
    with blocks_ledger(plan.ledger) as ledger:
        before = read_summary(summary_of(plan.ledger))
        note_commit(plan.ledger.parent, code, simulator_version)
        is_interrupted = _run_missing_mutants(plan, code, console)
        left = missing([*before, *ledger.rows], code, Seeds(0, plan.seeds), plan.block_seeds)
        while left and not is_interrupted and (ends_at is None or time.monotonic() < ends_at):
            is_interrupted = _run_block(plan, ledger, left[0], code, console)
            if not is_interrupted:
                left.pop(0)
        write_campaign_page(plan)
        tally = total_of([*before, *ledger.rows], code)
    return Summary(code, tally, read_table(plan.table), is_interrupted, sum(each.count for each in left))


def write_campaign_page(plan: Plan) -> None:
    """Bring the summary up to the ledger, and write the page anew from it; raises as run_campaign."""
    blocks = read_blocks(plan.ledger)
    write_summary(summary_of(plan.ledger), blocks)
    commits = read_commits(plan.ledger.parent)
    replace_file(plan.page, write_page(blocks, read_table(plan.table), read_corpus(), commits))


def _run_block(plan: Plan, ledger: Ledger[Block], seeds: Seeds, code: str, console: Console) -> bool:
    """Run one block and write it down; True when Ctrl-C came first."""
    with RunProgress(console, str(seeds), seeds.count) as progress:
        outcome: SeedOutcome = run_seeds(seeds, plan.jobs, plan.make_cores, progress.show_seeds)
    if outcome.is_interrupted:
        say(console, f"{seeds}: interrupted, so not counted; the next run does them again", style="bold yellow")
        return True
    if code_version() != code:
        raise LedgerError(
            f"{seeds} cannot be counted",
            "the source of the cores or of the simulator changed while they ran",
            "run the campaign again, best from an installation that nobody edits (make campaign without make dev)",
        )
    tally = replace(outcome.tally, failing=outcome.tally.failing[:MAX_FAILING_IN_BLOCK])
    ledger.append(Block(seeds, code, platform.python_version(), machine(), tally))
    findings = ", ".join(f"{tally.found[word]} {word}" for word in FINDINGS if tally.found[word]) or "nothing found"
    speed = f"{tally.deliveries_per_cpu_s:,.0f} deliveries per CPU second"
    say(console, f"{seeds}: {tally.deliveries:,} deliveries checked, {findings}; {speed}")
    return False


def _run_missing_mutants(plan: Plan, code: str, console: Console) -> bool:
    """Try the mutants that the table does not have for this code and catalogue; True when Ctrl-C came first."""
    table, catalogue = read_table(plan.table), mutants_version()
    if (table.catalogue, table.seeds_each) != (catalogue, plan.seeds_each):
        table = MutantsTable(code, catalogue, plan.seeds_each)
    table.names = [edit.name for edit in plan.edits]
    left = [edit for edit in plan.edits if edit.name not in table.rows]
    if not left:
        return False
    note_commit(plan.ledger.parent, catalogue, mutants_version)
    if absent := without_schedule(left):
        what = f"the mutant {absent[0]} cannot be tried"
        raise LedgerError(what, f"its written schedule is not in {SCENARIOS}", "run this in the project's folder")
    tried = len(table.rows)

    def keep(kill: Kill) -> None:
        if kill.found_as is None and not kill.is_directed and kill.tried < plan.seeds_each:
            return  # time was up
        table.rows[kill.name] = kill
        table.write(plan.table)
        progress.show(len(table.rows) - tried, kill.name)

    with RunProgress(console, "mutants", len(left)) as progress:
        ends_at = None if plan.seconds is None else time.monotonic() + plan.seconds / 2
        kills = run_mutants(left, plan.seeds_each, None, plan.jobs, keep, ends_at)
    survivors = ", ".join(row.name for row in table.ordered() if not row.is_killed)
    say(console, f"mutants: {table.killed} of {len(table.names)} killed" + (f", not {survivors}" if survivors else ""))
    return kills.is_interrupted


def print_summary(console: Console, summary: Summary, plan: Plan) -> None:
    """Print whether the goals are reached, and where the campaign stands."""
    tally, table = summary.tally, summary.table
    say(console, goals(tally, table), style="bold")
    words = ", ".join(f"{tally.found[word]} {word}" for word in FINDINGS)
    numbers = f"{tally.seeds:,} seeds, {tally.simulated_hours:,.0f} simulated hours, {tally.deliveries:,} deliveries"
    say(console, f"code {summary.code}: {numbers}: {words}", style="green" if tally.is_clean else "bold red")
    for each in tally.failing[:MAX_SHOWN]:
        say(console, f"  seed {each.seed}: {each.violation}; replay: {each.replay}", style="red")
    if tally.never_met:
        say(console, f"situations not met yet: {'; '.join(tally.never_met)}", style="yellow")
    say(console, f"{table.killed} of {len(table.names)} mutants killed", style="green" if table.is_done else "bold red")
    for failure in table.shipped_failures:
        say(console, f"FAILED: {failure}", style="bold red")
    say(console, f"{summary.seeds_left:,} seeds left to run; the page is {plan.page}")


def machine() -> str:
    """The machine in a few words."""
    model = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return f"{platform.system()}, {os.cpu_count()} CPUs, {model}"
