"""What a subscriber asks of its source beside a topic, and whether a router grants it (SH-1, E-9)."""

from __future__ import annotations

from dataclasses import dataclass

from oncewire.client.errors import UsageError
from oncewire.wire import Described, Source, Symbol, TerminusDurability, TerminusExpiryPolicy, vocabulary

NAME = Symbol("selector")
"""Of the filter, in the filter set of our source."""
SEPARATOR = "|"
"""Behind the name of a shared subscription in the names of its links (SH-1)."""


@dataclass(frozen=True, slots=True)
class SourceTerms:
    """Of one subscriber."""

    selector: str | None = None
    is_shared: bool = False
    by_group: bool = False

    @property
    def filter(self) -> dict[Symbol, object] | None:
        """The filter set to ask for."""
        return None if self.selector is None else {NAME: Described(vocabulary.SELECTOR_FILTER, self.selector)}

    @property
    def capabilities(self) -> tuple[Symbol, ...]:
        """Of the source. Members of a shared subscription have container-ids of their own."""
        shared = (vocabulary.SHARED, vocabulary.GLOBAL) if self.is_shared else ()
        return (vocabulary.TOPIC, *shared, *((vocabulary.GROUP_ORDER,) if self.by_group else ()))

    def source(self, topic: str, timeout_s: int | None) -> Source:
        """What the attach asks for; `timeout_s` None: never expires."""
        return Source(
            address=topic,
            durable=TerminusDurability.UNSETTLED_STATE,
            expiry_policy=TerminusExpiryPolicy.NEVER if timeout_s is None else TerminusExpiryPolicy.LINK_DETACH,
            timeout=timeout_s or 0,
            distribution_mode=vocabulary.COPY,
            outcomes=vocabulary.OUTCOMES,
            capabilities=self.capabilities,
            filter=self.filter,
        )

    def refused(self, reply: Source | None) -> tuple[str, str] | None:
        """Why the reply's source is not what was asked for, and what to do (AMQP 1.0 section 3.5.3); None: it is."""
        stated = None if reply is None or reply.filter is None else reply.filter.get(NAME)
        if self.selector is not None and not (isinstance(stated, Described) and stated.value == self.selector):
            why = "its reply does not name the selector, so it would send messages that the selector excludes"
            return why, "connect to an Oncewire router of this release, or leave selector out"
        if self.is_shared and (reply is None or vocabulary.SHARED not in reply.capabilities):
            why = "its reply does not say shared, so each subscriber would get every message"
            return why, "connect to an Oncewire router of this release, or leave share out"
        if self.by_group and (reply is None or vocabulary.GROUP_ORDER not in reply.capabilities):
            why = "its reply does not say that messages of one group come in order"
            return why, "connect to an Oncewire router of this release, or leave by_group out"
        return None


def source_terms(selector: str | None, share: str | None, *, by_group: bool) -> SourceTerms:
    """Of the arguments of `Client.subscriber`.

    Raises:
        UsageError: there is no share whose groups were to come in order.
    """
    if by_group and share is None:
        why = "a subscription of one subscriber has everything in order already"
        raise UsageError("by_group is of a shared subscription", why, "name it with share, or leave by_group out")
    return SourceTerms(selector, share is not None, by_group)


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
