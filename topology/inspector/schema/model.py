"""What the schema is made of: entities with attributes and operations, and how they are shown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, IntEnum


class Role(IntEnum):
    """What a caller may do. Each role includes the lower ones."""

    NONE = 0
    """Only the health checks."""
    VIEWER = 1
    """See everything except bodies of messages and secrets."""
    OPERATOR = 2
    """Change costs, log levels and traces, drain, close connections, end disconnected subscriptions, publish tests."""
    ADMIN = 3
    """Also end attached subscriptions, load settings, see bodies."""

    @property
    def word(self) -> str:
        """The name in settings and errors."""
        return self.name.lower()


READER = Role.VIEWER
"""The role that may read entities and their attributes."""


class Type(Enum):
    """What an attribute or argument holds."""

    TEXT = "text"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    LIST = "list"
    MAP = "map"


class Unit(Enum):
    """Unit of a number that is shown in a unit."""

    SECONDS = "s"
    BYTES = "bytes"
    RATE = "1/s"
    BYTE_RATE = "bytes/s"


class Aging(Enum):
    """How a duration changes with time alone. Readers count it up or down themselves; it is not sent again."""

    GROWS = "grows"
    SHRINKS = "shrinks"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        title: its head on a terminal.
        rank: if a terminal is too narrow, columns of the highest rank are left out first; rank 0 stays.
        label: its head on the page; None = the title, empty = the page has no such column.
    """

    title: str
    rank: int
    label: str | None = None

    @property
    def page_label(self) -> str:
        """The head on the page; empty = the page has no such column."""
        return self.title.capitalize() if self.label is None else self.label

    @property
    def is_optional(self) -> bool:
        """Whether it is left out while no row has a value. Columns of the lowest ranks stay."""
        return self.rank >= 2


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of an attribute: of each entity, labelled with its `router`, or of the router itself.

    Attributes:
        name: without `_total`.
        help: for people.
        is_counter: a counter; else a gauge.
        direction: value of the label `direction`; empty = no such label.
    """

    name: str
    help: str
    is_counter: bool = False
    direction: str = ""


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute of an entity, or an argument of an operation."""

    name: str
    type: Type
    meaning: str
    column: Column | None = None
    """In tables; None = in none."""
    unit: Unit | None = None
    aging: Aging | None = None
    metric: Metric | None = None
    parts: tuple[Attribute, ...] = ()
    """Of a map, or of each map in a list."""
    settable: Role | None = None
    """The role that may change it; None = nobody."""
    is_required: bool = False
    """For arguments."""
    is_nullable: bool = False
    choices: tuple[str, ...] = ()
    """Of a text: the allowed values."""
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation on an entity."""

    name: str
    meaning: str
    deliveries: str
    """What happens to deliveries; shown before the user confirms."""
    role: Role
    arguments: tuple[Attribute, ...] = ()
    is_harmful: bool = False
    """The command line asks for confirmation."""


@dataclass(frozen=True, slots=True)
class EntityType:
    """A type of entity. Its columns have the order of its attributes."""

    name: str
    meaning: str
    naming: str
    """How one entity is named in a path, a request, or on the command line; empty = it is shown, not managed."""
    attributes: tuple[Attribute, ...]
    table: str | None = None
    """The inspector's table whose rows these are."""
    operations: tuple[Operation, ...] = ()
    delete: Operation | None = None
    """What deleting one does; None = it cannot be deleted."""
    is_stored: bool = False
    """It is in the store of an edge, which a router with the setting `queue_store` reads."""

    def operation(self, name: str) -> Operation | None:
        """The operation of that name."""
        return next((each for each in self.operations if each.name == name), None)

    @property
    def settable(self) -> tuple[Attribute, ...]:
        """Attributes that can be set."""
        return tuple(each for each in self.attributes if each.settable is not None)

    def metrics(self) -> Iterator[tuple[str, Metric]]:
        """The metrics that show its attributes and their parts, by attribute."""
        return ((each.name, each.metric) for each in with_parts(self.attributes) if each.metric is not None)


def columns_in(attributes: Iterable[Attribute]) -> Iterator[tuple[str, Column]]:
    """The columns of a table with these attributes, by attribute."""
    return ((each.name, each.column) for each in attributes if each.column is not None)


def with_parts(attributes: Iterable[Attribute]) -> Iterator[Attribute]:
    """Attributes, each followed by its parts."""
    for each in attributes:
        yield each
        yield from with_parts(each.parts)


# --- attributes in short ----------------------------------------------------------------------------------------------


def text(name: str, meaning: str, column: Column | None = None) -> Attribute:
    """A text."""
    return Attribute(name, Type.TEXT, meaning, column)


def integer(
    name: str, meaning: str, column: Column | None = None, unit: Unit | None = None, metric: Metric | None = None
) -> Attribute:
    """A whole number."""
    return Attribute(name, Type.INTEGER, meaning, column, unit, metric=metric)


def seconds(
    name: str,
    meaning: str,
    column: Column | None = None,
    aging: Aging | None = None,
    *,
    metric: Metric | None = None,
    is_nullable: bool = False,
) -> Attribute:
    """A duration."""
    return Attribute(name, Type.NUMBER, meaning, column, Unit.SECONDS, aging, metric, is_nullable=is_nullable)


def here(name: str, meaning: str, column: Column | None = None, unit: Unit | None = None) -> Attribute:
    """A number that only the router knows where the link is."""
    return Attribute(name, Type.INTEGER, f"{meaning}; null where its link is not here", column, unit, is_nullable=True)


def rate(name: str, meaning: str, column: Column | None = None, unit: Unit = Unit.RATE) -> Attribute:
    """What moves in a second, over the last five."""
    return Attribute(name, Type.NUMBER, meaning, column, unit, is_nullable=True)


def acceptance() -> tuple[Attribute, Attribute]:
    """How long publishers wait for the outcome of a delivery."""
    half = (
        "Longest time from arrival to outcome of the faster half of deliveries, in the last five minutes. One of each "
        "topic is timed in a second; one that waits counts with its age. Null where none was timed"
    )
    most = "The same for 99 of 100 deliveries"
    return (
        Attribute("accepted_p50_s", Type.NUMBER, f"{half}.", Column("p50", 3), Unit.SECONDS, is_nullable=True),
        Attribute("accepted_p99_s", Type.NUMBER, f"{most}.", Column("p99", 3), Unit.SECONDS, is_nullable=True),
    )


KEY = text("key", "Identity: unique in its type and constant.")
VHOST = text("vhost", "Its virtual host; empty = the default one.", Column("vhost", 3, ""))
"""The page shows it beside the topic or the client."""
