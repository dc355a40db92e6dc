"""The formal guarantees of Gazette's page on exactly-once semantics, each a test named after it.

The topic repeats what it delivered, at once and late, and reorders what was published together. Consumers die at every
named point (``POINTS``) and are followed by a new owner; some go on as zombies. Their messages differ from attempt to
attempt, so that a mixture of two attempts would show.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from oncewire.client.errors import StoreFenced
from oncewire.client.isolation import Isolation
from oncewire.client.transactions.sequence_header import Producer, ProducerId, SequenceHeader
from tests.client.store_world import (
    POINTS,
    Consumer,
    Crash,
    Database,
    FileTopic,
    new_postgres_database,
    origin,
    read_all,
    value_of,
)
from tests.support.waiting import wait_until

ZOMBIE = "zombie"
CHILD = Path(__file__).parent / "store_child.py"
MESSAGES = 60

CHILD_PATH = os.pathsep.join([*sys.path, str(Path(__file__).parents[2])])
"""Where children find what is under test, and only after that the helpers of the tests."""


def fill(topic: FileTopic, rng: random.Random, count: int = MESSAGES) -> set[str]:
    """Two producers' messages, alone and in transactions; some are rolled back. Returns the bodies that count."""
    producers = [Producer(ProducerId(f"source{number}", number)) for number in (1, 2)]
    counting = set()
    number = 0
    while number < count:
        producer = rng.choice(producers)
        size = rng.choice([0, 0, 1, 3, 7])
        bodies = [str(number + index) for index in range(size or 1)]
        number += len(bodies)
        entries: list[tuple[SequenceHeader | None, str]]
        if size == 0:
            entries = [(producer.alone(), bodies[0])]
            counting.update(bodies)
        else:
            entries = [(producer.pending(), body) for body in bodies]
            if rng.random() < 0.75:
                entries.append((producer.ack(), ""))
                counting.update(bodies)
            else:
                entries.append((producer.rollback(), ""))
        topic.publish(entries)
        for header, _ in entries:
            assert header is not None
            producer.settle(header.sequence)
    return counting


class Owners:
    """One consumer's owners, one after the other, each of which dies where the plan says."""

    def __init__(self, database: Database, name: str, source: FileTopic, target: FileTopic, seed: int) -> None:
        rng = random.Random(seed)
        self.plan = [*rng.sample(POINTS, len(POINTS)), ZOMBIE, *rng.sample(POINTS, len(POINTS)), ZOMBIE]
        Consumer.make_tables(database, name)
        self.make: Callable[[], Consumer] = lambda: Consumer(database, name, source, target, self.reach)
        self.database = database
        self.name = name
        self.owner: Consumer | None = None

    def reach(self, point: str) -> None:
        if self.plan and self.plan[0] == point:
            self.plan.pop(0)
            raise Crash(point)

    def step(self) -> int:
        """One transaction, or a death on the way; returns how many positions were read."""
        try:
            if self.owner is None:
                self.owner = self.make()
            if self.plan and self.plan[0] == ZOMBIE:
                self.plan.pop(0)
                self.succeed()
            return self.owner.step(3)
        except Crash:
            self.close()
            return 1

    def succeed(self) -> None:
        """A new owner while the old one lives: it publishes, and its commit fails."""
        zombie, self.owner = self.owner, None
        assert zombie is not None
        try:
            self.owner = self.make()
            with suppress(StoreFenced):
                assert zombie.step(10) == 0, "a zombie committed"
        finally:
            zombie.store.close()

    def close(self) -> None:
        if self.owner is not None:
            self.owner.store.close()
            self.owner = None

    def log(self) -> list[tuple[str, str]]:
        return [(label, body) for label, body in self.database.rows(f"SELECT * FROM {self.name}_log")]

    def total(self) -> int:
        return int(self.database.rows(f"SELECT total FROM {self.name}_sum")[0][0])


class Run:
    """topic -> a -> topic -> b -> topic, with every death of the plans, until nothing is left to read."""

    def __init__(self, database: Database, folder: Path, seed: int) -> None:
        rng = random.Random(seed)
        self.topics = [FileTopic(folder / f"topic{number}", seed + number) for number in range(3)]
        self.counting = fill(self.topics[0], rng)
        self.a = Owners(database, "a", self.topics[0], self.topics[1], seed)
        self.b = Owners(database, "b", self.topics[1], self.topics[2], seed + 1)
        while self.a.step() + self.b.step():
            pass
        self.a.close()
        self.b.close()
        assert self.a.plan == self.b.plan == [], "a death of the plan did not happen"


POSTGRES = pytest.mark.needs("postgresql")


