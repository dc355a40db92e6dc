"""The record of kills: run after run of the demo into a ledger, until it has enough of them; then the page."""

from __future__ import annotations

import platform
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

from chaos.campaign.campaign import machine
from chaos.evidence.commits import note_commit, read_commits
from chaos.evidence.ledger import Ledger, LedgerError, replace_file
from chaos.experiments.spark_demo import MIN_MESSAGES, MIN_MESSAGES_PER_KILL
from chaos.experiments.spark_demo.record_page import write_page
from chaos.experiments.spark_demo.record_rows import RUNS, Run, Strike, kills_version, read_kills, recorded_code
from chaos.experiments.spark_demo.report import SparkResult
from chaos.experiments.spark_demo.run import SparkOptions

ROUTERS = 3
WORKERS = 2


def run_of(result: SparkResult, seed: int, code: str) -> Run:
    """The line of a result; what is wrong with the late query's counts is added to what is wrong with the job's."""
    verdict, late = result.verdict, result.history
    strikes = [Strike(kill.kind.value, kill.during, kill.fault.unsettled) for kill in result.kills]
    during = "the late query reads a journal"
    strikes += [
        Strike(f"{what} of the late query", during, 0) for what, n in result.history_kills.items() for _ in range(n)
    ]
    return Run(
        code=code,
        python=platform.python_version(),
        machine=machine(),
        seed=seed,
        published=result.accepted,
        lost=verdict.lost + late.lost,
        duplicated=verdict.duplicated + late.duplicated,
        torn=verdict.torn + late.torn,
        batches=verdict.batches,
        driver_starts=result.starts,
        query_failures=len(result.query_failures),
        counts=late.groups,
        seconds=round(result.seconds, 1),
        strikes=strikes,
        reasons=result.reasons(),
    )


@dataclass(frozen=True, slots=True)
class Plan:
    """What the record is to have.

    Attributes:
        ledger: its file.
        kills: SIGKILLs in the end, of today's code.
        each: kills of the job in one run; its late query has three more.
        first_seed: the smallest.
        seconds: no further run is begun after so long; None = until there are enough.
    """

    ledger: Path
    kills: int
    each: int
    first_seed: int
    seconds: float | None

    @property
    def page(self) -> Path:
        """The page for readers."""
        return self.ledger.with_suffix(".md")

    def options(self, seed: int, folder: Path) -> SparkOptions:
        """Of one run."""
        messages = max(MIN_MESSAGES, self.each * MIN_MESSAGES_PER_KILL)
        return SparkOptions(messages, self.each, ROUTERS, seed, WORKERS, folder)


@dataclass(frozen=True, slots=True)
class Summary:
    """Where the record stands: the runs of today's code; `kept` has journals and logs of one that failed."""

    code: str
    runs: Sequence[Run]
    kept: Path | None = None

    @property
    def kills(self) -> int:
        """How many SIGKILLs."""
        return sum(len(run.strikes) for run in self.runs)

    @property
    def passed(self) -> bool:
        """Whether every run passed, and there was one."""
        return bool(self.runs) and all(run.passed for run in self.runs)

    def as_json(self) -> dict[str, object]:
        """The JSON line."""
        counts = {word: sum(getattr(run, word) for run in self.runs) for word in ("lost", "duplicated", "torn")}
        kept = None if self.kept is None else str(self.kept)
        seconds = round(sum(run.seconds for run in self.runs), 1)
        return {
            "code": self.code,
            "runs": len(self.runs),
            "kills": self.kills,
            **counts,
            "seconds": seconds,
            "kept": kept,
            "passed": self.passed,
        }


def make_record(plan: Plan, run_once: Callable[[SparkOptions], SparkResult]) -> Summary:
    """Run until the ledger has enough kills of today's code; stop at the first run that fails, and keep its folder.

    Raises:
        LedgerError: the ledger or a file beside it cannot be used, or the source changed meanwhile.
    """
    ends_at = None if plan.seconds is None else time.monotonic() + plan.seconds
    code = kills_version()
    kept = None
    with Ledger(plan.ledger, RUNS) as ledger:
        note_commit(plan.ledger.parent, code, kills_version)
        try:
            while kept is None:
                ours = [run for run in ledger.rows if run.code == code]
                is_late = ends_at is not None and time.monotonic() > ends_at
                if is_late or sum(len(run.strikes) for run in ours) >= plan.kills:
                    break
                seed = max((run.seed + 1 for run in ours), default=plan.first_seed)
                kept = _one(ledger, plan, seed, code, run_once)
        finally:
            write_record_page(plan.ledger)
        return Summary(code, [run for run in ledger.rows if run.code == code], kept)


def _one(
    ledger: Ledger[Run], plan: Plan, seed: int, code: str, run_once: Callable[[SparkOptions], SparkResult]
) -> Path | None:
    """One run; returns the folder if it failed."""
    folder = Path(mkdtemp(prefix=f"oncewire-spark-{seed}-"))
    failed = False
    try:
        result = run_once(plan.options(seed, folder))
        if kills_version() != code:
            raise LedgerError(
                f"seed {seed} cannot be counted",
                "the source changed while it ran",
                "start again, best from an installation that nobody edits (make demo-spark without make dev)",
            )
        failed = not result.passed
        ledger.append(run_of(result, seed, code))
    finally:
        if not failed:
            shutil.rmtree(folder, ignore_errors=True)
    return folder if failed else None


def write_record_page(ledger: Path) -> None:
    """Write the page anew from the ledger. Raises LedgerError."""
    runs = read_kills(ledger)
    replace_file(ledger.with_suffix(".md"), write_page(runs, recorded_code(runs), read_commits(ledger.parent)))
