"""Publisher and subscriber cores against the reference router, under faults chosen by hypothesis and by seeds.

Whatever breaks (connections, the router, both kinds of client processes, the publisher's session), no subscriber may
process a message twice or out of order, no accepted message may be missing, and in the end nothing is left anywhere.
The last test takes rules out of the cores and expects the same schedules to notice.
"""

from __future__ import annotations

import random
import sys
import types
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from oncewire.client import publisher_core, subscriber_core
from oncewire.client.deduplicating_core import DeduplicatingCore
from oncewire.client.journal_records import MessageIdentity
from oncewire.client.outcomes import OutcomeKind
from tests.client.core_world import NAMES, SubscriberSide, World, run_schedule
from tests.support.effort import partly, rounds


def is_processing(step: Callable[[], None], subscriber: SubscriberSide) -> bool:
    """Whether a step of the world is this subscriber's application at work."""
    return isinstance(step, partial) and step.func == subscriber.process


class CoresTogether(RuleBasedStateMachine):
    @initialize(resend_in_doubt=st.booleans(), out_of_order=st.booleans())
    def begin(self, resend_in_doubt: bool, out_of_order: bool) -> None:
        self.world = World(resend_in_doubt=resend_in_doubt, out_of_order=out_of_order)

    @rule(count=st.integers(1, 5))
    def submit(self, count: int) -> None:
        for _ in range(count):
            self.world.publisher.submit()

    @rule(count=st.integers(1, 40), seed=st.integers(0, 2**16))
    def go_on(self, count: int, seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(count):
            rng.choice(self.world.steps())()

    @rule()
    def drop_publisher(self) -> None:
        self.world.publisher.drop()

    @rule(which=st.sampled_from(range(len(NAMES))))
    def drop_subscriber(self, which: int) -> None:
        self.world.subscribers[which].drop()

    @rule(which=st.sampled_from(range(len(NAMES))))
    def release(self, which: int) -> None:
        self.world.subscribers[which].process(release=True)

    @rule()
    def crash_router(self) -> None:
        self.world.crash_router()

    @rule(after_write=st.booleans())
    def crash_publisher(self, after_write: bool) -> None:
        self.world.publisher.crash(after_write=after_write)

    @rule(which=st.sampled_from(range(len(NAMES))), after_write=st.booleans())
    def crash_subscriber(self, which: int, after_write: bool) -> None:
        self.world.subscribers[which].crash(after_write=after_write)

    @rule(which=st.sampled_from(range(len(NAMES))), count=st.integers(20, 60), seed=st.integers(0, 2**16))
    def finish_the_newest_and_kill(self, which: int, count: int, seed: int) -> None:
        subscriber = self.world.subscribers[which]
        if not subscriber.out_of_order:
            return
        rng = random.Random(seed)
        for _ in range(count):  # meanwhile deliveries wait for this application
            rng.choice([step for step in self.world.steps() if not is_processing(step, subscriber)])()
        subscriber.end_write()
        subscriber.process(-1)
        subscriber.begin_write()
        subscriber.crash(after_write=True)

    @rule()
    def expire_session(self) -> None:
        self.world.expire_session()

    @invariant()
    def nothing_twice_nothing_lost(self) -> None:
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.finish()
            self.world.check_end()


TestCoresTogether = CoresTogether.TestCase
TestCoresTogether.settings = settings(
    max_examples=rounds(120),
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)


def test_long_runs_under_seeded_faults_resume_and_lose_nothing() -> None:
    resumed = 0
    for seed in range(60):
        world = run_schedule(seed, World(resend_in_doubt=bool(seed % 2)))
        assert set(world.publisher.outcomes.values()) == {OutcomeKind.ACCEPTED}
        resumed += world.router.resumed_entries
    assert resumed > 1_000


def test_applications_that_finish_out_of_order_lose_nothing_when_they_are_killed() -> None:
    again = 0
    for seed in range(60):
        world = run_schedule(seed, World(out_of_order=True))
        assert set(world.publisher.outcomes.values()) == {OutcomeKind.ACCEPTED}
        for subscriber in world.subscribers:
            assert sorted(map(int, subscriber.processed)) == list(range(world.publisher.disk.next_number))
            assert subscriber.given_up == 0
            again += subscriber.bodies_again
        assert world.router.skipped == 0
    assert again > 20


def test_long_runs_with_expiring_sessions_make_nothing_unknown_but_what_was_unsettled() -> None:
    expiries = 0
    for seed in range(60):
        expiries += run_schedule(seed, World(resend_in_doubt=bool(seed % 2)), expire=True).router.expiries
    assert expiries > 60


def identify(payload: bytes, message_format: int) -> MessageIdentity:
    """What is sent again in a new session has a mark behind its number."""
    return MessageIdentity("", payload.rstrip(b"?"))


def test_subscribers_that_drop_copies_process_once_what_is_sent_again_in_new_sessions() -> None:
    """D-3."""
    sent_again = again = 0
    for seed in range(60):
        core = partial(DeduplicatingCore, identify)
        world = World(resend_in_doubt=True, out_of_order=bool(seed % 2), subscriber_core=core)
        run_schedule(seed, world, expire=True)
        assert set(world.publisher.outcomes.values()) == {OutcomeKind.ACCEPTED}
        for subscriber in world.subscribers:
            numbers = Counter(int(body.rstrip(b"?")) for body in subscriber.processed)
            assert set(numbers) == set(range(world.publisher.disk.next_number))
            assert set(numbers.values()) == {1}
            assert isinstance(subscriber.core, DeduplicatingCore)
            sent_again += sum(body.endswith(b"?") for body in subscriber.processed)
            again += subscriber.core.copies
    assert sent_again > 20, "what was not processed before is processed by its copy"
    assert again > 100


# name -> (core, text in its source, what stands there instead)
MUTANTS = {
    "P-a: it attaches before the outcomes reported to it are recorded": (
        publisher_core,
        "return not (self._expiring or self._decided or self._committing_decided)",
        "return not self._expiring",
    ),
    "P-1: what was exposed before a crash is not presented after it": (
        publisher_core,
        "handed = stored.number < self._exposed_before",
        "handed = False",
    ),
    "P-a: resends in the wrong order": (
        publisher_core,
        "+= message.handed\n                self._queue.append(message)",
        "+= message.handed\n                self._queue.appendleft(message)",
    ),
    "S-a: an outcome is presented before it is recorded": (
        subscriber_core,
        "entry.outcome if entry.recorded else None",
        "entry.outcome",
    ),
    "S-a: a repeat is answered before the outcome is recorded": (
        subscriber_core,
        "elif entry.recorded:",
        "elif entry.outcome is not None:",
    ),
    "F22: an arrived delivery that comes again is delivered again": (
        subscriber_core,
        "        if settled:\n            self._settle(entry, effects)\n        elif entry.recorded",
        (
            "        if not settled and entry.outcome is None:\n"
            "            effects.append(DeliverMessage(entry.serial, entry.tag, entry.payload, settled=False))\n"
            "        if settled:\n            self._settle(entry, effects)\n        elif entry.recorded"
        ),
    ),
    "A-6: left-out entries are kept": (
        subscriber_core,
        "self._settle(entry, effects)  # A-6: a left-out entry is settled",
        "pass",
    ),
    "S-a: a settle that comes while the outcome is being recorded is ignored": (
        subscriber_core,
        "            if entry.settled:\n                self._forget(entry)\n            elif self._attached",
        "            if self._attached",
    ),
    "A-7: a resumed delivery is answered under its old delivery-id": (
        subscriber_core,
        "        entry.delivery_id = delivery_id\n        entry.attach = self._attach\n        if settled",
        "        if settled",
    ),
    "C-3: credit comes back on settlement only": (
        subscriber_core,
        "            if entry.counts:\n                entry.counts = False\n                self._held -= 1\n",
        "",
    ),
    "S-a: a done entry is stored without the earlier unfinished ones": (
        subscriber_core,
        "            written += self._earlier_unfinished(written)\n",
        "            pass\n",
    ),
    "S-a: the body of an entry without one is not taken": (
        subscriber_core,
        "elif entry.lacks_body:\n            self._take_body(entry, payload, effects)",
        "",
    ),
    "A-6: an entry without a body is kept when it is settled": (
        subscriber_core,
        "elif entry.lacks_body:\n            # Settled",
        "elif False:\n            # Settled",
    ),
    "S-1: a restart forgets what was processed": (
        subscriber_core,
        "            entry.lacks_body = outcome is None\n            self._map[tag] = entry",
        "            entry.lacks_body = outcome is None",
    ),
}


@pytest.mark.parametrize("name", partly(MUTANTS))
def test_a_rule_taken_out_of_a_core_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, text, instead = MUTANTS[name]
    source = Path(str(module.__file__)).read_text(encoding="utf-8")
    assert source.count(text) == 1, "the mutant must name one place of the core"
    mutant = types.ModuleType(f"{module.__name__}_mutant")
    monkeypatch.setitem(sys.modules, mutant.__name__, mutant)  # dataclasses look their module up
    exec(compile(source.replace(text, instead), mutant.__name__, "exec"), mutant.__dict__)
    publisher = getattr(mutant, "PublisherCore", publisher_core.PublisherCore)
    subscriber = getattr(mutant, "SubscriberCore", subscriber_core.SubscriberCore)

    def run_all() -> None:
        for seed in range(60):
            world = World(out_of_order=seed % 4 >= 2, publisher_core=publisher, subscriber_core=subscriber)
            run_schedule(seed, world, expire=bool(seed % 2))

    with pytest.raises((AssertionError, KeyError)):
        run_all()
