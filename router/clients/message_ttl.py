"""The ttl of an AMQP message, for topics whose messages expire (E-10)."""

from __future__ import annotations

from typing import Final

from oncewire.wire.annotations import HEADER_CODE, read_section_code
from oncewire.wire.decoding import DecodeBudget, read_value
from oncewire.wire.errors import DecodeError

_TTL: Final = 2
"""Its place in the header (3.2.1)."""
_MAX_VALUES: Final = 16
"""A header has five fields; a longer one is no header."""


def read_ttl(message: bytes, message_format: int) -> int | None:
    """The header's ttl in milliseconds; None: it has none, or cannot be read. A header comes first, or not at all."""
    if message_format or not message:
        return None
    try:
        code, value = read_section_code(message, 0)
        if code != HEADER_CODE:
            return None
        fields, _ = read_value(message, value, len(message), DecodeBudget(_MAX_VALUES))
    except DecodeError:
        return None
    if not isinstance(fields, list) or len(fields) <= _TTL:
        return None
    found: object = fields[_TTL]
    return found if isinstance(found, int) and not isinstance(found, bool) else None
