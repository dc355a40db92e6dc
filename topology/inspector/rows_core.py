"""Tables of the inspector: their names, the heads their rows are found by, and what a reader may ask for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from delivery_records.topics import matches

Row: TypeAlias = dict[str, object]
"""One row as JSON; `key` is unique in its table and stays the same."""

OVERVIEW = "overview"
EVENTS = "events"
WAITS = "waits"
TOPICS = "topics"
SUBSCRIPTIONS = "subscriptions"
PUBLISHERS = "publishers"
COLLECTIONS = (
    "routers", "links", TOPICS, SUBSCRIPTIONS, PUBLISHERS, WAITS, "channels", "neighbours", "connections",
)  # fmt: skip
"""Tables that come in pages."""
OF_ATTACHMENTS = (SUBSCRIPTIONS, PUBLISHERS, WAITS)
"""Tables a topic or router narrows in a watch."""
WATCHABLE = (OVERVIEW, *COLLECTIONS, EVENTS)

MAX_ROWS = 500
"""Rows of a page or snapshot: some 150 kB of JSON, gathered in a few milliseconds."""
DEFAULT_ROWS = 100


class InputError(ValueError):
    """What a reader asks for makes no sense.

    Attributes:
        fix: what to ask instead.
    """

    def __init__(self, error: str, fix: str) -> None:
        super().__init__(error)
        self.fix = fix


class Head(NamedTuple):
    """What is known of a row without building it. Heads of a table are sorted; `order` and `key` are its place."""

    order: str
    key: str
    text: str
    """What `q` is looked for in."""
    topic: str = ""
    routers: tuple[str, ...] = ()
    """Id and rid of the router it belongs to; of both for a link."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Which rows are wanted; an empty field does not narrow."""

    topic: str = ""
    router: str = ""
    text: str = ""

    @property
    def is_empty(self) -> bool:
        """True when every row is wanted."""
        return not (self.topic or self.router or self.text)

    def wants(self, head: Head) -> bool:
        """Whether a row is wanted."""
        if self.router and self.router not in head.routers:
            return False
        if self.text and self.text.lower() not in head.text.lower():
            return False
        topic = self.topic
        return not topic or head.topic == topic or matches(head.topic, topic) or matches(topic, head.topic)


@dataclass(frozen=True, slots=True)
class Page:
    """The heads of one page."""

    heads: Sequence[Head]
    next: str | None
    """Cursor of the page behind it."""
    total: int
    """Rows of all pages."""
