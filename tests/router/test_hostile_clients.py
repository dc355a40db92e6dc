"""Seeded fuzz of linked routers, with subscriptions at other routers: whatever clients send, no incarnation ends.

A longer run: ``pytest tests/router/test_hostile_clients.py --fuzz-streams 20000 --fuzz-seed 7``.
"""

from __future__ import annotations

import asyncio
import random
import sys

import aiohttp
import pytest

from chaos.fuzz.hostile import TOPIC, HostileClient
from oncewire.wire import Source, Symbol, Target, ULong
from router.commands.local_network import LocalNetwork
from tests.router.honest_pair import others_lose_nothing
from tests.router.raw_client import EXACTLY_ONCE, RawClient, RawSubscriber
from tests.router.test_network import port_of, state_of

ROUTERS = ("r1", "r2", "r3")
AT_ONCE = 12
"""Hostile clients at one time: they steal from each other, and the routers still have turns for the honest ones."""


pytestmark = pytest.mark.routers(len(ROUTERS))


async def _assert_first_incarnation(network: LocalNetwork) -> None:
    for name in ROUTERS:
        state = await state_of(network, name)
        assert state["incarnations"] == 1, f"{name} began {state['incarnations']} incarnations"
        async with aiohttp.ClientSession() as session:
            answer = await session.get(f"{network.routers[name].http}/metrics")
            text = await answer.text()
        faults = [line for line in text.splitlines() if line.startswith("oncewire_faults_total{")]
        assert faults
        assert all(line.endswith(" 0.0") for line in faults), faults


@pytest.mark.parametrize("length", [33, 300])
async def test_a_map_with_a_long_tag_is_refused_and_ends_no_incarnation(network: LocalNetwork, length: int) -> None:
    """A.3: the SYNC to the other router could not be encoded, and the router's incarnation ended."""
    async with others_lose_nothing(port_of(network, "r1"), port_of(network, "r2")):
        other = await (await RawClient.connect(port_of(network, "r2"))).subscriber(TOPIC)
        attacker = await RawClient.connect(port_of(network, "r1"), "attacker")
        before = await attacker.publisher(TOPIC)  # a session: a map with unsettled entries is taken now
        before.link.detach(False)
        attacker.flush()
        await attacker.detached(before.link)
        link = attacker.session.attach_sender(
            "pub",
            source=Source(address="pub"),
            target=Target(address=TOPIC),
            unsettled={b"t" * length: None},
            desired_capabilities=[EXACTLY_ONCE],
        )
        attacker.flush()
        event = await attacker.first_end_or_echo(link)
        if isinstance(event, int):  # what used to happen: the proof of life makes U and its SYNC
            link.flow({Symbol("x-opt-topic-echo"): ULong(event)})
            attacker.flush()
        refusal = await attacker.detached(link)
        assert refusal.error is not None
        assert refusal.error.condition == "amqp:invalid-field"
        assert "32 bytes" in (refusal.error.description or "")
        assert other.link.is_attached
    await _assert_first_incarnation(network)


@pytest.mark.slow
async def test_no_client_ends_an_incarnation_or_harms_others(
    network: LocalNetwork, request: pytest.FixtureRequest
) -> None:
    streams, seed = request.config.getoption("--fuzz-streams"), request.config.getoption("--fuzz-seed")
    sys.stdout.write(f"repeat with --fuzz-streams {streams} --fuzz-seed {seed}\n")
    numbers = iter(range(streams))
    seen: list[bytes] = []
    remote = await (await RawClient.connect(port_of(network, "r2"), "remote")).subscriber("fuzz/#", credit=1_000_000)
    accepting = asyncio.create_task(_accept_all(remote))

    async def attack() -> None:
        for number in numbers:
            rng = random.Random(f"{seed} {number}")
            port = port_of(network, rng.choice(("r1", "r1", "r3")))
            await HostileClient(rng, seen).run(port)
            del seen[:-100]

    try:
        async with others_lose_nothing(port_of(network, "r1"), port_of(network, "r2")):
            await asyncio.gather(*(attack() for _ in range(AT_ONCE)))
    finally:
        accepting.cancel()
    await _assert_first_incarnation(network)


async def _accept_all(subscriber: RawSubscriber) -> None:
    while True:
        for event in subscriber.take_deliveries():
            subscriber.accept(event)
        await subscriber.client.news()
