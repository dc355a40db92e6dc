"""The tables of monitoring.md: a metric or an alert has one row, and every metric of the code has it."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/monitoring.md").read_text(encoding="utf-8")
FIRST_CELL = re.compile(r"^\| ([^|]+) \|", re.MULTILINE)
FILES = ("metrics.py", "queue_metrics.py")


def rows() -> Counter[str]:
    cells = FIRST_CELL.findall(PAGE)
    return Counter(name for cell in cells for name in re.findall(r"`(oncewire_\w+|Oncewire\w+)`", cell))


def test_no_metric_and_no_alert_has_two_rows() -> None:
    assert [name for name, times in rows().items() if times > 1] == []


def test_every_metric_that_the_router_has_stands_in_the_table() -> None:
    code = "".join((ROOT / "router/operator" / name).read_text(encoding="utf-8") for name in FILES)
    names = set(re.findall(r'"(oncewire_\w+)"', code))
    assert len(names) > 50
    assert {name for name in names if {name, f"{name}_total"}.isdisjoint(rows())} == set()
