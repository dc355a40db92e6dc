"""Points at which a life of the crash plans ends, how a life is started, and how it is killed.

Both sides use this: the tests, which plan the crashes and may run where there is no Spark, and the jobs. What hits
the points is in crash_job_points.py, crash_processor_job.py and crash_node.py.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FOLDER = "CRASH_JOB_FOLDER"
"""Variable of the environment, which Spark's workers inherit: where `sent` and `crashes` are written."""
CRASH = "CRASH_JOB_CRASH"
"""BATCH:POINT[:SHARE], or empty = no crash."""
NO_MANIFEST = "CRASH_JOB_NO_MANIFEST"
"""Not empty = the negative control."""
LIFE = "CRASH_JOB_LIFE"
"""The number of this start of the job."""
LETS_GO_S = 600.0
"""A life that is not let go by then was left behind: the one before it takes half of that at most."""
ROWS = 200
"""Of each batch."""


@dataclass(frozen=True, slots=True)
class Crash:
    """Where a life of the job ends."""

    batch: int
    point: str
    share: float = 0.0

    def __str__(self) -> str:
        return f"{self.batch}:{self.point}:{self.share}"


def crash_from(environment: Mapping[str, str]) -> Crash | None:
    """What the environment says."""
    if not environment.get(CRASH):
        return None
    batch, point, share = environment[CRASH].split(":")
    return Crash(int(batch), point, float(share))


def go_file(folder: Path, start: int) -> Path:
    """A job begins its work when this is there; its session is ready before, while another life is at work."""
    return folder / f"go-{start}"


def wait_for_go(start: int) -> None:
    """Return when this life of the job may begin."""
    go = go_file(Path(os.environ[FOLDER]), start)
    ends_at = time.monotonic() + LETS_GO_S
    while not go.exists():
        if time.monotonic() > ends_at:
            raise TimeoutError("nobody lets this life begin")  # whoever started it is gone
        time.sleep(0.02)


def note(name: str, text: str) -> None:
    """Append to a file of the job: what is written outlives a kill -9 of the process."""
    with (Path(os.environ[FOLDER]) / name).open("a") as file:
        file.write(text)


def session_members(session: int) -> list[int]:
    """Processes of a session: a job is started in one of its own, and all of it stays there."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == session and fields[0] != "Z":
                    found.append(int(entry.name))
    return found


def kill_everything(crash: Crash) -> None:
    """kill -9 of driver, JVM, workers, and of this process last."""
    note("crashes", f"{crash}\n")
    own, session = os.getpid(), os.getsid(0)
    while others := [process for process in session_members(session) if process != own]:
        for process in others:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
    os.kill(own, signal.SIGKILL)


def hits(point: str, batch: int) -> Crash | None:
    """The crash of this life, if this is its place."""
    crash = crash_from(os.environ)
    return crash if crash is not None and (crash.point, crash.batch) == (point, batch) else None


def maybe_kill(point: str, batch: int) -> None:
    """Die here, if this is the place."""
    crash = hits(point, batch)
    if crash is not None:
        kill_everything(crash)
