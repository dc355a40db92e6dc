"""Publisher and subscriber cores, their journals and the reference router in one process, step by step.

`World.check()` is the verdict: no subscriber processes a message twice or out of order, no accepted message is missing;
`World.finish()` adds that everything comes to rest and nothing is left.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from oncewire.client.core_effects import (
    AnswerEcho,
    DeliverMessage,
    DisposeDeliveries,
    GrantCredit,
    ReportOutcome,
    SendTransfer,
    SettleDeliveries,
)
from oncewire.client.journal_records import PublisherChanges, SubscriberChanges
from oncewire.client.outcomes import ACCEPTED, OutcomeKind
from oncewire.client.publisher_core import PublisherCore
from oncewire.client.subscriber_core import SubscriberCore
from tests.client.core_driver import PublisherDisk, SubscriberDisk
from tests.client.reference_router import Pipe, ReferenceRouter

NAMES = ("s", "t")


class PublisherSide:
    """The publisher's process."""

    def __init__(self, router: ReferenceRouter) -> None:
        self.router = router
        self.disk = PublisherDisk()
        self.pipe: Pipe | None = None
        self.writing: PublisherChanges | None = None
        self.outcomes: dict[int, OutcomeKind] = {}
        self.next_delivery_id = 0
        self.core = self.make_core()

    def make_core(self) -> PublisherCore:
        core = PublisherCore(window=6, resend_in_doubt=True, recovered=self.disk.state())
        for report in core.recovered_outcomes():
            self.hear(report)
            core.reported(report.number)
        return core

    def hear(self, report: ReportOutcome) -> None:
        known = self.outcomes.setdefault(report.number, report.outcome.kind)
        assert known is report.outcome.kind

    def submit(self) -> None:
        if self.core.has_room(1):
            number = self.core.next_number
            assert self.core.submit(b"%d" % number) == number

    def perform(self, effects: list[Any]) -> None:
        for effect in effects:
            if isinstance(effect, ReportOutcome):
                self.hear(effect)
                if not effect.outcome.is_accepted:
                    self.core.reported(effect.number)
            elif self.pipe is None:
                assert not isinstance(effect, (SendTransfer, SettleDeliveries, AnswerEcho))
            elif isinstance(effect, SendTransfer):
                self.next_delivery_id += 1
                body = effect.payload + (b"?" if effect.in_doubt else b"")
                self.pipe.up.append(("transfer", self.next_delivery_id, effect.tag, body))
            elif isinstance(effect, SettleDeliveries):
                self.pipe.up.append(("settle", list(effect.delivery_ids)))
            elif isinstance(effect, AnswerEcho):
                self.pipe.up.append(("echo", effect.value))

    def connect(self) -> None:
        if self.pipe is None and self.core.may_attach:
            self.pipe = Pipe()
            presented = self.core.begin_attach()
            assert presented is not None
            self.pipe.up.append(("attach", presented))

    def drop(self) -> None:
        if self.pipe is not None:
            self.router.publisher_lost(self.pipe)
            self.pipe = None
            self.core.lost()

    def read(self) -> None:
        assert self.pipe is not None
        frame = self.pipe.down.popleft()
        kind = frame[0]
        if kind == "attached":
            self.perform(self.core.attached(capable=True, resume=frame[1]))
        elif kind == "flow":
            self.perform(self.core.flow(frame[1], echo=frame[2], session=frame[3]))
        elif kind == "accepted":
            self.perform(self.core.disposition(frame[1], ACCEPTED, False))
        elif kind == "expired":
            self.pipe = None
            self.perform(self.core.expire())

    def begin_write(self) -> None:
        if self.core.wants_commit:
            self.writing = self.core.next_commit()

    def end_write(self) -> None:
        if self.writing is not None:
            self.disk.write(self.writing)
            self.writing = None
            self.perform(self.core.committed())

    def crash(self, *, after_write: bool) -> None:
        """SIGKILL: a commit that was under way is there or not."""
        if after_write and self.writing is not None:
            self.disk.write(self.writing)
            for number, outcome in self.writing.decided:  # an accepted message is absent from the journal
                self.outcomes.setdefault(number, outcome.kind)
        self.writing = None
        if self.pipe is not None:
            self.router.publisher_lost(self.pipe)
            self.pipe = None
        self.core = self.make_core()


