"""The selector of a subscription: as a filter of its source, and whether a router applies it (E-9)."""

from __future__ import annotations

from oncewire.wire import Described, Source, Symbol, vocabulary

NAME = Symbol("selector")
"""Of the filter, in the filter set of our source."""
NOT_APPLIED = "its reply does not name the selector, so it would send messages that the selector excludes"


def filter_of(selector: str | None) -> dict[Symbol, object] | None:
    """The filter set to ask for."""
    return None if selector is None else {NAME: Described(vocabulary.SELECTOR_FILTER, selector)}


def is_applied(selector: str | None, reply: Source | None) -> bool:
    """Whether the attach reply states the selector that was asked for (AMQP 1.0 section 3.5.3)."""
    if selector is None:
        return True
    stated = None if reply is None or reply.filter is None else reply.filter.get(NAME)
    return isinstance(stated, Described) and stated.value == selector
