"""The example of side effects in a processor: each payment is added once in each database."""

from __future__ import annotations

import runpy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.client.store_world import Database, new_postgres_database
from tests.node.node_process import NodeProcess
from tests.spark.sink_recorder import Recorder
from tests.spark.spark_helpers import QUERY_S, Names, RouterChild, forget_last_commit, node_options, publish
from tests.support.postgres import running_postgresql

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PAYMENTS = list(range(1, 41))


@pytest.fixture(scope="module")
def postgresql() -> Iterator[str]:
    with running_postgresql() as address:
        yield address


def interrupted(function: Callable[[Any], None], gone: str) -> Callable[[Any], None]:
    """The function, which fails once after its effects, at the payment 20: after the crash it is called again."""

    def call(delivery: Any) -> None:
        function(delivery)
        if delivery.message.body == b"20" and not Path(gone).exists():
            Path(gone).touch()
            raise OSError("killed after the effects")

    return call


def check(database: Database) -> None:
    """Every payment once, and the sum is right."""
    rows = database.rows("SELECT amount FROM payments ORDER BY amount")
    assert [amount for (amount,) in rows] == PAYMENTS
    assert database.rows("SELECT amount FROM total") == [(sum(PAYMENTS),)]


@pytest.fixture
def add_up(
    spark: Any, router: RouterChild, node: NodeProcess, names: Names, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Database]:
    """Runs the example over payments with a crash after effects, and another before Spark notes that all is done."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    example = runpy.run_path(str(EXAMPLES / "spark_processor.py"))
    sqlite = Database("sqlite", str(tmp_path / "totals.db"))

    def run(postgres: str) -> Database:
        from dataclasses import replace

        made = example["payments_processor"](
            spark,
            node_options(node),
            str(tmp_path / "checkpoint"),
            topic=names.payments,
            errors=names.errors,
            name=names.p,
            sqlite=sqlite.address,
            postgres=postgres,
        )
        function = interrupted(made.step.function, str(tmp_path / "gone"))
        made = replace(made, step=replace(made.step, function=function))

        def available() -> None:
            query = made.start(available_now=True)
            try:
                assert query.awaitTermination(QUERY_S)
            finally:
                query.stop()

        available()  # subscribes
        with Recorder(router.url, names.errors) as errors:
            publish(router.url, names.payments, [str(amount) for amount in PAYMENTS] + ["no number"])
            available()  # a task fails after its effects and is tried again
            forget_last_commit(tmp_path / "checkpoint")
            available()
            errors.wait(lambda found: len(found) == 1)
        assert (tmp_path / "gone").exists()
        return sqlite

    return run


@pytest.mark.spark
@pytest.mark.needs("postgresql")
def test_the_example_of_a_processor_adds_each_payment_once_in_both_databases(
    add_up: Callable[[str], Database], postgresql: str
) -> None:
    postgres = new_postgres_database(postgresql)
    check(add_up(postgres.address))
    check(postgres)
