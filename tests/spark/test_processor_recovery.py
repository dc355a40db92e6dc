"""Cues' persistence and recovery components, killed at every point, again and again, without a JVM.

Outputs are random, so that a mixture of two attempts would show; inputs get messages between a crash and its repeat.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridges.node.errors import BatchForgotten, JournalReplaced, RangeTrimmed, SnapshotUnknown
from bridges.spark.option_values import Guarantee
from bridges.spark.processor_core import Delivery, Step
from bridges.spark.processor_join_core import Join
from bridges.spark.processor_reader import aligned
from tests.spark.processor_life import NAME, POINTS, Killed, World, hash_in
from tests.support.effort import rounds

INPUTS = ("a", "b")


class Functions:
    """The user's code, which notes what it was called with."""

    def __init__(self) -> None:
        self.seen: dict[str, set[tuple[tuple[str, bytes], ...]]] = defaultdict(set)
        self.calls: list[tuple[tuple[str, bytes], ...]] = []
        self.fails = False

    def __call__(self, delivery: Delivery) -> bytes | None:
        found = tuple((topic, bytes(message.body)) for topic, message in delivery.messages.items())  # type: ignore[call-overload]
        self.calls.append(found)
        self.seen[delivery.delivery_hash].add(found)
        if self.fails:
            raise OSError("the database is away")
        if found[0][1].startswith(b"nothing"):
            return None
        if found[0][1].startswith(b"wrong"):
            raise ValueError(found[0][1])
        return b"|".join(body for _, body in found) + b"#" + secrets.token_hex(4).encode()


@pytest.fixture(params=[Join.ZIP, Join.ALTS])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    with closing(new_world(tmp_path, request.param)) as made:
        yield made


def new_world(folder: Path, join: Join, error: str | None = "errors") -> World:
    return World(folder, Step(NAME, Functions(), "out", error, (ValueError,)), INPUTS, join)


def functions(world: World) -> Functions:
    found = world.step.function
    assert isinstance(found, Functions)
    return found


def outputs(world: World) -> list[bytes]:
    """Outputs without what is random about them."""
    return [bytes(message.body).partition(b"#")[0] for message in world.decided("out")]  # type: ignore[call-overload]


def fill(world: World) -> list[bytes]:
    """Two messages in each input; what must come out."""
    world.arrive("a", b"a1", b"a2")
    world.arrive("b", b"b1", b"b2")
    return [b"a1|b1", b"a2|b2"] if len(world.journals) == 2 else [b"a1", b"a2", b"b1", b"b2"]


def kill(world: World, point: str, **more: int) -> None:
    with pytest.raises(Killed):
        world.live(point, **more)


@pytest.mark.parametrize("point", POINTS)
def test_a_processor_killed_anywhere_delivers_everything_once(world: World, point: str) -> None:
    expected = fill(world)
    kill(world, point)
    world.live(tasks=3)
    assert outputs(world) == expected


@pytest.mark.parametrize("point", POINTS)
def test_killing_recovery_any_number_of_times_changes_nothing(world: World, point: str) -> None:
    expected = fill(world)
    kill(world, point)
    before = world.decided("out") if world.storage.sinks() else []
    for again in POINTS[: POINTS.index(point) + 1] * 3:
        try:
            world.live(again)
        except Killed:
            continue
    world.live()
    assert outputs(world) == expected
    assert world.decided("out")[: len(before)] == before


@pytest.mark.parametrize("point", POINTS)
def test_at_most_once_calls_the_function_once_at_most_wherever_it_is_killed(world: World, point: str) -> None:
    world.guarantee = Guarantee.AT_MOST_ONCE
    expected = fill(world)
    kill(world, point)
    world.live(tasks=3)
    calls = functions(world).calls
    assert len(calls) == len(set(calls)), "nothing is tried twice"
    done = outputs(world)
    assert done == [body for body in expected if body in done], "in order, none twice"
    assert (done == expected) == (point not in {"running", "staged"}), "lost is what was tried and not decided"
    world.arrive("a", b"a3")
    world.arrive("b", b"b3")
    world.live()
    assert outputs(world)[len(done) :] == ([b"a3|b3"] if len(world.journals) == 2 else [b"a3", b"b3"])


