"""The tables of settings in docs/edges.md: run `python -m bridges.edge.reference` in the project's folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bridges.edge.kinds import KINDS
from bridges.edge.settings import EDGE
from oncewire.settings.reference import settings_table, written

PAGE = Path("docs") / "edges.md"


def with_reference(page: str) -> str:
    """The page with its tables written again; the default of its name is not that of this machine.

    Raises:
        ValueError: the marks are not there, once each and in order.
    """
    edge = [replace(each, default="this machine's name") if each.key == "edge.name" else each for each in EDGE.values()]
    parts = [each for kind in KINDS.values() for each in kind.settings.values()]
    titles = ("setting", "allowed", "default", "what for")
    return written(
        page, {"settings": settings_table(edge, (*titles, "flag, variable")), "parts": settings_table(parts, titles)}
    )


if __name__ == "__main__":
    PAGE.write_text(with_reference(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
