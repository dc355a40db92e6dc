"""The pages of security: each threat names the test of its defence, and each file that is named exists."""

from __future__ import annotations

import re

from tests.support.attacks import ROOT, TABLES, TEST, rows, suite

PAGES = [(ROOT / "docs" / name).read_text() for name in ("threats.md", "security.md", "logins.md", "rights.md")]
TEXT = "\n".join(PAGES)
FILE = re.compile(r"`(?:[\w/]+/)?((?:test|bench)_\w+\.py)`")


def test_each_threat_has_a_defence_and_names_its_test() -> None:
    for heading in TABLES:
        found = rows(heading)
        assert len(found) > 8
        assert [row for row in found if len(row) != 3 or not all(row) or not TEST.search(row[2])] == [], heading


def test_the_suite_of_attacks_has_each_test_that_a_row_names() -> None:
    """`make attack` runs it."""
    there = {str(path.relative_to(ROOT / "tests")) for path in suite()}
    named = {name for heading in TABLES for row in rows(heading) for name in TEST.findall(row[2])}
    assert len(named) > 40
    assert [name for name in named if not any(f"/{path}".endswith(f"/{name}") for path in there)] == []


def test_no_attack_is_judged_by_the_clock() -> None:
    clock = re.compile(r"perf_counter|process_time|thread_time|assert .*(?:monotonic\(|time\.time\()")
    assert [str(path) for path in suite() if clock.search(path.read_text())] == []


def test_each_file_that_the_page_names_exists() -> None:
    there = {path.name for folder in ("tests", "benchmarks") for path in (ROOT / folder).rglob("*.py")}
    named = set(FILE.findall(TEXT))
    assert len(named) > 20
    assert named - there == set()
