"""Tables of the catalog: `CREATE TABLE ... USING ... OPTIONS (...)`.

Spark hands the options of a table to nobody but whoever states its columns. So they are noted there, with the first
column, and the table's readers and writers find them in the columns that Spark hands to them. No secret is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from bridges.node.errors import BadRequest
from bridges.spark.option_names import OF_TABLE
from bridges.spark.schema import HEADERS_COLUMN

NOTE = "oncewire.options"
"""Of the first column's metadata."""


def check_table(given: Mapping[str, str]) -> None:
    """Refuse options that a table would show to everybody.

    Raises:
        BadRequest: one of them is a secret.
    """
    for name, value in _of_table(given).items():
        if name in {"bridge.secret", "amqp.sasl.password"} or (name == "amqp.urls" and "@" in value):
            raise BadRequest(
                f"a table cannot have the option {name}" + " with a password" * (name == "amqp.urls"),
                "the catalog shows it to everybody",
                "use bridge.secretFile, or a temporary view",
            )


def noted_with(columns: tuple[tuple[str, str], ...], given: Mapping[str, str]) -> Any:
    """The columns of a table with its options; None = the options are not of a table."""
    options = _of_table(given)
    return _struct(columns, json.dumps(options)) if options else None


def options_with(schema: Any, given: Mapping[str, str]) -> dict[str, str]:
    """The options of a reader or writer; what it was given goes before those of its table."""
    noted = next((field.metadata[NOTE] for field in schema.fields if NOTE in (field.metadata or {})), "{}")
    return {**{OF_TABLE + name: value for name, value in json.loads(noted).items()}, **given}


def _of_table(given: Mapping[str, str]) -> dict[str, str]:
    return {name.removeprefix(OF_TABLE): value for name, value in given.items() if name.startswith(OF_TABLE)}


def _struct(columns: tuple[tuple[str, str], ...], note: str) -> Any:
    from pyspark.sql import types

    kinds = {
        "binary": types.BinaryType(),
        "string": types.StringType(),
        "int": types.IntegerType(),
        "bigint": types.LongType(),
        "timestamp": types.TimestampType(),
        HEADERS_COLUMN[1]: types.ArrayType(
            types.StructType(
                [types.StructField("key", types.StringType()), types.StructField("value", types.BinaryType())]
            )
        ),
        "map<string,string>": types.MapType(types.StringType(), types.StringType()),
    }
    fields = [types.StructField(name, kinds[kind]) for name, kind in columns]
    fields[0].metadata = {NOTE: note}
    return types.StructType(fields)
