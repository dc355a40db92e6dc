"""The ledger of the fuzzing: one line of JSON for each block of runs of a target."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos.evidence.ledger import Codec, Ledger, count_in
from chaos.fuzz.target import Counts

MAX_FINDINGS = 20
"""Written down for one block: whoever has more has no use for the others yet."""


@dataclass(frozen=True, slots=True)
class Found:
    """A run that ended with a finding."""

    run: int
    what: str


@dataclass(frozen=True, slots=True)
class Block:
    """Neighbouring runs of one target that were made with the same code."""

    target: str
    first: int
    runs: int
    code: str
    python: str
    machine: str
    counts: Counts
    cpu_s: float
    found: tuple[Found, ...]
    is_guided: bool = False
    """Made by a coverage-guided fuzzer: these inputs do not come from numbers."""

    def as_json(self) -> dict[str, object]:
        """The ledger's line."""
        counts = self.counts
        return {
            "target": self.target,
            "first_run": self.first,
            "runs": self.runs,
            "code": self.code,
            "python": self.python,
            "machine": self.machine,
            "inputs": counts.inputs,
            "refused": counts.refused,
            "honest": counts.honest,
            "cpu_s": round(self.cpu_s, 3),
            "guided": self.is_guided,
            "findings": [{"run": each.run, "what": each.what} for each in self.found[:MAX_FINDINGS]],
        }


@dataclass(slots=True)
class Sum:
    """What all blocks of a target and code come to."""

    runs: int
    counts: Counts
    cpu_s: float
    found: list[Found]
    guided: int
    """Inputs of a coverage-guided fuzzer, which `counts` does not hold."""


def sum_of(blocks: Iterable[Block], target: str, code: str) -> Sum:
    """The sums of these blocks; numbers of different code are never added up."""
    total = Sum(0, Counts(), 0.0, [], 0)
    for block in blocks:
        if (block.target, block.code) == (target, code):
            total.cpu_s += block.cpu_s
            total.found += block.found
            if block.is_guided:
                total.guided += block.counts.inputs
            else:
                total.runs += block.runs
                total.counts.add(block.counts)
    return total


def next_run(blocks: Iterable[Block], target: str, code: str) -> int:
    """The first run that was not made with this code."""
    ends = (
        each.first + each.runs for each in blocks if (each.target, each.code) == (target, code) and not each.is_guided
    )
    return max(ends, default=0)


def _block(row: Mapping[str, Any]) -> Block:
    counts = Counts(count_in(row, "inputs"), count_in(row, "refused"), count_in(row, "honest"))
    found = tuple(Found(count_in(each, "run"), str(each["what"])) for each in row["findings"])
    return Block(
        str(row["target"]),
        count_in(row, "first_run"),
        count_in(row, "runs"),
        str(row["code"]),
        str(row["python"]),
        str(row["machine"]),
        counts,
        float(row["cpu_s"]),
        found,
        bool(row["guided"]),
    )


BLOCKS = Codec("block of inputs", Block.as_json, _block)
"""What a line of this ledger is."""


def fuzz_ledger(path: Path) -> Ledger[Block]:
    """The ledger, to be continued."""
    return Ledger(path, BLOCKS)
