"""Ledgers of long runs: one line of JSON for each piece of work that is done, only ever appended to.

A run that was broken off may leave half a line at the end; it is cut off when the next run opens the ledger.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from chaos.options import DetailedError

Row = TypeVar("Row")


class LedgerError(DetailedError):
    """The ledger, or a file beside it, cannot be used."""


@dataclass(frozen=True, slots=True)
class Codec(Generic[Row]):
    """What the lines of a ledger are."""

    noun: str
    """What one line is about, as a noun for people."""
    encode: Callable[[Row], Mapping[str, object]]
    decode: Callable[[Mapping[str, Any]], Row]
    """Raises KeyError, ValueError or TypeError where the line is another thing."""


class Ledger(Generic[Row]):
    """A ledger that this process alone may append to. Use as a context manager.

    Raises:
        LedgerError: the file cannot be opened, another process has it, or a line is of another kind.
    """

    def __init__(self, path: Path, codec: Codec[Row]) -> None:
        self.path = path
        self.rows: list[Row] = []
        self._codec = codec
        self._file: int | None = None

    def __enter__(self) -> Self:
        """Open, lock and read it."""
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.rows, size = _parse(self.path, self.path.read_bytes(), self._codec)
            os.ftruncate(self._file, size)  # a torn last line goes
        except BlockingIOError:
            self._close()
            what = f"the ledger {self.path} cannot be continued"
            raise LedgerError(what, "another campaign is writing it", "wait for its end") from None
        except OSError as error:
            self._close()
            raise _not_opened(self.path, error) from None
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

    def append(self, row: Row) -> None:
        """Write a line down for good."""
        assert self._file is not None
        line = f"{json.dumps(self._codec.encode(row))}\n".encode()
        written = os.write(self._file, line)
        if written != len(line):
            what = f"the ledger {self.path} cannot be written"
            raise LedgerError(what, "the disk is full", "make room, and run again")
        os.fsync(self._file)
        self.rows.append(row)


def _not_opened(path: Path, error: OSError) -> LedgerError:
    fix = "run this in the project's folder, or give --state a file that you may write"
    return LedgerError(f"the ledger {path} cannot be opened", error.strerror or str(error), fix)


def read_ledger(path: Path, codec: Codec[Row]) -> list[Row]:
    """The lines of a ledger; none where its folder has no such file.

    Raises:
        LedgerError: there is no such folder, it cannot be read, or a line is of another kind.
    """
    try:
        return _parse(path, path.read_bytes(), codec)[0]
    except FileNotFoundError as error:
        if not path.parent.is_dir():
            raise _not_opened(path, error) from None
        return []
    except OSError as error:
        what = f"the ledger {path} cannot be read"
        raise LedgerError(what, error.strerror or str(error), "give --state a file that you may read") from None


def recorded(codes: dict[str, tuple[bool, bool]]) -> str:
    """The code version that a page is about: the last one with enough runs and no finding.

    Of newer code that was run less the page is only when that has found something; and where none has enough.

    Args:
        codes: the versions in the order in which they were run; whether each has enough, and whether it found nothing.
    """
    last = next(reversed(codes), "")
    if not last or not codes[last][1]:
        return last
    return next((code for code in reversed(codes) if codes[code] == (True, True)), last)


def replace_file(path: Path, text: str) -> None:
    """Write a file so that it is either the old one or the new one, never half of it.

    Raises:
        LedgerError: it cannot be written.
    """
    new = path.with_name(f".{path.name}.new")
    try:
        new.write_text(text, encoding="utf-8")
        new.replace(path)
    except OSError as error:
        fix = "make room, or give --state a folder that you may write"
        raise LedgerError(f"{path} cannot be written", error.strerror or str(error), fix) from None


def count_in(row: Mapping[str, Any], key: str) -> int:
    """A count of a line. Raises KeyError or ValueError where there is none."""
    value = row[key]
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"{key} is {value!r}, not a count")
    return value


def _parse(path: Path, data: bytes, codec: Codec[Row]) -> tuple[list[Row], int]:
    """Rows, and how many bytes they take: what follows the last line's end is a torn line."""
    whole, _, _ = data.rpartition(b"\n")
    rows = []
    for number, line in enumerate(whole.split(b"\n") if whole else [], 1):
        try:
            rows.append(codec.decode(json.loads(line)))
        except (ValueError, KeyError, TypeError) as error:
            why = f"it has no {error}" if isinstance(error, KeyError) else str(error)
            raise LedgerError(
                f"line {number} of the ledger {path} is no {codec.noun}",
                why,
                "take the line out, or restore the file; what is counted nowhere else will be run again",
            ) from None
    return rows, len(whole) + 1 if whole else 0
