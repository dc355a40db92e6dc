"""SIGKILL of clients with a durable journal: the next process goes on where the dead one was, exactly once."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.clients.client_process import ClientProcess
from chaos.clients.events import Opened
from tests.network.harness import UNSETTLED, Experiment, Load, assert_nothing_wrong, assert_resumed, network_under_load

pytestmark = pytest.mark.slow

DURABLE = Load(publishers={"p1": "r1", "p2": "r2"}, subscribers={"s1": "r2", "s2": "r3"}, durable=True)


async def kill_and_start_again(experiment: Experiment, client: ClientProcess, router: str) -> None:
    """Kill the client while enough is unsettled through its router; its next process has the same journal."""
    await experiment.strikes.choose(UNSETTLED, [router])
    await client.kill()
    await client.start()


async def test_a_publisher_is_killed_and_goes_on_from_its_journal(tmp_path: Path) -> None:
    async with network_under_load(tmp_path, DURABLE) as experiment:
        publisher = experiment.trial.publishers["p1"]
        for part in (0.25, 0.6):
            await experiment.until_published(part)
            await kill_and_start_again(experiment, publisher, "r1")
        verdict = await experiment.verdict()
        assert_nothing_wrong(experiment, verdict)
        assert_resumed(experiment, "p1")
        assert sum(isinstance(event, Opened) for event in publisher.history()) == 3


async def test_a_subscriber_is_killed_and_has_processed_each_message_once(tmp_path: Path) -> None:
    async with network_under_load(tmp_path, DURABLE) as experiment:
        subscriber = experiment.trial.subscribers["s2"]
        for part in (0.25, 0.6):
            await experiment.until_published(part)
            await kill_and_start_again(experiment, subscriber, "r3")
        verdict = await experiment.verdict()
        assert_nothing_wrong(experiment, verdict)
        assert_resumed(experiment, "s2")
        assert sum(isinstance(event, Opened) for event in subscriber.history()) == 3


async def test_a_publisher_a_subscriber_and_their_routers_are_killed_at_once(tmp_path: Path) -> None:
    async with network_under_load(tmp_path, DURABLE) as experiment:
        await experiment.until_published(0.3)
        targets = [await experiment.target("r3"), await experiment.target("r1")]
        publisher, subscriber = experiment.trial.publishers["p1"], experiment.trial.subscribers["s2"]
        await experiment.strikes.kill_all(targets)
        await publisher.kill()
        await subscriber.kill()
        await publisher.start()
        await subscriber.start()
        verdict = await experiment.verdict()
        assert_nothing_wrong(experiment, verdict)
        assert_resumed(experiment, "p1", "s2")
