"""K-8a: an operator restarts a network router by router under load, and no client notices but for a short pause."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from chaos.clients.client_process import ClientProcess
from chaos.clients.events import Accepted, Disconnected, Processed
from tests.network.harness import Experiment, Load, assert_nothing_wrong, network_under_load

pytestmark = pytest.mark.slow

LOAD = Load(
    publishers={"p1": "r1", "p2": "r2"},
    subscribers={"s1": "r2", "s2": "r3", "s3": "r1"},
    messages=9_000,
    seconds=9.0,
    batch=50,
    batch_s=0.05,
)
"""Each router has clients of both kinds, or gets them when the one before it drains."""


def longest_gap(client: ClientProcess, kind: type[Accepted] | type[Processed]) -> float:
    """Seconds between two batches of outcomes that the client wrote down, at most."""
    times = [event.t for event in client.history() if isinstance(event, kind)]
    return max((later - earlier for earlier, later in pairwise(times)), default=0.0)


def print_gaps(experiment: Experiment) -> None:
    """For the reader: no machine is fast enough for all tests to rely on it."""
    trial = experiment.trial
    gaps = {name: longest_gap(client, Accepted) for name, client in trial.publishers.items()}
    gaps |= {name: longest_gap(client, Processed) for name, client in trial.subscribers.items()}
    print("longest gaps:", {name: f"{gap:.2f} s" for name, gap in gaps.items()})  # noqa: T201


def causes(client: ClientProcess) -> list[str]:
    """Why the client lost its link, each time."""
    return [event.reason for event in client.history() if isinstance(event, Disconnected)]


async def test_every_router_is_drained_and_started_again_under_load(tmp_path: Path) -> None:
    async with network_under_load(tmp_path, LOAD) as experiment:
        for part, router in ((0.2, "r1"), (0.45, "r2"), (0.7, "r3")):
            await experiment.until_published(part)
            await experiment.trial.meanwhile(experiment.network.terminate(router))
            await experiment.trial.meanwhile(experiment.network.restart(router))
        verdict = await experiment.verdict()
        print_gaps(experiment)
        assert_nothing_wrong(experiment, verdict)
        for client in experiment.trial.clients:
            assert causes(client), f"{client.plan.name} was never sent away"
            assert all("amqp:connection:redirect" in cause for cause in causes(client)), causes(client)
