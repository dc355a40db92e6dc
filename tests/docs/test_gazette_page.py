"""The pages of consumers name all tests of the guarantees, and their programs print what they say."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.code_blocks import blocks_of
from tests.docs.guarantee_tables import functions_of
from tests.router.processes import running_router

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "gazette.md"
FURTHER = (ROOT / "docs" / "gazette-reference.md", ROOT / "docs" / "explanation" / "from-gazette.md")
GUARANTEES = ROOT / "tests" / "client" / "test_gazette_guarantees.py"
TEST = re.compile(r"`(?:(tests/[\w/]+\.py)::)?(test_\w+)`")
MAX_TUTORIAL_LINES = 25


@pytest.fixture(scope="module")
def page() -> str:
    return "\n".join(page.read_text(encoding="utf-8") for page in (PAGE, *FURTHER))


def test_every_test_of_the_guarantees_is_on_the_page(page: str) -> None:
    tests = {name for name in functions_of(GUARANTEES) if name.startswith("test_")}
    assert tests == {name for path, name in TEST.findall(page) if not path}


def programs() -> list[str]:
    """The tutorial, then the program that does the same by hand."""
    return [block.text for block in blocks_of(PAGE) if block.language == "python" and block.run_by]


async def test_the_tutorial_runs_and_prints_what_the_page_says(page: str, tmp_path: Path) -> None:
    tutorial = programs()[0]
    assert "prints `1`, `3` and `6`" in page
    lines = [line for line in tutorial.splitlines() if line.strip()]
    assert len(lines) <= MAX_TUTORIAL_LINES
    async with running_router("--standalone") as router:
        program = tutorial.replace("amqp://127.0.0.1:5672", router.url)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-W", "error", "-c", program),
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        out, errors = await asyncio.wait_for(process.communicate(), 100)
    assert (errors.decode(), out.decode(), process.returncode) == ("", "1 3 6\n", 0)


def test_the_program_without_a_consumer_runs_and_prints_what_the_page_says(page: str, tmp_path: Path) -> None:
    program = programs()[1]
    (reported,) = re.findall(r"runs by itself and prints `(\d+)`", page)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == (f"{reported}\n", "", 0)
