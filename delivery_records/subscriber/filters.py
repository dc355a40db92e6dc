"""Filters of subscriptions, evaluated once for a message and each distinct filter of a router (rule E-9).

What a filter means is the business of a `FilterEngine`, which the shell passes: this package knows no message format.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

CACHED_FILTERS = 1024
"""Distinct filters that are shared, each of 100 KB at most; egresses keep those that the cache has dropped."""


class UnknownFilter(ValueError):
    """A subscription's filter that this release cannot apply; the text says what it did not understand."""


@dataclass(frozen=True, slots=True)
class CompiledFilter:
    """What one filter text means."""

    no_local: bool = False
    """It excludes what publishers of the subscriber's own container send."""
    test: Callable[[object], bool | None] | None = None
    """True for what `FilterEngine.open` made of a message that matches; None: each message does. Never raises. It
    answers None where finding out takes more than a filter may: such a message does not match."""
    weight: int = 1
    """What it may cost for a message, in deliveries (see `Fanout.weight`)."""


class FilterEngine(Protocol):
    """Reads filters and messages. Both are functions of their arguments alone (E-9)."""

    def compile(self, text: str) -> CompiledFilter:
        """The filter of a canonical text.

        Raises:
            UnknownFilter: this release cannot read it.
        """

    def open(self, message: bytes, message_format: int) -> object:
        """What the tests of this message share: sections are decoded once, when the first test wants them."""


class NoFilters:
    """An engine for runs without a wire format: it reads no filter."""

    def compile(self, text: str) -> CompiledFilter:
        """See FilterEngine."""
        raise UnknownFilter(f"this router applies no filters, and cannot serve {text[:80]!r}")

    def open(self, message: bytes, message_format: int) -> object:
        """See FilterEngine."""
        return message


class SharedFilter:
    """One distinct filter at a router, and what it said of the last message."""

    __slots__ = ("compiled", "result", "serial")

    def __init__(self, compiled: CompiledFilter) -> None:
        """Not evaluated yet."""
        self.compiled = compiled
        self.serial = 0
        self.result: bool | None = True


class MessageFilters:
    """All filters of a router. Egresses with equal filters share one evaluation of each message."""

    __slots__ = ("_engine", "_known", "_message", "_message_format", "_opened", "_serial", "is_used")

    def __init__(self, engine: FilterEngine) -> None:
        """No subscription has a filter."""
        self._engine = engine
        self._known: dict[str, SharedFilter] = {}
        self._message = b""
        self._message_format = 0
        self._opened: object = None
        self._serial = 0
        self.is_used = False
        """A message of this turn is kept, for the next filter that wants it."""

    def of(self, text: str) -> SharedFilter:
        """The filter of a text, shared with everybody who has the same.

        Raises:
            UnknownFilter: see FilterEngine.
        """
        found = self._known.pop(text, None)
        if found is None:
            found = SharedFilter(self._engine.compile(text))
            if len(self._known) >= CACHED_FILTERS:
                self._known.pop(next(iter(self._known)))
        self._known[text] = found  # the last that anybody asked for
        return found

    def matches(self, shared: SharedFilter, message: bytes, message_format: int) -> bool | None:
        """Whether a message matches; None: it does not, for its filter is too costly for it.

        The egresses of a router get the same object, so identity distinguishes messages.
        """
        test = shared.compiled.test
        if test is None:
            return True
        if not self.is_used or message is not self._message or message_format != self._message_format:
            self.is_used = True
            self._message = message
            self._message_format = message_format
            self._opened = self._engine.open(message, message_format)
            self._serial += 1
        if shared.serial != self._serial:
            shared.serial = self._serial
            shared.result = test(self._opened)
        return shared.result

    def forget(self) -> None:
        """The turn ends: no message is kept (G6)."""
        self.is_used = False
        self._message = b""
        self._opened = None
