"""What a subscriber asks of its router beside a topic, and whether it is granted (SH-1, E-9)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from oncewire.client.errors import UsageError
from oncewire.wire import (
    Described,
    Fields,
    Source,
    Symbol,
    TerminusDurability,
    TerminusExpiryPolicy,
    Timestamp,
    ULong,
    vocabulary,
)

if TYPE_CHECKING:
    from datetime import datetime

NAME = Symbol("selector")
"""Of the filter, in the filter set of our source."""
JOURNAL = "journal://"
"""Begins the address of a journal (J-19)."""
Start: TypeAlias = "str | int | datetime"
"""Where a reader of a journal starts: `first`, `last`, `next`, a position, or a time."""
PLACES = {"first": "first", "last": "last", "next": "next", "earliest": "first", "latest": "next"}
"""Words for a start, and what stands for them in the filter; `earliest` and `latest` are Kafka's."""
SEPARATOR = "|"
"""Behind the name of a shared subscription in the names of its links (SH-1)."""


class SourceTerms(NamedTuple):
    """Of one subscriber."""

    selector: str | None = None
    is_shared: bool = False
    by_group: bool = False
    start: object = None
    """The value of a stream's filter; None = where its cursor is."""
    stores: bool = False
    """It keeps messages for others, who process them later (I-3g)."""
    exactly_once: bool = True
    """False = at-least-once, or at-most-once where it is settled, too."""
    settled: bool = False
    timeout_s: int | None = None
    """How long the network keeps it while it is detached; None: it never expires."""

    @property
    def filter(self) -> dict[Symbol, object] | None:
        """The filter set to ask for."""
        if self.start is not None:
            return {vocabulary.STREAM_OFFSET_SPEC: Described(vocabulary.STREAM_OFFSET_SPEC, self.start)}
        return None if self.selector is None else {NAME: Described(vocabulary.SELECTOR_FILTER, self.selector)}

    @property
    def properties(self) -> Fields:
        """Of the attach."""
        return {vocabulary.STORES: True} if self.stores else {}

    @property
    def capabilities(self) -> tuple[Symbol, ...]:
        """Of the source. Members of a shared subscription have container-ids of their own."""
        shared = (vocabulary.SHARED, vocabulary.GLOBAL) if self.is_shared else ()
        return (vocabulary.TOPIC, *shared, *((vocabulary.GROUP_ORDER,) if self.by_group else ()))

    def source(self, topic: str) -> Source:
        """What the attach asks for."""
        return Source(
            address=topic,
            durable=TerminusDurability.UNSETTLED_STATE,
            expiry_policy=TerminusExpiryPolicy.NEVER if self.timeout_s is None else TerminusExpiryPolicy.LINK_DETACH,
            timeout=self.timeout_s or 0,
            distribution_mode=vocabulary.COPY,
            outcomes=vocabulary.OUTCOMES,
            capabilities=self.capabilities,
            filter=self.filter,
        )

    def at(self, position: int) -> SourceTerms:
        """Of a reader of a journal that starts at a position."""
        return self._replace(start=ULong(position))

    def at_place_of(self, reply: Source | None) -> SourceTerms:
        """With the position that the reply names in place of a word or a time, which mean another one later (J-20)."""
        stated = _stated(reply, vocabulary.STREAM_OFFSET_SPEC)
        return self.at(stated) if isinstance(stated, int) else self

    def refused(self, reply: Source | None) -> tuple[str, str] | None:
        """Why the reply's source is not what was asked for, and what to do (AMQP 1.0 section 3.5.3); None: it is."""
        if self.start is not None and _stated(reply, vocabulary.STREAM_OFFSET_SPEC) is None:
            why = "its reply does not say where the reader starts, so no journal is behind it"
            return why, f"let routers pass {JOURNAL} on (services.addresses), and run an edge with the journal"
        if self.selector is not None and _stated(reply, NAME) != self.selector:
            why = "its reply does not name the selector, so it would send messages that the selector excludes"
            return why, "connect to an Oncewire router of this release, or leave selector out"
        if self.is_shared and (reply is None or vocabulary.SHARED not in reply.capabilities):
            why = "its reply does not say shared, so each subscriber would get every message"
            return why, "connect to an Oncewire router of this release, or leave share out"
        if self.by_group and (reply is None or vocabulary.GROUP_ORDER not in reply.capabilities):
            why = "its reply does not say that messages of one group come in order"
            return why, "connect to an Oncewire router of this release, or leave by_group out"
        return None


def _stated(reply: Source | None, name: Symbol) -> object:
    """The value of a filter of the reply; None = it has no such filter."""
    found = None if reply is None or reply.filter is None else reply.filter.get(name)
    return found.value if isinstance(found, Described) else None


def source_terms(selector: str | None, share: str | None, *, by_group: bool) -> SourceTerms:
    """Of the arguments of `Client.subscriber`.

    Raises:
        UsageError: there is no share whose groups were to come in order.
    """
    if by_group and share is None:
        why = "a subscription of one subscriber has everything in order already"
        raise UsageError("by_group is of a shared subscription", why, "name it with share, or leave by_group out")
    return SourceTerms(selector, share is not None, by_group)


def journal_terms(start: Start) -> SourceTerms:
    """Of the arguments of `Client.journal`.

    Raises:
        UsageError: nobody can start there.
    """
    from datetime import UTC, datetime  # here and below, because only journals' readers name a time

    if isinstance(start, datetime):
        time = start if start.tzinfo else start.replace(tzinfo=UTC)
        return SourceTerms(start=Timestamp(round(time.timestamp() * 1000)))
    if isinstance(start, int) and not isinstance(start, bool) and start >= 1:
        return SourceTerms(start=ULong(start))
    if isinstance(start, str) and start in PLACES:
        return SourceTerms(start=PLACES[start])
    raise _no_start(start)


def _no_start(start: object) -> UsageError:
    fix = f"give {', '.join(PLACES)}, a position of 1 or more, or a time such as 2026-01-31T12:00"
    return UsageError(f"a journal cannot be read from {start!r}", "it is no place, position or time", fix)


def start_in(text: str) -> Start:
    """The start that a person writes: a place, a position, or a time of ISO 8601 (without a zone: UTC).

    Raises:
        UsageError: it is none of these.
    """
    if text.isascii() and text.isdigit():
        return int(text)
    from datetime import datetime

    try:
        return text if text in PLACES else datetime.fromisoformat(text)
    except ValueError:
        raise _no_start(text) from None


def member_name(share: str | None, name: str) -> str:
    """The name of a subscriber's link.

    Raises:
        UsageError: the name of the shared subscription cannot be distinguished from what follows it.
    """
    if share is None:
        return name
    if not share or SEPARATOR in share:
        why = f"it is the part of a link's name before {SEPARATOR!r}"
        raise UsageError(f"share={share!r} cannot be used", why, "choose another name")
    return f"{share}{SEPARATOR}{name}"
