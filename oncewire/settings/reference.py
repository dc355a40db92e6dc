"""Tables of reference pages: rows, and the marked parts of a page that are written from a schema."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from oncewire.settings.parsers import MIB
from oncewire.settings.schema import REQUIRED, Setting


def row(*cells: str) -> str:
    """One row of a Markdown table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def table(titles: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    heads = list(titles)
    return row(*heads) + "|" + "---|" * len(heads) + "\n" + "".join(row(*cells) for cells in rows)


def _default(setting: Setting) -> str:
    value = setting.default
    if value is REQUIRED:
        return "must be set"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and value >= MIB and "iB" in setting.allowed:
        return f"{value // MIB} MiB"
    if value in (None, "", ()):
        return "none"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(f"`{each}`" for each in value)
    return f"{value:g}" if isinstance(value, float) and value < 1e6 else str(value)


COLUMNS: Mapping[str, Callable[[Setting], str]] = {
    "setting": lambda each: f"`{each.key}`",
    "allowed": lambda each: each.allowed,
    "default": _default,
    "takes effect": lambda each: each.applies.value,
    "what for": lambda each: each.reason,
    "flag, variable": lambda each: f"`{each.flag}`, `{each.variable}`",
}
"""Of the reference of settings, by title."""


def settings_table(settings: Iterable[Setting], titles: Iterable[str] = COLUMNS) -> str:
    """The reference of settings, with some of the columns."""
    chosen = [COLUMNS[title] for title in titles]
    return table(titles, ([cell(each) for cell in chosen] for each in settings))


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