def test_at_least_once_keeps_no_ends_and_loses_nothing(world: World) -> None:
    world.guarantee = Guarantee.AT_LEAST_ONCE
    expected = fill(world)
    kill(world, "chosen", steps=1)
    world.live()
    assert outputs(world) == expected
    assert len(world.checkpoint.offsets) == 1, "the repeat ended elsewhere"


def test_the_choice_among_inputs_is_durable_before_the_function_runs(tmp_path: Path) -> None:
    """Snapshot-alts: the other input gets messages between crash and retry, and the retry reads the same input."""
    with closing(new_world(tmp_path, Join.ALTS)) as world:
        code = functions(world)
        world.arrive("b", b"b1")
        for point in ("chosen", "logged", "staged"):
            kill(world, point)
            world.arrive("a", b"a-" + point.encode())
            world.arrive("b", b"b-" + point.encode())
        code.fails = True
        with pytest.raises(OSError, match="away"):
            world.live()
        assert set(code.calls) == {(("b", b"b1"),)}
        code.fails = False
        world.live(steps=1)
        assert outputs(world)[0] == b"b1"
        assert hash_in(world.decided("out")[0]) == world.hash_of(b=1)
        assert all(len(inputs) == 1 for inputs in code.seen.values())


def test_the_end_of_an_attempt_is_durable_before_spark_has_written_its_offset_log(world: World) -> None:
    """A snapshot is written if and only if this is the first attempt."""
    expected = fill(world)
    kill(world, "chosen")
    assert not world.checkpoint.offsets
    world.arrive("a", b"a3")
    world.arrive("b", b"b3")
    kill(world, "logged")
    (logged,) = world.checkpoint.offsets
    with closing(sqlite3.connect(world.storage.outbox_path(NAME))) as database:
        assert database.execute("SELECT count(*) FROM node_snapshots").fetchone() == (1,)
    assert sum(place["seq"] for place in logged[1].values()) == 4
    world.live()
    assert outputs(world)[: len(expected)] == expected


@pytest.mark.parametrize("lost", [1, 2])
def test_a_checkpoint_that_lost_its_newest_files_repeats_the_same_attempts(world: World, lost: int) -> None:
    """After a power failure: Spark does not force its files to the disk, the node does."""
    expected = fill(world)
    world.live(steps=1)
    before = world.decided("out")
    world.checkpoint.lose(lost)
    world.arrive("a", b"a3")
    world.arrive("b", b"b3")
    world.live()
    assert world.decided("out")[: len(before)] == before
    more = [b"a3|b3"] if len(world.journals) == 2 else [b"a3", b"b3"]
    assert outputs(world) == expected + more


def test_an_old_copy_of_the_checkpoint_is_refused(world: World) -> None:
    fill(world)
    for _ in range(6):
        world.arrive("a", b"a")
        world.arrive("b", b"b")
    world.live(steps=1)
    world.checkpoint.lose(4)
    with pytest.raises((RangeTrimmed, SnapshotUnknown, BatchForgotten)):
        world.live()


def test_a_journal_that_was_replaced_is_refused(world: World) -> None:
    fill(world)
    world.live()
    journal = world.journals[-1].subscription
    world.storage.close()
    for file in world.storage.journal_path(journal).parent.glob(f"{journal}.db*"):
        file.unlink()
    world._with_journal(journal, lambda _: None)
    with pytest.raises(JournalReplaced):
        world.live()


