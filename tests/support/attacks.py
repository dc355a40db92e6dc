"""The suite of attacks: the files that docs/threats.md names beside what attackers may try. `make attack` runs them.

`python tests/support/attacks.py` prints their paths.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "threats.md"
TABLES = {"Hostile clients": "what they do", "Threat model": "threat"}
"""Headings of tables whose rows name tests, and the heads of their first columns."""
TEST = re.compile(r"`((?:\w+/)*test_\w+\.py)`")


def rows(heading: str) -> list[list[str]]:
    """The cells of a table of the page."""
    section = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    table = section.split(f"| {TABLES[heading]} | defence | test |\n|---|---|---|\n")[1].split("\n\n")[0]
    return [re.split(r"(?<!\\) \| ", line.strip("| ")) for line in table.splitlines()]


def files_of(row: list[str]) -> list[Path]:
    """The test files of a row. Where two folders have a file of that name, both are meant."""
    return sorted(path for name in TEST.findall(row[2]) for path in (ROOT / "tests").rglob(name))


def suite() -> list[Path]:
    """The files of all rows."""
    return sorted({path for heading in TABLES for row in rows(heading) for path in files_of(row)})


if __name__ == "__main__":
    sys.stdout.write("".join(f"{path.relative_to(ROOT)}\n" for path in suite()))
