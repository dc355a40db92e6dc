"""The references in docs/spark-reference.md: options, and settings of a bridge node.

Run `python -m bridges.spark.reference` in the project's folder; it rewrites the parts of the page between marks.
tests/docs/test_spark_page.py fails when the page is not what this makes.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from bridges.node.settings import NODE, SUBSCRIPTION
from bridges.spark.option_table import OPTIONS, Option, Side
from oncewire.settings.reference import settings_table, table, written

PAGE = Path("docs") / "spark-reference.md"
_HEADINGS = {Side.BOTH: "### Of source and sink", Side.SOURCE: "### Of the source", Side.SINK: "### Of the sink"}
EMBEDDED_ONLY = "embedded"
"""The word in the table for options that a bridge node elsewhere sets for itself."""


def options_reference() -> str:
    """A table of options for each side, as Markdown."""
    return "\n".join(f"{heading}\n\n{_table(side)}" for side, heading in _HEADINGS.items())


def settings_reference() -> str:
    """A table of the bridge node's settings, as Markdown; the default of its name is not that of this machine."""
    # In [defaults] stands what each subscription may say for itself.
    node = [each for each in NODE.values() if each.table != "defaults"]
    node = [replace(each, default="this machine's name") if each.key == "name" else each for each in node]
    return settings_table((*node, *SUBSCRIPTION.values()), ("setting", "allowed", "default", "what for"))


def _table(side: Side) -> str:
    return table(
        ("Option", "Default", "Allowed", "Meaning"), (_cells(option) for option in OPTIONS if option.side is side)
    )


def _cells(option: Option) -> tuple[str, ...]:
    name = f"`{option.key}`" + (f" ({EMBEDDED_ONLY})" if option.is_embedded_only else "")
    return name, f"`{option.default}`" if option.default else "-", option.allowed, option.reason


def with_reference(page: str) -> str:
    """The page with its reference generated again.

    Raises:
        ValueError: the marks are not there, once each and in order.
    """
    return written(page, {"options": f"\n{options_reference()}\n", "settings": f"\n{settings_reference()}\n"})


def main() -> int:
    """Rewrite the page; the exit code is 2 where that cannot be done."""
    try:
        PAGE.write_text(with_reference(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    except (OSError, ValueError) as error:
        sys.stderr.write(f"error: {PAGE} cannot be rewritten\nwhy: {error}\n")
        sys.stderr.write("what to do: start this in the project's folder\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