def test_outputs_errors_and_nothing_are_one_decision(world: World) -> None:
    world.arrive("a", b"wrong", b"nothing", b"right")
    world.arrive("b", b"wrong", b"nothing", b"right")
    kill(world, "staged")
    assert not world.decided("out")
    assert not world.decided("errors")
    kill(world, "decided")
    count = 1 if len(world.journals) == 2 else 2
    out, errors = world.decided("out"), world.decided("errors")
    assert (len(out), len(errors)) == (count, count)
    positions = {"a": 1, "b": 1} if count == 1 else {"a": 1}
    assert hash_in(errors[0]) == world.hash_of(**positions)
    world.live()
    assert (world.decided("out"), world.decided("errors")) == (out, errors)


def test_an_attempt_of_nothing_is_decided_too(world: World) -> None:
    world.arrive("a", b"nothing")
    world.arrive("b", b"nothing")
    kill(world, "decided")
    manifest = world.storage.manifest(NAME, 0)
    assert (manifest.batch, manifest.rows) == (0, 0)
    calls = len(functions(world).calls)
    world.live()
    assert world.checkpoint.commits == 1
    assert len(functions(world).calls) == 2 * calls
    assert world.live() == 0


def test_a_recomputed_attempt_is_dropped_and_the_decided_one_stays(world: World) -> None:
    expected = fill(world)
    kill(world, "decided")
    decided = world.decided("out")
    world.live(tasks=1)
    assert world.skipped
    assert world.decided("out") == decided
    assert outputs(world) == expected


def test_a_function_with_effects_sees_one_hash_for_each_delivery_however_often_it_runs(world: World) -> None:
    expected = fill(world)
    for point in ("running", "staged", "decided"):
        kill(world, point)
    world.live()
    seen = functions(world).seen
    assert len(seen) == len(expected)
    assert all(len(inputs) == 1 for inputs in seen.values())
    assert {hash_in(message) for message in world.decided("out")} == set(seen)


def test_the_end_of_one_input_is_no_message_of_another() -> None:
    import pyarrow as pa

    def batches(*sizes: int) -> Iterator[pa.RecordBatch]:
        for size in sizes:
            yield pa.record_batch({"x": list(range(size))})

    assert [[part.num_rows for part in parts] for parts in aligned([batches(3, 2), batches(1, 4)])] == [
        [1, 1],
        [2, 2],
        [2, 2],
    ]
    with pytest.raises(ValueError, match="one is longer"):
        list(aligned([batches(3), batches(2)]))


Lives = st.lists(
    st.tuples(
        st.sampled_from(POINTS),
        st.integers(0, 2),  # messages that arrive in a
        st.integers(0, 2),  # and in b
        st.integers(1, 3),  # steps of a batch
        st.integers(1, 3),  # tasks
    ),
    min_size=1,
    max_size=6,
)


@pytest.mark.parametrize("join", Join)
@settings(max_examples=rounds(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(lives=Lives, lost_before=st.integers(0, 6))
def test_any_history_of_crashes_delivers_each_step_once(
    join: Join, lives: list[tuple[str, int, int, int, int]], lost_before: int
) -> None:
    with TemporaryDirectory() as folder, closing(new_world(Path(folder), join)) as world:
        sent: dict[str, list[bytes]] = {"a": [], "b": []}
        order: list[bytes] = []
        for number, (point, count_a, count_b, steps, tasks) in enumerate(lives):
            for topic, count in (("a", count_a), ("b", count_b)):
                bodies = [b"%s%d" % (topic.encode(), len(sent[topic]) + more) for more in range(count)]
                sent[topic] += bodies
                order += bodies
                world.arrive(topic, *bodies)
            if number == lost_before:
                world.checkpoint.lose(2)
            try:
                world.live(point, steps=steps, tasks=tasks)
            except Killed:
                continue
        world.live()
        pairs = [b"|".join(pair) for pair in zip(sent["a"], sent["b"], strict=False)]
        assert (outputs(world) if world.storage.sinks() else []) == (order if join is Join.ALTS else pairs)
        assert all(len(inputs) == 1 for inputs in functions(world).seen.values())
