"""What the demo does with one row, and the verdict on all of them. Pure."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

ARRIVAL_DELAY = 8
CARRIER = 9
"""Columns of a flight."""
NOT_ARRIVED = "NA"
"""In place of the delay of a flight that never arrived: its item becomes a dead letter."""
FAILS_FIRST = 20
"""One row of so many fails when it is tried for the first time."""


class FlightFailed(Exception):
    """The row cannot be processed, now or ever; the text says why."""


def body_of(number: int, row: bytes) -> bytes:
    """The message for a row."""
    return b"%d,%s" % (number, row)


def parse(payload: bytes, tries: int) -> bytes:
    """The first step: from a message to what is reported.

    Args:
        payload: of the item.
        tries: how often it was tried before.

    Raises:
        FlightFailed: it never arrived, or it is one of those that fail first.
    """
    number, _, row = payload.decode().partition(",")
    columns = row.split(",")
    if columns[ARRIVAL_DELAY] == NOT_ARRIVED:
        raise FlightFailed("this flight has not arrived")
    if not tries and not zlib.crc32(payload) % FAILS_FIRST:
        raise FlightFailed("failed for the first time")
    return json.dumps(
        {"number": int(number), "carrier": columns[CARRIER], "minutes_late": int(columns[ARRIVAL_DELAY])}
    ).encode()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of the rows.

    Attributes:
        received: messages at the end of the chain.
        dead: dead letters.
        lost: rows that are neither received nor dead, as they should be.
        duplicated: messages or dead letters beyond the first of a row.
        effects_twice: effects of workers beyond the first of a row.
        unexpected: messages and dead letters that no row asks for.
    """

    received: int
    dead: int
    lost: int
    duplicated: int
    effects_twice: int
    unexpected: int

    @property
    def is_exact(self) -> bool:
        """Nothing is lost, nothing was done twice."""
        return not (self.lost or self.duplicated or self.effects_twice or self.unexpected)


def judge(rows: Sequence[bytes], received: Iterable[bytes], dead: Iterable[bytes], effects: Iterable[int]) -> Verdict:
    """Compare with the rows.

    Args:
        rows: of the source; the first has number 1.
        received: bodies at the end of the chain.
        dead: payloads of dead letters.
        effects: numbers of the rows that workers noted.
    """
    expected: Counter[bytes] = Counter()
    arrived: Counter[int] = Counter()
    for number, row in enumerate(rows, 1):
        body = body_of(number, row)
        try:
            expected[parse(body, tries=1)] += 1
            arrived[number] += 1
        except FlightFailed:
            expected[body] += 1  # its dead letter
    outputs, letters, done = Counter(received), Counter(dead), Counter(effects)
    found = outputs + letters
    return Verdict(
        received=outputs.total(),
        dead=letters.total(),
        lost=len(expected.keys() - found.keys()) + len(arrived.keys() - done.keys()),
        duplicated=sum(count - 1 for count in found.values()),
        effects_twice=sum(count - 1 for count in done.values()),
        unexpected=len(found.keys() - expected.keys()) + len(done.keys() - arrived.keys()),
    )
