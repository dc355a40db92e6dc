"""Jobs that cost less together: reservations of one queue are one search, commits are one deletion. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from bridges.workqueue.items import Commit, Taken
from bridges.workqueue.store import Operations
from oncewire.store.merging_core import Merged
from oncewire.store.rules_core import MAX_COUNT, MAX_DELAY_S
from oncewire.store.store import Job


@dataclass(frozen=True, slots=True)
class ReserveJob:
    """Reserve up to `count` items of a queue; see Operations.reserve."""

    queue: str
    count: int
    timeout: float

    def __call__(self, do: Operations) -> list[Taken]:
        """Run it."""
        return do.reserve(self.queue, self.count, self.timeout)


@dataclass(frozen=True, slots=True)
class CommitJob:
    """End reserved items; see Operations.commit."""

    commits: tuple[Commit, ...]

    def __call__(self, do: Operations) -> None:
        """Run it."""
        do.commit(self.commits)


@dataclass(frozen=True, slots=True)
class NextJob:
    """End reserved items, and reserve the next ones."""

    commit: CommitJob
    reserve: ReserveJob

    def __call__(self, do: Operations) -> list[Taken]:
        """Run it."""
        self.commit(do)
        return self.reserve(do)


_Placed: TypeAlias = tuple[int, ReserveJob | CommitJob]
"""A job, and its place among all."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What the first jobs of a transaction do before anything else happens.

    Attributes:
        commits: the first commits.
        reservations: the first reservations, each of another queue.
    """

    commits: tuple[Commit, ...] = ()
    reservations: tuple[ReserveJob, ...] = ()


def first_needs(jobs: Sequence[Job]) -> Needs:
    """Return what merged jobs do first: commits, if they begin, and one reservation of each queue after them."""
    commits: tuple[Commit, ...] = ()
    reservations: dict[str, ReserveJob] = {}
    for place, job in enumerate(jobs):
        if isinstance(job, CommitJob) and not place:
            commits = job.commits
        elif isinstance(job, ReserveJob) and job.queue not in reservations and _is_possible(job):
            reservations[job.queue] = job
        else:
            break
    return Needs(commits, tuple(reservations.values()))


def _is_possible(job: ReserveJob) -> bool:
    """Whether a reservation will not be refused."""
    return 0 < job.count <= MAX_COUNT and 0 < job.timeout <= MAX_DELAY_S


def merge(jobs: Sequence[Job]) -> list[Merged]:
    """Return fewer jobs with the same results.

    Between two other jobs commits come first, then reservations. Nobody can see the difference: a reservation is
    known to its caller, who may commit it, only after the transaction.
    """
    merged: list[Merged] = []
    run: list[int] = []
    for place, job in enumerate(jobs):
        parts = _parts(job)
        if parts and all(0 < _count(part) <= MAX_COUNT for part in parts):
            run.append(place)
            continue
        merged += _merge_run(jobs, run)
        run = []
        merged.append(Merged(job, (place,)))
    return merged + _merge_run(jobs, run)


def _merge_run(jobs: Sequence[Job], run: Sequence[int]) -> list[Merged]:
    kinds: dict[tuple[str, float] | None, list[_Placed]] = {None: []}
    for place in run:
        for part in _parts(jobs[place]):
            kind = None if isinstance(part, CommitJob) else (part.queue, part.timeout)
            kinds.setdefault(kind, []).append((place, part))
    return [_merged(some) for parts in kinds.values() for some in _portions(parts)]


def _parts(job: Job) -> tuple[ReserveJob | CommitJob, ...]:
    """What can be merged of a job. The reservation comes last: it has the result."""
    if isinstance(job, NextJob):
        return job.commit, job.reserve
    return (job,) if isinstance(job, ReserveJob | CommitJob) else ()


def _count(job: ReserveJob | CommitJob) -> int:
    return job.count if isinstance(job, ReserveJob) else len(job.commits)


def _portions(parts: Sequence[_Placed]) -> Iterator[list[_Placed]]:
    """Yield as many at a time as one operation may have items of."""
    some: list[_Placed] = []
    items = 0
    for part in parts:
        items += _count(part[1])
        if items > MAX_COUNT:
            yield some
            some, items = [], _count(part[1])
        some.append(part)
    if some:
        yield some


def _merged(parts: Sequence[_Placed]) -> Merged:
    """Make one job of several of a kind."""
    places = tuple(place for place, _ in parts)
    first = parts[0][1]
    if isinstance(first, CommitJob):
        commits = tuple(each for _, part in parts if isinstance(part, CommitJob) for each in part.commits)
        return Merged(CommitJob(commits), places)
    counts = tuple(_count(job) for _, job in parts)
    return Merged(ReserveJob(first.queue, sum(counts), first.timeout), places, counts)
