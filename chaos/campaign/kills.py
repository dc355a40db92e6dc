"""Run the mutants: for each edit of the catalogue, seeds until its absence shows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from chaos.campaign.seeds import limit_cpu_of_a_seed, restart_seed_limit
from chaos.campaign.workers import Workers
from chaos.mutants.edits import Edit
from chaos.mutants.search import first_failing_seed
from chaos.simulator.schedule import Result, run_seed

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
    shipped_violation: str | None
    """What the shipped cores break at the seed that found the mutant: then the seed tells nothing of the rule."""
    cpu_s: float

    @property
    def is_killed(self) -> bool:
        """True when the mutant breaks a guarantee at a seed where the shipped cores keep it."""
        return self.found_as is not None and self.shipped_violation is None

    def as_json(self) -> dict[str, object]:
        """Return the row of the JSON line."""
        return {
            "name": self.name, "rule": self.rule, "killed": self.is_killed, "found_as": self.found_as,
            "violation": self.violation, "seeds": self.tried, "aim": list(self.aim), "why": self.why,
            "shipped_violation": self.shipped_violation, "cpu_s": round(self.cpu_s, 2),
        }  # fmt: skip


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

    def as_json(self) -> dict[str, object]:
        """Return the content of the JSON line."""
        return {
            "total": self.total, "killed": self.killed, "survivors": self.survivors,
            "interrupted": self.is_interrupted, "rows": [row.as_json() for row in self.rows],
        }  # fmt: skip


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


def _trials(
    edits: Sequence[Edit], seeds: int, seconds: float | None, ends_at: float | None
) -> Iterator[Trial]:
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
    """Run seeds until one shows the mutant, and that one on the shipped cores too."""
    edit, tried = trial.edit, 0
    started = time.process_time()
    ends_at = None if trial.seconds is None else time.monotonic() + trial.seconds

    def still_worth() -> bool:  # asked before each seed
        nonlocal tried
        if ends_at is not None and time.monotonic() >= ends_at:
            return False
        tried += 1
        restart_seed_limit()
        return True

    found: Result | None = first_failing_seed(edit, range(trial.seeds), still_worth)
    shipped = None
    if found is not None:
        restart_seed_limit()
        shipped = run_seed(found.seed, aim=edit.aim).violation
    return Kill(
        edit.name, edit.rule, edit.why, edit.aim, tried,
        None if found is None else found.found_as, None if found is None else found.violation, shipped,
        time.process_time() - started,
    )  # fmt: skip
