"""Spark Structured Streaming reads topics and publishes to them: `format("oncewire")`.

    from bridges.spark import register

    register(spark)
    spark.readStream.format("oncewire").option("subscribe", "orders").option("subscription", "billing")...
    frame.writeStream.format("oncewire").option("topic", "invoices")...

A thin layer over a bridge node (`bridges.node`), which keeps what was received and what is to be published.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_QUERY_ID = "sql.streaming.queryId"
"""What Spark calls it in the properties of a thread that runs a query."""
_CONNECTIONS = "spark.oncewire."
"""What the session's settings of connections begin with."""


def register(spark: Any) -> None:
    """Make the format `oncewire` known to a session, also as `amqp`.

    Spark finds `oncewire` by itself where the driver's Python has this package installed (`pyspark_oncewire`).

    Raises:
        BadRequest: this version of Spark cannot be used.
    """
    from bridges.spark.data_source import AmqpDataSource, OncewireDataSource
    from bridges.spark.java import check_spark

    check_spark(spark.version)
    for kind in (AmqpDataSource, OncewireDataSource):
        spark.dataSource.register(kind)


def connection(spark: Any, name: str) -> dict[str, str]:
    """The options of a connection that the session's configuration has: `spark.oncewire.NAME.OPTION` for each.

        --conf spark.oncewire.shop.edge=https://edge:7074 --conf spark.oncewire.shop.edge.tokenFile=/etc/token

        spark.readStream.format("oncewire").options(**connection(spark, "shop")).option("journal", "orders")...

    A source of journals takes other options than a sink: give each a connection of its own.

    Args:
        spark: the session. Spark Connect hides settings with secret, password or token in their names: add those.
        name: of the connection, without dots.

    Raises:
        BadRequest: the configuration has no such connection.
    """
    begin = f"{_CONNECTIONS}{name}."
    settings: Mapping[str, str] = spark.conf.getAll
    found = {key.removeprefix(begin): value for key, value in settings.items() if key.startswith(begin)}
    if found:
        return found
    from bridges.node.errors import BadRequest

    names = sorted({key.removeprefix(_CONNECTIONS).split(".")[0] for key in settings if key.startswith(_CONNECTIONS)})
    raise BadRequest(
        f"there is no connection {name!r}",
        f"the session's configuration has {', '.join(names) or 'none'}",
        f"set {begin}edge or {begin}bridge, as with --conf of spark-submit, or give the options themselves",
    )


def publish_batches(options: Mapping[str, str]) -> Callable[[Any, int], None]:
    """A function for `foreachBatch` that publishes each batch once, for output modes that a topic does not have.

        counts.writeStream.outputMode("update").foreachBatch(publish_batches({**NODE, "topic": "counts"}))...

    In the mode `update` it publishes the rows that have changed, in `complete` all rows again with each batch. A batch
    that Spark runs again is published as it was first decided. Without `sinkId` the query's id is the sink's name.

    Args:
        options: of the sink, but for `batchId` and `queryId`.
    """
    given = dict(options)

    def publish(frame: Any, batch: int) -> None:
        writer = frame.write.format("oncewire").mode("append").option("batchId", str(batch))
        context = getattr(frame.sparkSession, "_sc", None)  # none with Spark Connect
        query = None if context is None else context.getLocalProperty(_QUERY_ID)
        if query is not None:
            writer = writer.option("sinkId", query).option("queryId", query)
        writer.options(**given).save()

    return publish
