"""Batches that stand alone in one outbox (O-13): no order, no fencing, and nothing of them stays for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridges.node.arrow_bodies import count_topics, encode_rows
from bridges.node.errors import BadRequest, OwnedByAnother, PartMissing
from bridges.node.model import StagedPart, Writer
from bridges.node.outbox import KEPT_MANIFESTS, Outbox
from bridges.node.staged_parts import KEPT_STAGED_S
from oncewire.wire import encode_data_message
from tests.client.shell_helpers import LONG
from tests.node.node_process import NodeProcess, running_node
from tests.router.processes import RouterProcess

UNNAMED = "unnamed-writes"


def alone(run: str) -> Writer:
    return Writer(UNNAMED, run, stands_alone=True)


@pytest.fixture
def now() -> list[float]:
    return [1_700_000_000.0]


@pytest.fixture
def outbox(tmp_path: Path, now: list[float]) -> Iterator[Outbox]:
    found = Outbox(tmp_path / f"{UNNAMED}.db", UNNAMED, clock=lambda: now[0])
    yield found
    found.close()


def body_of(*values: str) -> bytes:
    return encode_rows(["out"] * len(values), [encode_data_message(value.encode()) for value in values])


def stage(outbox: Outbox, run: str, batch: int, *values: str, attempt: str = "a", chunk: int = 0) -> StagedPart:
    body = body_of(*values)
    part = StagedPart(0, f"{run}.{attempt}", chunk + 1, len(values))
    assert outbox.stage(alone(run), batch, part, chunk, count_topics(body), body)
    return part


def test_writes_that_stand_alone_run_beside_each_other_in_any_order(outbox: Outbox) -> None:
    first = stage(outbox, "run-1", 900, "first")
    second = stage(outbox, "run-2", 70, "second")
    third = stage(outbox, "run-3", 500, "third")
    assert [
        outbox.commit(alone(run), batch, [part]).is_first
        for run, batch, part in (("run-3", 500, third), ("run-1", 900, first), ("run-2", 70, second))
    ] == [True, True, True]
    assert outbox.marks().manifests == 3


def test_attempts_of_tasks_and_stages_that_the_commit_does_not_name_never_count(outbox: Outbox) -> None:
    stage(outbox, "run-1", 900, "lost", attempt="0")
    won = stage(outbox, "run-1", 900, "won", attempt="1")
    other = stage(outbox, "run-2", 70, "of another write")
    decided = outbox.commit(alone("run-1"), 900, [won])
    assert (decided.rows, outbox.commit(alone("run-1"), 900, [won]).is_first) == (1, False)
    assert not outbox.stage(alone("run-1"), 900, StagedPart(0, "run-1.2", 1, 1), 0, {"out": 1}, body_of("late"))
    assert outbox.commit(alone("run-2"), 70, [other]).rows == 1
    assert outbox.marks().staged_bytes == 0


def test_what_a_killed_job_has_staged_goes_after_a_day_and_what_a_slow_one_stages_stays(
    outbox: Outbox, now: list[float]
) -> None:
    killed = stage(outbox, "killed", 1, "x")
    stage(outbox, "slow", 2, "y")
    now[0] += KEPT_STAGED_S - 1.0
    outbox.delete_abandoned()
    slow = stage(outbox, "slow", 2, "z", chunk=1)
    now[0] += 1.0
    outbox.delete_abandoned()
    with pytest.raises(PartMissing):
        outbox.commit(alone("killed"), 1, [killed])
    assert outbox.commit(alone("slow"), 2, [StagedPart(0, slow.attempt, 2, 2)]).rows == 2


def test_the_next_write_deletes_what_a_killed_job_has_staged(outbox: Outbox, now: list[float]) -> None:
    stage(outbox, "killed", 1, "x")
    now[0] += KEPT_STAGED_S
    assert outbox.marks().staged_bytes
    outbox.commit(alone("next"), 2, [])
    assert outbox.marks().staged_bytes == 0


def test_a_job_that_fails_frees_its_room_and_what_is_decided_stays(outbox: Outbox) -> None:
    stage(outbox, "run-1", 1, "x")
    part = stage(outbox, "run-2", 2, "y")
    outbox.discard(alone("run-1"), 1)
    outbox.commit(alone("run-2"), 2, [part])
    outbox.discard(alone("run-2"), 2)
    marks = outbox.marks()
    assert (marks.staged_bytes, marks.waiting_manifests) == (0, 1)
    assert marks.waiting_bytes > 0


def test_no_query_shares_their_sink(outbox: Outbox) -> None:
    outbox.commit(alone("run-1"), 1, [])
    with pytest.raises(OwnedByAnother, match="give each query its own sinkId"):
        outbox.commit(Writer("query", "run-2"), 2, [])


def test_records_of_a_thousand_writes_are_kept_and_no_runs(outbox: Outbox) -> None:
    for number in range(KEPT_MANIFESTS + 5):
        outbox.commit(alone(f"run-{number}"), 10_000_000 - number, [])
    with outbox._file.looking() as do:
        ((manifests,),) = do.execute("SELECT count(*) FROM node_manifests")
        ((runs,),) = do.execute("SELECT count(*) FROM node_runs")
    assert (manifests, runs) == (KEPT_MANIFESTS + 1, 0)


async def test_a_node_discards_what_stands_alone_and_nothing_else(router: RouterProcess, tmp_path: Path) -> None:
    def use(node: NodeProcess) -> None:
        with node.connect() as remote:
            assert remote.stage(UNNAMED, alone("run-1"), 1, 0, "run-1.0", 0, body_of("x"))
            remote.discard(UNNAMED, alone("run-1"), 1)
            with pytest.raises(PartMissing):
                remote.commit(UNNAMED, alone("run-1"), 1, [StagedPart(0, "run-1.0", 1, 1)])
            with pytest.raises(BadRequest, match="stands_alone"):
                remote.discard(UNNAMED, Writer("query", "run"), 1)

    with running_node(tmp_path / "node", [router.url]) as node:
        await asyncio.wait_for(asyncio.to_thread(use, node), LONG)
