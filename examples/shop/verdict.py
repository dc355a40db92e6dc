"""What became of the orders: reads the databases of the four services and compares.

    python examples/shop/verdict.py FOLDER --wait 60

No table has a key that would hide a second row. It exits with 0 if each order is in each table once.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

POLL_S = 0.2
PLACES = {
    "orders": ("web.db", "SELECT number, cents FROM orders"),
    "charged": ("payment.db", "SELECT number, cents FROM charged"),
    "mails": ("mails.db", "SELECT number, NULL FROM sent"),
    "shown": ("dashboard.db", "SELECT number, cents FROM shown"),
}


@dataclass(frozen=True, slots=True)
class Found:
    """One table against the orders.

    Attributes:
        rows: in it.
        lost: orders that it lacks.
        twice: orders that it has more than once.
        wrong: rows of no order, or with another amount.
    """

    rows: int
    lost: int
    twice: int
    wrong: int

    @property
    def is_exact(self) -> bool:
        """Each order once, and nothing else."""
        return not (self.lost or self.twice or self.wrong)


def read(folder: Path, name: str) -> list[tuple[int, int | None]]:
    """The rows of a table; none where its service has not started yet."""
    file, statement = PLACES[name]
    if not (folder / file).exists():
        return []
    with closing(sqlite3.connect(folder / file)) as database:
        try:
            return database.execute(statement).fetchall()
        except sqlite3.OperationalError:
            return []


def compare(orders: Mapping[int, int], rows: list[tuple[int, int | None]]) -> Found:
    """A table against the orders and their amounts."""
    times = Counter(number for number, _ in rows)
    return Found(
        rows=len(rows),
        lost=len(orders.keys() - times.keys()),
        twice=sum(count > 1 for count in times.values()),
        wrong=sum(number not in orders or cents not in (None, orders[number]) for number, cents in rows),
    )


def judge(folder: Path, accepted: Mapping[int, int] | None = None) -> dict[str, Found]:
    """All tables against the orders that customers were promised; None = those of its database."""
    tables = {name: read(folder, name) for name in PLACES}
    promised = {number: cents or 0 for number, cents in tables["orders"]} if accepted is None else accepted
    return {name: compare(promised, rows) for name, rows in tables.items()}


def report(found: Mapping[str, Found], **more: object) -> str:
    """A table, then a line of JSON."""
    lines = [f"{'':8} {'rows':>6} {'lost':>6} {'twice':>6} {'wrong':>6}"]
    lines += [f"{name:8} {each.rows:6} {each.lost:6} {each.twice:6} {each.wrong:6}" for name, each in found.items()]
    tables = {name: asdict(each) for name, each in found.items()}
    lost, twice = (sum(getattr(each, key) for each in found.values()) for key in ("lost", "twice"))
    is_exact = all(each.is_exact for each in found.values())
    return "\n".join([*lines, json.dumps({**tables, "lost": lost, "twice": twice, **more, "exact": is_exact})])


def main() -> None:
    """Read the command line and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="with the databases")
    parser.add_argument("--wait", type=float, default=0.0, help="seconds for what is still under way")
    arguments = parser.parse_args()
    ends_at = time.monotonic() + arguments.wait
    found = judge(arguments.folder)
    while any(each.lost for each in found.values()) and time.monotonic() < ends_at:
        time.sleep(POLL_S)
        found = judge(arguments.folder)
    print(report(found))
    sys.exit(not all(each.is_exact for each in found.values()))


if __name__ == "__main__":
    main()
