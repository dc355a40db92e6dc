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
from itertools import zip_longest
from pathlib import Path

from tests.spark.crash_points import CRASH, FOLDER, Crash, go_file, session_members
from tests.spark.life_log import excerpt, is_failure_of_spark

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


def judge(lines: Sequence[str], received: Iterable[tuple[object, str]], sent: str) -> Verdict:
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
    """Names to a process of the plan the point where it crashes."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")]),
        FOLDER: str(folder),
        CRASH: "" if crash is None else str(crash),
        **(more or {}),
    }


class Job:
    """One life of a job, in a session of its own.

    Args:
        folder: of the plan.
        number: of the life, from 0.
        command: the program and its arguments.
        crash: where it dies; None = nowhere.
        more: variables of its environment.
    """

    def __init__(
        self, folder: Path, number: int, command: Sequence[str | Path], crash: Crash | None, more: Mapping[str, str]
    ) -> None:
        self.log = folder / f"log-{number}"
        self._go_file = go_file(folder, number)
        self._command = [sys.executable, "-P", *command]
        self._environment = environment_of(folder, crash, more)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start its session, if that has not been done; it does not work yet."""
        if self._process is None:
            with self.log.open("w") as log:
                self._process = subprocess.Popen(
                    self._command,
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )

    def go(self) -> None:
        """Let it work."""
        self._go_file.touch()

    def is_over(self) -> bool:
        """Whether its driver has ended."""
        assert self._process is not None
        return self._process.poll() is not None

    def end(self) -> None:
        """kill -9 of what there is of it; returns when nothing is left."""
        if self._process is not None:
            end_session(self._process.pid)
            self._process.wait(LIFE_S)

    def ends_in_order(self) -> bool:
        """Wait for its end; False where Spark itself has failed. Nothing is left of it."""
        assert self._process is not None
        code = self._process.wait(LIFE_S)
        self.end()
        if code and is_failure_of_spark(self.log):
            return False
        check_code(code, self.log, dies=False)
        return True

    def check_end(self, *, dies: bool) -> None:
        """It ends as planned, by SIGKILL or in order; returns when nothing is left of it."""
        assert self._process is not None
        code = self._process.wait(LIFE_S)
        self.end()
        check_code(code, self.log, dies=dies)


@contextmanager
def one_after_the_other(jobs: Sequence[Job]) -> Iterator[Iterator[Job]]:
    """Jobs to be let go; while one works the session of the next one starts. None is left when the block ends."""

    def ahead() -> Iterator[Job]:
        for job, behind in zip_longest(jobs, jobs[1:]):
            job.start()
            if behind is not None:
                behind.start()
            yield job

    try:
        yield ahead()
    finally:
        for job in jobs:
            job.end()


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


def check_code(code: int, log: Path, *, dies: bool) -> None:
    """A process ends as planned."""
    expected = -signal.SIGKILL if dies else 0
    assert code == expected, f"{log.name} ended with {code}: {excerpt(log)}"
