"""Writes the tables of docs pages that show what docs/evidence/beside-skupper-router.json holds.

    python benchmarks/page_figures.py

Each table stands between `<!-- begin NAME -->` and `<!-- end NAME -->`; a test compares pages and record.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from oncewire.settings.reference import row, written

DOCS = Path(__file__).resolve().parents[1] / "docs"
RECORD = DOCS / "evidence" / "beside-skupper-router.json"
PURE = "pure Python"
LOADS = {
    "1:1": "1 -> 1",
    "1:1 two-step": "1 -> 1, two-step",
    "1:4": "1 -> 4",
    "1:50": "1 -> 50",
    "20:20": "20 -> 20 on one topic",
    "10 kB": "1 -> 1, 10 kB",
    "paced 1000/s": "1 -> 1, paced 1,000/s",
    "chain of 3": "chain of three, 1 -> 1",
}
Record = Mapping[str, Any]


def _latency(measured: Record) -> str:
    return f"{measured['p50']:,.0f} / {measured['p99']:,.0f}"


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Figures stand to the right."""
    return row(*titles) + "|---|" + "--:|" * (len(titles) - 1) + "\n" + "".join(row(*cells) for cells in rows)


def _beside(record: Record) -> str:
    """Every load, with both routers."""
    units = ("CPU", "msg/s", "p50 / p99")
    titles = ["load", "Oncewire CPU", "skupper CPU", "ratio"]
    titles += [f"{router} {unit}" for unit in units[1:] for router in ("Oncewire", "skupper")]
    rows = []
    for case, load in LOADS.items():
        ours, theirs = record["cases"][case]["oncewire"], record["cases"][case]["skupper-router"]
        ratio = f"**{record['cases'][case]['cpu ratio']:.2f}**"
        cpu, rate = (f"{ours['cpu']:.2f}", f"{theirs['cpu']:.2f}"), (f"{ours['rate']:,.0f}", f"{theirs['rate']:,.0f}")
        rows.append([load, *cpu, ratio, *rate, _latency(ours), _latency(theirs)])
    return _table(titles, rows)


def _cost(record: Record) -> str:
    """What a message costs with the third step and without it."""
    cases = record["cases"]
    loads = {
        "1,000 messages a second, exactly-once": cases["paced 1000/s"],
        "saturated, at-least-once": cases["1:1 two-step"],
        "saturated, exactly-once": cases["1:1"],
        "saturated, exactly-once, through three routers": cases["chain of 3"],
        "saturated, exactly-once, pure Python": record[PURE]["1:1"],
    }
    titles = ["one publisher, one subscriber, 100 bytes", "router CPU, us", "end to end p50 / p99, us", "messages/s"]
    measured = ((load, case["oncewire"]) for load, case in loads.items())
    return _table(
        titles, [(load, f"{ours['cpu']:.2f}", _latency(ours), f"{ours['rate']:,.0f}") for load, ours in measured]
    )


def _routers(record: Record) -> str:
    """Router CPU of Oncewire's two builds beside skupper-router's; the smaller is bold."""
    rows = []
    loads = {"1:1": "one router, 1 -> 1", "1:4": "one router, 1 -> 4", "chain of 3": "three routers, 1 -> 1"}
    for case, load in loads.items():
        ours, theirs = record["cases"][case]["oncewire"]["cpu"], record["cases"][case]["skupper-router"]["cpu"]
        pure = record[PURE].get(case)
        cells = [(ours, ours < theirs), (theirs, theirs < ours)]
        compiled, skupper = (f"**{cpu:.2f}**" if wins else f"{cpu:.2f}" for cpu, wins in cells)
        rows.append([load, compiled, f"{pure['oncewire']['cpu']:.2f}" if pure else "-", skupper])
    titles = ["router CPU for each delivered message, us", "Oncewire, compiled", f"Oncewire, {PURE}", "skupper-router"]
    return _table(titles, rows)


PAGES = {
    "performance.md": {"beside": _beside},
    "explanation/is-exactly-once-possible.md": {"cost": _cost},
    "comparison.md": {"routers": _routers},
}
"""Which page shows which tables."""


def with_tables(page: str, text: str, record: Record) -> str:
    """The text of a page with the tables of this record."""
    return written(text, {name: make(record) for name, make in PAGES[page].items()})


def main() -> None:
    """Write."""
    record = json.loads(RECORD.read_text())
    for page in PAGES:
        path = DOCS / page
        path.write_text(with_tables(page, path.read_text(), record))


if __name__ == "__main__":
    main()
