"""etcd away under load: for a short while nobody notices; for a long one routers stop accepting, nothing is lost."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from chaos.checker import longest_gap_within
from chaos.clients.events import Accepted
from tests.network.harness import Experiment, Load, assert_nothing_wrong, assert_resumed, network_under_load

pytestmark = pytest.mark.slow

SPREAD = Load(publishers={"p1": "r1", "p2": "r2"}, subscribers={"s1": "r2", "s2": "r3"}, messages=8_000, seconds=8.0)
LEASE_S = 10.0
FENCE_S = LEASE_S * 2 / 3
"""K-3: routers stop accepting this long after their last keep-alive was sent."""
SLACK_S = 1.0
"""A keep-alive may have been sent just before etcd went away; closing connections takes a moment."""
SETTINGS = {"etcd.lease_ttl_s": f"{LEASE_S:g}"}


async def incarnations(experiment: Experiment) -> dict[str, int]:
    states = await experiment.trial.states(list(experiment.network.routers))
    return {router: state.incarnation for router, state in states.items()}


async def test_etcd_is_unreachable_for_3_s_and_no_router_fences(tmp_path: Path) -> None:
    async with network_under_load(tmp_path, SPREAD, settings=SETTINGS) as experiment:
        await experiment.until_published(0.2)
        for router in ("r1", "r2", "r3"):
            await experiment.target(router)
        before = await incarnations(experiment)
        etcd = experiment.network.etcd
        assert etcd is not None
        began = time.monotonic()
        etcd.pause()
        await experiment.trial.meanwhile(asyncio.sleep(3.0))
        etcd.resume()
        verdict = await experiment.verdict()
        assert_nothing_wrong(experiment, verdict)
        assert await incarnations(experiment) == before, "a router fenced itself"
        assert not verdict.total("resumed"), "a link was lost"
        gap = longest_gap_within(verdict.gaps, began, began + 3.0)
        assert gap is None or gap.seconds < 1.0, gap


async def test_etcd_is_unreachable_for_20_s_and_routers_stop_accepting_and_all_resume(tmp_path: Path) -> None:
    load = Load(SPREAD.publishers, SPREAD.subscribers, messages=16_000, seconds=16.0)
    async with network_under_load(tmp_path, load, settings=SETTINGS) as experiment:
        await experiment.until_published(0.1)
        for router in ("r1", "r2", "r3"):
            await experiment.target(router)
        before = await incarnations(experiment)
        etcd = experiment.network.etcd
        assert etcd is not None
        began = time.monotonic()
        await etcd.kill()
        await experiment.trial.meanwhile(asyncio.sleep(20.0))
        back = time.monotonic()
        await experiment.trial.meanwhile(etcd.restart())
        verdict = await experiment.verdict()
        assert_nothing_wrong(experiment, verdict)
        assert_resumed(experiment, "p1", "p2", "s1", "s2")
        after = await incarnations(experiment)
        assert all(after[router] not in (0, before[router]) for router in before), "a router did not fence itself"
        accepted = [
            event.t - began
            for publisher in experiment.trial.publishers.values()
            for event in publisher.history()
            if isinstance(event, Accepted) and began < event.t < back
        ]
        assert max(accepted) > FENCE_S / 2, "the routers did not serve on while their leases held"
        assert max(accepted) < FENCE_S + SLACK_S, "a router accepted after its deadline"
