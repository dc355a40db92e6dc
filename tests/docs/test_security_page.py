"""The pages of security: each threat names the test of its defence, and each file that is named exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [(ROOT / "docs" / name).read_text() for name in ("threats.md", "security.md", "logins.md", "rights.md")]
TEXT = "\n".join(PAGES)
FILE = re.compile(r"`(?:[\w/]+/)?((?:test|bench)_\w+\.py)`")
TESTED_TABLES = {"Hostile clients": "what they do", "Threat model": "threat"}
"""Headings of tables whose rows name tests, and the heads of their first columns."""


def rows(heading: str, first: str) -> list[list[str]]:
    section = TEXT.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    table = section.split(f"| {first} | defence | test |\n|---|---|---|\n")[1].split("\n\n")[0]
    return [re.split(r"(?<!\\) \| ", line.strip("| ")) for line in table.splitlines()]


def test_each_threat_has_a_defence_and_names_its_test() -> None:
    for heading, first in TESTED_TABLES.items():
        found = rows(heading, first)
        assert len(found) > 8
        assert [row for row in found if len(row) != 3 or not all(row) or not FILE.search(row[2])] == [], heading


def test_each_file_that_the_page_names_exists() -> None:
    there = {path.name for folder in ("tests", "benchmarks") for path in (ROOT / folder).rglob("*.py")}
    named = set(FILE.findall(TEXT))
    assert len(named) > 20
    assert named - there == set()
