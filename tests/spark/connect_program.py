"""A client of Spark Connect, for test_connect.py: copies a topic with a query, and again with a processor.

The copies are read as a frame, as a table of the catalog and as a view; a listener hears of the query.

Spark finds the format by itself.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from bridges.spark import connection
from bridges.spark.java import prepare_java
from bridges.spark.listener import AmqpListener
from bridges.spark.processor import processor
from bridges.spark.progress import QueryReport
from tests.spark.spark_helpers import QUERY_S, publish_numbers, run_available


def end(query: Any) -> None:
    assert query.awaitTermination(QUERY_S)
    assert query.exception() is None, query.exception()


def main(url: str, bridge: str, secret: str, topic: str, copy: str, copies: str, folder: str) -> None:
    prepare_java()
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.remote("local[2]").config("spark.sql.shuffle.partitions", "1")
    spark = builder.config("spark.sql.warehouse.dir", f"{folder}/warehouse").getOrCreate()
    spark.conf.set("spark.oncewire.shop.bridge", bridge)
    node = {**connection(spark, "shop"), "bridge.secretFile": secret}  # Spark hides settings with such a name
    publish_numbers(url, topic, 0, 3)
    frame = spark.readStream.format("oncewire").options(**node, subscribe=topic, subscription=topic).load()
    reports: list[QueryReport] = []
    listener = AmqpListener(report=reports.append)
    spark.streams.addListener(listener)
    run_available(frame.select("value"), Path(folder) / "query", format="oncewire", **node, topic=copy)
    wait_for(reports)
    spark.streams.removeListener(listener)
    steps = processor(
        spark, [topic], brackets, copy, name=f"{topic}.p", checkpoint=f"{folder}/processor", options=node, tasks=None
    )
    end(steps.start(available_now=True))
    publish_numbers(url, topic, 0, 3)
    end(steps.start(available_now=True))
    rows = spark.read.format("oncewire").options(**node, subscription=copies).load().orderBy("offset").collect()
    options = ", ".join(f"'{key}' '{value}'" for key, value in {**node, "subscription": copies}.items())
    spark.sql(f"CREATE TABLE stored USING oncewire OPTIONS ({options})")
    spark.sql(f"CREATE TEMPORARY VIEW seen USING oncewire OPTIONS ({options})")
    counts = [spark.read.table("stored").count(), spark.sql("SELECT * FROM seen").count(), reports[0].rows]
    spark.sql("DROP TABLE stored")
    spark.stop()
    sys.stdout.write(" ".join(bytes(row.value).decode() for row in rows) + f" {counts}\n")


def wait_for(reports: list[QueryReport]) -> None:
    ends_at = time.monotonic() + QUERY_S
    while not reports:
        assert time.monotonic() < ends_at, "the listener was not called"
        time.sleep(0.05)


def brackets(delivery: Any) -> bytes:
    return b"<%s>" % bytes(delivery.message.body)


if __name__ == "__main__":
    main(*sys.argv[1:])
