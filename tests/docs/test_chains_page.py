"""The page of chains names a test in each of its rows."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def rows() -> list[str]:
    page = (ROOT / "docs" / "guarantees-chains.md").read_text(encoding="utf-8")
    return [line for line in page.splitlines() if line.startswith("| ") and not line.startswith("| it ")]


def test_each_row_of_who_publishes_and_who_reads_names_its_tests() -> None:
    assert len(rows()) == 15
    for row in rows():
        assert TEST.search(row) or "weaker modes" in row, row
