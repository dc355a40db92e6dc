"""Processors in real Spark queries, through a real router and a real bridge node.

What can be shown without a JVM is in test_processor_core.py and test_processor_recovery.py.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oncewire.client.delivery_hash import delivery_hash
from oncewire.wire import Symbol
from tests.node.node_process import NodeProcess, running_node
from tests.spark.sink_recorder import Received, Recorder
from tests.spark.spark_helpers import (
    QUERY_S,
    Names,
    RouterChild,
    checkpoint_batches,
    forget_last_commit,
    node_options,
    publish,
)

pytestmark = pytest.mark.spark

HASH = Symbol("x-opt-topic-delivery-hash")


@pytest.fixture
def make(spark: Any, node: NodeProcess, names: Names, tmp_path: Path) -> Callable[..., Any]:
    """Makes a processor of two inputs, `names.a` and `names.b`; always the same one."""
    from bridges.spark.processor import processor

    def made(fn: Any, **more: Any) -> Any:
        arguments: dict[str, Any] = {
            "inputs": [names.a, names.b],
            "output": names.out,
            "error": names.errors,
            "name": names.p,
            "checkpoint": str(tmp_path / "checkpoint"),
            "options": node_options(node),
            "tasks": 2,
        }
        return processor(spark, fn=fn, **(arguments | more))

    return made


def run(made: Any) -> Any:
    """Run over everything that is there now."""
    query = made.start(available_now=True)
    try:
        assert query.awaitTermination(QUERY_S), "the query did not end"
    finally:
        query.stop()
    return query


def forget_offsets(checkpoint: Path) -> None:
    """As if the newest file of the offset log had not reached the disk before the power failed."""
    last = max(int(path.name) for path in (checkpoint / "offsets").iterdir() if path.name.isdigit())
    for folder in ("offsets", "commits"):
        (checkpoint / folder / str(last)).unlink(missing_ok=True)
        (checkpoint / folder / f".{last}.crc").unlink(missing_ok=True)


def received(recorder: Recorder, count: int) -> list[Received]:
    """What has come when there are so many."""
    return recorder.wait(lambda found: len(found) >= count)


def hashes(received: list[Received]) -> list[object]:
    """What the messages carry."""
    return [each.message.annotations[HASH] for each in received]


def recomputed(node: NodeProcess, names: Names, subscriptions: dict[str, str], position: int) -> str:
    """The delivery hash from the processor's name and positions alone."""
    with node.connect() as client:
        places = {
            topic: f"{client.offsets(subscription).journal}:{position}" for topic, subscription in subscriptions.items()
        }
    return delivery_hash(names.p, places)


def counted(query: Any) -> dict[str, int]:
    """What Spark's progress says about all batches of a run."""
    totals: dict[str, int] = {}
    for progress in query.recentProgress:
        for name, value in progress.observedMetrics["processor"].asDict().items():
            totals[name] = totals.get(name, 0) + value
    return totals


def test_the_nth_messages_of_each_input_are_processed_together_and_once(
    make: Callable[..., Any], router: RouterChild, node: NodeProcess, names: Names, tmp_path: Path
) -> None:
    def pair(delivery: Any) -> bytes | None:
        import secrets

        a, b = (message.body for message in delivery.messages.values())
        if a == b"a1":
            raise ValueError("a1 is wrong")
        return None if a == b"a2" else b"%s|%s#%s" % (a, b, secrets.token_hex(4).encode())

    run(make(pair, join="zip"))  # subscribes
    with Recorder(router.url, names.out) as out, Recorder(router.url, names.errors) as errors:
        publish(router.url, names.a, ["a0", "a1", "a2", "a3", "a4"])
        publish(router.url, names.b, ["b0", "b1", "b2", "b3"])
        query = run(make(pair, join="zip"))
        assert counted(query) == {"outputs": 2, "errors": 1, "nothing": 1, "failed": 1}
        # Killed between the sink's commit and Spark's note of it: computed again, differently and in one task.
        for _ in range(2):
            forget_last_commit(tmp_path / "checkpoint")
            publish(router.url, names.a, ["more"])
            run(make(pair, join="zip", tasks=1))
        publish(router.url, names.b, ["b4"])
        run(make(pair, join="zip"))
        got, wrong = received(out, 3), received(errors, 1)
    assert [each.text.partition("#")[0] for each in got] == ["a0|b0", "a3|b3", "a4|b4"]
    subscriptions = {names.a: f"{names.p}.0", names.b: f"{names.p}.1"}
    assert hashes(got) == [recomputed(node, names, subscriptions, position) for position in (1, 4, 5)]
    assert hashes(wrong) == [recomputed(node, names, subscriptions, 2)]
    assert json.loads(wrong[0].text)["text"] == "a1 is wrong"


