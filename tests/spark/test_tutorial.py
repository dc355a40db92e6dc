"""The programs of the tutorial in docs/spark.md do what the page says, at a real router and a real bridge node."""

from __future__ import annotations

import re
import runpy
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.node.node_process import NodeProcess, running_node
from tests.spark.sink_recorder import Recorder
from tests.spark.spark_helpers import QUERY_S, RouterChild, publish

pytestmark = pytest.mark.spark

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
PROGRAM = re.compile(r"[Ss]ave this as `(\w+\.py)`[^`]*```python\n(.*?)```", re.DOTALL)
ADDRESS, SECRET, CHECKPOINTS = '"tcp://127.0.0.1:7072"', '"node/secret"', '"checkpoints/'
CONFIGURED = """
[[subscription]]
name = "invoicing"
topics = ["orders"]
retention_s = 3600

[[subscription]]
name = "labels"
topics = ["orders"]
"""


@pytest.fixture
def tutorial_node(router: RouterChild, tmp_path: Path) -> Iterator[NodeProcess]:
    """A node with the subscriptions of the page."""
    assert CONFIGURED in PAGE.read_text(encoding="utf-8")
    with running_node(tmp_path / "node", [router.url], CONFIGURED) as process:
        with process.connect() as client:
            until(lambda: bool(client.status()["ready"]))  # what is published before belongs to nobody
        yield process


@pytest.fixture
def programs(tutorial_node: NodeProcess, tmp_path: Path) -> dict[str, Path]:
    """The programs of the page; only where things are is another place."""
    found = {}
    for name, text in PROGRAM.findall(PAGE.read_text(encoding="utf-8")):
        for told, here in (
            (ADDRESS, f'"{tutorial_node.announced["tcp"]}"'),
            (SECRET, f'"{tutorial_node.announced["secret"]}"'),
            (CHECKPOINTS, f'"{tmp_path}/checkpoints/'),
        ):
            text = text.replace(told, here)  # noqa: PLW2901
        found[name] = tmp_path / name
        found[name].write_text(text)
    return found


@pytest.fixture
def settings_stay(spark: Any) -> Iterator[None]:
    """Programs get the session of all tests, and change its settings."""
    name = "spark.sql.shuffle.partitions"
    before = spark.conf.get(name)
    yield
    spark.conf.set(name, before)


@contextmanager
def running(spark: Any, program: Path) -> Iterator[None]:
    """Run a program whose query has no end, for the time of the block; it ends when its query is stopped."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            runpy.run_path(str(program))
        except BaseException as error:  # noqa: BLE001  # told below
            failures.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ends_at = time.monotonic() + QUERY_S
        while thread.is_alive() and time.monotonic() < ends_at:
            for query in spark.streams.active:
                query.stop()
            thread.join(0.1)
    assert not thread.is_alive()
    assert failures == []


def until(condition: Callable[[], bool]) -> None:
    """Wait for what a program brings about; it first starts workers."""
    ends_at = time.monotonic() + QUERY_S
    while not condition():
        assert time.monotonic() < ends_at, "it did not happen"
        time.sleep(0.05)


@pytest.mark.usefixtures("settings_stay")
def test_the_tutorial_does_what_it_says(
    spark: Any, router: RouterChild, programs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    orders = [f"order {number}" for number in range(1, 201)]
    expected = [f"invoice for {order}" for order in orders]
    with Recorder(router.url, "invoices") as invoices:
        publish(router.url, "orders", orders[:100])
        with running(spark, programs["invoicing.py"]):
            until(lambda: len(invoices.received) >= 100)
        publish(router.url, "orders", orders[100:])
        with running(spark, programs["invoicing.py"]):
            until(lambda: len(invoices.received) >= 200)
        for _ in range(2):
            runpy.run_path(str(programs["history.py"]))
        until(lambda: len(invoices.received) > 200)
        assert invoices.texts == [*expected, "correction of the invoice for order 7"]
    assert capsys.readouterr().out.count("200 orders\n") == 2
    with Recorder(router.url, "labels") as labels, Recorder(router.url, "bad-orders") as errors:
        publish(router.url, "orders", ["order nobody"])
        with running(spark, programs["labels.py"]):
            until(lambda: len(labels.received) >= 200 and len(errors.received) >= 1)
        assert sorted(labels.texts) == sorted(f"label {number}" for number in range(1, 201))
        assert len(errors.received) == 1
