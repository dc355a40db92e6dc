"""All processes of one session: a Spark driver's JVM and workers are in its session, but not in its process group."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

GONE_S = 10.0
"""The kernel ends a killed process at once, but a large JVM's memory takes a while."""
_POLL_S = 0.01


def members(session: int) -> list[int]:
    """Process ids of a session, without those that have ended and wait to be reaped. Needs /proc."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, number = stat.read_text().rpartition(")")[2].split()[:4]
        except (OSError, ValueError):
            continue
        if int(number) == session and state != "Z":
            found.append(int(stat.parent.name))
    return found


def kill_session(session: int, spared: int | None = None) -> None:
    """SIGKILL every process of a session and wait until they are gone; one may be spared, such as ourselves.

    Where there is no /proc, only the leader's process group is known; workers end when their JVM is gone.
    """
    if not Path("/proc/self/stat").exists() and spared is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(session, signal.SIGKILL)
    ends_at = time.monotonic() + GONE_S
    # Again and again: a process that forks just now has a child that was not in the list.
    while others := [pid for pid in members(session) if pid != spared]:
        for pid in others:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > ends_at:
            return
        time.sleep(_POLL_S)
