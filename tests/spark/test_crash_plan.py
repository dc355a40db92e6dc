"""The crash plan of a query with an embedded node: all of it is killed at every point of a commit, and as it recovers.

What a driver alone and a bridge node alone can meet is in test_crash_plan_node.py. Each life of the job is a real
process that ends by SIGKILL, publishes through a real router to a real subscriber, and computes other rows, in another
order and over another number of partitions, than the life before. What comes out must have every line once. The control
runs the middle of the plan, where a batch is half published, without the rule that the first manifest of a batch stays
(O-2): it must lose and double lines, else the plan would see nothing.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.spark.crash_plan import Job, Verdict, judge, one_after_the_other
from tests.spark.crash_points import NO_MANIFEST, ROWS, Crash
from tests.spark.sink_recorder import Recorder
from tests.spark.spark_helpers import Names, RouterChild

pytestmark = [pytest.mark.spark, pytest.mark.slow]

Plan = tuple[Crash | None, ...]
"""How each life ends; None = by itself."""
PLAN: Plan = (
    Crash(0, "manifest"),
    Crash(0, "midpublish", 0.4),  # while it recovers from the one before
    Crash(1, "published"),
    Crash(1, "done"),  # the same
    None,
)
CONTROL: Plan = (Crash(0, "midpublish", 0.4), None)
JOB = Path(__file__).parent / "crash_job.py"


def write_input(folder: Path, batches: int) -> list[str]:
    """A file for each batch; returns all lines."""
    (folder / "in").mkdir()
    lines = []
    for batch in range(batches):
        of_batch = [f"{batch}.{number}" for number in range(ROWS)]
        path = folder / "in" / str(batch)
        path.write_text("".join(f"{line}\n" for line in of_batch))
        os.utime(path, (1_700_000_000 + batch,) * 2)  # Spark goes by the time of the last change
        lines += of_batch
    return lines


def run_plan(folder: Path, router: RouterChild, topic: str, plan: Plan, *, control: bool = False) -> Verdict:
    """Run all lives of a plan; each batch is in its crashes."""
    crashes = [crash for crash in plan if crash is not None]
    lines = write_input(folder, 1 + crashes[-1].batch)
    more = {NO_MANIFEST: "1" if control else ""}
    lives = [
        Job(folder, number, [JOB, router.url, topic, str(number)], crash, more) for number, crash in enumerate(plan)
    ]
    with Recorder(router.url, topic) as recorder, one_after_the_other(lives) as jobs:
        for job, crash in zip(jobs, plan, strict=True):
            job.go()
            job.check_end(dies=crash is not None)
        # The control has as many rows, too: only their contents differ.
        received = recorder.wait(lambda found: len(found) >= len(lines))
    hit = (folder / "crashes").read_text().splitlines()
    assert hit == list(map(str, crashes)), "a point of the plan was not hit"
    batches = [(delivery.text.partition(".")[0], delivery.text) for delivery in received]
    return judge(lines, batches, (folder / "sent").read_text())


@pytest.mark.timeout(1200)
def test_killed_at_every_point_the_job_publishes_every_line_once(
    router: RouterChild, names: Names, tmp_path: Path
) -> None:
    verdict = run_plan(tmp_path, router, names.out, PLAN)
    assert verdict == Verdict(received=2 * ROWS, lost=0, twice=0, torn=0, two_contents=0)


@pytest.mark.timeout(1200)
def test_without_the_first_manifest_the_same_plan_loses_and_doubles(
    router: RouterChild, names: Names, tmp_path: Path
) -> None:
    verdict = run_plan(tmp_path, router, names.out, CONTROL, control=True)
    assert verdict.lost > 0, verdict
    assert verdict.twice > 0, verdict
    assert verdict.torn == 1, verdict
    assert verdict.two_contents > 0, verdict
