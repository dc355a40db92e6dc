"""Programs of tests, and finding the processes that they left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

MARK = "ONCEWIRE_TEST_MARK"
"""An environment variable that all processes of a run inherit, so that one left behind can be found."""
GONE_S = 60.0


def left_behind(mark: str) -> list[str]:
    """Processes of the marked run that still exist."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        try:
            if wanted in environment.read_bytes():
                found.append((environment.parent / "cmdline").read_text())
        except OSError:
            continue
    return found


def assert_no_process_left(mark: str) -> None:
    """Every process of the marked run ends soon."""
    ends_at = time.monotonic() + GONE_S
    while left_behind(mark):
        assert time.monotonic() < ends_at, left_behind(mark)
        time.sleep(0.05)


def start_marked(program: str, folder: Path, *arguments: str) -> tuple[subprocess.Popen[str], str]:
    """Start a Python program that keeps its temporary files in a new folder; returns it and the run's mark."""
    mark = uuid.uuid4().hex
    folder.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", program, *arguments],
        env={**os.environ, MARK: mark, "TMPDIR": str(folder), "COLUMNS": "80"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    return process, mark


def assert_nothing_left(mark: str, folder: Path) -> None:
    """No process of the marked run and none of its files."""
    assert_no_process_left(mark)
    assert list(folder.iterdir()) == []
