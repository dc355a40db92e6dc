"""Which topic a row is published to, and the verdict on what was stored and read. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

CARRIER = 10
"""Column of a message: a flight's row behind its number."""


def body_of(number: int, row: bytes) -> bytes:
    """The message for a row."""
    return b"%d,%s" % (number, row)


def topic_of(body: bytes) -> str:
    """The topic of its carrier: messages of one topic come in the order in which they were published."""
    return f"flights.{body.split(b',', CARRIER + 1)[CARRIER].decode()}"


def one_line(body: bytes) -> str:
    """Readers of a journal get all messages in one order."""
    return ""


@dataclass(frozen=True, slots=True)
class Finding:
    """What came to one place.

    Attributes:
        name: of the place.
        count: messages that came.
        lost: messages that should have come and did not.
        twice: what came beyond the first of each message.
        reordered: messages that came behind a later one of their line.
        unexpected: what nobody has sent.
    """

    name: str
    count: int
    lost: int
    twice: int
    reordered: int
    unexpected: int

    @property
    def is_exact(self) -> bool:
        """Whether everything came once, in order, and nothing else."""
        return not (self.lost or self.twice or self.reordered or self.unexpected)


def judge(
    name: str, expected: Sequence[bytes], found: Sequence[bytes], line_of: Callable[[bytes], str] = one_line
) -> Finding:
    """Compare what came with what should have come, in its order within each line."""
    places = {body: place for place, body in enumerate(expected)}
    counts = Counter(found)
    newest: dict[str, int] = {}
    reordered = 0
    for body in counts:  # in the order in which each came first
        if body in places:
            line, place = line_of(body), places[body]
            reordered += place < newest.get(line, 0)
            newest[line] = max(place, newest.get(line, 0))
    return Finding(
        name,
        len(found),
        lost=len(places.keys() - counts.keys()),
        twice=len(found) - len(counts),
        reordered=reordered,
        unexpected=len(counts.keys() - places.keys()),
    )
