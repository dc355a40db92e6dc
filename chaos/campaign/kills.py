"""Run the mutants: for each edit of the catalogue, seeds until its absence shows, or its written schedule."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from chaos.campaign.seeds import limit_cpu_of_a_seed, restart_seed_limit
from chaos.campaign.tally import without_folders
from chaos.campaign.workers import Workers
from chaos.mutants.edits import Edit, load
from chaos.mutants.search import Search, is_crash, search
from chaos.simulator.cores import SHIPPED, Cores
from chaos.simulator.scenario import read, replay
from chaos.simulator.schedule import Result, run_seed
from chaos.simulator.violation import FOUND_AS

SCENARIOS = Path("tests/delivery_records/scenarios")
"""Written schedules, in the project's folder."""
SEEDS_EACH = 10_000
"""A rule whose mutant survives so many seeds aimed at it is not needed, or its test is missing."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One mutant and how long to look for what it breaks."""

    edit: Edit
    seeds: int
    seconds: float | None
    """Wall-clock; None: until the seeds are used up."""


@dataclass(frozen=True, slots=True)
class Kill:
    """What came of one mutant."""

    name: str
    rule: str
    why: str
    aim: tuple[str, ...]
    tried: int
    """Seeds run, from 0 on; the last one found it if any did."""
    found_as: str | None
    """The checker's word; None: it survived."""
    violation: str | None
    crash: str | None
    """How the edited code fell over its own edit on the way: that shows nothing of the rule."""
    shipped_seed: int | None
    """The first seed on the way at which the shipped cores fail too: it shows nothing of the rule, but a fault."""
    shipped_violation: str | None
    """What they break there, or in the written schedule."""
    cpu_s: float
    is_directed: bool = False
    """A written schedule was replayed; no seeds were searched."""

    @property
    def is_killed(self) -> bool:
        """True when the mutant breaks a guarantee where the shipped cores keep it."""
        return self.found_as is not None

    @property
    def first_word(self) -> str:
        """What the mutant breaks, as the judge says it: LOST, HOLE, BLOCKED, ...; empty when it survives."""
        return (self.violation or "").partition(":")[0]

    def as_json(self) -> dict[str, object]:
        """Return the row of the JSON line."""
        return {
            "name": self.name,
            "rule": self.rule,
            "killed": self.is_killed,
            "found_as": self.found_as,
            "violation": _said(self.violation),
            "seeds": self.tried,
            "aim": list(self.aim),
            "why": self.why,
            "crash": _said(self.crash),
            "shipped_seed": self.shipped_seed,
            "shipped_violation": _said(self.shipped_violation),
            "cpu_s": round(self.cpu_s, 2),
            "directed": self.is_directed,
        }


def _said(violation: str | None) -> str | None:
    return None if violation is None else without_folders(violation)


@dataclass(frozen=True, slots=True)
class Kills:
    """What came of several mutants, in the order of the catalogue."""

    total: int
    """Asked for."""
    rows: tuple[Kill, ...]
    is_interrupted: bool = False

    @property
    def killed(self) -> int:
        """How many were killed."""
        return sum(row.is_killed for row in self.rows)

    @property
    def survivors(self) -> list[str]:
        """Names of those that were not."""
        return [row.name for row in self.rows if not row.is_killed]

    @property
    def shipped_failures(self) -> list[str]:
        """Where the shipped cores broke a guarantee on the way, in a sentence each."""
        return shipped_failures(self.rows)

    @property
    def is_good(self) -> bool:
        """True when all were killed and the shipped cores broke nothing on the way."""
        return self.killed == self.total and not self.shipped_failures

    def as_json(self) -> dict[str, object]:
        """Return the content of the JSON line."""
        return {
            "total": self.total,
            "killed": self.killed,
            "survivors": self.survivors,
            "shipped_failures": self.shipped_failures,
            "interrupted": self.is_interrupted,
            "rows": [row.as_json() for row in self.rows],
        }


def shipped_failures(rows: Sequence[Kill]) -> list[str]:
    """Where the shipped cores broke a guarantee while mutants were tried, in a sentence each."""
    return [
        f"the shipped cores break a guarantee {_where(row)}: {_said(row.shipped_violation)}"
        for row in rows
        if row.shipped_violation is not None
    ]


