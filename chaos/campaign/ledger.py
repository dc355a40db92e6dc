"""The campaign's ledger: one line of JSON for each block of seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos.campaign.report import tally_as_json
from chaos.campaign.seeds import Seeds
from chaos.campaign.tally import FINDINGS, Failing, Tally, sum_up, without_folders
from chaos.evidence.ledger import Codec, Ledger, count_in
from chaos.evidence.ledger import read_ledger as read_rows

MAX_FAILING_IN_BLOCK = 50
"""Failing seeds kept of one block that was run: whoever has more has no use for the others yet."""


@dataclass(frozen=True, slots=True)
class Block:
    """Neighbouring seeds that were run with the same code."""

    seeds: Seeds
    code: str
    """`chaos.campaign.version.code_version`."""
    python: str
    machine: str
    tally: Tally

    def as_json(self) -> dict[str, object]:
        """The ledger's line."""
        failing = [
            {
                "seed": each.seed,
                "found_as": each.found_as,
                "violation": without_folders(each.violation),
                "setting": each.setting,
            }
            for each in self.tally.failing
        ]
        return {
            "first_seed": self.seeds.first,
            "seeds": self.seeds.count,
            "code": self.code,
            "python": self.python,
            "machine": self.machine,
            **tally_as_json(self.tally),
            "virtual_s": round(self.tally.virtual_s, 3),
            "failing": failing,
        }


def missing(blocks: Iterable[Block], code: str, wanted: Seeds, size: int) -> list[Seeds]:
    """What of `wanted` was not run with this code yet, in pieces that end where multiples of `size` do."""
    done = sorted((block.seeds for block in blocks if block.code == code), key=lambda seeds: seeds.first)
    left: list[Seeds] = []
    at = wanted.first
    for each in (*done, Seeds(wanted.last + 1, 1)):
        stop = min(each.first, wanted.last + 1)
        while at < stop:
            end = min(stop, (at // size + 1) * size)
            left.append(Seeds(at, end - at))
            at = end
        at = max(at, each.last + 1)
    return left


def total_of(blocks: Iterable[Block], code: str) -> Tally:
    """The sums of all blocks of this code; a seed that stands in two counts once."""
    counted: list[Tally] = []
    at = -1
    for block in sorted((b for b in blocks if b.code == code), key=lambda b: (b.seeds.first, -b.seeds.count)):
        if block.seeds.first > at:
            counted.append(block.tally)
            at = block.seeds.last
    return sum_up(counted)


def _block(row: Mapping[str, Any]) -> Block:
    seeds = Seeds(count_in(row, "first_seed"), count_in(row, "seeds"))
    tally = Tally(
        seeds.count,
        count_in(row, "attempted"),
        count_in(row, "acknowledged"),
        count_in(row, "deliveries"),
        count_in(row, "steps"),
        float(row["virtual_s"]),
        float(row["cpu_s"]),
        count_in(row, "memory_mb"),
        _counts(row, "faults"),
        _counts(row, "coverage"),
        Counter({word: count_in(row, word) for word in FINDINGS}),
        [Failing(each["seed"], each["found_as"], each["violation"], each["setting"]) for each in row["failing"]],
    )
    return Block(seeds, str(row["code"]), str(row["python"]), str(row["machine"]), tally)


def _counts(row: Mapping[str, Any], key: str) -> Counter[str]:
    return Counter({name: count_in(row[key], name) for name in row[key]})


BLOCKS = Codec("block of seeds", Block.as_json, _block)
"""What a line of this ledger is."""


def blocks_ledger(path: Path) -> Ledger[Block]:
    """The ledger of a campaign, to be continued."""
    return Ledger(path, BLOCKS)


def read_ledger(path: Path) -> list[Block]:
    """The blocks of a ledger; none where there is no file. Raises LedgerError."""
    return read_rows(path, BLOCKS)
