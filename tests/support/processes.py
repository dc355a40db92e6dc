"""Finding processes that a test's program left behind."""

from __future__ import annotations

import time
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
