"""The crash plan: driver, JVM and workers are killed at every named point of a batch, and again while they recover.

Each life of the job is a real process that ends by SIGKILL, publishes through a real router to a real subscriber, and
computes other rows, in another order and over another number of partitions, than the life before. What comes out must
have every line once. The control runs the middle of the plan, where a batch is half published, without the rule that
the first manifest of a batch stays: it must lose and double lines, else the plan would see nothing.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.spark.crash_job_points import CRASH, FOLDER, NO_MANIFEST, ROWS, Crash, session_members
from tests.spark.sink_recorder import Received, Recorder
from tests.spark.spark_helpers import Names, RouterChild

logger = logging.getLogger("crash-plan")
pytestmark = [pytest.mark.spark, pytest.mark.slow]

Plan = tuple[Crash | None, ...]
"""How each life ends; None = by itself."""
PLAN: Plan = (
    Crash(0, "staged"),
    Crash(1, "manifest"),
    Crash(2, "midpublish", 0.4),
    Crash(2, "midpublish", 0.7),  # while the life behind it recovers
    Crash(3, "published"),
    Crash(4, "done"),
    None,
)
CONTROL: Plan = (Crash(0, "midpublish", 0.4), Crash(0, "midpublish", 0.7), None)
LIFE_S = 300.0
"""Seconds that no life needs, on a machine that is busy with others, too."""
REPOSITORY = Path(__file__).parents[2]
JOB = Path(__file__).parent / "crash_job.py"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of the plan.

    Attributes:
        received: deliveries.
        lost: lines that never came.
        twice: lines that came more than once.
        torn: batches with rows of more than one life.
        two_contents: identities that were sent with more than one content.
    """

    received: int
    lost: int
    twice: int
    torn: int
    two_contents: int


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


def live(folder: Path, router: RouterChild, topic: str, start: int, crash: Crash | None, *, control: bool) -> None:
    """One life of the job, from its start to its end as planned."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")]),
        FOLDER: str(folder),
        CRASH: "" if crash is None else str(crash),
        NO_MANIFEST: "1" if control else "",
    }
    with (folder / f"log-{start}").open("w") as log:
        job = subprocess.Popen(
            [sys.executable, "-P", JOB, router.url, topic, str(start)],
            env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        try:
            code = job.wait(LIFE_S)
        finally:
            end_session(job.pid)
    expected = 0 if crash is None else -signal.SIGKILL
    assert code == expected, f"life {start} ended with {code}: {(folder / f'log-{start}').read_text()[-3000:]}"


def end_session(session: int) -> None:
    """See to it that nothing of a job is left: after a crash there is nothing, after a failure there may be."""
    ends_at = time.monotonic() + LIFE_S
    while left := session_members(session):
        for process in left:
            os.kill(process, signal.SIGKILL)
        assert time.monotonic() < ends_at, f"processes {left} do not end"
        time.sleep(0.01)


def run_plan(folder: Path, router: RouterChild, topic: str, plan: Plan, *, control: bool = False) -> Verdict:
    """Run all lives of a plan; each batch is in its crashes."""
    crashes = [crash for crash in plan if crash is not None]
    lines = write_input(folder, 1 + crashes[-1].batch)
    with Recorder(router.url, topic) as recorder:
        for start, crash in enumerate(plan):
            live(folder, router, topic, start, crash, control=control)
        # The control has as many rows, too: only their contents differ.
        received = recorder.wait(lambda found: len(found) >= len(lines))
    hit = (folder / "crashes").read_text().splitlines()
    assert hit == list(map(str, crashes)), "a point of the plan was not hit"
    return judge(lines, received, (folder / "sent").read_text())


def judge(lines: list[str], received: list[Received], sent: str) -> Verdict:
    """Compare what came and what was sent with what was put in."""
    came: Counter[str] = Counter()
    lives: dict[str, set[str]] = defaultdict(set)
    for delivery in received:
        line, start, _ = delivery.text.split("|")
        came[line] += 1
        lives[line.partition(".")[0]].add(start)
    contents: dict[tuple[str, str], set[str]] = defaultdict(set)
    for entry in sent.splitlines():
        producer, sequence, text = entry.split(" ")
        contents[producer, sequence].add(text)
    verdict = Verdict(
        received=len(received),
        lost=sum(line not in came for line in lines),
        twice=sum(count > 1 for count in came.values()),
        torn=sum(len(starts) > 1 for starts in lives.values()),
        two_contents=sum(len(texts) > 1 for texts in contents.values()),
    )
    logger.info("%s", verdict)
    return verdict


@pytest.mark.timeout(1200)
def test_killed_at_every_point_the_job_publishes_every_line_once(
    router: RouterChild, names: Names, tmp_path: Path
) -> None:
    verdict = run_plan(tmp_path, router, names.out, PLAN)
    assert verdict == Verdict(received=5 * ROWS, lost=0, twice=0, torn=0, two_contents=0)


@pytest.mark.timeout(1200)
def test_without_the_first_manifest_the_same_plan_loses_and_doubles(
    router: RouterChild, names: Names, tmp_path: Path
) -> None:
    verdict = run_plan(tmp_path, router, names.out, CONTROL, control=True)
    assert verdict.lost > 0, verdict
    assert verdict.twice > 0, verdict
    assert verdict.torn == 1, verdict
    assert verdict.two_contents > 0, verdict
