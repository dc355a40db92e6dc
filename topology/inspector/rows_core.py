"""Tables of the inspector: their names, the heads of their rows, and filters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from delivery_records.model.topics import matches

Row: TypeAlias = dict[str, object]
"""One row as JSON; `key` is unique in its table and constant."""

OVERVIEW = "overview"
EVENTS = "events"
WAITS = "waits"
ROUTERS = "routers"
LINKS = "links"
TOPICS = "topics"
SUBSCRIPTIONS = "subscriptions"
PUBLISHERS = "publishers"
CHANNELS = "channels"
NEIGHBOURS = "neighbours"
CONNECTIONS = "connections"
COLLECTIONS = (ROUTERS, LINKS, TOPICS, SUBSCRIPTIONS, PUBLISHERS, WAITS, CHANNELS, NEIGHBOURS, CONNECTIONS)
"""Tables with pages."""
MEASURED = (ROUTERS, LINKS, TOPICS, SUBSCRIPTIONS, PUBLISHERS)
"""Tables whose rows have rates."""
OF_ATTACHMENTS = (SUBSCRIPTIONS, PUBLISHERS, WAITS)
"""Tables that a watch can filter by topic or router."""
WATCHABLE = (OVERVIEW, *COLLECTIONS, EVENTS)

MAX_ROWS = 500
"""Rows of a page or snapshot: some 150 kB of JSON, collected in a few milliseconds."""
DEFAULT_ROWS = 100


class InputError(ValueError):
    """A request is invalid.

    Attributes:
        fix: a valid request.
    """

    def __init__(self, error: str, fix: str) -> None:
        super().__init__(error)
        self.fix = fix


class Head(NamedTuple):
    """What is known of a row before it is built. Heads of a table are sorted by `order` and `key`."""

    order: str
    key: str
    text: str
    """The text that `q` searches."""
    topic: str = ""
    routers: tuple[str, ...] = ()
    """Id and rid of the router it belongs to; of both for a link."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Which rows are requested; an empty field does not filter."""

    topic: str = ""
    router: str = ""
    text: str = ""

    @property
    def is_empty(self) -> bool:
        """True when it has no condition."""
        return not (self.topic or self.router or self.text)

    def wants(self, head: Head) -> bool:
        """Whether a row matches."""
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
    """Cursor of the next page."""
    total: int
    """Rows of all pages."""
