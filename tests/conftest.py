"""What all tests share. Helpers live in `tests/support` and are imported as `tests.support.NAME`."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from hypothesis import settings

import oncewire

# A shell starts its background jobs with Ctrl-C ignored, and processes that tests start, and stop by it, inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["tests.support.requirements", "tests.support.long_runs", "tests.support.fuzz_options"]

# No test judges by wall-clock speed, and a failure names what repeats it.
settings.register_profile("oncewire", deadline=None, print_blob=True)
settings.load_profile("oncewire")


def pytest_report_header(config: pytest.Config) -> str:
    """Says which packages are under test: the installed ones (`make test`) or the source tree."""
    folder = Path(oncewire.__file__).parent
    where = "the source tree" if folder.parent == config.rootpath else "the installed packages"
    return f"oncewire: {where} ({folder})"
