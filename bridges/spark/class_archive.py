"""Spark's classes, loaded and checked beforehand: a JVM that maps this archive starts with half the CPU time.

    python -m bridges.spark.class_archive

makes it for the Python environment it runs in, in half a minute and 170 MB; `make tools` does so. Sessions with
`quick_start` use it where it is there. Java calls it a dynamic archive for class data sharing. It belongs to one Java
and one Spark; with others Java passes it over by itself.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bridges.node.errors import BadRequest, NodeError

END_S = 300.0
"""Java writes the archive when it ends; a machine that is busy with others needs minutes."""
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"
"""An archive of another Java is ignored silently."""


def archive_path() -> Path:
    """Where the archive of this Python environment is, if it has one."""
    return Path(sys.prefix) / "share" / "oncewire" / "spark-classes.jsa"


def sharing_options(archive: Path) -> str:
    """Options of Java to use an archive; none if it is not there."""
    return f'"-XX:SharedArchiveFile={archive}" -Xshare:auto {_QUIET}' if archive.exists() else ""


def make(archive: Path) -> None:
    """Run a small streaming query and keep the classes it needed.

    Raises:
        BadRequest: there is no Java, or it cannot write the archive.
    """
    from bridges.spark.java import QUICK_START, session_builder

    # Under another name first: Java would end with a bus error over a part of an archive.
    new = archive.with_suffix(".new")
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        new.unlink(missing_ok=True)
    except OSError as error:
        raise BadRequest(f"{archive} cannot be written", str(error), "use an environment of your own") from error
    with tempfile.TemporaryDirectory(prefix="oncewire-classes-") as name:
        folder = Path(name)
        spark = (
            session_builder("classes", "local[2]")
            .config("spark.driver.extraJavaOptions", f'{QUICK_START} "-XX:ArchiveClassesAtExit={new}" {_QUIET}')
            .config("spark.local.dir", str(folder / "local"))
            .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
            .getOrCreate()
        )
        spark.sparkContext.setLogLevel("ERROR")
        _run_query(spark, folder)
        _end(spark)
    if not new.exists():
        raise BadRequest("Spark's classes cannot be archived", "Java has not written them", "continue without")
    new.replace(archive)


def _run_query(spark: Any, folder: Path) -> None:
    """What the queries of tests and demos have in common."""
    from bridges.spark import register

    register(spark)
    (folder / "in").mkdir()
    (folder / "in" / "lines").write_text("one\ntwo\n")
    lines = spark.readStream.format("text").load(str(folder / "in")).repartition(2)
    rows = lines.selectExpr("to_json(struct(split(value, ',')[0] AS word, rand() AS chance)) AS value")
    rows = rows.mapInArrow(_unchanged, "value string")
    query = (
        rows.writeStream.format("noop")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    query.stop()


def _unchanged(batches: Any) -> Any:
    yield from batches


def _end(spark: Any) -> None:
    """End the session, and wait until its Java has ended, which it does when this process lets go of it."""
    gateway = spark.sparkContext._gateway  # noqa: SLF001  # the only way to its process
    spark.stop()
    gateway.shutdown()
    process: subprocess.Popen[bytes] = gateway.proc
    assert process.stdin is not None
    process.stdin.close()
    process.wait(END_S)


def main() -> int:
    """Make the archive of this environment."""
    try:
        make(archive_path())
    except NodeError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
