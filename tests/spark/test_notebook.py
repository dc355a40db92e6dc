"""The notebook examples/spark_quickstart.ipynb does what it says, from its first cell to its last."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.docs.code_blocks import ROOT
from tests.spark.crash_plan import Job

NOTEBOOK = ROOT / "examples" / "spark_quickstart.ipynb"


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.needs("matplotlib")
def test_the_notebook_is_exact_over_a_kill_and_draws_its_run_and_leaves_nothing(tmp_path: Path) -> None:
    run = Job(tmp_path, 0, [Path(__file__).with_name("run_notebook.py"), NOTEBOOK], None, {})
    try:
        run.start()
        run.check_end(dies=False)
    finally:
        run.end()
    printed = run.log.read_text().splitlines()
    left = json.loads(printed[-1])
    assert (left["lost"], left["twice"]) == (0, 0)
    # The windows of 27 hours and 46 minutes that the watermark has closed, of four sensors.
    assert left["averages"] == 166 * 4
    # A batch is reported once for each time that it is run.
    assert left["rows"] >= 40_000
    assert left["behind"] >= 10_000
    assert left["plots"] == [["rows a second", "messages behind", "seconds of a batch"], ["degrees Celsius"]]
    assert left["folder_is_gone"]
    assert printed.index("the edge is killed") < printed.index("it is there again")
    assert any(line.startswith("query averages batch ") and "behind" in line for line in printed)
