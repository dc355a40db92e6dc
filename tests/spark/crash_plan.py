"""What both crash plans share: jobs in sessions of their own, and the verdict on what came of them."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.spark.crash_job_points import CRASH, FOLDER, Crash, session_members

logger = logging.getLogger("crash-plan")
LIFE_S = 300.0
"""Seconds that no life needs, on a machine that is busy with others, too."""
REPOSITORY = Path(__file__).parents[2]


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


def judge(
    lines: Sequence[str], received: Iterable[tuple[object, str]], sent: str
) -> Verdict:
    """Compare what came and what was sent with what was put in.

    Args:
        lines: that were put in.
        received: (batch, text) of each delivery; a text is LINE|LIFE|RANDOM.
        sent: what the publishers noted: PRODUCER NUMBER TEXT in each line.
    """
    came: Counter[str] = Counter()
    lives: dict[object, set[str]] = defaultdict(set)
    for batch, text in received:
        line, life, _ = text.split("|")
        came[line] += 1
        lives[batch].add(life)
    contents: dict[tuple[str, str], set[str]] = defaultdict(set)
    for entry in sent.splitlines():
        producer, sequence, text = entry.split(" ")
        contents[producer, sequence].add(text)
    verdict = Verdict(
        received=came.total(),
        lost=sum(line not in came for line in lines),
        twice=sum(count > 1 for count in came.values()),
        torn=sum(len(starts) > 1 for starts in lives.values()),
        two_contents=sum(len(texts) > 1 for texts in contents.values()),
    )
    logger.info("%s", verdict)
    return verdict


def environment_of(folder: Path, crash: Crash | None, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """What tells a process of the plan where it dies."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")]),
        FOLDER: str(folder),
        CRASH: "" if crash is None else str(crash),
        **(more or {}),
    }


@contextmanager
def running_job(program: Path, arguments: Sequence[str], log: Path, environment: Mapping[str, str]) -> Iterator[
    subprocess.Popen[bytes]
]:
    """A program in a session of its own, of which nothing is left when the block ends."""
    with log.open("w") as output:
        job = subprocess.Popen(
            [sys.executable, "-P", program, *arguments],
            env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
        try:
            yield job
        finally:
            end_session(job.pid)
            job.wait(LIFE_S)


def end_session(session: int) -> None:
    """kill -9 of a whole session; after a crash there is nothing left of it, after a failure there may be."""
    until(lambda: not kill_members(session), f"session {session} does not end")


def kill_members(session: int) -> list[int]:
    """kill -9 of those that are there; returns them."""
    left = session_members(session)
    for process in left:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    return left


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for something."""
    ends_at = time.monotonic() + LIFE_S
    while not condition():
        assert time.monotonic() < ends_at, what
        time.sleep(0.01)


def check_end(code: int, crash: Crash | None, log: Path) -> None:
    """A life ends as planned."""
    expected = 0 if crash is None else -signal.SIGKILL
    assert code == expected, f"{log.name} ended with {code}: {log.read_text()[-3000:]}"
