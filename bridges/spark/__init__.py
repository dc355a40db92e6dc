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
