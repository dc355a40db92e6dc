"""Routers of the previous release and of this tree in one network, under load: an upgrade router by router (K-8a)."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.network.harness import Experiment, Load, assert_nothing_wrong, network_under_load
from tests.support.previous_release import install_previous_release

pytestmark = [pytest.mark.slow, pytest.mark.needs("previous-release")]

LOAD = Load(
    publishers={"p1": "r1", "p2": "r2"},
    subscribers={"s1": "r2", "s2": "r3", "s3": "r1"},
    messages=6_000,
    seconds=8.0,
    batch=50,
    batch_s=0.05,
)


def package_in_use(environment: dict[str, str]) -> Path:
    """Where a router process with these variables has its code from."""
    command = [sys.executable, "-P", "-c", "import router; print(router.__file__)"]
    found = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    return Path(found.stdout.strip())


async def restart_with(experiment: Experiment, router: str, environment: dict[str, str]) -> None:
    """End a router in good order and start it as another version."""
    network = experiment.network
    await network.terminate(router)
    network.routers[router].environment = environment
    await network.restart(router)


async def test_a_network_of_the_previous_release_is_upgraded_router_by_router(tmp_path: Path) -> None:
    old = await asyncio.to_thread(install_previous_release, tmp_path / "release")
    previous = {"PYTHONPATH": str(old)}
    assert package_in_use(previous).is_relative_to(old)
    assert not package_in_use({}).is_relative_to(old)
    async with network_under_load(tmp_path, LOAD, environment=previous) as experiment:
        # The last step takes one back: an upgrade that disappoints can be undone.
        for part, router, version in ((0.1, "r1", {}), (0.3, "r2", {}), (0.5, "r3", {}), (0.7, "r2", previous)):
            await experiment.until_published(part)
            await experiment.trial.meanwhile(restart_with(experiment, router, version))
        verdict = await experiment.verdict()
        assert_nothing_wrong(experiment, verdict)
