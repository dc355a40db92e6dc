"""docs/bridge.md, docs/journals.md and the code of the bridges name the same rules, and tests that exist show each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.guarantee_tables import functions_of, rules_named_in, section, table

ROOT = Path(__file__).resolve().parents[2]
SECTIONS = {
    "J": (("bridge.md", "From the network to a query"), ("journals.md", "Rules")),
    "O": (("bridge.md", "From a query to the network"),),
}
RULE = re.compile(r"(?<![\w-])[JO]-\d{1,2}(?![\w-])")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def rows(family: str) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for page, heading in SECTIONS[family]:
        head, *some = table(section((ROOT / "docs" / page).read_text(encoding="utf-8"), heading))
        assert head == ("Rule", "In short", "Shown by")
        found += some
    return found


RULES = [row[0] for family in SECTIONS for row in rows(family)]


@pytest.fixture(scope="module")
def carried_out() -> dict[str, set[str]]:
    """Rule -> files of the bridges that name it."""
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / "bridges").rglob("*.py")):
        for rule in rules_named_in(RULE, path.read_text(encoding="utf-8")):
            found.setdefault(rule, set()).add(str(path.relative_to(ROOT)))
    return found


@pytest.mark.parametrize("family", SECTIONS)
def test_rules_are_numbered_without_a_hole(family: str) -> None:
    names = [row[0] for row in rows(family)]
    assert names == [f"{family}-{number}" for number in range(1, len(names) + 1)]


def test_every_rule_of_the_page_is_named_where_the_code_carries_it_out(carried_out: dict[str, set[str]]) -> None:
    assert [rule for rule in RULES if rule not in carried_out] == []


def test_every_rule_that_the_code_names_is_on_the_page(carried_out: dict[str, set[str]]) -> None:
    assert {rule: where for rule, where in carried_out.items() if rule not in RULES} == {}


def test_every_rule_that_a_page_or_a_test_names_is_on_the_page() -> None:
    kinds = ("docs/**/*.md", "*.md", "tests/node/*.py", "tests/spark/*.py")
    others = [path for kind in kinds for path in ROOT.glob(kind)]
    unknown = {
        (str(path.relative_to(ROOT)), rule)
        for path in others
        for rule in RULE.findall(path.read_text(encoding="utf-8"))
        if rule not in RULES
    }
    assert unknown == set()


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_is_shown_by_tests_that_exist(rule: str) -> None:
    (row,) = [row for row in rows(rule[0]) if row[0] == rule]
    named = TEST.findall(row[2])
    assert named, f"{rule} is shown by nothing"
    assert [f"{path}::{name}" for path, name in named if name not in functions_of(ROOT / path)] == []


def test_planted_names_are_found_in_comments_and_docstrings_only() -> None:
    source = '"""Does it (J-3)."""\ntext = "O-9"\nx = 1  # O-11: waits\n'
    assert sorted(rules_named_in(RULE, source)) == ["J-3", "O-11"]
    assert RULE.findall("SO-1, J-2a, J-123 and XJ-1 are none, J-12 is") == ["J-12"]
