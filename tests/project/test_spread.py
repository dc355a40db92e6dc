"""How a run is spread over its processes: `tests.support.spread`."""

from __future__ import annotations

import random

import pytest

from tests.support import spread

FILES = [path.relative_to(spread.TESTS.parent).as_posix() for path in sorted(spread.TESTS.rglob("test_*.py"))]


def test_each_process_reads_every_folder_once_and_begins_with_other_ones() -> None:
    folders = spread.folders_of_tests()
    for count in (1, 2, 3, 4):
        orders = [spread.reading_order(folders, number, count) for number in range(count)]
        assert all(sorted(order) == sorted(map(str, folders)) for order in orders)
        assert len({order[0] for order in orders}) == count


def test_shares_are_as_large_as_the_largest_folder_lets_them_be() -> None:
    dealt = spread.shares(spread.folders_of_tests(), 4)
    sizes = [sum(spread._bytes_in(folder) for folder in share) for share in dealt]
    assert max(sizes) < 1.3 * min(sizes)


def test_files_come_in_one_order_however_they_were_collected() -> None:
    mixed = random.Random(1).sample(FILES, len(FILES))
    assert spread.ordered(mixed) == spread.ordered(FILES)
    assert sorted(spread.ordered(mixed)) == FILES


def test_every_file_that_is_said_to_take_long_is_there_and_begins_early() -> None:
    known = [f"tests/{line}" for line in spread.LONGEST_FIRST.read_text(encoding="utf-8").split()]
    assert set(known) <= set(FILES)
    assert len(set(known)) == len(known)
    begun = spread.ordered(FILES)
    ours = {spread.unit_of(file) for file in known}
    assert {spread.unit_of(file) for file in begun[: len(known)]} <= ours
    assert begun[0] == known[0]


@pytest.mark.parametrize(
    ("folder", "inside", "outside"),
    [
        ("spark", "test_source_spark.py", "test_options.py"),
        ("topology", "test_etcd_stores.py", "test_linkstate.py"),
        ("conformance", "test_resume_tables.py", None),
    ],
)
def test_files_that_use_what_a_process_keeps_are_one_unit(folder: str, inside: str, outside: str | None) -> None:
    together = [file for file in FILES if spread.unit_of(file) == f"tests/{folder}"]
    assert f"tests/{folder}/{inside}" in together
    assert f"tests/{folder}/{outside}" not in together
    at = [spread.ordered(FILES).index(file) for file in together]
    assert max(at) - min(at) == len(together) - 1, "nothing comes between them"


def test_every_other_file_is_a_unit_of_its_own() -> None:
    kept = {f"tests/{folder}" for folder in spread.TOGETHER}
    others = [file for file in FILES if spread.unit_of(file) not in kept]
    assert [spread.unit_of(file) for file in others] == others
