"""What files that run in one go share is gone behind the last of them: `tests.support.spread`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import spread

SHARED = """
import pathlib, pytest

@pytest.fixture(scope="session")
def first():
    yield
    pathlib.Path("ends").open("a").write("first ")

@pytest.fixture(scope="session")
def second(first):
    yield
    pathlib.Path("ends").open("a").write("second ")
"""
USES = "import pathlib\ndef test_it({}): assert pathlib.Path('ends').exists() == {}\n"


@pytest.mark.slow
def test_what_the_files_of_a_unit_share_ends_with_the_last_of_them(tmp_path: Path) -> None:
    files = {
        "conformance/conftest.py": SHARED,
        "conformance/test_ends.py": USES.format("second", False),
        "conformance/test_flow.py": USES.format("second", False),
        "filters/test_lexer.py": USES.format("", True),
    }
    for name, text in files.items():
        path = tmp_path / "tests" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(spread.TESTS.parent), *sys.path])}
    command = [
        sys.executable,
        "-P",
        "-m",
        "pytest",
        "-p",
        "tests.support.spread",
        "-p",
        "no:cacheprovider",
        "--rootdir=.",
    ]
    done = subprocess.run(
        [*command, "-q", "--import-mode=importlib", "tests/conformance", "tests/filters"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "ends").read_text() == "second first "
