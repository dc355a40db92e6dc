"""Tests marked `campaign` take longer than their share of `make test`; `make campaign` runs them.

What came of them is committed as `docs/evidence/long-runs.json`; `tests/project/test_long_runs.py` holds that to the
tests that are there.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

OPTION = "--long-runs"
MARK = "campaign"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the option that names the file of results."""
    parser.addoption(OPTION, metavar="FILE", help="write what came of each test, with what it counted, to FILE (JSON)")


def pytest_configure(config: pytest.Config) -> None:
    """Keeps results only where somebody asks for them."""
    if path := config.getoption(OPTION):
        config.pluginmanager.register(LongRuns(Path(path)))


class LongRuns:
    """Writes one entry for each test when the run ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found: dict[str, dict[str, Any]] = {}

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, Any, None]:
        """A test has passed when its set-up, its body and its end have."""
        outcome = yield
        report: pytest.TestReport = outcome.get_result()
        entry = self._found.setdefault(item.nodeid, {"outcome": "passed", "seconds": 0.0, "counted": {}})
        entry["seconds"] = round(entry["seconds"] + report.duration, 1)
        entry["counted"] |= dict(report.user_properties)
        if report.outcome != "passed":
            entry["outcome"] = report.outcome

    def pytest_sessionfinish(self) -> None:
        """A run without tests leaves the file as it was."""
        if self._found:
            tests = dict(sorted(self._found.items()))
            document = {"cores": os.cpu_count(), **last_commit(), "tests": tests}
            self._path.write_text(json.dumps(document, indent=1) + "\n")


def last_commit() -> dict[str, str]:
    """Name and date of the commit that the tests ran on; empty where no commit has these sources, or no git is here."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout.strip()

    try:
        is_changed = git("status", "--porcelain", "--untracked-files=no", "--", "*.py")
        name, date = ("", "") if is_changed else git("log", "-1", "--abbrev=12", "--format=%h %cs").split()
    except (OSError, subprocess.CalledProcessError):
        name = date = ""
    return {"commit": name, "date": date}
