"""docs/conformance.md has a row for each section of parts 2 and 3 of AMQP 1.0, and names only tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
PAGE = (ROOT / "docs" / "conformance.md").read_text(encoding="utf-8")

STATES = frozenset({"done", "deviates", "not built", "describes"})
SECTIONS: dict[str, int] = {
    "2": 8,
    "2.1": 3,
    "2.2": 0,
    "2.3": 2,
    "2.4": 7,
    "2.5": 6,
    "2.6": 14,
    "2.7": 9,
    "2.8": 19,
    "3": 5,
    "3.1": 0,
    "3.2": 16,
    "3.3": 1,
    "3.4": 6,
    "3.5": 13,
}
"""How many sections each part and each of its sections has in the standard of 29 October 2012."""

NAMED_TEST = re.compile(r"`([\w/]+\.py)::(test_\w+)`")


def sections_of_the_standard() -> list[str]:
    """All of them by number, in order."""
    found: list[str] = []
    for part in ("2", "3"):
        for chapter in range(1, SECTIONS[part] + 1):
            name = f"{part}.{chapter}"
            found += [name, *(f"{name}.{section}" for section in range(1, SECTIONS[name] + 1))]
    return found


def rows(page: str) -> list[tuple[str, str, str, str]]:
    """(section, state, what is done, shown by) of each row of the two tables."""
    found: list[tuple[str, str, str, str]] = []
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if re.match(r"\| [23]\.\d", line):
            section, state, what, shown = cells
            found.append((section.split()[0], state, what, shown))
    return found


def faults(page: str) -> list[str]:
    """What the page claims without ground."""
    found: list[str] = []
    for section, state, what, shown in rows(page):
        if state not in STATES:
            found.append(f"{section}: {state} is no state")
        if state == "done" and not NAMED_TEST.search(shown):
            found.append(f"{section}: done, and no test shows it")
        if state in ("deviates", "not built") and len(what) < len("See 3.5.1."):
            found.append(f"{section}: {state}, and the row does not say how")
    for path, name in NAMED_TEST.findall(page):
        file = TESTS / path
        text = file.read_text(encoding="utf-8") if file.is_file() else ""
        if not re.search(rf"^ *(?:async )?def {name}\(", text, re.MULTILINE):
            found.append(f"{path}::{name} does not exist")
    return found


def test_every_section_of_parts_2_and_3_has_one_row_in_order() -> None:
    assert [section for section, *_ in rows(PAGE)] == sections_of_the_standard()


def test_what_is_done_is_shown_by_tests_that_exist() -> None:
    assert faults(PAGE) == []


def test_every_file_the_page_names_exists() -> None:
    paths = re.findall(r"`((?:oncewire|docs|router|tests)/[\w/]+\.\w+)`", PAGE)
    assert paths
    assert [path for path in paths if not (ROOT / path).exists() and not (TESTS / path).exists()] == []


@pytest.mark.parametrize(
    "row",
    [
        "| 2.1 Introduction | well | - | - |",
        "| 2.4.1 Opening a connection | done | Open comes first. | - |",
        "| 2.6.1 Naming a link | deviates | | - |",
        "| 2.4.4 Simultaneous close | done | Yes. | `wire/test_connection.py::test_that_nobody_wrote` |",
        "| 2.4.4 Simultaneous close | done | Yes. | `wire/test_nothing.py::test_closes_that_cross_end_both_sides` |",
    ],
)
def test_a_planted_fault_is_found(row: str) -> None:
    assert faults(row)


def test_the_page_is_linked_from_the_readme() -> None:
    assert "](docs/conformance.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
