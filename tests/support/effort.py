"""How many random cases a test draws, and which of many like cells it runs: `make test` a part, `make test-all` all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings

PART = 8
"""`make test` runs one case of so many."""

_LEFT_OUT: set[str] = set()
"""Marks that this run leaves out."""


def pytest_configure(config: pytest.Config) -> None:
    """A run that leaves slow tests out draws less."""
    if "not slow" in config.getoption("markexpr"):
        _LEFT_OUT.add("slow")
        settings.register_profile("part", max_examples=25)  # of a hundred, where a test says nothing else
        settings.load_profile("part")


def rounds(number: int) -> int:
    """Of a number of random cases, those that this run draws."""
    return -(-number // PART) if _LEFT_OUT else number


def partly(cells: Iterable[Any], every: int = PART) -> list[Any]:
    """Cells of one claim for `parametrize`: one of so many is run by `make test`, the others are slow."""
    return [cell if number % every == 0 else _slow(cell) for number, cell in enumerate(cells)]


def _slow(cell: Any) -> Any:
    if hasattr(cell, "marks"):  # a pytest.param
        return pytest.param(*cell.values, marks=[*cell.marks, pytest.mark.slow], id=cell.id)
    return pytest.param(cell, marks=pytest.mark.slow)
