"""What was read is carried out in short turns, in order, and clients with much to do have as many as each other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from oncewire.transport.turn import TURN_S, Backlog, work_for_a_turn
from oncewire.wire import ACCEPTED, Disposition
from oncewire.wire.frames import encode_frame
from oncewire.wire.performative_codec import encode_performative
from tests.router.processes import RouterProcess, running_router
from tests.router.raw_client import RawClient

MESSAGES = 300


@pytest.fixture
async def router() -> AsyncIterator[RouterProcess]:
    async with running_router("--standalone") as process:
        yield process


class Work:
    """So many steps of a millisecond each, on a clock of its own."""

    def __init__(self, name: str, steps: int, done: list[str]) -> None:
        self.name = name
        self.left = steps
        self.now = 0.0
        self.steps_of_turns: list[int] = []
        self._done = done
        self.is_finished = asyncio.Event()

    def step(self) -> bool:
        self.left -= 1
        self.now += 0.001
        self.steps_of_turns[-1] += 1
        return self.left > 0

    def go_on(self) -> bool:
        self._done.append(self.name)
        self.steps_of_turns.append(0)
        is_left = work_for_a_turn(self.step, lambda: self.now)
        if not is_left:
            self.is_finished.set()
        return is_left


async def test_a_turn_ends_after_its_time_and_goes_on_until_nothing_is_left() -> None:
    work, backlog = Work("a", 23, []), Backlog()
    backlog.append(work)
    await work.is_finished.wait()
    assert work.left == 0
    assert max(work.steps_of_turns) <= TURN_S / 0.001 + 1
    assert len(work.steps_of_turns) >= 4


async def test_all_that_have_work_left_take_turns() -> None:
    done: list[str] = []
    works = [Work(name, 15, done) for name in "abc"]
    backlog = Backlog()
    for work in works:
        backlog.append(work)
        backlog.append(work)  # once is enough
    for work in works:
        await work.is_finished.wait()
    turns = len(works[0].steps_of_turns)
    assert done == ["a", "b", "c"] * turns


async def test_other_callbacks_have_their_turn_in_between() -> None:
    done: list[str] = []
    work, backlog = Work("turn", 30, done), Backlog()
    backlog.append(work)
    while not work.is_finished.is_set():
        done.append("other")
        await asyncio.sleep(0)
    assert "turn turn" not in " ".join(done)


async def test_one_that_fails_does_not_stop_the_others() -> None:
    class Failing:
        def go_on(self) -> bool:
            raise ValueError("a fault of a test")

    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context["exception"]))
    work, backlog = Work("a", 12, []), Backlog()
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
