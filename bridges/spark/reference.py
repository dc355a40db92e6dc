"""The references in docs/spark-reference.md and docs/spark-kafka.md: options, and settings of a bridge node.

Run `python -m bridges.spark.reference` in the project's folder; it rewrites the parts of the pages between marks.
tests/docs/test_spark_page.py fails when the page is not what this makes.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from bridges.node.settings import NODE, SUBSCRIPTION
from bridges.spark.kafka_options import KAFKA
from bridges.spark.option_kinds import Option, Reads, Side
from bridges.spark.option_table import OPTIONS
from oncewire.settings.reference import settings_table, table, written

PAGE = Path("docs") / "spark-reference.md"
KAFKA_PAGE = Path("docs") / "spark-kafka.md"
_PARTS: tuple[tuple[str, Side, Reads | None], ...] = (
    ("### Of a source of a subscription, and of the sink", Side.BOTH, None),
    ("### Of a source of a subscription", Side.SOURCE, Reads.SUBSCRIPTION),
    ("### Of a source of journals", Side.SOURCE, Reads.JOURNAL),
    ("### Of any source", Side.SOURCE, Reads.EITHER),
    ("### Of the sink", Side.SINK, None),
)
EMBEDDED_ONLY = "embedded"
"""The word in the table for options that a bridge node elsewhere sets for itself."""


def options_reference() -> str:
    """A table of options for each side and kind of source, as Markdown."""
    return "\n".join(f"{heading}\n\n{_table(side, reads)}" for heading, side, reads in _PARTS)


def settings_reference() -> str:
    """A table of the bridge node's settings, as Markdown; the default of its name is not that of this machine."""
    # In [defaults] stands what each subscription may say for itself.
    node = [each for each in NODE.values() if each.table != "defaults"]
    node = [replace(each, default="this machine's name") if each.key == "name" else each for each in node]
    return settings_table((*node, *SUBSCRIPTION.values()), ("setting", "allowed", "default", "what for"))


def _table(side: Side, reads: Reads | None) -> str:
    chosen = (option for option in OPTIONS if option.side is side and reads in {None, option.reads})
    return table(("Option", "Default", "Allowed", "Meaning"), (_cells(option) for option in chosen))


def _cells(option: Option) -> tuple[str, ...]:
    name = f"`{option.key}`" + (f" ({EMBEDDED_ONLY})" if option.is_embedded_only else "")
    return name, f"`{option.default}`" if option.default else "-", option.allowed, option.reason


def with_reference(page: str) -> str:
    """The page with its reference generated again.

    Raises:
        ValueError: the marks are not there, once each and in order.
    """
    return written(page, {"options": f"\n{options_reference()}\n", "settings": f"\n{settings_reference()}\n"})


def with_kafka(page: str) -> str:
    """The page for who comes from Kafka, with its table generated again; errors as `with_reference`."""
    rows = (
        (f"`{row.name}`", row.side, row.fit.value, f"`{row.ours}`: {row.words}" if row.ours else row.words)
        for row in KAFKA
    )
    made = table(("Kafka's connector", "of", "here", "what to know"), rows)
    return written(page, {"kafka": f"\n{made}\n"})


def main() -> int:
    """Rewrite the pages; the exit code is 2 where that cannot be done."""
    for page, change in ((PAGE, with_reference), (KAFKA_PAGE, with_kafka)):
        try:
            page.write_text(change(page.read_text(encoding="utf-8")), encoding="utf-8")
        except (OSError, ValueError) as error:
            sys.stderr.write(f"error: {page} cannot be rewritten\nwhy: {error}\n")
            sys.stderr.write("what to do: start this in the project's folder\n")
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
