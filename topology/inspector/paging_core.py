"""Pages of a sorted table by cursor: a cursor names the last row returned, so rows added later do not move others."""

from __future__ import annotations

import base64
import binascii
import json
from bisect import bisect_right
from collections.abc import Sequence

from topology.inspector.rows_core import Filter, Head, InputError, Page

MAX_CURSOR_CHARACTERS = 4_096
"""Two names of 1,024 bytes fit, in base64 of JSON."""


def page_of(heads: Sequence[Head], wanted: Filter, cursor: str | None, limit: int) -> Page:
    """One page.

    Args:
        heads: all rows of the table, sorted.
        wanted: which of them are.
        cursor: `next` of the page before; None = from the start.
        limit: rows of the page, at least 1.

    Raises:
        InputError: the cursor is none of ours.
    """
    assert limit >= 1
    found = heads if wanted.is_empty else [head for head in heads if wanted.wants(head)]
    start = 0
    if cursor is not None:
        order, key = decode_cursor(cursor)
        start = bisect_right(found, (order, key), key=lambda head: (head.order, head.key))
    stop = start + limit
    following = encode_cursor(found[stop - 1]) if stop < len(found) else None
    return Page(found[start:stop], following, len(found))


def encode_cursor(head: Head) -> str:
    """The cursor after this row."""
    text = json.dumps([head.order, head.key], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_cursor(cursor: str) -> tuple[str, str]:
    """The place a cursor names.

    Raises:
        InputError: it is none of ours.
    """
    try:
        if len(cursor) > MAX_CURSOR_CHARACTERS:
            raise ValueError
        padded = cursor + "=" * (-len(cursor) % 4)
        place = json.loads(base64.b64decode(padded.encode("ascii"), altchars=b"-_", validate=True))
        if not isinstance(place, list) or len(place) != 2 or not all(isinstance(part, str) for part in place):
            raise ValueError
    except (ValueError, binascii.Error, RecursionError):
        raise InputError(
            "the cursor cannot be read",
            "give `next` of the previous page, unchanged; leave it out to start from the beginning",
        ) from None
    return place[0], place[1]
