"""The program of docs/how-to/spark-tables.md, as it stands there but for addresses, folders and the size of batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from oncewire.client.delivery_hash import delivery_hash
from tests.client.store_world import Database, new_postgres_database
from tests.docs.code_blocks import ROOT, blocks_of
from tests.spark.crash_plan import Job, until
from tests.spark.journal_edge import JournalEdge
from tests.spark.spark_helpers import checkpoint_batches, forget_last_commit
from tests.support.postgres import running_postgresql

THIS = "tests/spark/test_tables_page.py"
BLOCKS = [block.text for block in blocks_of(ROOT / "docs/how-to/spark-tables.md") if block.run_by == THIS]
ROWS = 1200
KILLED_AT = (200, 600)
"""Rows in the table: the program is at work then."""
MAX_LIVES = 10
"""Four, and those that Spark itself ends: the program is started again then, as its page says."""


@pytest.fixture
def database() -> Iterator[Database]:
    with running_postgresql() as server:
        yield new_postgres_database(server)


def program_of_the_page(edge: JournalEdge, database: Database, folder: Path) -> Path:
    text = "\n".join(BLOCKS)
    for here, there in (
        ("http://127.0.0.1:7074", edge.url),
        ("host=127.0.0.1 dbname=shop", database.address),
        ('f"orders/', f'f"{folder}/orders/'),
        ('f"checkpoints/', f'f"{folder}/checkpoints/'),
        ('"100000"', '"100"'),
    ):
        assert here in text
        text = text.replace(here, there)
    path = folder / "tables.py"
    path.write_text(text)
    return path


def rows_of_files(folder: Path) -> list[tuple[str, str]]:
    """What a program that is not Spark sees in them."""
    import pyarrow.parquet as pq

    tables = [pq.read_table(path) for path in folder.glob("batch=*/*.parquet")]
    found = [row for table in tables for row in table.select(["delivery_hash", "text"]).to_pylist()]
    return sorted((row["delivery_hash"], row["text"]) for row in found)


def is_killed(life: Job, is_at_work: Callable[[], bool]) -> bool:
    """Kill the program when it is at work; False when Spark has ended it before."""
    with running(life):
        until(lambda: life.is_over() or is_at_work(), "neither at work nor over")
        if life.is_over():
            assert not life.ends_in_order(), "it was done before it was to be killed"
            return False
    life.check_end(dies=True)
    return True


def run_to_the_end(lives: Iterator[Job]) -> None:
    """Start the program until it ends in order."""
    for life in lives:
        with running(life):
            if life.ends_in_order():
                return
    raise AssertionError(f"Spark ended all of {MAX_LIVES} lives")


@contextmanager
def running(life: Job) -> Iterator[None]:
    """A life of the program; nothing of it is left behind the block."""
    life.start()
    try:
        yield
    finally:
        life.end()


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.needs("postgresql")
def test_rows_are_once_in_the_table_and_in_the_files_though_the_program_is_killed_and_batches_are_repeated(
    database: Database, tmp_path: Path
) -> None:
    name = "orders-to-tables"

    def count() -> int:
        return int(database.rows("SELECT count(*) FROM orders")[0][0]) if has_table() else 0

    def has_table() -> bool:
        return bool(database.rows("SELECT to_regclass('orders') IS NOT NULL")[0][0])

    with JournalEdge(tmp_path) as edge:
        edge.make("orders")
        edge.append_numbers("orders", 0, ROWS)
        program = program_of_the_page(edge, database, tmp_path)
        lives = iter([Job(tmp_path, number, [program], None, {}) for number in range(MAX_LIVES)])
        for rows in KILLED_AT:
            while not is_killed(next(lives), lambda rows=rows: count() >= rows):  # type: ignore[misc]
                pass
        run_to_the_end(lives)
        # As if it had been killed between a batch's effects and Spark's own note of it.
        checkpoints = [tmp_path / "checkpoints" / each for each in ("to_database", "to_files")]
        repeated = [forget_last_commit(checkpoint) for checkpoint in checkpoints]
        run_to_the_end(lives)
    assert [checkpoint_batches(checkpoint)[-1] for checkpoint in checkpoints] == repeated
    expected = sorted((delivery_hash(name, {"orders": offset}), str(offset - 1)) for offset in range(1, ROWS + 1))
    assert sorted(database.rows("SELECT delivery_hash, text FROM orders")) == expected
    assert rows_of_files(tmp_path / "orders") == expected
