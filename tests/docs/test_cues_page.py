"""The pages of processors have every step of Cues' algorithm, with its place and its test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.guarantee_tables import section, table

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "docs" / "cues.md", ROOT / "docs" / "explanation" / "from-cues.md")
TEST = re.compile(r"`(?:(tests/[\w/]+\.py)::)?(test_\w+)`")
TEST_FILE = re.compile(r"`(tests/[\w/]+\.py)(?:::\w+)?`")
HEAD = ("Step", "Cues", "Here", "Lives in", "Shown by")
PERSISTENCE = tuple("1 2 3 4 4a 5 5a 5b 6 6a 6b 7 7a 7b 7c 7d 7e 8 8a 8b 8c 9".split())  # noqa: SIM905
RECOVERING = tuple("1 1a 1b 1c 1d 1e 1f 2 3 3a 3b 4".split())  # noqa: SIM905


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