class SubscriberSide:
    """A subscriber's process; its effects are in `processed`, written in one transaction with the acceptance."""

    def __init__(self, router: ReferenceRouter, name: str) -> None:
        self.router = router
        self.name = name
        self.disk = SubscriberDisk()
        self.processed: list[bytes] = []
        self.start()

    def start(self) -> None:
        self.pipe: Pipe | None = None
        self.received = 0
        self.handed: list[int] = []  # in this life of the process
        self.queue: list[DeliverMessage] = []
        self.effects: list[bytes] = []
        self.writing: tuple[SubscriberChanges, list[bytes]] | None = None
        self.core = SubscriberCore(prefetch=3, recovered=self.disk.state())

    def perform(self, effects: list[Any]) -> None:
        for effect in effects:
            if isinstance(effect, DeliverMessage):
                self.queue.insert(0 if effect.again else len(self.queue), effect)
                if not effect.again and not effect.payload.endswith(b"?"):
                    self.handed.append(int(effect.payload))
            elif self.pipe is None:
                assert not isinstance(effect, (DisposeDeliveries, GrantCredit))
            elif isinstance(effect, DisposeDeliveries):
                self.pipe.up.append(("dispose", list(effect.delivery_ids), effect.outcome))
            elif isinstance(effect, GrantCredit):
                self.pipe.up.append(("credit", effect.credit, self.received))

    def connect(self) -> None:
        if self.pipe is None:
            self.pipe = Pipe()
            self.received = 0
            presented = self.core.begin_attach(1000)
            assert presented is not None
            self.pipe.up.append(("attach", presented.unsettled))

    def drop(self) -> None:
        if self.pipe is not None:
            self.router.subscriber_lost(self.name, self.pipe)
            self.pipe = None
            self.core.lost()

    def read(self) -> None:
        assert self.pipe is not None
        frame = self.pipe.down.popleft()
        kind = frame[0]
        if kind == "attached":
            self.perform(self.core.attached(frame[1], capable=True, incarnation=frame[2]))
        elif kind == "confirmed":
            self.perform(self.core.flow(confirmed=frame[1]))
        elif kind == "transfer":
            self.received += 1
            _, delivery_id, tag, payload, settled, resume = frame
            self.perform(self.core.transfer(delivery_id, tag, payload, settled=settled, resume=resume))
        elif kind == "settled":
            self.perform(self.core.settled(frame[1]))

    def process(self) -> None:
        delivery = self.queue.pop(0)
        self.effects.append(delivery.payload)
        self.core.complete(delivery.serial, ACCEPTED)

    def begin_write(self) -> None:
        if self.core.wants_commit:
            self.writing = (self.core.next_commit(), self.effects)
            self.effects = []

    def write(self) -> None:
        assert self.writing is not None
        changes, effects = self.writing
        self.disk.write(changes)
        self.processed += effects
        self.writing = None

    def end_write(self) -> None:
        if self.writing is not None:
            self.write()
            self.perform(self.core.committed())

    def crash(self, *, after_write: bool) -> None:
        if after_write and self.writing is not None:
            self.write()
        if self.pipe is not None:
            self.router.subscriber_lost(self.name, self.pipe)
        self.start()


