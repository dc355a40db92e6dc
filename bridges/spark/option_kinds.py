"""What an option of the formats is: name, side, allowed values, meaning; the tables are in option_table.py."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from oncewire.settings.parsers import Parser
from oncewire.settings.schema import Setting


class Side(Enum):
    """Which side reads an option."""

    BOTH = "both"
    SOURCE = "source"
    SINK = "sink"


class Reads(Enum):
    """What a source with the option reads: a subscription at a bridge node, a journal at an edge, or either."""

    EITHER = "either"
    SUBSCRIPTION = "subscription"
    JOURNAL = "journal"


@dataclass(frozen=True, slots=True)
class Option(Setting):
    """One option; its default is a text, empty = none. Upper and lower case of its name do not matter.

    Attributes:
        side: which side reads it.
        is_embedded_only: a separate bridge node has it in its own configuration, so it is refused here.
        reads: of a source: what it must read.
    """

    side: Side = Side.BOTH
    is_embedded_only: bool = False
    reads: Reads = Reads.SUBSCRIPTION


def option(
    name: str, side: Side, default: str, parse: Parser, allowed: str, meaning: str, is_embedded_only: bool = False
) -> Option:
    """One row of a table: of sinks, of sources of a subscription, or of both."""
    is_secret = "secret" in name or "password" in name or name == "amqp.urls"  # URLs may have a user and password
    return Option(name, parse, default, allowed, meaning, is_secret, side=side, is_embedded_only=is_embedded_only)


def of_source(name: str, reads: Reads, default: str, parse: Parser, allowed: str, meaning: str) -> Option:
    """One row of a table: of sources of journals, or of any source."""
    return Option(name, parse, default, allowed, meaning, side=Side.SOURCE, reads=reads)
