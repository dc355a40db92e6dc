"""The page of edges: its file of settings runs, and its tables are the code's."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridges.edge import reference
from bridges.edge.metrics import GAUGES
from bridges.edge.settings_loading import load
from bridges.workqueue import Queue
from oncewire.client import connect
from tests.docs.code_blocks import ROOT, blocks_of
from tests.edge.edge_process import LONG_S, running_edge
from tests.router.processes import RouterProcess

PAGE = ROOT / "docs" / "edges.md"
MONITORING = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")


def test_the_tables_of_settings_are_those_of_the_code() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert reference.with_reference(text) == text, "run `python -m bridges.edge.reference`"


def test_every_metric_of_an_edge_stands_in_the_table_of_monitoring() -> None:
    code = (ROOT / "bridges/edge/metrics.py").read_text(encoding="utf-8")
    assert [name for name in GAUGES if f"`oncewire_edge_part_{name}`" not in MONITORING] == []
    assert '"oncewire_edge_ready"' in code
    assert "`oncewire_edge_ready`" in MONITORING


def test_the_edge_of_the_page_of_queues_serves_them_at_two_routers(tmp_path: Path) -> None:
    page = ROOT / "docs" / "workqueue.md"
    (text,) = [block.text for block in blocks_of(page) if block.run_by == "tests/edge/test_page.py"]
    (tmp_path / "edge.toml").write_text(text)
    found = load(str(tmp_path / "edge.toml"), {}, {})
    assert [part.key for part in found.parts] == [("queue", "mails")]
    assert len(found.values["edge.routers"]) == 2


@pytest.mark.timeout(300)
async def test_the_edge_of_the_page_makes_items_of_messages(tmp_path: Path, router: RouterProcess) -> None:
    (text,) = [block.text for block in blocks_of(PAGE) if block.run_by == "tests/edge/test_page.py"]
    store = f"sqlite:///{tmp_path}/edge.db"
    text = text.replace("amqp://127.0.0.1:5672", router.url).replace("sqlite:///edge.db", store)
    async with running_edge(tmp_path / "edge.toml", text), connect(router.url) as client:
        publisher = await client.publisher("shop.orders")
        assert (await publisher.send(b'{"to": "ada@example.org"}', timeout=LONG_S)).is_accepted
        async with Queue.open(store, "mails") as queue, queue.reserve(wait=LONG_S) as item:
            assert item.json == {"to": "ada@example.org"}