class World:
    def __init__(self) -> None:
        self.router = ReferenceRouter(NAMES)
        self.publisher = PublisherSide(self.router)
        self.subscribers = [SubscriberSide(self.router, name) for name in NAMES]
        self.sides: list[PublisherSide | SubscriberSide] = [self.publisher, *self.subscribers]

    def steps(self) -> list[Callable[[], None]]:
        """Everything that can go on without a fault."""
        found: list[Callable[[], None]] = []
        for side in self.sides:
            if side.pipe is None:
                found.append(side.connect)
            elif side.pipe.down:
                found.append(side.read)
            found.append(side.begin_write if side.writing is None else side.end_write)
        if self.publisher.pipe is not None and self.publisher.pipe.up:
            found.append(partial(self.router.from_publisher, self.publisher.pipe))
        for subscriber in self.subscribers:
            if subscriber.pipe is not None and subscriber.pipe.up:
                found.append(partial(self.router.from_subscriber, subscriber.name, subscriber.pipe))
            if subscriber.queue:
                found.append(subscriber.process)
        return found

    def crash_router(self) -> None:
        self.publisher.drop()
        for subscriber in self.subscribers:
            subscriber.drop()
        self.router.crash()

    def expire_session(self) -> None:
        self.publisher.drop()
        self.router.expire_session()

    def is_at_rest(self) -> bool:
        return all(
            side.pipe is not None
            and not side.pipe.up
            and not side.pipe.down
            and side.writing is None
            and not side.core.wants_commit
            and side.core.unfinished == 0
            for side in self.sides
        )

    def finish(self) -> None:
        """No more faults: all comes to rest within a bounded number of steps (G5)."""
        rng = random.Random(0)
        for _ in range(20_000):
            if self.is_at_rest():
                break
            rng.choice(self.steps())()
        assert self.is_at_rest(), "stuck"

    def check(self) -> None:
        for subscriber in self.subscribers:
            for body, times in Counter(subscriber.processed).items():
                # an in-doubt message may be in doubt again in each session that expires
                assert times <= (self.router.expiries if body.endswith(b"?") else 1), "processed twice"
            plain = [body for body in subscriber.processed if not body.endswith(b"?")]
            numbers = [int(body) for body in plain]
            assert numbers == sorted(numbers), "out of order"
            assert subscriber.handed == sorted(set(subscriber.handed)), "handed over out of order"
        for number, kind in self.publisher.outcomes.items():
            if kind is OutcomeKind.ACCEPTED:
                for subscriber in self.subscribers:
                    bodies = {body.rstrip(b"?") for body in subscriber.processed}
                    assert b"%d" % number in bodies, "lost"

    def check_end(self) -> None:
        self.check()
        for subscriber in self.subscribers:
            subscriber.disk.write(subscriber.core.next_commit())  # forgetting needs no commit of its own
            assert not subscriber.disk.entries, "the journal keeps what is settled"
        stored = range(self.publisher.disk.next_number)
        assert set(self.publisher.outcomes) == set(stored), "each stored message has one outcome"
        assert not self.publisher.disk.messages or all(m.outcome for m in self.publisher.disk.messages.values())


def run_schedule(seed: int, world: World, *, expire: bool = False) -> World:
    """A thousand steps with faults, then none until everything rests; raises AssertionError when a promise breaks."""
    rng = random.Random(seed)
    # The application and the disk are fast, slow or very slow: each meets other races.
    sloth = 0.45 * (seed % 3)
    faults: list[Callable[[], None]] = [
        world.crash_router,
        *(side.drop for side in world.sides),
        *(partial(side.crash, after_write=written) for side in world.sides for written in (True, False)),
    ]
    if expire:
        faults.append(world.expire_session)
    for step in range(1_000):
        if rng.random() < 0.1:
            world.publisher.submit()
        if rng.random() < 0.02:
            rng.choice(faults)()
        action = rng.choice(world.steps())
        work = getattr(action, "func", action)
        if work.__name__ in {"process", "end_write"} and rng.random() < sloth:
            continue
        action()
        if step % 50 == 0:
            world.check()
    world.finish()
    world.check_end()
    return world
