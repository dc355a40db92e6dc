"""Figures on pages are those that were measured: tables are written from the record, prose quotes a page's evidence."""

from __future__ import annotations

import functools
import importlib.util
import json
import math
import re
from pathlib import Path
from types import ModuleType

import pytest

from tests.docs.page_limits import QUOTED, in_base_unit, is_limit
from tests.support import protocol

DOCS = Path(__file__).resolve().parents[2] / "docs"
PERFORMANCE = DOCS / "performance.md"
NUMBER = r"\d[\d,]*(?:\.\d+)?"
UNITS = (
    *("us", "µs", "ms", "s", "B", "kB", "KiB", "MB", "MiB", "GB", "GiB", "%"),
    *("MB/s", "msg/s", "messages/s", "messages a second", "a second"),
    *("microseconds", "milliseconds"),
)
# "10.2 us", "0.8 / 5.6 ms", "26.41 to 30.27 us", "some 40,000 a second".
FIGURE = re.compile(
    rf"(?<![\w.,/-])({NUMBER}(?:(?: / | to | and |-){NUMBER})?) ?({'|'.join(UNITS)})(?![\w/])", re.ASCII
)
LINKED = re.compile(r"\]\(([^)#\s]+)(?:#[\w-]*)?\)")
SECTIONS = {"performance.md": "Beside a C router"}
"""Of which page only a section is looked at: the others are the record of a benchmark each."""
MADE = re.compile(r"<!-- begin [\w-]+\b.*?<!-- end [\w-]+ -->", re.DOTALL)
"""Written by a generator, from evidence or from code; a test of each compares them."""
PROGRAM = re.compile(r"^ *```(?:toml|yaml|json|ini|python)\n.*?^ *```$", re.DOTALL | re.MULTILINE)
"""Settings and values that a reader may choose."""
PAGES = sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md") if path.parent.name != "evidence")
PAGES += ["../README.md", "../CHANGELOG.md", "../SECURITY.md", "../CONTRIBUTING.md", "../deploy/README.md"]


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("page_figures", DOCS.parent / "benchmarks" / "page_figures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def section(text: str, title: str) -> str:
    """Of a page; all of it where no title is given."""
    return text if not title else text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


@functools.cache
def numbers(path: Path) -> frozenset[float]:
    return frozenset(float(number.replace(",", "")) for number in re.findall(NUMBER, path.read_text()))


def rebased(page: Path) -> str:
    """A protocol page with links as its index has them."""
    text = page.read_text(encoding="utf-8")
    return text if page == protocol.INDEX else text.replace("](../", "](")


def sources(page: str, text: str) -> set[float]:
    """Every number of the evidence that this text links to; performance.md is evidence for other pages."""
    if page.startswith("protocol/"):  # one document with its index, which links what was measured
        return sources("protocol.md", "\n".join(map(rebased, protocol.PAGES)))
    found: set[float] = set()
    for link in LINKED.findall(text):
        path = (DOCS / page).parent / link
        is_evidence = path.resolve().parent == DOCS / "evidence" or path.resolve() == PERFORMANCE
        if is_evidence and path.suffix in {".md", ".json"} and path.resolve() != DOCS / page:
            found |= numbers(path.resolve())
    return found


def is_measured(figure: str, unit: str, measured: set[float]) -> bool:
    """Return whether a number of the evidence is this figure, rounded to its digits; us may be ms here, and ms s."""
    value, digits = float(figure.replace(",", "")), len(figure.partition(".")[2])
    scales = (1.0, 1000.0) if unit in {"s", "ms", "MB", "kB"} else (1.0,)
    return any(f"{number / scale:.{digits}f}" == f"{value:.{digits}f}" for number in measured for scale in scales)


def figures_of(text: str) -> list[tuple[str, str]]:
    """Each with its unit: "0.8 / 5.6 ms" are two."""
    return [(each, unit) for figures, unit in FIGURE.findall(text) for each in re.findall(NUMBER, figures)]


def unmeasured(page: str, text: str) -> list[str]:
    """The figures with a unit in this text that are in no evidence that it links to, and no limit of the code."""
    measured = sources(page, text)
    return [
        f"{figure} {unit}"
        for figure, unit in figures_of(PROGRAM.sub("", MADE.sub("", text)))
        if not is_measured(figure, unit, measured) and not is_limit(page, figure, unit)
    ]


@pytest.mark.parametrize("page", PAGES)
def test_every_figure_with_a_unit_is_in_evidence_that_its_page_links_to_or_a_limit_of_the_code(page: str) -> None:
    text = section((DOCS / page).read_text(), SECTIONS.get(page, ""))
    assert unmeasured(page, text) == [], "take it from docs/evidence, and link the file"


def test_every_limit_that_a_page_is_said_to_quote_is_on_it() -> None:
    for page, values in QUOTED.items():
        text = protocol.protocol_text() if page == "protocol.md" else (DOCS / page).read_text()
        quoted = [in_base_unit(*figure) for figure in figures_of(text)]
        assert [value for value in values if not any(math.isclose(value, each) for each in quoted)] == [], page


def test_the_tables_of_the_pages_are_those_of_the_records() -> None:
    figures = script()
    for page in figures.PAGES:
        text = (DOCS / page).read_text()
        assert figures.with_tables(page, text) == text, f"{page}: run benchmarks/page_figures.py"


def test_a_figure_that_nobody_measured_is_found() -> None:
    page, link = "comparison.md", "[evidence](evidence/beside-skupper-router.json)"
    assert unmeasured(page, f"One hop costs 2.14 us, p99 1.2 ms ({link}), 403,048 messages/s.") == []
    assert unmeasured(page, f"One hop costs 10.2 us ({link}).") == ["10.2 us"]
    assert unmeasured(page, f"It took 0.9 / 5.6 ms ({link}).") == ["0.9 ms", "5.6 ms"]
    assert unmeasured(page, f"It passes on some 40,000 a second ({link}).") == ["40,000 a second"]
    assert unmeasured(page, "One hop costs 2.14 us.") == ["2.14 us"], "without a link nobody can look it up"


def test_a_limit_is_one_where_a_page_is_said_to_quote_it() -> None:
    assert unmeasured("management.md", "A request has at most 64 KiB.") == []
    assert unmeasured("management.md", "A request has at most 65 KiB.") == ["65 KiB"]
    assert unmeasured("bridge.md", "A request has at most 65 KiB.") == ["65 KiB"]
    assert unmeasured("bridge.md", "A subscription is kept for 60 s.") == [], "the default of a setting"
    assert unmeasured("bridge.md", '```toml\nage = "17 s"\n```\nIt takes 17 s.') == ["17 s"]


def test_every_party_of_the_comparison_has_versions_settings_and_three_rounds_beside_ours() -> None:
    record = json.loads((DOCS / "evidence" / "brokers.json").read_text())
    for party in record["systems"].values():
        assert set(party) == {"name", "version", "settings", "confirmed", "on disk"}
    for load in record["busy"]["loads"].values():
        assert load["ours"] in load["rounds"]
        assert {len(rounds) for rounds in load["rounds"].values()} == {3}
    assert {len(starts) for starts in record["at rest"].values()} == {3}
