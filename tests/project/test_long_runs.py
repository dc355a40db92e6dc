"""Tests that `make test` leaves to `make campaign`: each has a committed result, and it passed."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commits import a_commit_of

PROJECT = Path(__file__).resolve().parents[2]
RESULTS = PROJECT / "docs" / "evidence" / "long-runs.json"
SAMPLE = """
import pytest

def test_counts(record_property):
    record_property("lost", 0)

def test_fails():
    raise SystemError

@pytest.fixture
def broken():
    yield
    raise SystemError

def test_ends_badly(broken):
    pass
"""


def left_to_the_campaign() -> set[str]:
    """Node ids of all tests in files marked `campaign`."""
    found = set()
    for path in (PROJECT / "tests").rglob("test_*.py"):
        module = ast.parse(path.read_text())
        marks = [
            ast.unparse(node.value)
            for node in module.body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
        ]
        if any("pytest.mark.campaign" in mark for mark in marks):
            name = path.relative_to(PROJECT).as_posix()
            found |= {
                f"{name}::{node.name}"
                for node in module.body
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
            }
    return found


@pytest.mark.slow
def test_every_test_left_to_the_campaign_has_passed_there() -> None:
    tests = left_to_the_campaign()
    results = json.loads(RESULTS.read_text())["tests"]
    assert tests
    assert set(results) == tests, "run `make campaign`, or its last command"
    assert {test: result["outcome"] for test, result in results.items()} == dict.fromkeys(tests, "passed")
    assert all(result["counted"] for result in results.values()), "a result says what it counted"


@pytest.mark.slow
def test_results_name_their_commit_say_what_was_counted_and_a_failure_anywhere_is_no_pass(tmp_path: Path) -> None:
    (tmp_path / "test_sample.py").write_text(SAMPLE)
    command = [sys.executable, "-m", "pytest", "test_sample.py", "--rootdir", str(tmp_path), "--long-runs", "out.json"]
    environment = {"PATH": os.defpath, "HOME": str(tmp_path), "PYTHONPATH": str(PROJECT / "tests" / "support")}
    name, date = a_commit_of(tmp_path)
    subprocess.run(
        [*command, "-p", "long_runs", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        timeout=60,
        check=False,
    )
    document = json.loads((tmp_path / "out.json").read_text())
    assert (document["commit"], document["date"]) == (name, date)
    found = document["tests"]
    assert found["test_sample.py::test_counts"]["outcome"] == "passed"
    assert found["test_sample.py::test_counts"]["counted"] == {"lost": 0}
    assert found["test_sample.py::test_fails"]["outcome"] == "failed"
    assert found["test_sample.py::test_ends_badly"]["outcome"] == "failed"
