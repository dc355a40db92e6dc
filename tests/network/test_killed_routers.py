"""SIGKILL of routers under load: nothing lost, nothing twice, nothing out of order, and links really resume."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.network.harness import UNSETTLED, Load, assert_nothing_wrong, assert_resumed, network_under_load

pytestmark = pytest.mark.slow

SPREAD = Load(publishers={"p1": "r1", "p2": "r1"}, subscribers={"s1": "r2", "s2": "r2", "s3": "r3"})
"""The publishers at r1, subscribers at r2 and r3: each router has one part to play."""


async def test_the_publishers_router_is_killed(tmp_path: Path) -> None:
    async with network_under_load(tmp_path, SPREAD) as experiment:
        await experiment.until_published(0.3)
        await experiment.strikes.kill(await experiment.target("r1"))
        verdict = await experiment.verdict()
        assert_nothing_wrong(experiment, verdict)
        assert_resumed(experiment, "p1", "p2")
        assert all(experiment.trial.publishers[name].router != "r1" for name in ("p1", "p2"))


async def test_a_subscribers_router_is_killed(tmp_path: Path) -> None:
    async with network_under_load(tmp_path, SPREAD) as experiment:
        await experiment.until_published(0.3)
        await experiment.strikes.kill(await experiment.target("r2"))
        verdict = await experiment.verdict()
        assert_nothing_wrong(experiment, verdict)
        assert_resumed(experiment, "s1", "s2")


async def test_the_publishers_and_a_subscribers_router_are_killed_at_once(tmp_path: Path) -> None:
    async with network_under_load(tmp_path, SPREAD) as experiment:
        await experiment.until_published(0.3)
        targets = [await experiment.target("r2"), await experiment.target("r1")]
        await experiment.strikes.kill_all(targets)
        verdict = await experiment.verdict()
        assert_nothing_wrong(experiment, verdict)
        assert_resumed(experiment, "p1", "p2", "s1", "s2")
        assert {client.router for client in experiment.trial.clients} == {"r3"}


async def test_all_routers_are_killed_and_started_again(tmp_path: Path) -> None:
    async with network_under_load(tmp_path, SPREAD) as experiment:
        await experiment.until_published(0.3)
        targets = [await experiment.target(router) for router in ("r3", "r2", "r1")]
        await experiment.strikes.kill_all(targets)
        restarting = asyncio.gather(*(experiment.network.restart(name) for name in experiment.network.routers))
        await experiment.trial.meanwhile(restarting)
        verdict = await experiment.verdict()
        assert_nothing_wrong(experiment, verdict)
        assert_resumed(experiment, "p1", "p2", "s1", "s2", "s3")


async def test_the_busiest_router_is_killed_and_started_again_three_times(tmp_path: Path) -> None:
    load = Load(SPREAD.publishers, SPREAD.subscribers, messages=12_000, seconds=14.0)
    async with network_under_load(tmp_path, load) as experiment:
        for part in (0.2, 0.45, 0.7):
            await experiment.until_published(part)
            target = await experiment.strikes.choose(UNSETTLED, list(experiment.network.routers))
            await experiment.strikes.kill(target)
            await experiment.trial.meanwhile(experiment.network.restart(target.router))
        verdict = await experiment.verdict()
        assert_nothing_wrong(experiment, verdict)
        assert len(experiment.strikes.faults) == 3
        assert verdict.total("resumed") >= 3
