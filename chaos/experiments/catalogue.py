"""All experiments by name. `random` is made from a seed; the others are the same each time but for who is hit."""

from __future__ import annotations

import random
import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace

from chaos.experiments.plans import (
    HELD_S,
    LONG_LEASE,
    SHARED,
    STEADY,
    ClientSignal,
    EtcdFault,
    Expectation,
    Experiment,
    FaultPlan,
    FullDisk,
    Manner,
    Member,
    Partition,
    Path,
    RouterSignal,
    Shape,
    ToxicFault,
    Way,
)

PROXIED = (Path.CLIENT_ROUTER, Path.ROUTER_ROUTER, Path.ROUTER_ETCD)
TOXICS: Mapping[str, Mapping[str, int]] = {
    "latency": {"latency": 400, "jitter": 200},
    # A tenth of what a publisher sends.
    "bandwidth": {"rate": 5},
    "timeout": {"timeout": 700},
    "reset_peer": {"timeout": 0},
    # Frames in pieces of 7 bytes or so, 50 us apart: every header and performative is torn.
    "slicer": {"average_size": 7, "size_variation": 5, "delay": 50},
    "limit_data": {"bytes": 20_000},
    "slow_close": {"delay": 3_000},
}
"""Toxiproxy's toxics, with the values that are used: each is felt, and leaves the network able to work."""
LEAVE_S = 8.0
"""How long the network waits for members that never come back: longer than others need to find another router."""
MIXED = "random"
"""Name of the experiment that is drawn from the seed."""
MIXED_ROUNDS = 6
"""Rounds of the experiment `random`."""
MIXED_TOGETHER = 3
"""Faults that happen together in it at most."""


def _singly(*faults: FaultPlan) -> list[list[FaultPlan]]:
    return [[fault] for fault in faults]


def _toxic_rounds(toxic: str) -> list[list[FaultPlan]]:
    attributes = TOXICS[toxic]
    kills = toxic == "slow_close"
    faults = [ToxicFault(toxic, path, attributes, and_kill=kills) for path in PROXIED]
    faults += [ToxicFault(toxic, Path.CLIENT_ROUTER, attributes, way, and_kill=kills) for way in (Way.IN, Way.OUT)]
    return _singly(*faults)


def _partition_rounds(path: Path, seconds: float) -> list[list[FaultPlan]]:
    faults = [_partition(path, manner, Way.BOTH, seconds) for manner in Manner]
    faults += [
        _partition(path, manner, way, seconds) for manner in (Manner.SILENT, Manner.HELD) for way in (Way.IN, Way.OUT)
    ]
    return _singly(*faults)


def _partition(path: Path, manner: Manner, way: Way, seconds: float) -> Partition:
    return Partition(path, manner, way, HELD_S if manner is Manner.HELD else seconds)


def _toxic_experiments() -> list[Experiment]:
    return [
        Experiment(
            name=toxic.replace("_", "-"),
            summary=f"Toxiproxy's {toxic} on connections of clients, of routers and with etcd",
            rounds=_toxic_rounds(toxic),
            expectation=Expectation(resumes=toxic in {"timeout", "reset_peer", "limit_data", "slow_close"}),
        )
        for toxic in TOXICS
    ]


def _partitions() -> list[Experiment]:
    return [
        Experiment(
            "partition-clients",
            "nothing gets through between one router and its clients: cut, silent, held, one-way",
            _partition_rounds(Path.CLIENT_ROUTER, 4.0),
        ),
        Experiment(
            "partition-routers",
            "nothing gets through on one link of a mesh: cut, silent, held, one-way",
            _partition_rounds(Path.ROUTER_ROUTER, 5.0),
            Expectation(resumes=False, fences=False),
        ),
        Experiment(
            "partition-chain",
            "nothing gets through on one link of a chain, and there is no other way",
            _singly(
                *(_partition(Path.ROUTER_ROUTER, manner, Way.BOTH, 5.0) for manner in Manner),
                Partition(Path.ROUTER_ROUTER, Manner.SILENT, Way.IN, 5.0),
            ),
            Expectation(resumes=False, fences=False),
            shape=Shape.CHAIN,
        ),
        Experiment(
            "island",
            "one router reaches etcd and its clients, and no other router",
            _singly(*(_partition(Path.ROUTER_NETWORK, manner, Way.BOTH, 5.0) for manner in Manner)),
            Expectation(resumes=False, fences=False),
        ),
        Experiment(
            "partition-etcd-short",
            "one router, then all of them, without etcd for less than their leases allow",
            _singly(
                *(
                    Partition(path, manner, Way.BOTH, 3.0)
                    for path in (Path.ROUTER_ETCD, Path.ROUTERS_ETCD)
                    for manner in (Manner.CUT, Manner.SILENT)
                )
            ),
            Expectation(resumes=False, fences=False),
            settings=LONG_LEASE,
        ),
        Experiment(
            "partition-etcd",
            "one router without etcd beyond its lease: cut, silent, held, one-way; then all of them",
            [*_partition_rounds(Path.ROUTER_ETCD, 8.0), [Partition(Path.ROUTERS_ETCD, Manner.SILENT, Way.BOTH, 8.0)]],
            Expectation(fences=True),
        ),
    ]


