"""Processes killed at every place of what the store does for edges: nothing is lost, doubled or done by a past owner.

The same with routers between, and with real feeds and publishers, is in tests/workqueue/test_topic_crashes.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from bridges.store.crash_points import CrashPoint
from bridges.store.outbox import NewMessage, publish
from oncewire.store.contents import Contents
from oncewire.store.errors import TakenOver
from oncewire.store.owners import Owner, lease_left, take_over
from tests.store.crash_worker import MESSAGES, TOPIC, Peer
from tests.store.databases import SqlDatabase
from tests.store.killing import KILLED, NOWHERE, run_worker
from tests.store.test_stores import NOTES
from tests.support.effort import rounds

POINTS = {
    "feed": [CrashPoint.FEED_PUSHED, CrashPoint.FEED_COMMITTED],
    "decide": [CrashPoint.OUTBOX_WRITTEN],
    "publish": [
        CrashPoint.ROWS_NOTED,
        CrashPoint.ROWS_EXPOSED,
        CrashPoint.OUTCOMES_WRITTEN,
        CrashPoint.OUTCOMES_COMMITTED,
    ],
    "own": [],
}
"""Crash points of the store. FEED_RECEIVED and ROWS_READ belong to a feed and a publisher: nothing is begun there."""
WHOLE = [*range(MESSAGES)]


@dataclass
class Run:
    """The workers of one role, one after the other, on one database with one peer."""

    database: SqlDatabase
    role: str
    peer: Peer
    path: Path

    def __post_init__(self) -> None:
        with closing(self.database.open_with(Contents([NOTES]))) as store:
            if self.role == "publish":
                rows = [NewMessage(TOPIC, b"%d" % number) for number in WHOLE]
                store.transact([lambda do: publish(do, rows)])
            if self.role == "own":
                store.transact([lambda do: take_over(do, "it")])

    def worker(self, place: str) -> int:
        return run_worker(
            "tests.store.crash_worker", self.database.kind, self.database.address, self.role, place, str(self.path)
        )

    def notes(self) -> list[tuple[int, str]]:
        return [(number, text) for number, text in self.database.rows("SELECT number, note FROM notes")]

    def check(self) -> None:
        """What holds after each death."""
        CHECKS[self.role](self)

    def judge(self) -> None:
        """What holds when all is done."""
        self.check()
        assert sorted(number for number, _ in self.peer.noted()) == (WHOLE if self.role in ("feed", "publish") else [])
        if self.role in ("feed", "decide"):
            assert sorted(number for number, _ in self.notes()) == WHOLE
        assert self.database.rows("SELECT tag FROM oncewire_feed_tags") == []
        left = self.database.rows(f"SELECT number FROM oncewire_outbox WHERE topic = '{TOPIC}' ORDER BY number")
        assert [number for (number,) in left] == (WHOLE if self.role == "decide" else [])


def check_feed(run: Run) -> None:
    """A message has its effect with its place in the map; what the sender has settled was accepted."""
    noted = [number for number, _ in run.notes()]
    settled = {number for number, _ in run.peer.noted()}
    tags = {int(bytes(tag)) for (tag,) in run.database.rows("SELECT tag FROM oncewire_feed_tags")}
    assert len(noted) == len(set(noted))
    assert tags <= set(noted)
    assert settled <= set(noted) <= tags | settled


def check_decide(run: Run) -> None:
    """A message is in the outbox with its note; the numbers of a topic have no hole."""
    decided = sorted(number for number, _ in run.notes())
    for topic in (TOPIC, "other"):
        query = f"SELECT number FROM oncewire_outbox WHERE topic = '{topic}' ORDER BY number"
        assert [number for (number,) in run.database.rows(query)] == [*range(len(decided))]
    payloads = run.database.rows(f"SELECT payload FROM oncewire_outbox WHERE topic = '{TOPIC}' ORDER BY number")
    assert [int(bytes(payload)) for (payload,) in payloads] == decided


def check_publish(run: Run) -> None:
    """What the receiver has is in order and whole; what it has not is in the outbox."""
    got = run.peer.noted()
    assert got == [(number, str(number)) for number in range(len(got))]
    left = {number for (number,) in run.database.rows("SELECT number FROM oncewire_outbox")}
    assert left >= set(WHOLE[len(got) :])


def check_own(run: Run) -> None:
    """Epochs only rise, and who owned before is refused (W-23)."""
    epochs = [number for number, _ in run.notes()]
    ((epoch,),) = run.database.rows("SELECT epoch FROM oncewire_owners")
    assert epochs == sorted(epochs)
    assert not epochs or epochs[-1] <= epoch
    with closing(run.database.open_with(Contents([NOTES]))) as store:
        for past in range(1, epoch):
            with pytest.raises(TakenOver):
                store.transact([Owner("it", "c", past).check])
        store.transact([Owner("it", "c", epoch).check])
        assert store.transact([lambda do: lease_left(do, "it")])[0][0] is not None


CHECKS: dict[str, Callable[[Run], None]] = {
    "feed": check_feed,
    "decide": check_decide,
    "publish": check_publish,
    "own": check_own,
}


def killed_one_after_the_other(run: Run, places: Iterable[str]) -> int:
    """Run workers to their deaths, until one comes to its end; returns how many died."""
    killed = 0
    for place in places:
        code = run.worker(place)
        if code == 0:
            break
        assert code == KILLED, f"{run.role} at {place}"
        run.check()
        killed += 1
    else:
        assert run.worker(NOWHERE) == 0
    run.judge()
    return killed


@pytest.fixture(params=POINTS)
def run(request: pytest.FixtureRequest, sql_database: SqlDatabase, tmp_path: Path) -> Run:
    path = tmp_path / "peer"
    return Run(sql_database, request.param, Peer(path), path)


def test_killed_at_each_crash_point_and_around_commits_nothing_is_lost_or_doubled(run: Run) -> None:
    points = [f"{point} {times}" for point in POINTS[run.role] for times in range(1, 1 + rounds(2))]
    commits = [f"commit {number} {side}" for number in range(1, 1 + rounds(3)) for side in ("before", "after")]
    assert killed_one_after_the_other(run, [*points, *commits]) == len(points) + len(commits)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killed_before_every_statement_nothing_is_lost_or_doubled(run: Run) -> None:
    """Behind a statement it is the same, but for commits, and these are above."""
    assert killed_one_after_the_other(run, (f"{number} before" for number in itertools.count(1))) >= 10
