"""Networks that are not a full mesh: nothing comes twice round a ring, nothing leaks in a chain that breaks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from chaos.clients.events import Received
from router.commands.local_network import Edge, ring
from tests.network.harness import Load, assert_nothing_wrong, network_under_load

pytestmark = pytest.mark.slow


async def test_no_message_comes_twice_round_a_ring_of_four_without_any_fault(tmp_path: Path) -> None:
    load = Load(
        publishers={"p1": "r1", "p2": "r3"},
        subscribers={"s1": "r1", "s2": "r2", "s3": "r3", "s4": "r4"},
        messages=4_000,
        seconds=3.0,
    )
    async with network_under_load(tmp_path, load, routers=4, edges=ring(["r1", "r2", "r3", "r4"])) as experiment:
        verdict = await experiment.verdict()
        assert_nothing_wrong(experiment, verdict)
        sent = sum(client.counts["sent"] for client in experiment.trial.publishers.values())
        for subscriber in experiment.trial.subscribers.values():
            received = [(e.publisher, e.seq) for e in subscriber.history() if isinstance(e, Received)]
            assert len(received) == len(set(received)) == sent >= load.messages
        assert not verdict.total("redelivered")
        assert not verdict.total("resumed")


async def test_nothing_leaks_when_the_middle_of_a_chain_is_killed_between_accept_and_settle(tmp_path: Path) -> None:
    """A -> B <- C (skupper-router #1817): what C's subscriber accepted and nobody settled yet must not stay."""
    load = Load(publishers={"p1": "r1"}, subscribers={"s1": "r3"}, messages=5_000, seconds=5.0)
    edges = [Edge("r1", "r2"), Edge("r3", "r2")]
    async with network_under_load(tmp_path, load, edges=edges) as experiment:
        await experiment.until_published(0.3)
        await experiment.target("r3")
        # While B is stopped the accepts of C's subscriber cannot be answered: all that is there is in between.
        experiment.network.sigstop("r2")
        between = await experiment.until_finished("r3")
        await experiment.strikes.kill(replace(between, router="r2"))
        await experiment.trial.meanwhile(experiment.network.restart("r2"))
        verdict = await experiment.verdict()  # which waits until no router holds a record
        assert_nothing_wrong(experiment, verdict)
