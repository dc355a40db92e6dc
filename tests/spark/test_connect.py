"""Spark Connect: source, sink and processors, where the driver is a server and the program a client."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.node.node_process import NodeProcess
from tests.spark.spark_helpers import Names, RouterChild, node_options

PROJECT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.needs("spark-connect")]


def test_source_sink_processors_tables_and_listeners_work_with_spark_connect(
    router: RouterChild, node: NodeProcess, names: Names, tmp_path: Path
) -> None:
    """In a process of its own: there is one kind of session in a process."""
    with node.connect() as client:
        client.subscribe(names.copies, [names.copy])
        client.subscribe(names.topic, [names.topic])
    program = Path(__file__).with_name("connect_program.py")
    options = node_options(node)
    reached = (router.url, options["bridge"], options["bridge.secretFile"])
    done = subprocess.run(
        [sys.executable, "-P", str(program), *reached, names.topic, names.copy, names.copies, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.stdout.split("\n")[-2:] == ["0 1 2 <0> <1> <2> [6, 6, 3]", ""], done.stderr
