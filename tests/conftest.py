"""What all tests share. Helpers live in `tests/support` and are imported as `tests.support.NAME`."""

from __future__ import annotations

from pathlib import Path

import pytest

import oncewire

pytest_plugins = ["tests.support.requirements"]


def pytest_report_header(config: pytest.Config) -> str:
    """Says which packages are under test: the installed ones (`make test`) or the source tree."""
    folder = Path(oncewire.__file__).parent
    where = "the source tree" if folder.parent == config.rootpath else "the installed packages"
    return f"oncewire: {where} ({folder})"
