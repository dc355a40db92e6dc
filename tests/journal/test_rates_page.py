"""What the page of performance says of journals from publisher to reader is what was measured."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
ROW = re.compile(r"^\| ([^|]+) \| ([\d,]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", re.MULTILINE)
KINDS = {
    "publisher to journal": "append",
    "journal to our client with a cursor": "client",
    "journal to our client, settled": "settled",
    "journal to Spark": "spark",
}
FIGURES = {"messages_s": ",.0f", "router_us": ".1f", "edge_us": ".1f", "client_us": ".1f"}


def test_the_page_has_what_was_measured() -> None:
    page = (DOCS / "performance.md").read_text(encoding="utf-8")
    rows = ROW.findall(page.partition("\n## Journals from publisher to reader\n")[2].partition("\n## ")[0])
    builds = json.loads((DOCS / "evidence/journal-rates.json").read_text(encoding="utf-8"))["builds"]
    measured = {
        (f"{what}, {build}", *(format(statistics.median(run[name] for run in runs), FIGURES[name]) for name in FIGURES))
        for build in ("compiled", "pure Python")
        for what, kind in KINDS.items()
        if (runs := [run[kind] for run in builds[build]["runs"] if kind in run])
    }
    assert set(rows) == measured


def test_an_edge_pays_less_for_a_message_than_before() -> None:
    builds = json.loads((DOCS / "evidence/journal-rates.json").read_text(encoding="utf-8"))["builds"]
    for build in ("compiled", "pure Python"):
        now, before = (builds[name]["runs"] for name in (build, f"{build}, before"))
        for kind in ("append", "client", "settled"):
            costs, earlier = ([run[kind]["edge_us"] for run in runs if kind in run] for runs in (now, before))
            assert statistics.median(costs) < statistics.median(earlier), (build, kind)
