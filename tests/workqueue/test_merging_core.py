"""Jobs of a group that run as one: the same results as one after the other."""

from __future__ import annotations

import math
from typing import Any

import pytest

from bridges.workqueue import Commit, Handle, NeedsTransactions
from bridges.workqueue.merging_core import CommitJob, Needs, NextJob, ReserveJob, first_needs, merge
from bridges.workqueue.one_operation import OneOperation
from oncewire.store.rules_core import MAX_COUNT
from oncewire.store.store import Job


def commit(*items: int) -> CommitJob:
    return CommitJob(tuple(Commit(Handle(item, 1)) for item in items))


def push(do: Any) -> str:
    return "pushed"


def test_reservations_of_a_queue_are_one_and_those_who_came_first_are_served_first() -> None:
    jobs = [ReserveJob("a", 2, 30.0), ReserveJob("b", 1, 30.0), ReserveJob("a", 1, 30.0), ReserveJob("a", 1, 30.0)]
    merged = merge(jobs)
    assert [each.job for each in merged] == [ReserveJob("a", 4, 30.0), ReserveJob("b", 1, 30.0)]
    results: list[Any] = [None] * len(jobs)
    merged[0].spread(["first", "second", "third"], results)
    merged[1].spread([], results)
    assert results == [["first", "second"], [], ["third"], []]


def test_reservations_with_other_timeouts_stay_apart() -> None:
    jobs = [ReserveJob("a", 1, 30.0), ReserveJob("a", 1, 60.0)]
    assert [each.job for each in merge(jobs)] == jobs


def test_commits_come_before_reservations_and_no_job_passes_another_kind_of_job() -> None:
    jobs: list[Job] = [ReserveJob("a", 1, 30.0), commit(1), push, commit(2), commit(3), ReserveJob("a", 1, 30.0)]
    merged = merge(jobs)
    assert [(each.job, each.places) for each in merged] == [
        (commit(1), (1,)),
        (jobs[0], (0,)),
        (push, (2,)),
        (commit(2, 3), (3, 4)),
        (jobs[5], (5,)),
    ]
    results: list[Any] = ["none yet"] * len(jobs)
    merged[3].spread(None, results)
    assert results[3:5] == [None, None]


def test_no_operation_gets_more_items_than_it_may_have() -> None:
    jobs = [ReserveJob("a", MAX_COUNT - 1, 30.0), ReserveJob("a", 1, 30.0), ReserveJob("a", 1, 30.0)]
    assert [each.places for each in merge(jobs)] == [(0, 1), (2,)]


def test_a_job_that_will_be_refused_stays_alone() -> None:
    counts = (0, 1, MAX_COUNT + 1)
    jobs: list[Job] = [*(ReserveJob("a", count, 30.0) for count in counts), commit()]
    assert [each.places for each in merge(jobs)] == [(0,), (1,), (2,), (3,)]


def test_workers_that_commit_and_reserve_share_one_commit_and_one_reservation() -> None:
    jobs: list[Job] = [NextJob(commit(number), ReserveJob("a", 1, 30.0)) for number in (1, 2)]
    merged = merge(jobs)
    assert [each.job for each in merged] == [commit(1, 2), ReserveJob("a", 2, 30.0)]
    results: list[Any] = [None] * len(jobs)
    merged[0].spread(None, results)
    merged[1].spread(["first"], results)
    assert results == [["first"], []]


def test_only_what_happens_before_anything_else_is_done_in_advance() -> None:
    commits = commit(1, 2)
    first, again, other = ReserveJob("a", 2, 30.0), ReserveJob("a", 2, 60.0), ReserveJob("b", 1, 30.0)
    assert first_needs([commits, first, other]) == Needs(commits.commits, (first, other))
    assert first_needs([commit(1), commit(2), first]) == Needs(commit(1).commits)
    assert first_needs([first, again, other]) == Needs((), (first,))
    assert first_needs([push, commit(1), first]) == Needs()
    assert first_needs([commit(), ReserveJob("a", 0, 30.0)]) == Needs()
    assert first_needs([ReserveJob("a", 1, 0.0)]) == first_needs([ReserveJob("a", 1, math.nan)]) == Needs()


def test_a_store_without_transactions_refuses_a_commit_with_a_reservation() -> None:
    with pytest.raises(NeedsTransactions):
        OneOperation(0.0).of(NextJob(commit(1), ReserveJob("a", 1, 30.0)))