def test_a_retry_of_alts_reads_the_input_that_was_chosen_whatever_has_come_since(
    make: Callable[..., Any], router: RouterChild, node: NodeProcess, names: Names, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    calls, away = tmp_path / "calls", tmp_path / "away"

    def echo(delivery: Any) -> bytes:
        ((topic, message),) = delivery.messages.items()
        with calls.open("a") as file:
            file.write(f"{delivery.delivery_hash} {topic} {message.body.decode()}\n")
        if away.exists():
            raise OSError("the database is away")
        return bytes(message.body)

    more = {"join": "alts", "handled": (ValueError,), "max_steps": 1}
    run(make(echo, **more))
    away.touch()
    publish(router.url, names.b, ["b1"])
    for number in range(2):
        with pytest.raises(StreamingQueryException, match="the database is away"):
            run(make(echo, **more))
        publish(router.url, names.a, [f"a{number}"])
        if number:
            forget_offsets(tmp_path / "checkpoint")
    tried = set(calls.read_text().split("\n")) - {""}
    key = recomputed(node, names, {names.b: names.p}, 1)
    assert tried == {f"{key} {names.b} b1"}
    away.unlink()
    with Recorder(router.url, names.out) as out:
        run(make(echo, **more))
        got = received(out, 3)
    assert [each.text for each in got] == ["b1", "a0", "a1"]
    assert hashes(got)[0] == key


def test_a_handled_error_without_error_topic_is_counted_and_delivered(
    make: Callable[..., Any], router: RouterChild, names: Names, tmp_path: Path
) -> None:
    def fails(_: Any) -> bytes:
        raise ValueError("wrong")

    more = {"inputs": [names.a], "error": None}
    run(make(fails, **more))
    publish(router.url, names.a, ["a0", "a1"])
    query = run(make(fails, **more))
    assert counted(query) == {"outputs": 0, "errors": 0, "nothing": 2, "failed": 2}
    batches = checkpoint_batches(tmp_path / "checkpoint")
    run(make(fails, **more))
    assert checkpoint_batches(tmp_path / "checkpoint") == batches


def test_run_forever_starts_again_until_it_goes_well_and_ends_when_asked(
    make: Callable[..., Any], router: RouterChild, names: Names, tmp_path: Path
) -> None:
    from bridges.spark.processor_restart_core import BackOff

    tries = tmp_path / "tries"

    def third_time(delivery: Any) -> bytes:
        with tries.open("a") as file:
            file.write("x")
        if len(tries.read_text()) < 5:  # Spark itself tries a task twice
            raise OSError("away")
        return bytes(delivery.message.body)

    more = {"inputs": [names.a], "handled": ()}
    run(make(third_time, **more))
    publish(router.url, names.a, ["a0"])
    stop = threading.Event()
    made = make(third_time, **more)
    runner = threading.Thread(target=made.run_forever, args=(stop,), kwargs={"back_off": BackOff(0.01, 0.01)})
    with Recorder(router.url, names.out) as out:
        runner.start()
        got = received(out, 1)
        stop.set()
        runner.join(QUERY_S)
    assert not runner.is_alive()
    assert [each.text for each in got] == ["a0"]
    assert len(tries.read_text()) == 5


def test_run_forever_gives_up_where_a_restart_cannot_help(
    make: Callable[..., Any], router: RouterChild, names: Names, tmp_path: Path
) -> None:
    from pyspark.errors import PySparkException

    more = {"inputs": [names.a]}
    run(make(lambda delivery: delivery.message.body, **more))
    publish(router.url, names.a, ["a0"])
    run(make(lambda delivery: delivery.message.body, **more))
    other = make(lambda _: None, checkpoint=str(tmp_path / "other"), **more)
    publish(router.url, names.a, ["a1"])
    with pytest.raises(PySparkException, match=r"bridges\.node\.errors\.(OwnedByAnother|SnapshotUnknown)") as caught:
        other.run_forever()
    first_line = str(caught.value).partition("\n")[0]
    assert first_line.startswith(f"processor {names.p} failed: bridges.node.errors.")


def test_the_log_of_a_failure_names_its_cause_in_the_first_line(
    make: Callable[..., Any], router: RouterChild, names: Names, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from bridges.spark.processor_restart_core import BackOff

    tries = tmp_path / "tries"

    def bad_luck(delivery: Any) -> bytes:
        import os
        import signal

        with tries.open("a") as file:
            file.write("x")
        tried = len(tries.read_text())
        if tried <= 2:  # Spark itself tries a task twice
            raise OSError("the database is away")
        if tried <= 4:
            os.kill(os.getpid(), signal.SIGKILL)
        return bytes(delivery.message.body)

    more = {"inputs": [names.a], "handled": ()}
    run(make(bad_luck, **more))
    publish(router.url, names.a, ["a0"])
    stop = threading.Event()
    runner = threading.Thread(
        target=make(bad_luck, **more).run_forever, args=(stop,), kwargs={"back_off": BackOff(0.01, 0.01)}
    )
    with Recorder(router.url, names.out) as out:
        runner.start()
        assert [each.text for each in received(out, 1)] == ["a0"]
        stop.set()
        runner.join(QUERY_S)
    lines = [record.getMessage() for record in caplog.records if "starts again" in record.getMessage()]
    away = f"processor {names.p} failed: OSError: the database is away (processor {names.p}: delivery "
    assert lines[0].startswith(away)
    assert lines[1].startswith(f"processor {names.p} failed: a Python worker of Spark crashed")


def test_a_function_sends_to_several_topics_in_one_decision(
    make: Callable[..., Any], router: RouterChild, names: Names, tmp_path: Path
) -> None:
    # Strings only: Spark's worker gets the function, and cannot import the class of `names`.
    once, twice = names.out, names.more

    def split(delivery: Any) -> Any:
        body = bytes(delivery.message.body)
        return {once: body, twice: [body + b"1", body + b"2"]}

    more = {"inputs": [names.a], "output": [names.out, names.more]}
    run(make(split, **more))
    publish(router.url, names.a, ["a", "b"])
    with Recorder(router.url, names.out) as out, Recorder(router.url, names.more) as also:
        query = run(make(split, **more))
        assert counted(query)["outputs"] == 6
        forget_last_commit(tmp_path / "checkpoint")
        run(make(split, **more))
        got, rest = received(out, 2), received(also, 4)
    assert [each.text for each in got] == ["a", "b"]
    assert [each.text for each in rest] == ["a1", "a2", "b1", "b2"]
    assert hashes(rest) == [hashes(got)[0]] * 2 + [hashes(got)[1]] * 2


@pytest.mark.parametrize(
    ("guarantee", "calls", "outputs"), [("exactly-once", 2, 1), ("at-least-once", 2, 2), ("at-most-once", 1, 1)]
)
def test_each_guarantee_calls_and_publishes_as_it_says_when_a_batch_is_run_again(
    make: Callable[..., Any],
    router: RouterChild,
    names: Names,
    tmp_path: Path,
    guarantee: str,
    calls: int,
    outputs: int,
) -> None:
    """The driver is killed behind the decision, before Spark has noted it."""
    called = tmp_path / "called"

    def count(delivery: Any) -> bytes:
        with called.open("a") as file:
            file.write("x")
        return bytes(delivery.message.body)

    keeping = running_node(tmp_path / "keeping", [router.url], "defaults.retention_s = 3600\n")
    with keeping as keeping_node, Recorder(router.url, names.out) as out:
        more = {"inputs": [names.a], "options": {**node_options(keeping_node), "deliveryGuarantee": guarantee}}
        run(make(count, **more))
        publish(router.url, names.a, ["a0"])
        run(make(count, **more))
        forget_last_commit(tmp_path / "checkpoint")
        run(make(count, **more))
        publish(router.url, names.a, ["end"])
        run(make(count, **more))
        got = out.wait(lambda found: [each.text for each in found][-1:] == ["end"])
    assert [each.text for each in got] == ["a0"] * outputs + ["end"]
    assert called.read_text() == "x" * (calls + 1)
