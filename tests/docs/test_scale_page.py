"""docs/scale.md has the figures of its record, and the plots are drawn from it."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
EVIDENCE = ROOT / "docs" / "evidence"
RECORD: dict[str, Any] = json.loads((EVIDENCE / "scale.json").read_text())
PAGE = (ROOT / "docs" / "scale.md").read_text()
PLOTS = sorted(path.name for path in EVIDENCE.glob("scale-*.svg"))


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # a NamedTuple looks its module up
    spec.loader.exec_module(module)
    del sys.modules[name]
    return module


@pytest.fixture(scope="module")
def plots() -> ModuleType:
    return script("plot_scale")


def test_every_table_of_the_page_has_the_figures_of_the_record(plots: ModuleType) -> None:
    assert plots.with_tables(PAGE, RECORD) == PAGE, "run benchmarks/plot_scale.py --tables"


def test_a_figure_that_is_not_the_record_s_is_found_and_an_empty_block_is_filled(plots: ModuleType) -> None:
    figure = str(RECORD["connections"]["rows"][-1]["kB each"])
    assert figure in PAGE
    assert plots.with_tables(PAGE.replace(figure, "1"), RECORD) == PAGE
    empty = re.sub(r"(<!-- begin \w+ -->\n).*?(<!-- end)", r"\1\2", PAGE, flags=re.DOTALL)
    assert empty != PAGE
    assert plots.with_tables(empty, RECORD) == PAGE


def test_every_part_of_the_record_is_on_the_page_and_was_measured_with_the_compiled_build() -> None:
    parts = script("record_scale").PARTS
    assert {name: part["command"] for name, part in RECORD.items()} == {name: parts[name] for name in RECORD}
    assert {part["build"] for part in RECORD.values()} == {"compiled"}
    assert set(re.findall(r"<!-- begin (\w+) -->", PAGE)) == set(script("plot_scale").tables(RECORD))
    assert all(re.search(r"cores, CPython 3\.\d+\.\d+, load average", part["machine"]) for part in RECORD.values())


def test_the_record_has_no_paths() -> None:
    assert "/tmp" not in json.dumps(RECORD)
    assert "/home" not in json.dumps(RECORD)


def test_every_plot_shows_the_figures_of_the_record_and_is_on_the_page(plots: ModuleType) -> None:
    assert set(PLOTS) <= set(plots.plots_of(RECORD))
    assert sorted(re.findall(r"\]\(evidence/(scale-\w+\.svg)\)", PAGE)) == PLOTS
    for name in PLOTS:
        assert plots.digest_in(name, RECORD) in (EVIDENCE / name).read_text(), "run benchmarks/plot_scale.py"


@pytest.mark.needs("matplotlib")
def test_the_same_figures_make_the_same_plot_for_light_and_dark(plots: ModuleType) -> None:
    for name in plots.plots_of(RECORD):
        text = plots.draw(name, RECORD)
        assert text == plots.draw(name, RECORD)
        assert plots.digest_in(name, RECORD) in text
        assert "prefers-color-scheme: dark" in text
        assert not re.search(r"20\d\d-\d\d-\d\d", text)
