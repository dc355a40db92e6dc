"""A Spark session for tests: it starts soon, on one machine, and leaves nothing outside its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bridges.spark.java import session_builder

JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
"""Java compiles less, which halves the time until a session is there and costs a third of its speed later."""


def short_session(name: str, master: str, folder: Path, memory: str) -> Any:
    """The session; `memory` is the driver's, such as ``512m``."""
    spark = (
        session_builder(name, master)
        .config("spark.driver.memory", memory)
        .config("spark.driver.extraJavaOptions", JAVA_OPTIONS)
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.streaming.pollingDelay", "5ms")
        .config("spark.sql.streaming.stopTimeout", "60s")
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark
