"""The corpus: what the simulator found in our own code on the way, kept by hand in `chaos/simulator/corpus.toml`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import Any

_FIELDS = {
    "seed": int,
    "aim": list,
    "code": str,
    "finding": str,
    "violation": str,
    "what": str,
    "fixed_by": str,
    "scenario": str,
}
_REQUIRED = ("what", "fixed_by")


class CorpusError(Exception):
    """A row that says less, more or other things than a row can."""


@dataclass(frozen=True, slots=True)
class Found:
    """One fault of ours that the simulator found. The file's head says what each field means."""

    what: str
    fixed_by: str
    seed: int | None = None
    aim: tuple[str, ...] = ()
    code: str = ""
    finding: str = ""
    violation: str = ""
    scenario: str = ""


def read_corpus() -> list[Found]:
    """All rows, in the order of the file.

    Raises:
        CorpusError: a row has an unknown field, one of another type, or lacks one.
    """
    text = resources.files("chaos.simulator").joinpath("corpus.toml").read_text(encoding="utf-8")
    return parse(text)


def parse(text: str) -> list[Found]:
    """The rows of a corpus file's text; raises as read_corpus."""
    return [_row(number, row) for number, row in enumerate(tomllib.loads(text).get("found", []), 1)]


def _row(number: int, row: dict[str, Any]) -> Found:
    for name, value in row.items():
        if name not in _FIELDS or not isinstance(value, _FIELDS[name]):
            raise CorpusError(f"row {number}: {name} = {value!r} is none of {', '.join(_FIELDS)}, or of another type")
    if absent := [name for name in _REQUIRED if not row.get(name)]:
        raise CorpusError(f"row {number} lacks {' and '.join(absent)}")
    if "seed" in row and not (row.get("code") and row.get("violation")):
        raise CorpusError(f"row {number}: a seed needs the code it failed with, and the violation")
    return Found(**{**row, "aim": tuple(row.get("aim", ()))})
