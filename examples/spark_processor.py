"""Adds up payments in SQLite and PostgreSQL with a Spark processor, each exactly once.

    oncewire bridge node --config node.toml
    python examples/spark_processor.py --bridge tcp://127.0.0.1:7072 --secret-file node/secret --checkpoint checkpoint \
        --topic payments --errors bad-payments --sqlite totals.db --postgres "host=127.0.0.1 dbname=totals"

The function may run again for a payment, with the same delivery hash. The databases are those of
`idempotent_effects.py`, which does the same without Spark: each keeps the hash in the transaction that adds the
payment. Tasks write to them, so on a cluster use PostgreSQL alone: a SQLite file is a file of one machine. A payment
that is no number goes to the topic of errors. A database that is away is no error of the message: it stops the query,
which starts again, later each time.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from idempotent_effects import Ledger, PostgresLedger, SqliteLedger

from bridges.spark.processor import Processor, processor
from bridges.spark.processor_core import Delivery


def open_ledgers(sqlite: str | None, postgres: str | None) -> list[Ledger]:
    """Connect to the databases, and make their tables if need be."""
    ledgers: list[Ledger] = []
    if sqlite is not None:
        ledgers.append(SqliteLedger(sqlite))
    if postgres is not None:
        import psycopg  # pip install "oncewire[postgres]"

        ledgers.append(PostgresLedger(psycopg.connect(postgres, autocommit=True)))
    return ledgers


def adding_up(sqlite: str | None, postgres: str | None) -> Callable[[Delivery], None]:
    """The processor's function; each task connects to the databases at its first payment."""
    opened: list[Ledger] = []

    def add_up(delivery: Delivery) -> None:
        amount = int(delivery.message.body)  # type: ignore[call-overload]  # ValueError = an error of the message
        if not opened:
            opened.extend(open_ledgers(sqlite, postgres))
        for ledger in opened:
            ledger.add(delivery.delivery_hash, amount)

    return add_up


def payments_processor(
    spark: Any,
    options: dict[str, str],
    checkpoint: str,
    *,
    topic: str = "payments",
    errors: str | None = None,
    name: str = "add-up-payments",
    sqlite: str | None = None,
    postgres: str | None = None,
) -> Processor:
    """The processor: payments in, nothing out but errors and what is in the databases."""
    open_ledgers(sqlite, postgres)  # makes the tables, before tasks would do so at the same time
    spark.sparkContext.addPyFile(str(Path(__file__).with_name("idempotent_effects.py")))
    return processor(
        spark,
        inputs=[topic],
        fn=adding_up(sqlite, postgres),
        output=None,
        error=errors,
        name=name,
        checkpoint=checkpoint,
        options=options,
        handled=(ValueError,),
    )


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bridge", required=True, help="address of the bridge node")
    parser.add_argument("--secret-file", required=True, help="with the node's secret")
    parser.add_argument("--checkpoint", required=True, help="a folder for Spark")
    parser.add_argument("--topic", default="payments")
    parser.add_argument("--errors", help="topic of payments that are no numbers")
    parser.add_argument("--sqlite", help="a file")
    parser.add_argument("--postgres", help="a connection string")
    given = parser.parse_args()
    from bridges.spark.java import session_builder

    spark = session_builder("payments", "local[2]").getOrCreate()
    payments_processor(
        spark,
        {"bridge": given.bridge, "bridge.secretFile": given.secret_file},
        given.checkpoint,
        topic=given.topic,
        errors=given.errors,
        sqlite=given.sqlite,
        postgres=given.postgres,
    ).run_forever()


if __name__ == "__main__":
    main()
