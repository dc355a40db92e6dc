"""Writes the tables of docs pages that show what docs/evidence/beside-skupper-router.json, brokers.json and
spark-beside-kafka.json hold.

    python benchmarks/page_figures.py

Each table stands between `<!-- begin NAME -->` and `<!-- end NAME -->`; a test compares pages and records.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from oncewire.settings.reference import row, table, written

DOCS = Path(__file__).resolve().parents[1] / "docs"
ROUTERS = DOCS / "evidence" / "beside-skupper-router.json"
BROKERS = DOCS / "evidence" / "brokers.json"
SPARK = DOCS / "evidence" / "spark-beside-kafka.json"
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
Make = Callable[[Record], str]


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


def _ratios(case: Record, system: str, figure: str) -> list[float]:
    """Of each round to Oncewire's figure of that round."""
    ours, theirs = (case["rounds"][name] for name in (case["ours"], system))
    return [each[figure] / our[figure] for our, each in zip(ours, theirs, strict=True)]


def _spread(ratios: Sequence[float]) -> str:
    if set(ratios) == {1.0}:  # Oncewire's own
        return "1.00"
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def _number(cell: str) -> float:
    return float(cell.split(maxsplit=1)[0].replace(",", ""))


def _bold_best(rows: Sequence[Sequence[str]], column: int, *, most: bool = False) -> list[list[str]]:
    """The rows with the best figure of a column in bold: the smallest, unless the most is best."""
    figures = [_number(cells[column]) for cells in rows if cells[column] != "-"]
    best = max(figures) if most else min(figures)
    return [
        [
            f"**{cell}**" if number == column and cell != "-" and _number(cell) == best else cell
            for number, cell in enumerate(cells)
        ]
        for cells in rows
    ]


def _party_rows(record: Record, load: str, figures: Sequence[str]) -> list[list[str]]:
    """Every system of a load: figures as times Oncewire's, on the quiet machine, and on the busy one where it ran."""
    quiet, busy = record["quiet"]["loads"], record["busy"]["loads"].get(load)
    calm = {
        name: (each, case["medians"][case["ours"]]) for case in quiet[load] for name, each in case["medians"].items()
    }
    rows = []
    for system in record["systems"]:
        if system not in calm and (busy is None or system not in busy["rounds"]):
            continue
        cells = [record["systems"][system]["name"]]
        for figure in figures:
            found = calm.get(system)
            cells.append(f"{found[0][figure] / found[1][figure]:.2f}" if found else "-")
            if busy is not None:
                cells.append(_spread(_ratios(busy, system, figure)) if system in busy["rounds"] else "-")
        rows.append(cells)
    return rows


def _comparing(load: str, figures: Mapping[str, str], most: Collection[str] = ()) -> Make:
    """Makes the table of a load; in bold is the smallest figure of each column, or the largest of `most`."""

    def make(record: Record) -> str:
        rows = _party_rows(record, load, list(figures))
        for column, figure in enumerate(figures, 1):
            rows = _bold_best(rows, column, most=figure in most)
        return _table(["times Oncewire's", *figures.values()], rows)

    return make


def _servers(record: Record) -> str:
    """CPU of each server, its clients being compiled programs."""
    figures = {"server_us": "CPU of the server"}
    one = _party_rows(record, "compiled, 1 -> 1", list(figures))
    four = {cells[0]: cells[2] for cells in _party_rows(record, "compiled, 1 -> 4", list(figures))}
    rows = [[*cells, four.get(cells[0], "-")] for cells in one]
    for column in (1, 2, 3):
        rows = _bold_best(rows, column)
    titles = ["1 -> 1", "1 -> 1, busy", "1 -> 4, busy"]
    return _table(["CPU of the server, times Oncewire's", *titles], rows)


def _at_rest(record: Record) -> str:
    """Memory of each server; medians of its starts."""
    rows = []
    for system, starts in record["at rest"].items():
        cells = [f"{statistics.median(values):.0f}" for values in zip(*(each.values() for each in starts), strict=True)]
        rows.append([record["systems"][system]["name"], cells[0], *(cells[1:] or ["-"])])
    return _table(["at rest", "memory, MiB", "of the router alone, MiB"], _bold_best(rows, 1))


def _parties(record: Record) -> str:
    """Who was compared, with versions and settings."""
    keys = ("name", "version", "settings", "confirmed", "on disk")
    titles = ("system", "versions", "settings", "a confirmation means", "on disk by then")
    return table(titles, ([each.get(key, "-") for key in keys] for each in record["systems"].values()))


def _spark(record: Record) -> str:
    """Spark with each connector: large batches by rows a second, small ones by the time of a batch."""
    rows = []
    for case, sides in record["cases"].items():
        ours, theirs = sides["oncewire"], sides["kafka"]
        figure = "ms" if case.startswith(("10 rows", "empty")) else "rows_s"
        cells = [f"{each[figure]:,.0f}" for each in (ours, theirs)]
        cpu = [f"{each['cpu_us']:,.1f}" if figure == "rows_s" else "-" for each in (ours, theirs)]
        rows.append([case, *cells, f"**{ours[figure] / theirs[figure]:.2f}**", *cpu])
    titles = ("rows a second, or ms a batch", "Oncewire", "Kafka", "ratio", "Oncewire CPU, us a row", "Kafka CPU")
    return _table(titles, rows)


CLIENTS = {"server_us": "CPU of the server", "publisher_us": "of the publisher", "subscriber_us": "of a subscriber"}
WAITING = {"server_us": "CPU of the server", "confirmed_p50_ms": "time to the confirmation, p50"}
RATE = {"delivered_s": "delivered a second"}
FOUR = {**RATE, "server_us": "CPU of the server"}
STORED = {"server_us": "CPU of the server", "delivered_s": "stored and read a second"}
PAGES: Mapping[str, Mapping[str, tuple[Path, Make]]] = {
    "spark-kafka.md": {"beside": (SPARK, _spark)},
    "performance.md": {"beside": (ROUTERS, _beside)},
    "explanation/is-exactly-once-possible.md": {"cost": (ROUTERS, _cost)},
    "comparison.md": {
        "routers": (ROUTERS, _routers),
        "parties": (BROKERS, _parties),
        "servers": (BROKERS, _servers),
        "clients": (BROKERS, _comparing("Python, 1 -> 1", CLIENTS)),
        "rates": (BROKERS, _comparing("Python, 1 -> 1", RATE, most=RATE)),
        "four": (BROKERS, _comparing("Python, 1 -> 4", FOUR, most=RATE)),
        "waiting": (BROKERS, _comparing("Python, 1 -> 1, one at a time", WAITING)),
        "stored": (BROKERS, _comparing("Python, stored", STORED, most=RATE)),
        "rest": (BROKERS, _at_rest),
    },
}
"""Which page shows which tables, and of which record."""


def with_tables(page: str, text: str) -> str:
    """The text of a page with the tables of the records."""
    return written(text, {name: make(json.loads(record.read_text())) for name, (record, make) in PAGES[page].items()})


def main() -> None:
    """Write."""
    for page in PAGES:
        path = DOCS / page
        path.write_text(with_tables(page, path.read_text()))


if __name__ == "__main__":
    main()
