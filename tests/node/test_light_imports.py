"""What Spark's workers import of a bridge node: there are several for each query, and they only talk to it."""

from __future__ import annotations

import subprocess
import sys

import pytest

OF_A_NODE = ("asyncio", "click", "sqlite3", "bridges.node.node", "bridges.node.outbox", "oncewire.client.connection")
"""What only a node itself needs."""


@pytest.mark.cold
@pytest.mark.parametrize("module", ["bridges.spark.options", "bridges.spark.staging", "bridges.spark.reading"])
def test_who_only_talks_to_a_node_imports_nothing_of_what_it_runs_on(module: str) -> None:
    program = f"import sys, {module}; print(*sys.modules, sep=chr(10))"
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    imported = done.stdout.split()
    assert module in imported
    assert sorted({*OF_A_NODE} & {*imported}) == []
