"""The kills of a demo: which kind when, and what the report says of them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from rich.table import Table

from chaos.experiments.tables import table_of

K = TypeVar("K", bound=Enum)


@dataclass(frozen=True, slots=True)
class Kill:
    """One kill of a demo.

    Attributes:
        kind: of victim.
        target: for people.
        at_s: seconds since the beginning of the load.
    """

    kind: Enum
    target: str
    at_s: float


def by_turns(kinds: Iterable[K], kills: int, seed: int) -> list[K]:
    """So many kinds of victims: each kind as often, in random order."""
    chance = random.Random(seed)
    each = list(kinds)
    rounds = -(-kills // len(each))
    return list(itertools.chain.from_iterable(chance.sample(each, len(each)) for _ in range(rounds)))[:kills]


def count_kills(kinds: Iterable[Enum], kills: Sequence[Kill]) -> dict[str, int]:
    """How often each kind was killed."""
    return {kind.value: sum(kill.kind is kind for kill in kills) for kind in kinds}


def table_of_kills(kinds: Iterable[Enum], kills: Sequence[Kill]) -> Table:
    """How often and when each kind was killed."""
    table = table_of("SIGKILL to", "times", "after")
    for kind in kinds:
        times = [f"{kill.at_s:.0f} s" for kill in kills if kill.kind is kind]
        table.add_row(kind.value, str(len(times)), ", ".join(times))
    return table