@pytest.fixture(scope="module", params=["sqlite 1", "sqlite 2", pytest.param("postgres 1", marks=POSTGRES)])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One run, looked at from all sides."""
    kind, seed = request.param.split()
    folder = tmp_path_factory.mktemp("run")
    if kind == "sqlite":
        return Run(Database("sqlite", str(folder / "store.db")), folder, int(seed))
    return Run(new_postgres_database(request.getfixturevalue("postgresql")), folder, int(seed))


def derived(bodies: Iterator[str] | set[str] | list[str], name: str) -> Counter[str]:
    return Counter(f"{origin(body)}>{name}{part}" for body in bodies for part in "xy")


def test_a_message_is_processed_in_exactly_one_completed_consumer_transaction(run: Run) -> None:
    assert Counter(body for _, body in run.a.log()) == Counter(run.counting)


def test_updates_to_the_store_derived_from_a_message_commit_exactly_once(run: Run) -> None:
    assert run.a.total() == sum(map(int, run.counting))


def test_published_messages_derived_from_it_are_read_exactly_once_by_a_read_committed_reader(run: Run) -> None:
    read = read_all(run.topics[1])
    assert Counter(map(origin, read)) == derived(run.counting, "a")
    # Those of the attempt that committed, and of no other.
    committed = {f"{body}>a{part}#{label.partition('/')[0]}" for label, body in run.a.log() for part in "xy"}
    assert set(read) == committed
    # The test would see it if they were not: the topic itself holds other attempts, and repeats.
    uncommitted = read_all(run.topics[1], Isolation.READ_UNCOMMITTED)
    assert len(uncommitted) > len(read)
    assert sum(1 for _, _, body in run.topics[1].read(0) if body) > len(uncommitted)


def test_the_guarantees_cascade_through_multiple_consumers(run: Run) -> None:
    first = derived(run.counting, "a")
    assert Counter(origin(body) for _, body in run.b.log()) == first
    assert run.b.total() == 2 * sum(map(int, run.counting))
    read = read_all(run.topics[2])
    assert Counter(map(origin, read)) == derived(list(first), "b")
    assert sum(map(value_of, read)) == 4 * sum(map(int, run.counting))


def test_what_was_acknowledged_together_is_processed_within_one_consumer_transaction(run: Run) -> None:
    by_message = {body: label for label, body in run.a.log()}
    together: dict[str, set[str]] = {}
    for label, body in run.b.log():
        together.setdefault(by_message[body.partition(">")[0]], set()).add(label)
    assert len(together) > 5
    assert all(len(labels) == 1 for labels in together.values())


# --- the same with processes killed by SIGKILL ------------------------------------------------------------------------


# What a database has to do with; the other points are killed at with SQLite only, to save time.
OF_DATABASES = ("opened", "effects written", "committed", "acknowledged in part", "confirmed")


class Process:
    """A consumer in a process of its own, started again after each death."""

    def __init__(self, database: Database, name: str, source: FileTopic, target: FileTopic, seed: int) -> None:
        Consumer.make_tables(database, name)
        points = POINTS if database.kind == "sqlite" else OF_DATABASES
        self.plan = [*random.Random(seed).sample(points, len(points)), "-"]
        self.command = [sys.executable, str(CHILD), database.kind, database.address, name]
        self.command += [str(source.path), str(target.path), str(seed)]
        self.environment = {**os.environ, "PYTHONPATH": CHILD_PATH}

    def start(self) -> None:
        self.process = subprocess.Popen([*self.command, self.plan.pop(0)], env=self.environment)

    def is_dead(self) -> bool:
        code = self.process.poll()
        assert code in {None, -signal.SIGKILL}
        return code is not None

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_consumers_killed_at_every_point_lose_and_double_nothing(database: Database, tmp_path: Path) -> None:
    topics = [FileTopic(tmp_path / f"topic{number}", number) for number in range(3)]
    counting = fill(topics[0], random.Random(3))
    late = Producer(ProducerId("late", 3))
    a = Process(database, "a", topics[0], topics[1], seed=5)
    b = Process(database, "b", topics[1], topics[2], seed=6)
    a.start()
    b.start()
    try:
        while a.plan or b.plan:
            wait_until(lambda: (bool(a.plan) and a.is_dead()) or (bool(b.plan) and b.is_dead()), "nobody dies")
            for consumer in (a, b):
                if consumer.plan and consumer.is_dead():
                    consumer.start()
            # Whoever still has to die needs something to do.
            body = str(1000 + late.next_sequence)
            topics[0].publish([(late.alone(), body)])
            counting.add(body)
        wait_until(lambda: len(read_all(topics[2])) >= 4 * len(counting), "the consumers do not finish")
    finally:
        a.end()
        b.end()
    first = derived(counting, "a")
    assert Counter(map(origin, read_all(topics[2]))) == derived(list(first), "b")
    assert Counter(body for (body,) in database.rows("SELECT message FROM a_log")) == Counter(counting)
    assert Counter(origin(body) for (body,) in database.rows("SELECT message FROM b_log")) == first
    assert database.rows("SELECT total FROM b_sum") == [(2 * sum(map(int, counting)),)]


def test_killed_between_commit_and_acks_the_next_owner_publishes_them(database: Database, tmp_path: Path) -> None:
    source, target = FileTopic(tmp_path / "source"), FileTopic(tmp_path / "target")
    producer = Producer(ProducerId("source", 1))
    source.publish([(producer.alone(), "7"), (producer.alone(), "8")])
    Consumer.make_tables(database, "a")
    command = [sys.executable, str(CHILD), database.kind, database.address, "a", str(source.path), str(target.path)]
    child = subprocess.run(
        [*command, "1", "committed"], env={**os.environ, "PYTHONPATH": CHILD_PATH}, timeout=100, check=False
    )
    assert child.returncode == -signal.SIGKILL
    assert database.rows("SELECT total FROM a_sum") == [(15,)]
    assert read_all(target) == []  # committed, and nobody knows
    owner = Consumer(database, "a", source, target, reach=lambda point: None)
    assert sorted(read_all(target)) == ["7>ax#1", "7>ay#1", "8>ax#1", "8>ay#1"]
    assert owner.step(10) == 0
    assert owner.store.unconfirmed == []
    owner.store.close()
