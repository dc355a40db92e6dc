"""Tables of reference pages: rows, and the marked parts of a page that are written from a schema."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping


def row(*cells: str) -> str:
    """One row of a Markdown table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def table(titles: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    heads = list(titles)
    return row(*heads) + "|" + "---|" * len(heads) + "\n" + "".join(row(*cells) for cells in rows)


def written(page: str, parts: Mapping[str, str]) -> str:
    """A page with its parts written anew; the rest is written by hand.

    Args:
        page: has each part once, between `<!-- begin NAME` and `<!-- end NAME -->`.
        parts: by name.

    Raises:
        ValueError: the marks of a part are not there, once each and in order.
    """
    for name, text in parts.items():
        marks = re.compile(rf"(<!-- begin {name}\b[^\n]*-->\n).*?(<!-- end {name} -->)", re.DOTALL)
        if len(re.findall(rf"<!-- (?:begin|end) {name}\b", page)) != 2 or not marks.search(page):
            raise ValueError(f"the page needs the marks <!-- begin {name} --> and <!-- end {name} -->, once each")
        page = marks.sub(lambda found, text=text: found[1] + text + found[2], page)  # type: ignore[misc]
    return page
