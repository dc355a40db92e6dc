"""Processes that end by SIGKILL at a place: before or after a statement or a commit, or at a crash point.

A place is "NUMBER before" or "NUMBER after" of the store's statements, "commit NUMBER before" or "commit NUMBER after"
of its commits, or the name of a crash point and how often it is passed. Anywhere else, such as at "nowhere 0", nothing
happens.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bridges.store.crash_points import CrashPoint, observe
from oncewire.store.store import Row

ROOT = Path(__file__).resolve().parents[2]
RUN = "import runpy, sys; sys.path.append(sys.argv.pop(1)); runpy.run_module(sys.argv.pop(1), run_name='__main__')"
"""The folder of the tests comes behind the installed packages, which are under test."""
NOWHERE = "nowhere 0"
KILLED = -signal.SIGKILL


def command(module: str, *arguments: str) -> list[str]:
    """What runs a module of the tests as a program."""
    return [sys.executable, "-P", "-c", RUN, str(ROOT), module, *arguments]


def run_worker(module: str, *arguments: str) -> int:
    """Run a worker to its end or its death; returns its exit code."""
    return subprocess.run(command(module, *arguments), check=False, timeout=60).returncode


def die() -> None:
    """End this process as a crash does."""
    os.kill(os.getpid(), signal.SIGKILL)


def killed_at(store: Any, place: str) -> None:
    """Count the store's statements and the crash points from now on, and die at this place."""
    *_, first, last = place.split()
    if last.isdigit():
        die_at_point(first, int(last))
        return
    plain = store.execute
    is_commit = place.startswith("commit ")
    count = 0

    def execute(statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        nonlocal count
        counts = statement == "COMMIT" if is_commit else True
        count += counts
        is_here = counts and count == int(first)
        if is_here and last == "before":
            die()
        rows: list[Row] = plain(statement, parameters)
        if is_here:
            die()
        return rows

    def write_many(statement: str, rows: Sequence[Sequence[object]]) -> None:
        for row in rows:
            execute(statement, row)

    store.execute = store.write = execute
    store.write_many = write_many


def die_at_point(name: str, times: int) -> None:
    """Die when a crash point is passed for so many times."""
    passes = 0

    def observer(point: CrashPoint) -> None:
        nonlocal passes
        passes += point == name
        if point == name and passes == times:
            die()

    observe(observer)
