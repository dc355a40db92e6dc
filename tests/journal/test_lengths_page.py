"""What the page of performance says of journals by their length is what was measured."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.docs.test_scale_page import script

DOCS = Path(__file__).parents[2] / "docs"
ROW = re.compile(r"^\| ([\d,]+) \| ([\d.]+) \| ([\d.]+) \|$", re.MULTILINE)
MOST = 1.25
"""An index of a thousand times as many rows is one or two levels deeper."""


def measured() -> dict[int, tuple[float, float]]:
    found = json.loads((DOCS / "evidence/journal-lengths.json").read_text(encoding="utf-8"))["lengths"]
    return {int(length): (each["append"]["cpu_us"], each["read"]["cpu_us"]) for length, each in found.items()}


def test_the_page_has_what_was_measured() -> None:
    page = (DOCS / "performance.md").read_text(encoding="utf-8")
    rows = ROW.findall(page.partition("\n## Journals by length\n")[2].partition("\n## ")[0])
    assert {int(length.replace(",", "")): (append, read) for length, append, read in rows} == {
        length: (f"{append:.1f}", f"{read:.1f}") for length, (append, read) in measured().items()
    }


def test_the_plot_shows_what_was_measured() -> None:
    plots = script("plot_scale")
    record = json.loads((DOCS / "evidence/journal-lengths.json").read_text(encoding="utf-8"))
    drawn = (DOCS / "evidence/journal-lengths.svg").read_text(encoding="utf-8")
    assert plots.digest_in("journal-lengths.svg", record) in drawn, "run benchmarks/plot_scale.py"


def test_a_message_costs_the_same_in_a_journal_a_thousand_times_as_long() -> None:
    found = measured()
    assert max(found) >= 1000 * min(found)
    for costs in zip(*found.values(), strict=True):
        assert max(costs) <= MOST * min(costs), costs
