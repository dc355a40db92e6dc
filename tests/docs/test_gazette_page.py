"""docs/gazette.md names tests, rules and limits that exist, and all of them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from oncewire.client.transactions import sequence_header, sequencer, store
from tests.docs.code_blocks import blocks_of
from tests.docs.guarantee_tables import functions_of

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "gazette.md"
GUARANTEES = ROOT / "tests" / "client" / "test_gazette_guarantees.py"
TEST = re.compile(r"`(?:(tests/[\w/]+\.py)::)?(test_\w+)`")
RULE = re.compile(r"^\| (S[QT]-\d) \|", re.MULTILINE)
RULE_IN_CODE = re.compile(r"^\* (S[QT]-\d) ", re.MULTILINE)
LIMIT = re.compile(r"^\| `([A-Z_]+)` \| (\d+) \|", re.MULTILINE)


@pytest.fixture(scope="module")
def page() -> str:
    return PAGE.read_text(encoding="utf-8")


def test_every_test_of_the_page_exists(page: str) -> None:
    named = TEST.findall(page)
    assert len(named) > 15
    for path, name in named:
        assert name in functions_of(ROOT / path if path else GUARANTEES), name


def test_every_test_of_the_guarantees_is_on_the_page(page: str) -> None:
    tests = {name for name in functions_of(GUARANTEES) if name.startswith("test_")}
    assert tests == {name for path, name in TEST.findall(page) if not path}


def test_every_rule_is_stated_in_its_module_and_shown_on_the_page(page: str) -> None:
    stated = RULE_IN_CODE.findall((sequencer.__doc__ or "") + (store.__doc__ or ""))
    assert RULE.findall(page) == stated
    assert set(re.findall(r"\bS[QT]-\d\b", page)) == set(stated)


def test_every_limit_has_the_value_that_the_page_tells(page: str) -> None:
    told = dict(LIMIT.findall(page))
    known = {
        name: getattr(module, name)
        for module in (sequencer, store, sequence_header)
        for name in vars(module)
        if re.fullmatch(r"(?:MAX|RING|PRODUCER|RENEW)_[A-Z_]+", name) and name in told
    }
    assert len(told) == 8
    assert {name: int(known[name]) for name in told} == {name: int(value) for name, value in told.items()}


def test_the_program_of_the_page_runs_and_prints_what_the_page_says(page: str, tmp_path: Path) -> None:
    (program,) = [block for block in blocks_of(PAGE) if block.language == "python"]
    (told,) = re.findall(r"prints `(\d+)`", page)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program.text], cwd=tmp_path, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr, done.returncode) == (f"{told}\n", "", 0)
