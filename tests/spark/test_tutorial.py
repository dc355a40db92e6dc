"""The programs of docs/tutorials/spark.md do what the page says, at a real router and a real bridge node."""

from __future__ import annotations

import re
import runpy
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.node.node_process import NodeProcess, running_node
from tests.spark.sink_recorder import Recorder
from tests.spark.spark_helpers import RouterChild, publish

pytestmark = pytest.mark.spark

PATIENCE_S = 200.0
"""Seconds that no query of the tutorial needs, on a machine that is busy with others, too."""
PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "spark.md"
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
        for reported, here in (
            (ADDRESS, f'"{tutorial_node.announced["tcp"]}"'),
            (SECRET, f'"{tutorial_node.announced["secret"]}"'),
            (CHECKPOINTS, f'"{tmp_path}/checkpoints/'),
        ):
            text = text.replace(reported, here)  # noqa: PLW2901
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


def until(condition: Callable[[], bool]) -> None:
    """Wait for what other processes bring about."""
    ends_at = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < ends_at, "it did not happen"
        time.sleep(0.05)


def run_until(spark: Any, program: Path, condition: Callable[[], bool]) -> None:
    """Run a program whose query has no end until it has brought something about: stopping its query ends it.

    It runs in this thread: another one has no active session, and Spark would not know its formats there.
    """
    is_over = threading.Event()
    failures: list[BaseException] = []

    def watch() -> None:
        try:
            until(lambda: condition() or is_over.is_set())
        except AssertionError as error:
            failures.append(error)
        while not is_over.wait(0.05):
            for query in spark.streams.active:
                query.stop()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        runpy.run_path(str(program), run_name="__main__")
    finally:
        is_over.set()
        watcher.join(PATIENCE_S)
    assert failures == []
    assert condition()


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("settings_stay")
def test_the_tutorial_does_what_it_says(
    spark: Any, router: RouterChild, programs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    orders = [f"order {number}" for number in range(1, 201)]
    expected = [f"invoice for {order}" for order in orders]
    with Recorder(router.url, "invoices") as invoices:
        publish(router.url, "orders", orders[:100])
        run_until(spark, programs["invoicing.py"], lambda: len(invoices.received) >= 100)
        publish(router.url, "orders", orders[100:])
        run_until(spark, programs["invoicing.py"], lambda: len(invoices.received) >= 200)
        for _ in range(2):
            runpy.run_path(str(programs["history.py"]), run_name="__main__")
        until(lambda: len(invoices.received) > 200)
        assert invoices.texts == [*expected, "correction of the invoice for order 7"]
    assert capsys.readouterr().out.count("200 orders\n") == 2
    with Recorder(router.url, "labels") as labels, Recorder(router.url, "bad-orders") as errors:
        publish(router.url, "orders", ["order nobody"])
        run_until(spark, programs["labels.py"], lambda: len(labels.received) >= 200 and len(errors.received) >= 1)
        assert sorted(labels.texts) == sorted(f"label {number}" for number in range(1, 201))
        assert len(errors.received) == 1
