"""The count of machine instructions per message: what it finds, and that no load has become dearer."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.cold  # what is imported is a part of what is counted
SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "instructions.py"


@pytest.fixture(scope="module")
def script() -> Any:
    spec = importlib.util.spec_from_file_location("instructions", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    del sys.modules[spec.name]
    return module


def test_growth_of_more_than_three_percent_is_found(script: Any) -> None:
    before = {"one": 100_000, "two": 100_000}
    assert script.grown(before, {"one": 103_000, "two": 99_000}) == []
    (found,) = script.grown(before, {"one": 103_001, "two": 99_000})
    assert found.startswith("one: 100,000 -> 103,001")


def test_what_has_grown_is_counted_again_and_the_least_counts(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = [{"one": 104_000, "two": 104_000}, {"one": 101_000}]
    asked: list[list[str]] = []

    def count(names: list[str], *, sources: bool) -> dict[str, int]:
        assert not sources
        asked.append(names)
        return {name: counts[0][name] for name in names} if len(asked) == 1 else counts[1]

    monkeypatch.setattr(script, "count_instructions", count)
    figures = {"one": 110_000, "two": 99_000, "three": 120_000}
    counts[0]["three"] = 102_000
    script.confirm_growth(figures, dict.fromkeys(figures, 100_000), sources=False)
    assert asked == [["one", "three"], ["one"]]
    assert figures == {"one": 101_000, "two": 99_000, "three": 102_000}


def test_a_load_without_a_baseline_counts_as_growth(script: Any) -> None:
    assert len(script.grown({}, {"new": 1})) == 1


def test_the_baseline_has_every_load(script: Any) -> None:
    baseline = script.load_baseline()
    loads = {load.name for load in script.LOADS}
    assert set(script.figures_of(baseline, "pure")) == set(script.figures_of(baseline, "compiled")) == loads
    assert {"python", "valgrind", "python_built_with"} <= set(baseline["versions"])


@pytest.mark.needs("valgrind")
def test_figures_of_other_versions_are_not_compared(script: Any) -> None:
    baseline = {"versions": script.versions(), "pure": {}}
    assert script.is_comparable(baseline, "pure")
    assert not script.is_comparable(baseline, "compiled")
    baseline["versions"] = {**baseline["versions"], "valgrind": "valgrind-0"}
    assert not script.is_comparable(baseline, "pure")


@pytest.mark.slow
@pytest.mark.needs("valgrind")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "arguments", [("--sources",), pytest.param((), marks=pytest.mark.needs("compiled"))], ids=["pure", "compiled"]
)
def test_no_load_costs_three_percent_more_instructions_than_the_baseline(arguments: tuple[str, ...]) -> None:
    command = [sys.executable, str(SCRIPT), "--check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr + done.stdout
