"""The campaign's ledger: one line of JSON for each block of seeds, only ever appended to.

A run that was broken off may leave half a line at the end; it is cut off when the next run opens the ledger.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from chaos.campaign.report import tally_as_json
from chaos.campaign.seeds import Seeds
from chaos.campaign.tally import FINDINGS, Failing, Tally, sum_up, without_folders

MAX_FAILING_IN_LINE = 50
"""Failing seeds written down for one block: whoever has more has no use for the others yet."""


class LedgerError(Exception):
    """The ledger cannot be used.

    Attributes:
        what: what could not be done.
        why: the reason.
        fix: what to do about it.
    """

    def __init__(self, what: str, why: str, fix: str) -> None:
        super().__init__(f"{what}: {why}")
        self.what, self.why, self.fix = what, why, fix


@dataclass(frozen=True, slots=True)
class Block:
    """Neighbouring seeds that were run with the same code."""

    seeds: Seeds
    code: str
    """`chaos.campaign.version.code_version`."""
    python: str
    machine: str
    tally: Tally

    def line(self) -> str:
        """The ledger's line, without its end."""
        failing = [
            {
                "seed": each.seed,
                "found_as": each.found_as,
                "violation": without_folders(each.violation),
                "setting": each.setting,
            }
            for each in self.tally.failing[:MAX_FAILING_IN_LINE]
        ]
        row = {
            "first_seed": self.seeds.first, "seeds": self.seeds.count, "code": self.code, "python": self.python,
            "machine": self.machine, **tally_as_json(self.tally), "virtual_s": round(self.tally.virtual_s, 3),
            "failing": failing,
        }  # fmt: skip
        return json.dumps(row)


class Ledger:
    """A ledger that this process alone may append to. Use as a context manager.

    Raises:
        LedgerError: the file cannot be opened, another process has it, or a line is no block.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.blocks: list[Block] = []
        self._file: int | None = None

    def __enter__(self) -> Self:
        """Open, lock and read it."""
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.blocks, size = _parse(self.path, self.path.read_bytes())
            os.ftruncate(self._file, size)  # a torn last line goes
        except BlockingIOError:
            self._close()
            what = f"the ledger {self.path} cannot be continued"
            raise LedgerError(what, "another campaign is writing it", "wait for its end") from None
        except OSError as error:
            self._close()
            what = f"the ledger {self.path} cannot be opened"
            fix = "run this in the project's folder, or give --state a file that you may write"
            raise LedgerError(what, error.strerror or str(error), fix) from None
        except LedgerError:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give it free."""
        self._close()

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def append(self, block: Block) -> None:
        """Write a block down for good."""
        assert self._file is not None
        line = f"{block.line()}\n".encode()
        written = os.write(self._file, line)
        if written != len(line):
            what = f"the ledger {self.path} cannot be written"
            raise LedgerError(what, "the disk is full", "make room, and run again")
        os.fsync(self._file)
        self.blocks.append(block)


def read_ledger(path: Path) -> list[Block]:
    """The blocks of a ledger; none where there is no file.

    Raises:
        LedgerError: it cannot be read, or a line is no block.
    """
    try:
        return _parse(path, path.read_bytes())[0]
    except FileNotFoundError:
        return []
    except OSError as error:
        what = f"the ledger {path} cannot be read"
        raise LedgerError(
            what, error.strerror or str(error), "give --state a file that you may read"
        ) from None


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


def _parse(path: Path, data: bytes) -> tuple[list[Block], int]:
    """Blocks, and how many bytes they take: what follows the last line's end is a torn line."""
    whole, _, _ = data.rpartition(b"\n")
    blocks = []
    for number, line in enumerate(whole.split(b"\n") if whole else [], 1):
        try:
            blocks.append(_block(json.loads(line)))
        except (ValueError, KeyError, TypeError) as error:
            why = f"it has no {error}" if isinstance(error, KeyError) else str(error)
            raise LedgerError(
                f"line {number} of the ledger {path} is no block of seeds", why,
                "take the line out, or get the file back from the repository; what it counted will be run again",
            ) from None  # fmt: skip
    return blocks, len(whole) + 1 if whole else 0


def _block(row: Mapping[str, Any]) -> Block:
    seeds = Seeds(_count(row, "first_seed"), _count(row, "seeds"))
    tally = Tally(
        seeds.count, _count(row, "attempted"), _count(row, "acknowledged"), _count(row, "deliveries"),
        _count(row, "steps"), float(row["virtual_s"]), float(row["cpu_s"]), _count(row, "memory_mb"),
        _counts(row, "faults"), _counts(row, "coverage"), Counter({word: _count(row, word) for word in FINDINGS}),
        [Failing(each["seed"], each["found_as"], each["violation"], each["setting"]) for each in row["failing"]],
    )  # fmt: skip
    return Block(seeds, str(row["code"]), str(row["python"]), str(row["machine"]), tally)


def _count(row: Mapping[str, Any], key: str) -> int:
    value = row[key]
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"{key} is {value!r}, not a count")
    return value


def _counts(row: Mapping[str, Any], key: str) -> Counter[str]:
    return Counter({name: _count(row[key], name) for name in row[key]})
