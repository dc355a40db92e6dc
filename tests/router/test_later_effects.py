"""A message to thousands of subscriptions goes out in several turns, in order for each link: counts, not times."""

from __future__ import annotations

import asyncio
from typing import Any

from delivery_records.model import effects
from delivery_records.model.inputs import Input
from oncewire.transport.paced_protocol import STEP_WORK
from oncewire.transport.turn import Backlog, Turn
from router.process.later_effects import AT_ONCE, LaterEffects
from router.process.logs import EventLog
from router.records_driver import RecordsDriver
from tests.client.shell_helpers import LONG
from tests.router.test_inbox import frames_of

SUBSCRIPTIONS = 100
MESSAGES = AT_ONCE // SUBSCRIPTIONS + 10


class Shell:
    """A link that notes what it is to send."""

    def __init__(self) -> None:
        self.got: list[Any] = []

    def deliver(self, effect: effects.Deliver) -> None:
        self.got.append(effect.message)

    def carry_out(self, effect: Any) -> None:
        self.got.append(effect)

    def fail(self) -> None:
        raise AssertionError


def driven(messages: int, *, settles: bool = False) -> tuple[RecordsDriver, list[Input], dict[int, Shell]]:
    """A driver of a core with many subscriptions, and what another router has sent to it: thousands of deliveries."""
    router, read, links = frames_of(messages, SUBSCRIPTIONS, settles=settles)
    router.records.turn.now = 0.0  # from here on by the real clock
    driver = RecordsDriver(router.records, EventLog("r1"), lambda _: True, lambda: None, Backlog(Turn()))
    shells = {link: Shell() for link in links}
    driver.links |= shells
    return driver, read, shells


def sent(shells: dict[int, Shell]) -> int:
    return sum(len(each.got) for each in shells.values())


async def until_caught_up(driver: RecordsDriver) -> None:
    async with asyncio.timeout(LONG):
        while driver.is_behind:  # noqa: ASYNC110  (of turns of the loop nobody is notified)
            await asyncio.sleep(0)


async def test_of_thousands_of_deliveries_most_go_out_in_later_turns_and_in_order() -> None:
    driver, read, shells = driven(MESSAGES + 1)
    driver.submit(read[:-1])
    assert sent(shells) == AT_ONCE
    assert driver.is_behind
    driver.submit(read[-1:])
    await until_caught_up(driver)
    expected = [b"%04d" % number for number in range(MESSAGES + 1)]
    assert [each.got for each in shells.values()] == [expected] * SUBSCRIPTIONS


async def test_what_the_core_decides_later_does_not_overtake_the_deliveries_of_its_link() -> None:
    messages = 60  # settled in one frame: more than a turn of the core may hand over, so by its timer (T-10)
    driver, read, shells = driven(messages, settles=True)
    driver.submit(read)
    assert driver.records.is_behind
    await until_caught_up(driver)
    for each in shells.values():
        assert each.got[:messages] == [b"%04d" % number for number in range(messages)]
        assert isinstance(each.got[messages], effects.SettleAtSubscriber)


async def test_what_names_a_link_does_not_overtake_its_deliveries_and_all_else_does() -> None:
    done: list[effects.Effect] = []
    later = LaterEffects(Backlog(Turn()), done.extend)
    deliveries: list[effects.Effect] = [effects.Deliver(link, b"tag", b"m") for link in range(1, AT_ONCE + 2)]
    waits = AT_ONCE + 1
    assert later.take(deliveries) == deliveries[:AT_ONCE]
    settle, end = effects.SettleAtSubscriber(waits, [b"tag"]), effects.DetachLink(waits, False)
    other: list[effects.Effect] = [effects.DetachLink(1, False), effects.AskEcho(2, 1)]
    assert later.take([settle, *other, end]) == other
    assert later.go_on(float("inf")) is False
    assert done == [deliveries[-1], settle, end]


async def test_a_step_is_so_many_effects_also_of_one_link() -> None:
    pieces: list[int] = []
    later = LaterEffects(Backlog(Turn()), lambda piece: pieces.append(len(piece)))
    later.take([effects.Deliver(1 + number % 2, b"%d" % number, b"m") for number in range(AT_ONCE + 1_000)])
    later.go_on(float("inf"))
    assert sum(pieces) == 1_000
    assert max(pieces) == STEP_WORK


async def test_usual_decisions_wait_for_nothing() -> None:
    few: list[effects.Effect] = [effects.Deliver(1, b"tag", b"m")] * AT_ONCE
    done: list[effects.Effect] = []
    later = LaterEffects(Backlog(Turn()), done.extend)
    assert later.take(few) == few
    assert not later.by_link


async def test_what_waits_is_not_sent_when_the_incarnation_is_over() -> None:
    done: list[effects.Effect] = []
    later = LaterEffects(Backlog(Turn()), done.extend)
    later.take([effects.Deliver(link, b"tag", b"m") for link in range(1, AT_ONCE + 100)])
    later.clear()
    for _ in range(10):
        await asyncio.sleep(0)
    assert not done
