"""A router that was stopped beyond its lease: it must know, and nothing it does late may count."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.network.harness import Load, assert_nothing_wrong, network_under_load

pytestmark = pytest.mark.slow

SPREAD = Load(publishers={"p1": "r1", "p2": "r2"}, subscribers={"s1": "r2", "s2": "r3"}, messages=8_000, seconds=8.0)


async def test_a_router_stopped_beyond_its_lease_fences_itself_and_nothing_is_lost(tmp_path: Path) -> None:
    async with network_under_load(tmp_path, SPREAD, settings={"etcd.lease_ttl_s": "4"}) as experiment:
        await experiment.until_published(0.2)
        target = await experiment.target("r2")
        await experiment.trial.meanwhile(experiment.strikes.stop_beyond_lease(target))
        verdict = await experiment.verdict()
        assert_nothing_wrong(experiment, verdict)
        assert verdict.total("resumed") >= 2
