"""Spark Structured Streaming reads topics and publishes to them: `format("amqp")`.

    from bridges.spark import register

    register(spark)
    spark.readStream.format("amqp").option("subscribe", "orders").option("subscription", "billing")...
    frame.writeStream.format("amqp").option("topic", "invoices")...

A thin layer over a bridge node (`bridges.node`), which keeps what was received and what is to be published.
"""

from __future__ import annotations

from typing import Any


def register(spark: Any) -> None:
    """Make the format `amqp` known to a session; needed once for each session.

    Raises:
        BadRequest: this version of Spark cannot be used.
    """
    from bridges.spark.data_source import AmqpDataSource
    from bridges.spark.java import check_spark

    check_spark(spark.version)
    spark.dataSource.register(AmqpDataSource)
