"""The key under which a side effect is done once: the same for each attempt at the same input.

Where effects and acceptance cannot be one transaction, a message may be processed again. User code then keeps the hash
with the effect, in one transaction, and does nothing where the hash is there already.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

MAX_SOURCES = 1_000
"""Inputs of one processor: a join of more is a mistake."""


def delivery_hash(processor: str, positions: Mapping[str, int | str | bytes]) -> str:
    """Return the hash of one delivery: of its input's position, not of its content.

    Two messages with equal contents have different hashes; one message has the same hash on every attempt, on every
    machine and in every version.

    Args:
        processor: names the step; two processors of one input have different hashes.
        positions: source -> the message's position there: a position of a journal, or the tag of a delivery. A
            join names one for each of its inputs.

    Returns:
        64 hexadecimal digits (SHA-256).

    Raises:
        ValueError: there is no position, or an ambiguous one.
    """
    if not processor or not 1 <= len(positions) <= MAX_SOURCES:
        raise ValueError(f"a delivery hash needs a processor and 1 to {MAX_SOURCES} positions")
    parts = [[source, *_place(place)] for source, place in sorted(positions.items())]
    text = json.dumps([processor, parts], separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _place(place: object) -> tuple[str, object]:
    """The position with its kind, so that 7, "7" and b"7" differ."""
    if isinstance(place, bool) or not isinstance(place, (int, str, bytes)):
        raise ValueError(f"a position is a whole number, a string or a tag, not {place!r}")
    if isinstance(place, bytes):
        return "tag", place.hex()
    return ("number", int(place)) if isinstance(place, int) else ("text", str(place))
