"""What a target is, and how one run of it is made: inputs in, taken or refused with the typed error, nothing else."""

from __future__ import annotations

import os
import random
import sys
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import FrameType
from typing import Any, Protocol

COUNTED = 64
"""One run in so many has its steps counted, which makes it several times slower."""
STEPS = 3_000
"""Calls that any input may cost, whatever its size."""
STEPS_PER_BYTE = 60
"""Calls for each byte. An attack is an input whose cost grows faster than its size."""


class Finding(Exception):
    """Something that must not happen has happened."""


@dataclass(slots=True)
class Counts:
    """What became of inputs."""

    inputs: int = 0
    refused: int = 0
    """Those that ended with the typed error of their target; the others were taken."""
    honest: int = 0
    """Messages of clients that do as they should, each of them delivered exactly once."""

    def add(self, other: Counts) -> None:
        """Count those, too."""
        self.inputs += other.inputs
        self.refused += other.refused
        self.honest += other.honest


class Target(Protocol):
    """Something that is fuzzed. A run is named by its number, and always the same."""

    @property
    def name(self) -> str:
        """Of the target."""

    @property
    def about(self) -> str:
        """For the page: what goes in, and what must come out."""

    @property
    def code(self) -> tuple[str, ...]:
        """Packages and modules whose change makes its numbers old."""

    def run(self, number: int) -> Counts:
        """Make one run.

        Raises:
            Exception: a finding, whatever it is.
        """
        ...


class Steps:
    """Counts calls, of Python and C functions alike."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Steps:
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _note(self, _at: FrameType, event: str, _argument: Any) -> None:
        self.count += event in ("call", "c_call")


@dataclass(frozen=True, slots=True)
class InputTarget:
    """A target whose inputs are one by one.

    Attributes:
        name: of the target.
        about: for the page.
        code: packages whose change makes its numbers old.
        make: draws the inputs of one run.
        take: hands an input over; whether it was taken, False for the typed error.
        size: of an input, for the bound of its cost; None = its length.
    """

    name: str
    about: str
    code: tuple[str, ...]
    make: Callable[[random.Random], Iterable[Any]]
    take: Callable[[Any], bool]
    size: Callable[[Any], int] | None = None

    def run(self, number: int) -> Counts:
        """See `Target`."""
        counts = Counts()
        is_counted = number % COUNTED == 0
        for each in self.make(random.Random(f"{self.name} {number}")):
            counts.inputs += 1
            counts.refused += not (self._take_counted(each) if is_counted else self.take(each))
        return counts

    def _take_counted(self, each: Any) -> bool:
        size = len(each) if self.size is None else self.size(each)
        steps = Steps()
        with steps:
            is_taken = self.take(each)
        if steps.count > STEPS + STEPS_PER_BYTE * size:
            raise Finding(f"{steps.count} steps for {size} bytes")
        return is_taken


def what(error: BaseException) -> str:
    """One line about a finding: the error and where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""  # noqa: PTH119
    return f"{type(error).__name__}: {error!s:.200}{where}"