def _where(row: Kill) -> str:
    if row.shipped_seed is None:
        return f"in the written schedule {row.name}"
    return f"at seed {row.shipped_seed} aimed at {' '.join(row.aim) or 'anything'} (mutant {row.name})"


def without_schedule(edits: Sequence[Edit]) -> list[str]:
    """Names of directed edits whose written schedule is not here: they cannot be tried."""
    return [edit.name for edit in edits if edit.is_directed and not (SCENARIOS / f"{edit.name}.txt").is_file()]


def run_mutants(
    edits: Sequence[Edit],
    seeds: int,
    seconds: float | None,
    jobs: int,
    on_kill: Callable[[Kill], None] | None = None,
    ends_at: float | None = None,
) -> Kills:
    """Try each mutant; Ctrl-C ends the workers and keeps what was done.

    Args:
        edits: the mutants.
        seeds: how many at most for each.
        seconds: how long at most for each.
        jobs: how many worker processes.
        on_kill: called with each that was tried.
        ends_at: by the monotonic clock, when all shall end; those not begun then are left out.

    Raises:
        WorkerDied: a worker process was killed from outside.
    """
    done: dict[str, Kill] = {}
    is_interrupted = False
    try:
        with Workers[Trial, Kill](min(jobs, len(edits)), make_hunter) as workers:
            for trial, kill in workers.answers(_trials(edits, seeds, seconds, ends_at)):
                done[trial.edit.name] = kill
                if on_kill is not None:
                    on_kill(kill)
    except KeyboardInterrupt:
        is_interrupted = True
    return Kills(len(edits), tuple(done[each.name] for each in edits if each.name in done), is_interrupted)


def _trials(edits: Sequence[Edit], seeds: int, seconds: float | None, ends_at: float | None) -> Iterator[Trial]:
    """Taken one by one, when a worker is free: only then is known how much time is left."""
    for edit in edits:
        left = None if ends_at is None else ends_at - time.monotonic()
        if left is not None and left <= 0:
            return
        limits = [limit for limit in (seconds, left) if limit is not None]
        yield Trial(edit, seeds, min(limits, default=None))


def make_hunter() -> Callable[[Trial], Kill]:
    """What a worker process becomes."""
    limit_cpu_of_a_seed()
    return try_mutant


def try_mutant(trial: Trial) -> Kill:
    """Run seeds until one shows the mutant and not the shipped cores; a directed one has its written schedule."""
    edit, tried = trial.edit, 0
    started = time.process_time()
    ends_at = None if trial.seconds is None else time.monotonic() + trial.seconds

    def still_worth() -> bool:  # asked before each seed
        nonlocal tried
        if ends_at is not None and time.monotonic() >= ends_at:
            return False
        tried += 1
        return True

    if edit.is_directed:
        violation, shipped = _replayed(edit)
        crash = violation if violation is not None and is_crash(violation) else None
        if shipped is not None or crash is not None:
            violation = None
        seed = None
    else:
        done: Search = search(edit, range(trial.seeds), still_worth, _run_limited)
        violation, crash, shipped = (
            None if result is None else result.violation for result in (done.found, done.crashed, done.shipped)
        )
        seed = None if done.shipped is None else done.shipped.seed
    return Kill(
        edit.name,
        edit.rule,
        edit.why,
        edit.aim,
        tried,
        _word(violation),
        violation,
        crash,
        seed,
        shipped,
        time.process_time() - started,
        edit.is_directed,
    )


def _word(violation: str | None) -> str | None:
    return None if violation is None else FOUND_AS.get(violation.partition(":")[0], "unexpected")


def _replayed(edit: Edit) -> tuple[str | None, str | None]:
    """What the mutant and the shipped cores break in the written schedule."""
    restart_seed_limit()
    scenario, _, _ = read((SCENARIOS / f"{edit.name}.txt").read_text(encoding="utf-8"))
    return replay(scenario, load((edit,))).violation, replay(scenario).violation


def _run_limited(seed: int, cores: Cores = SHIPPED, aim: tuple[str, ...] = ()) -> Result:
    restart_seed_limit()
    return run_seed(seed, cores, aim)
