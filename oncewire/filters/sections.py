"""The sections of a message that filters read. Each is decoded once, when a filter first wants it; the body never."""

from __future__ import annotations

from typing import Final, TypeAlias, cast
from uuid import UUID

from oncewire.filters.limits import CHARS_A_STEP, MAX_READ_BYTES, MAX_READ_VALUES, MAX_STEPS
from oncewire.wire.annotations import (
    APPLICATION_PROPERTIES_CODE,
    DATA_CODE,
    HEADER_CODE,
    PROPERTIES_CODE,
    read_section_code,
)
from oncewire.wire.decoding import DecodeBudget, read_value, skip
from oncewire.wire.errors import DecodeError

Value: TypeAlias = bool | int | float | str | None
"""What a selector compares; None is NULL."""

PROPERTY_FIELDS: Final = (
    "message-id",
    "user-id",
    "to",
    "subject",
    "reply-to",
    "correlation-id",
    "content-type",
    "content-encoding",
    "absolute-expiry-time",
    "creation-time",
    "group-id",
    "group-sequence",
    "reply-to-group-id",
)
"""The fields of `properties` in their order (3.2.4)."""
_READ: Final = (HEADER_CODE, PROPERTIES_CODE, APPLICATION_PROPERTIES_CODE)


class Unreadable(Exception):
    """The sections of the message cannot be read, so no filter matches it."""


class TooCostly(Exception):
    """The filters of a subscription have done all that they may do for this message, so it does not match."""


class MessageSections:
    """A message as filters see it: as it came, with no mark of a repeat."""

    __slots__ = ("_application", "_broken", "_format", "_header", "_message", "_places", "_properties", "steps_left")

    def __init__(self, message: bytes, message_format: int) -> None:
        """Nothing is read yet."""
        self._message = message
        self._format = message_format
        self._places: dict[int, int] | None = None
        self._broken: frozenset[int] = frozenset()
        self._header: list[object] | None = None
        self._properties: list[object] | None = None
        self._application: dict[object, object] | None = None
        self.steps_left = MAX_STEPS
        """What the filters of the subscription whose turn it is may still do (`MAX_STEPS`)."""

    def spend(self, steps: int) -> None:
        """Count what a filter does.

        Raises:
            TooCostly: it has done all that it may do.
        """
        self.steps_left -= steps
        if self.steps_left < 0:
            raise TooCostly

    def spend_on(self, text: str | bytes) -> None:
        """Count what is searched or written in one go.

        Raises:
            TooCostly: see `spend`.
        """
        self.spend(len(text) // CHARS_A_STEP)

    def header(self, index: int) -> object:
        """A field of the header by its place (3.2.1); None where it is not set.

        Raises:
            Unreadable: see there.
        """
        if self._header is None:
            self._header = self._list(HEADER_CODE)
        return self._header[index] if index < len(self._header) else None

    def property(self, index: int) -> object:
        """A field of the properties by its place (3.2.4); None where it is not set.

        Raises:
            Unreadable: see there.
        """
        if self._properties is None:
            self._properties = self._list(PROPERTIES_CODE)
        return self._properties[index] if index < len(self._properties) else None

    def application(self) -> dict[object, object]:
        """The application properties.

        Raises:
            Unreadable: see there.
        """
        if self._application is None:
            found = self._read(APPLICATION_PROPERTIES_CODE)
            if found is None:
                found = {}
            if not isinstance(found, dict):
                raise Unreadable
            self._application = found
        return self._application

    def _list(self, code: int) -> list[object]:
        found = self._read(code)
        if found is None:
            return []
        if not isinstance(found, list):
            raise Unreadable
        return cast("list[object]", found)

    def _read(self, code: int) -> object:
        """The value of a section; None where the message has none."""
        if self._places is None:
            self._places = self._find_or_not()
        if code in self._broken:
            raise Unreadable
        place = self._places.get(code)
        if place is None:
            return None
        try:
            value, _ = read_value(self._message, place, len(self._message), DecodeBudget(MAX_READ_VALUES))
        except DecodeError:
            self._broken |= {code}
            raise Unreadable from None
        return value

    def _find_or_not(self) -> dict[int, int]:
        """As `_find`; what cannot be read is looked at once, whatever the number of filters."""
        try:
            return self._find()
        except (DecodeError, Unreadable):
            self._broken = frozenset(_READ)
            return {}

    def _find(self) -> dict[int, int]:
        """Where the values of the sections in front of the body begin."""
        if self._format:
            raise Unreadable
        message, places = self._message, {}
        pos, size, last = 0, 0, 0
        while pos < len(message):
            code, value = read_section_code(message, pos)
            if code >= DATA_CODE:
                break
            pos = skip(message, value, len(message))
            if code <= last:
                raise Unreadable
            last = code
            if code in _READ:
                size += pos - value
                places[code] = value
        if size > MAX_READ_BYTES:
            raise Unreadable
        return places


def plain(value: object) -> Value:
    """A value of a message as selectors compare it; types that JMS does not have are NULL, but for uuid."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, UUID):
        return str(value)
    return None


def is_number(value: object) -> bool:
    """A number, and no boolean."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def identifier(value: object, *, is_message_id: bool) -> str | None:
    """A message-id or correlation-id as JMS clients know it: Qpid JMS writes its AMQP type into the text."""
    if isinstance(value, str):
        if is_message_id and not value.startswith("ID:"):
            return f"ID:AMQP_NO_PREFIX:{value}"
        return str(value)
    if isinstance(value, UUID):
        return f"ID:AMQP_UUID:{value}"
    if isinstance(value, bytes):
        return f"ID:AMQP_BINARY:{value.hex().upper()}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"ID:AMQP_ULONG:{int(value)}"
    return None
