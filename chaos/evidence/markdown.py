"""Tables for pages that are written by programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]], numbers_from: int | None = None) -> str:
    """A table; the columns from `numbers_from` on are aligned to the right."""
    rule = ["---:" if numbers_from is not None and each >= numbers_from else "---" for each in range(len(headings))]
    lines = [headings, rule, *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def cell(text: str) -> str:
    """Text that may stand in a table."""
    return text.replace("|", "\\|").replace("\n", " ")
