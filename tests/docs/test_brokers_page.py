"""The page on stock brokers: each row of its table names tests, and each test of a broker is in a row."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/brokers.md").read_text(encoding="utf-8")
TEST = re.compile(r"\btest_\w+")
COLUMNS = ("rabbitmq", "artemis", "broker_j")
SAYS_NOTHING = ("no limit is stated", "not tested")


def defined(file: str) -> set[str]:
    """The tests of a file."""
    text = (ROOT / "tests/brokers" / file).read_text(encoding="utf-8")
    return set(re.findall(r"    async def (test_\w+)", text))


def rows() -> list[tuple[list[str], set[str]]]:
    """Of the table: its cells for the brokers, and the tests that it names."""
    table = PAGE.partition("## What works where")[2].partition("\n## ")[0]
    lines = [line.strip("|").split("|") for line in table.splitlines() if "`test_" in line]
    return [([cell.strip() for cell in cells[1:4]], set(TEST.findall(cells[4]))) for cells in lines]


@pytest.mark.parametrize("column", range(3), ids=COLUMNS)
def test_each_cell_is_shown_by_a_test_at_that_broker(column: int) -> None:
    there = defined("claims.py") | defined(f"test_{COLUMNS[column]}.py")
    unshown = [cells for cells, tests in rows() if cells[column] not in SAYS_NOTHING and not tests & there]
    assert rows()
    assert unshown == []


def test_each_test_at_a_broker_is_in_a_row_and_each_test_of_a_row_exists() -> None:
    there = defined("claims.py").union(*(defined(f"test_{name}.py") for name in COLUMNS))
    assert set().union(*(tests for _, tests in rows())) == there


def test_the_page_names_the_versions_that_are_fetched() -> None:
    script = (ROOT / "scripts/fetch_brokers.sh").read_text(encoding="utf-8")
    for name, variable in (("ActiveMQ Artemis", "ARTEMIS"), ("Qpid Broker-J", "BROKER_J")):
        found = re.search(rf"^{variable}=(.*)$", script, re.MULTILINE)
        assert found is not None
        assert f"{name} {found[1]}" in PAGE
