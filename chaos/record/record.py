"""Runs all experiments, seed after seed, until the ledger has enough faults; then writes the page and its plots."""

from __future__ import annotations

import platform
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from tempfile import mkdtemp

from chaos.campaign.campaign import machine
from chaos.campaign.version import processes_version
from chaos.evidence.commits import note_commit, read_commits
from chaos.evidence.ledger import Ledger, LedgerError, replace_file
from chaos.experiments.catalogue import catalogue
from chaos.experiments.results import COUNTS, ExperimentResult
from chaos.record.page import write_page
from chaos.record.plots import PLOTS, draw
from chaos.record.runs import Run, read_runs, run_of, runs_ledger, runs_of


@dataclass(frozen=True, slots=True)
class Plan:
    """What the record is to have."""

    ledger: Path
    faults: int
    """How many faults shall have been fired in the end with today's code."""
    first_seed: int
    """The smallest seed; runs on several machines take different ones, and their ledgers can be put together."""
    seconds: float | None
    """No further experiment is begun after so long; None: until there are enough faults."""

    @property
    def page(self) -> Path:
        """The page for readers."""
        return self.ledger.with_suffix(".md")


@dataclass(frozen=True, slots=True)
class Summary:
    """Where the record stands."""

    code: str
    runs: list[Run]
    """All of today's code, earlier runs included."""
    wanted: int
    kept: Path | None = None
    """Journals, logs and timeline of the experiment that failed last."""

    @property
    def faults(self) -> int:
        """How many faults were fired."""
        return sum(run.faults for run in self.runs)

    @property
    def passed(self) -> bool:
        """Whether every experiment passed, and there was one."""
        return bool(self.runs) and all(run.passed for run in self.runs)

    def as_json(self) -> dict[str, object]:
        """The JSON line."""
        return {
            "code": self.code,
            "experiments": len(self.runs),
            "faults": self.faults,
            "faults_left": max(0, self.wanted - self.faults),
            **{word: sum(getattr(run, word) for run in self.runs) for word in COUNTS},
            "failed": [f"{run.experiment}, seed {run.seed}" for run in self.runs if not run.passed],
            "kept": None if self.kept is None else str(self.kept),
            "passed": self.passed,
        }


def make_record(plan: Plan, run_once: Callable[[str, int, Path], ExperimentResult]) -> Summary:
    """Do what the ledger does not have yet; stop at the first experiment that fails, and keep its folder.

    Args:
        plan: what to do.
        run_once: runs one experiment, by name and seed, in an empty folder.

    Raises:
        LedgerError: the ledger or a file beside it cannot be used, or the source changed meanwhile.
    """
    ends_at = None if plan.seconds is None else time.monotonic() + plan.seconds
    code = processes_version()
    kept = None
    with runs_ledger(plan.ledger) as ledger:
        note_commit(plan.ledger.parent, code, processes_version)
        try:
            for name, seed in _missing(ledger, code, plan.first_seed):
                if _faults(ledger, code) >= plan.faults or (ends_at is not None and time.monotonic() > ends_at):
                    break
                kept = _run(ledger, code, name, seed, run_once)
                if kept is not None:
                    break
        finally:
            write_record_page(plan)
        return Summary(code, runs_of(ledger.rows, code), plan.faults, kept)


def never_fired(runs: Iterable[Run]) -> list[str]:
    """Experiments with a kind of fault that none of these runs has fired, whatever code they had."""
    fired = {fault.kind for run in runs for each in run.rounds for fault in each.faults}
    return [
        name
        for name, experiment in catalogue(1).items()
        if not {experiment.kind_of(fault) for together in experiment.rounds for fault in together} <= fired
    ]


def _missing(ledger: Ledger[Run], code: str, first_seed: int) -> Iterator[tuple[str, int]]:
    """Those with kinds of faults that were never fired come first: a new experiment is soon in the record."""
    done = {(run.experiment, run.seed) for run in runs_of(ledger.rows, code)}
    new = never_fired(ledger.rows)
    return (
        (name, seed)
        for seed in count(first_seed)
        for name in sorted(catalogue(seed), key=lambda name: name not in new)
        if (name, seed) not in done
    )


def _faults(ledger: Ledger[Run], code: str) -> int:
    return sum(run.faults for run in runs_of(ledger.rows, code))


def _run(
    ledger: Ledger[Run], code: str, name: str, seed: int, run_once: Callable[[str, int, Path], ExperimentResult]
) -> Path | None:
    """Run it and write it down; the folder where it failed."""
    folder = Path(mkdtemp(prefix=f"oncewire-{name}-{seed}-"))
    failed = False
    try:
        result = run_once(name, seed, folder)
        if processes_version() != code:
            raise LedgerError(
                f"{name}, seed {seed} cannot be counted",
                "the source of routers or clients changed while it ran",
                "start again, best from an installation that nobody edits (make campaign without make dev)",
            )
        failed = not result.passed
        if failed:
            (folder / "timeline.txt").write_text(result.timeline_text())
        ledger.append(run_of(result, code, platform.python_version(), machine()))
    finally:
        if not failed:
            shutil.rmtree(folder, ignore_errors=True)
    return folder if failed else None


def write_record_page(plan: Plan) -> None:
    """Write page and plots anew from the ledger. Raises LedgerError, PlotsNotPossible."""
    runs = read_runs(plan.ledger)
    for name in PLOTS if runs else ():
        replace_file(plan.ledger.with_name(name), draw(name, runs))
    replace_file(plan.page, write_page(runs, read_commits(plan.ledger.parent)))
