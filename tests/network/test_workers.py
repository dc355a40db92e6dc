"""SIGKILL of workers of one router under load: to clients it is the death of a router (K-1, K-3)."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import aiohttp
import pytest

from chaos.network.network_state import read_states
from chaos.network.trial import LOOK_S
from router.commands.local_network import LocalRouter
from tests.network.harness import END_S, UNSETTLED, Experiment, Load, assert_nothing_wrong, network_under_load
from tests.router.worker_group import wait_restarted, workers_of

pytestmark = pytest.mark.slow

LOAD = Load(
    publishers={"p1": "r1", "p2": "r1", "p3": "r1"},
    subscribers={"s1": "r1", "s2": "r1", "s3": "r1"},
    messages=9_000,
    seconds=9.0,
)
"""Whose worker each client is at, the kernel decides; there is one address."""


async def busiest_worker(experiment: Experiment, router: LocalRouter) -> int:
    """Wait until enough is unsettled through a worker; the number of the one with most."""
    places = {str(number): f"{router.http}/workers/{number}" for number in workers_of(router)}
    ends_at = time.monotonic() + END_S
    async with aiohttp.ClientSession() as session:
        while True:
            experiment.trial.look()
            found = await read_states(session, places)
            most = max(found.values(), key=lambda state: state.unsettled, default=None)
            if most is not None and most.unsettled >= UNSETTLED:
                return int(most.router)
            assert time.monotonic() < ends_at, found
            await asyncio.sleep(LOOK_S)


async def kill_the_busiest(experiment: Experiment, name: str) -> None:
    """And wait for the one that takes its place."""
    await kill_worker(experiment, name, await busiest_worker(experiment, experiment.network.routers[name]))


async def kill_worker(experiment: Experiment, name: str, number: int) -> None:
    """And wait for the one that takes its place."""
    former = workers_of(experiment.network.routers[name])[number]
    os.kill(former, signal.SIGKILL)
    await experiment.trial.meanwhile(wait_restarted(experiment.network, name, number, former))


async def test_the_busiest_worker_is_killed_twice(tmp_path: Path) -> None:
    async with network_under_load(tmp_path, LOAD, routers=1, settings={"workers": "2"}) as experiment:
        for part in (0.25, 0.6):
            await experiment.until_published(part)
            await kill_the_busiest(experiment, "r1")
        verdict = await experiment.verdict()
        assert_nothing_wrong(experiment, verdict)
        assert verdict.total("resumed") >= 1


async def test_workers_are_drained_one_after_the_other(tmp_path: Path) -> None:
    async with network_under_load(tmp_path, LOAD, routers=1, settings={"workers": "2"}) as experiment:
        router = experiment.network.routers["r1"]
        for part, number in ((0.2, 2), (0.5, 1)):
            await experiment.until_published(part)
            former = workers_of(router)[number]
            os.kill(former, signal.SIGTERM)
            await experiment.trial.meanwhile(wait_restarted(experiment.network, "r1", number, former))
        verdict = await experiment.verdict()
        assert_nothing_wrong(experiment, verdict)
