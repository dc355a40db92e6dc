"""Pytest plugin: Python programs that tests start are forked from a Python that has done their imports.

What a program is and does stays as it is: a process of its own with its own pid, files, environment and signals, and a
child of the test's process (`tests/support/warm_server.py`). Only the imports, nine tenths of what a short command
costs, are done once for all. Programs that start others, a demo or `oncewire local`, start those in the same way.
`ONCEWIRE_WARM=0` starts each program as users do. A test whose subject is the start itself has the mark `cold`.

`subprocess.Popen`, and with it asyncio, starts a child in `_execute_child`: the one place that changes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.warm_client import WARM, start_warm

VARIABLE = "ONCEWIRE_WARM"


@pytest.fixture(scope="session", autouse=True)
def warm_python() -> Iterator[None]:
    """Warm starts for all tests of this process."""
    if sys.platform != "linux" or os.environ.get(VARIABLE) == "0":
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess.Popen, "_execute_child", start_warm)
        yield
    WARM.stop()


@pytest.fixture(autouse=True)
def _cold(request: pytest.FixtureRequest) -> Iterator[None]:
    WARM.is_wanted = request.node.get_closest_marker("cold") is None
    yield
    WARM.is_wanted = True
