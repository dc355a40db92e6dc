"""What was read is carried out in short turns, in order, and clients with much to do have as many as each other."""

from __future__ import annotations

import asyncio

from oncewire.transport.turn import TURN_S, Backlog, Turn, work_for_a_turn
from oncewire.transport.turns_core import Account
from oncewire.wire import ACCEPTED, Disposition
from oncewire.wire.frames import encode_frame
from oncewire.wire.performative_codec import encode_performative
from tests.router.processes import RouterProcess
from tests.router.raw_client import RawClient

MESSAGES = 300


class Clock:
    """Seconds that pass when somebody works."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


STEP_S = 2**-10
"""A millisecond or so; floats of its multiples are exact."""


class Work:
    """So many steps of `STEP_S` each."""

    def __init__(self, name: str, steps: int, done: list[str], clock: Clock) -> None:
        self.name = name
        self.left = steps
        self.clock = clock
        self.account = Account(0.0)
        self.steps_of_turns: list[int] = []
        self._done = done
        self.is_finished = asyncio.Event()

    def step(self) -> bool:
        self.left -= 1
        self.clock.now += STEP_S
        self.steps_of_turns[-1] += 1
        return self.left > 0

    def go_on(self, ends_at: float) -> bool:
        self._done.append(self.name)
        self.steps_of_turns.append(0)
        is_left = work_for_a_turn(self.step, self.clock, self.clock.now, ends_at)
        if not is_left:
            self.is_finished.set()
        return is_left


def backlog_of(clock: Clock) -> Backlog:
    return Backlog(Turn(clock), clock, clock)


async def test_a_turn_ends_after_its_time_and_goes_on_until_nothing_is_left() -> None:
    clock = Clock()
    work, backlog = Work("a", 23, [], clock), backlog_of(clock)
    backlog.append(work)
    await work.is_finished.wait()
    assert work.left == 0
    assert max(work.steps_of_turns) <= TURN_S / STEP_S
    assert len(work.steps_of_turns) >= 4


def test_a_step_that_would_end_behind_the_turn_is_for_the_next_one() -> None:
    clock = Clock()

    def step() -> bool:
        clock.now += 0.003
        return True

    assert work_for_a_turn(step, clock, clock.now, clock.now + TURN_S)
    assert clock.now == 0.003
    clock.now = 0.0
    assert work_for_a_turn(step, clock, -0.004, clock.now + 0.001)  # the step before took longer than what is left
    assert clock.now == 0.0


async def test_all_that_have_work_left_take_turns() -> None:
    done: list[str] = []
    clock = Clock()
    works = [Work(name, 15, done, clock) for name in "abc"]
    backlog = backlog_of(clock)
    for work in works:
        backlog.append(work)
        backlog.append(work)  # once is enough
    for work in works:
        await work.is_finished.wait()
    assert len(done) >= 3 * 3
    for turn in range(0, len(done), 3):
        assert sorted(done[turn : turn + 3]) == ["a", "b", "c"]


async def test_other_callbacks_have_their_turn_in_between() -> None:
    done: list[str] = []
    clock = Clock()
    work, backlog = Work("turn", 30, done, clock), backlog_of(clock)
    backlog.append(work)
    while not work.is_finished.is_set():
        done.append("other")
        await asyncio.sleep(0)
    assert "turn turn" not in " ".join(done)


async def test_in_one_turn_of_the_loop_all_turns_together_take_their_time_once() -> None:
    clock = Clock()
    done: list[str] = []
    backlog = backlog_of(clock)
    works = [Work(str(number), 3, done, clock) for number in range(20)]
    for work in works:
        backlog.append(work)
    rounds = 0
    while not all(work.is_finished.is_set() for work in works):
        before = clock.now
        await asyncio.sleep(0)
        rounds += 1
        assert clock.now - before <= TURN_S
    assert rounds >= 20 * 3 * STEP_S / TURN_S


async def test_time_in_which_the_machine_did_something_else_counts_for_nobody() -> None:
    """Else who was unlucky once would wait until all that have much to do have used as much again."""
    clock, done = Clock(), list[str]()
    used = Clock()
    backlog = Backlog(Turn(clock), clock, used)

    class Floods(Work):
        def step(self) -> bool:
            used.now += STEP_S
            return super().step()

    class Unlucky(Work):
        def go_on(self, ends_at: float) -> bool:
            self._done.append(self.name)
            self.clock.now += 100 * STEP_S  # the processor was given to another program
            used.now += STEP_S / 10
            return False

    for number in range(20):
        backlog.append(Floods(f"flood {number}", 1_000, done, clock))
    for _ in range(60):
        await asyncio.sleep(0)
    unlucky = Unlucky("unlucky", 0, done, clock)
    for _ in range(20):
        await asyncio.sleep(0)
        before = len(done)
        backlog.append(unlucky)
        await asyncio.sleep(0)
        assert done[before] == "unlucky"


async def test_who_has_little_to_do_waits_for_one_turn_and_its_answer_for_none() -> None:
    """Twenty use all of their turns; a client that was idle is next, and what it caused is written at once."""
    clock = Clock()
    done: list[str] = []
    turn = Turn(clock)
    backlog = Backlog(turn, clock, clock)
    for number in range(20):
        backlog.append(Work(f"flood {number}", 100, done, clock))
    for _ in range(30):
        await asyncio.sleep(0)

    class Victim(Work):
        def go_on(self, ends_at: float) -> bool:
            turn.mark_dirty(self)
            return super().go_on(ends_at)

        def flush(self) -> None:
            done.append("answer")

    victim = Victim("victim", 1, done, clock)
    done.clear()
    backlog.append(victim)
    await victim.is_finished.wait()
    assert done[:2] == ["victim", "answer"]


async def test_while_others_wait_or_the_turn_is_used_up_nobody_is_served_at_once() -> None:
    clock = Clock()
    turn = Turn(clock)
    backlog = Backlog(turn, clock, clock)
    assert not backlog.is_busy(clock.now)
    work = Work("a", 7, [], clock)
    backlog.append(work)
    assert backlog.is_busy(clock.now)
    await work.is_finished.wait()
    assert not backlog.is_busy(clock.now)

    class Output:
        def flush(self) -> None:
            """Nothing to write."""

    turn.mark_dirty(Output())
    assert not backlog.is_busy(clock.now)
    clock.now += TURN_S * 1.1
    assert backlog.is_busy(clock.now)
    turn.flush()
    assert not backlog.is_busy(clock.now)


async def test_one_that_fails_does_not_stop_the_others() -> None:
    class Failing:
        account = Account(0.0)

        def go_on(self, ends_at: float) -> bool:
            raise ValueError("a fault of a test")

    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context["exception"]))
    clock = Clock()
    work, backlog = Work("a", 12, [], clock), backlog_of(clock)
    backlog.append(Failing())
    backlog.append(work)
    await work.is_finished.wait()
    assert len(failures) == 1


async def test_a_flood_of_frames_is_carried_out_in_order_and_none_is_lost(router: RouterProcess) -> None:
    """A subscriber answers one by one, among thousands of frames that change nothing."""
    client = await RawClient.connect(router.port, "busy")
    subscriber = await client.subscriber("orders", credit=MESSAGES)
    publisher = await (await RawClient.connect(router.port, "other")).publisher("orders")
    tags = [b"%d" % number for number in range(MESSAGES)]
    for tag in tags:
        publisher.send(tag, b"body")
    ids = [(await subscriber.delivery()).delivery_id for _ in tags]
    nothing = encode_frame(0, encode_performative(Disposition(True, 0, 0x80000000, False))) * 50
    client.write(nothing)
    for number in ids:
        client.write(nothing + encode_frame(0, encode_performative(Disposition(True, number, number, False, ACCEPTED))))
    while len(publisher.accepted_tags()) < MESSAGES:
        await publisher.next_outcome()
    assert publisher.accepted_tags() == tags
