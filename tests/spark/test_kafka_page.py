"""The program of docs/spark-kafka.md, as it stands there but for addresses and folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bridges.edge.settings_loading import load
from tests.docs.code_blocks import ROOT, blocks_of
from tests.spark.journal_edge import JournalEdge

BLOCKS = [
    block for block in blocks_of(ROOT / "docs/spark-kafka.md") if block.run_by == "tests/spark/test_kafka_page.py"
]


def test_the_edges_settings_of_the_page_are_understood(tmp_path: Path) -> None:
    (text,) = [block.text for block in BLOCKS if block.language == "toml"]
    (tmp_path / "edge.toml").write_text(text)
    assert [part.name for part in load(str(tmp_path / "edge.toml"), {}, {}).parts] == ["orders"]


@pytest.mark.spark
def test_the_program_of_the_page_reads_each_order_once_however_often_it_runs(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (program,) = [block.text for block in BLOCKS if block.language == "python"]
    with JournalEdge(tmp_path) as edge:
        edge.make("orders")
        edge.append_numbers("orders", 0, 1000)
        for here, there in (
            ("http://127.0.0.1:7074", edge.url),
            ('"checkpoints/', f'"{tmp_path}/checkpoints/'),
            ('"rows"', f'"{tmp_path}/rows"'),
        ):
            assert here in program
            program = program.replace(here, there)
        for new in (0, 0, 5):
            edge.append_numbers("orders", 0, new)
            exec(compile(program, "orders.py", "exec"), {})
    assert capsys.readouterr().out.splitlines() == [
        "1000 rows, 996 from offset 5 on",
        "1000 rows, 996 from offset 5 on",
        "1005 rows, 1001 from offset 5 on",
    ]
