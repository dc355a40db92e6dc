"""Rules of bridges, queues, journals and consumers: their pages, the code and the tests that are named say the same.

Those of the protocol between routers have more to them: test_protocol_rules.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.docs.guarantee_tables import rules_named_in

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Family:
    """Rules of one kind.

    Attributes:
        letters: what stands before the number.
        pages: those with the tables of the rules, in docs.
        code: folders that carry them out.
        names_tests: each row of the table says which tests show the rule.
    """

    letters: str
    pages: tuple[str, ...]
    code: str
    names_tests: bool = True

    def __str__(self) -> str:
        """As a failing test shows it."""
        return self.letters

    @property
    def pattern(self) -> re.Pattern[str]:
        """A name of a rule."""
        return re.compile(rf"(?<![\w-]){self.letters}-\d{{1,2}}(?![\w-])")

    def rows(self) -> dict[str, str]:
        """Each rule of the pages, with its row."""
        text = "\n".join((ROOT / "docs" / page).read_text(encoding="utf-8") for page in self.pages)
        return {found[1]: found[0] for found in re.finditer(rf"^\| ({self.letters}-\d+) \|.*$", text, re.MULTILINE)}


FAMILIES = (
    Family("J", ("bridge.md", "journals.md"), "bridges"),
    Family("O", ("bridge.md",), "bridges"),
    Family("W", ("workqueue-reference.md",), "bridges"),
    Family("CU", ("cues.md",), "bridges/spark", names_tests=False),
    Family("SQ", ("gazette-reference.md",), "oncewire/client", names_tests=False),
    Family("ST", ("gazette-reference.md",), "oncewire/client", names_tests=False),
    Family("CO", ("gazette-reference.md",), "oncewire/client", names_tests=False),
)
each_family = pytest.mark.parametrize("family", FAMILIES, ids=str)


@each_family
def test_rules_are_numbered_without_a_hole(family: Family) -> None:
    rules = list(family.rows())
    assert rules == [f"{family.letters}-{number}" for number in range(1, len(rules) + 1)]


@each_family
def test_the_page_and_the_code_name_the_same_rules(family: Family) -> None:
    files = (ROOT / family.code).rglob("*.py")
    named = {rule for path in files for rule in rules_named_in(family.pattern, path.read_text(encoding="utf-8"))}
    assert named == set(family.rows())


@each_family
def test_every_rule_that_another_page_or_a_test_names_is_on_the_page(family: Family) -> None:
    paths = [path for kind in ("docs/**/*.md", "*.md", "tests/**/*.py") for path in ROOT.glob(kind)]
    rules = family.rows()
    named = {
        (str(path.relative_to(ROOT)), rule)
        for path in paths
        if path != Path(__file__)
        for rule in family.pattern.findall(path.read_text(encoding="utf-8"))
    }
    assert {each for each in named if each[1] not in rules} == set()


@pytest.mark.parametrize("family", [family for family in FAMILIES if family.names_tests], ids=str)
def test_every_rule_is_shown_by_tests(family: Family) -> None:
    assert [rule for rule, row in family.rows().items() if not re.search(r"`tests/[\w/]+\.py::test_\w+`", row)] == []


def test_planted_names_are_found_in_comments_and_docstrings_only() -> None:
    source = '"""Does it (J-3)."""\ntext = "J-9"\nx = 1  # J-11: waits\n'
    pattern = FAMILIES[0].pattern
    assert sorted(rules_named_in(pattern, source)) == ["J-11", "J-3"]
    assert pattern.findall("J-2a, J-123 and XJ-1 are none, J-12 is") == ["J-12"]
