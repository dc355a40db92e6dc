"""What a call of Spark's leaves behind in its worker. A program of its own each time: the collector is a process's."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import gc, importlib, sys
from importlib.machinery import ModuleSpec
from bridges.spark.spark_calls import called_by_spark, end_quietly

@called_by_spark
class Reader:
    def plan(self, module):
        importlib.import_module(module)

    def read(self, module):
        importlib.import_module(module)
        yield 1

    def stop(self):
        end_quietly()

def frozen():
    print(gc.get_freeze_count())

sys.modules["__main__"].__spec__ = ModuleSpec({name!r}, None)
gc.unfreeze()
reader = Reader()
"""


def run(name: str, steps: str) -> subprocess.CompletedProcess[str]:
    """In a program that calls itself NAME, as Spark's workers do."""
    program = PROGRAM.format(name=name) + steps
    return subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=False)


def counts(name: str, steps: str) -> list[int]:
    done = run(name, steps)
    assert not done.returncode, done.stderr
    return [int(line) for line in done.stdout.split()]


@pytest.mark.parametrize("call", ["reader.plan({!r})", "list(reader.read({!r}))"])
def test_what_a_call_imports_is_left_out_of_the_collections_of_a_worker(call: str) -> None:
    steps = "".join(f"{call.format(module)}; frozen()\n" for module in ("fractions", "fractions", "wave"))
    first, second, third = counts("pyspark.daemon", steps)
    assert first > 1_000
    assert second == first  # it has imported nothing
    assert third > second


def test_the_collections_of_another_program_are_its_own() -> None:
    assert counts("orders.app", "reader.plan('fractions'); list(reader.read('wave')); frozen()") == [0]


ENDS = """
try:
    try:
        raise {error}
    finally:
        reader.stop()
except BaseException:
    sys.exit("Spark's own words")
"""


@pytest.mark.parametrize(
    ("name", "error", "code", "shown"),
    [
        ("pyspark.sql.streaming.python_streaming_source_runner", "EOFError", 0, ""),
        ("pyspark.sql.streaming.python_streaming_source_runner", "ValueError", 1, "Spark's own words\n"),
        ("orders.app", "EOFError", 1, "Spark's own words\n"),
    ],
    ids=["the driver has gone", "something fails", "another program"],
)
def test_a_worker_of_a_source_that_its_driver_leaves_ends_without_a_word(
    name: str, error: str, code: int, shown: str
) -> None:
    done = run(name, ENDS.format(error=error))
    assert (done.returncode, done.stderr) == (code, shown)
