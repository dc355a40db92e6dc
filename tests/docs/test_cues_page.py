"""The pages of processors have every step of Cues' algorithm, and name tests, rules and limits that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.docs.guarantee_tables import functions_of, section, table

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "docs" / "cues.md", ROOT / "docs" / "explanation" / "from-cues.md")
RECOVERY = ROOT / "tests" / "spark" / "test_processor_recovery.py"
PROCESSOR = ROOT / "bridges" / "spark" / "processor.py"
TEST = re.compile(r"`(?:(tests/[\w/]+\.py)::)?(test_\w+)`")
TEST_FILE = re.compile(r"`(tests/[\w/]+\.py)(?:::\w+)?`")
RULE = re.compile(r"^\| (CU-\d) \|", re.MULTILINE)
RULE_IN_CODE = re.compile(r"^\* (CU-\d) ", re.MULTILINE)
LIMIT = re.compile(r"^\| `([A-Z_]+)` \| (\d+) \|", re.MULTILINE)
HEAD = ("Step", "Cues", "Here", "Lives in", "Shown by")
PERSISTENCE = tuple("1 2 3 4 4a 5 5a 5b 6 6a 6b 7 7a 7b 7c 7d 7e 8 8a 8b 8c 9".split())  # noqa: SIM905
RECOVERING = tuple("1 1a 1b 1c 1d 1e 1f 2 3 3a 3b 4".split())  # noqa: SIM905
LIMITS = (
    "bridges/spark/processor_join_core.py",
    "bridges/spark/processor.py",
    "bridges/spark/processor_reader.py",
    "bridges/spark/processor_core.py",
    "bridges/node/snapshots.py",
)


@pytest.fixture(scope="module")
def page() -> str:
    return "\n".join(page.read_text(encoding="utf-8") for page in PAGES)


@pytest.mark.parametrize(
    ("heading", "steps"), [("The persistence component", PERSISTENCE), ("The recovery component", RECOVERING)]
)
def test_every_step_of_cues_says_where_it_lives_and_what_shows_it(
    page: str, heading: str, steps: tuple[str, ...]
) -> None:
    head, *rows = table(section(page, heading))
    assert head == HEAD
    assert tuple(row[0] for row in rows) == steps
    for row in rows:
        assert len(row) == len(HEAD), row
        assert all(row), row
        assert TEST_FILE.search(row[-1]) or TEST.search(row[-1]), row


def test_every_test_of_the_page_exists(page: str) -> None:
    named = TEST.findall(page)
    assert len(named) > 40
    for path, name in named:
        assert name in functions_of(ROOT / path if path else RECOVERY), name
    for path in TEST_FILE.findall(page):
        assert (ROOT / path).is_file(), path


def test_every_rule_is_stated_in_the_module_and_shown_on_the_page(page: str) -> None:
    stated = RULE_IN_CODE.findall(ast.get_docstring(ast.parse(PROCESSOR.read_text(encoding="utf-8"))) or "")
    assert len(stated) > 5
    assert RULE.findall(page) == stated
    assert set(re.findall(r"\bCU-\d\b", page)) == set(stated)


def test_every_limit_has_the_value_that_the_page_notifies(page: str) -> None:
    reported = {name: int(value) for name, value in LIMIT.findall(page)}
    known = {}
    for path in LIMITS:
        for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                name = node.targets[0].id
                if name in reported:
                    known[name] = ast.literal_eval(node.value)  # a number, or a shift of two
    assert len(reported) == 7
    assert known == reported
