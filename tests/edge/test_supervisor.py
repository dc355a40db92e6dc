"""Parts of an edge, beside each other."""

from __future__ import annotations

import asyncio
import logging
from itertools import count
from typing import TYPE_CHECKING, cast

import pytest

from bridges.doors.routers import RouterLogin
from bridges.edge import supervisor
from bridges.edge.events import LOGGER_NAME, EdgeLog
from bridges.edge.part import Ground, Kind, Part, PartSettings
from bridges.edge.supervisor import Supervisor
from bridges.store.topic_link import Tenure
from tests.router.raw_client import until

if TYPE_CHECKING:
    from bridges.workqueue import QueueStore

LOGIN = RouterLogin(ssl_context=None, token=None, hostname=None)


class SlowToLeave(Part):
    """Gives back what it owns long before it has ended."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._is_owner = True

    @property
    def is_owner(self) -> bool:
        return self._is_owner

    async def run(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self._is_owner = False
            for _ in range(100):
                await asyncio.sleep(0)


async def test_a_part_that_is_ended_is_not_logged_as_one_that_stands_by(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kind = Kind("slow", {}, lambda values: "", lambda ground, name, values: SlowToLeave(name))
    monkeypatch.setattr(supervisor, "KINDS", {"slow": kind})
    monkeypatch.setattr(supervisor, "TICK_S", 0.0)
    caplog.set_level(logging.INFO, LOGGER_NAME)
    ground = Ground("edge", cast("QueueStore", None), (), LOGIN, Tenure())  # a part that uses none of it
    parts = Supervisor(EdgeLog("edge"))
    await parts.apply(ground, [PartSettings("slow", name, {}) for name in ("one", "two")])

    async def owned() -> int:
        return caplog.messages.count("part_owned")

    _ = await until(owned, lambda count: count == 2)
    await parts.apply(ground, [PartSettings("slow", "two", {})])
    await parts.stop()
    assert caplog.messages == ["part_started"] * 2 + ["part_owned"] * 2 + ["part_removed"]


class Failing(Part):
    """Owns what it does; the first one fails when it has been looked at."""

    def __init__(self, name: str, is_first: bool) -> None:
        super().__init__(name)
        self._is_first = is_first
        self._was_looked_at = asyncio.Event()

    @property
    def is_owner(self) -> bool:
        if self._is_first:
            self._was_looked_at.set()
        return True

    async def run(self) -> None:
        _ = await self._was_looked_at.wait()
        raise OSError("gone")


async def test_a_part_that_failed_and_owns_again_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lives = count()
    kind = Kind("failing", {}, lambda values: "", lambda ground, name, values: Failing(name, next(lives) == 0))
    monkeypatch.setattr(supervisor, "KINDS", {"failing": kind})
    monkeypatch.setattr(supervisor, "TICK_S", 0.0)
    caplog.set_level(logging.INFO, LOGGER_NAME)
    ground = Ground("edge", cast("QueueStore", None), (), LOGIN, Tenure())
    parts = Supervisor(EdgeLog("edge"))
    await parts.apply(ground, [PartSettings("failing", "it", {})])

    async def owned() -> int:
        return caplog.messages.count("part_owned")

    _ = await until(owned, lambda number: number == 2)
    await parts.stop()
    assert caplog.messages == ["part_started", "part_owned", "part_failed", "part_started", "part_owned"]


class Quick(Part):
    """Another edge owns it, and this one again, between the first two looks of the supervisor."""

    tenures = 0

    @property
    def is_owner(self) -> bool:
        self.tenures = min(2, self.tenures + 1)
        return True

    async def run(self) -> None:
        _ = await asyncio.Event().wait()


async def test_a_part_that_another_edge_owned_between_two_looks_is_said_to_be_owned_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kind = Kind("quick", {}, lambda values: "", lambda ground, name, values: Quick(name))
    monkeypatch.setattr(supervisor, "KINDS", {"quick": kind})
    monkeypatch.setattr(supervisor, "TICK_S", 0.0)
    caplog.set_level(logging.INFO, LOGGER_NAME)
    parts = Supervisor(EdgeLog("edge"))
    await parts.apply(Ground("edge", cast("QueueStore", None), (), LOGIN, Tenure()), [PartSettings("quick", "it", {})])

    async def owned() -> int:
        return caplog.messages.count("part_owned")

    _ = await until(owned, lambda number: number == 2)
    await parts.stop()
    assert caplog.messages == ["part_started", "part_owned", "part_owned"]