def _processes() -> list[Experiment]:
    return [
        Experiment(
            "kill",
            "SIGKILL of routers, in the end of two at once",
            [*_singly(*[RouterSignal(signal.SIGKILL)] * 3), [RouterSignal(signal.SIGKILL)] * 2],
            Expectation(fences=False),
        ),
        Experiment(
            "stop",
            "SIGSTOP of routers beyond their leases, while a subscriber joins",
            _singly(RouterSignal(signal.SIGSTOP, subscriber_joins=True), RouterSignal(signal.SIGSTOP)),
            Expectation(fences=True),
        ),
        Experiment(
            "terminate",
            "SIGTERM of one router after the other",
            _singly(*[RouterSignal(signal.SIGTERM, 0.5)] * 3),
            Expectation(fences=False),
        ),
        Experiment(
            "kill-clients",
            "SIGKILL of publishers and subscribers that keep durable journals",
            _singly(*[ClientSignal("publisher"), ClientSignal("subscriber")] * 2),
            load=replace(STEADY, is_durable=True),
        ),
        Experiment(
            "full-disk",
            "the journal of a publisher, then of a subscriber, cannot be written",
            _singly(FullDisk("publisher"), FullDisk("subscriber")),
            load=replace(STEADY, is_durable=True),
        ),
        Experiment(
            "etcd-leader",
            "the leader of three etcd members is killed, or stopped; it comes back",
            _singly(EtcdFault(Member.LEADER), EtcdFault(Member.LEADER, signal.SIGSTOP), EtcdFault(Member.LEADER)),
            Expectation(resumes=False, fences=False),
            etcd_members=3,
            settings=LONG_LEASE,
        ),
        Experiment(
            "etcd-member",
            "a follower of three etcd members is killed, or stopped; it comes back",
            _singly(EtcdFault(Member.FOLLOWER), EtcdFault(Member.FOLLOWER, signal.SIGSTOP), EtcdFault(Member.FOLLOWER)),
            Expectation(resumes=False, fences=False),
            etcd_members=3,
            settings=LONG_LEASE,
        ),
    ]


def _shared() -> list[Experiment]:
    member = ClientSignal("subscriber")
    stopped = replace(member, number=signal.SIGSTOP, seconds=4.0)
    gone = ClientSignal("subscriber", returns=False)
    return [
        Experiment(
            "shared",
            "four members of a shared subscription, killed or stopped beside routers, and back in time",
            [
                *_singly(member, stopped),
                [member, member],
                [member, RouterSignal(signal.SIGKILL)],
                [stopped, RouterSignal(signal.SIGSTOP)],
                *_singly(RouterSignal(signal.SIGKILL), member),
            ],
            load=SHARED,
        ),
        Experiment(
            "shared-leave",
            "members of a shared subscription are killed and never come back: others get what they had",
            [[gone], [gone, RouterSignal(signal.SIGKILL)], [RouterSignal(signal.SIGKILL)]],
            load=replace(SHARED, timeout_s=LEAVE_S),
        ),
    ]


def mixed(seed: int) -> Experiment:
    """The experiment `random` of a seed: rounds of up to three faults of any kind at once."""
    chance = random.Random(f"mixed {seed}")
    return Experiment(
        name=MIXED,
        summary="faults of all kinds together, drawn from the seed",
        rounds=[_draw_round(chance) for _ in range(MIXED_ROUNDS)],
        etcd_members=3,
        load=replace(STEADY, is_durable=True),
    )


def _draw_round(chance: random.Random) -> Sequence[FaultPlan]:
    drawn: list[FaultPlan] = []
    for _ in range(chance.randint(1, MIXED_TOGETHER)):
        fault = _draw(chance)
        if not any(fault.places & other.places for other in drawn):
            drawn.append(fault)
    return drawn


def _draw(chance: random.Random) -> FaultPlan:
    role = chance.choice(("publisher", "subscriber"))
    toxic = chance.choice([each for each in TOXICS if each != "slow_close"])
    path = chance.choice(list(Path))
    seconds = chance.choice((1.0, 2.0, 4.0, 7.0))
    way = chance.choice(list(Way))
    manner = chance.choice(list(Manner)) if way is Way.BOTH else chance.choice((Manner.SILENT, Manner.HELD))
    number = chance.choice((signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM))
    return chance.choice(
        (
            ToxicFault(toxic, path, TOXICS[toxic], way, seconds),
            _partition(path, manner, way, seconds),
            RouterSignal(number, seconds),
            EtcdFault(chance.choice(list(Member)), chance.choice((signal.SIGKILL, signal.SIGSTOP)), seconds),
            ClientSignal(role, seconds),
        )
    )


def catalogue(seed: int) -> dict[str, Experiment]:
    """All experiments by name; `seed` makes `random`."""
    experiments = [*_toxic_experiments(), *_partitions(), *_processes(), *_shared(), mixed(seed)]
    return {experiment.name: experiment for experiment in experiments}
