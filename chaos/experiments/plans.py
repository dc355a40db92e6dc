"""Experiments as data: what is broken, for how long, under which load, and what must hold at the end.

That nothing is lost, duplicated, reordered or stuck, and that every fault met deliveries under way, is asked of every
experiment; `Expectation` holds what else is.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import ClassVar, TypeAlias

from chaos.clients.layout import Load

UNSETTLED_AT_FAULT = 100
"""Deliveries that must be unsettled through a fault's target when it fires."""
LEASE = "etcd.lease_ttl_s"
"""The routers' setting: how long etcd keeps a router's key without hearing of it, in seconds."""


class Place(Enum):
    """What a fault takes hold of. Two faults at one place would hide each other."""

    CLIENT_CONNECTIONS = "connections of clients"
    LINKS = "links between routers"
    ETCD_CONNECTIONS = "connections with etcd"
    ROUTERS = "routers"
    CLIENTS = "clients"
    ETCD = "etcd"


class Path(Enum):
    """Between whom a connection is. All of them lead through Toxiproxy."""

    CLIENT_ROUTER = "client-router"
    """All clients' connections with one router."""
    ROUTER_ROUTER = "router-router"
    """One link between two routers."""
    ROUTER_NETWORK = "router-network"
    """All links of one router: it still reaches etcd and its clients."""
    ROUTER_ETCD = "router-etcd"
    """One router's connections with every member of etcd."""
    ROUTERS_ETCD = "routers-etcd"
    """Every router's connections with every member of etcd."""

    @property
    def places(self) -> frozenset[Place]:
        """What a fault on this path takes hold of."""
        return _PLACES[self]


_PLACES = {
    Path.CLIENT_ROUTER: frozenset({Place.CLIENT_CONNECTIONS}),
    Path.ROUTER_ROUTER: frozenset({Place.LINKS}),
    Path.ROUTER_NETWORK: frozenset({Place.LINKS}),
    Path.ROUTER_ETCD: frozenset({Place.ETCD_CONNECTIONS}),
    # Where nobody reaches any member, nobody notices that one is gone.
    Path.ROUTERS_ETCD: frozenset({Place.ETCD_CONNECTIONS, Place.ETCD}),
}


class Way(Enum):
    """Which direction is hit, seen from the target router; of a link between two, from the one that listens."""

    BOTH = "both ways"
    IN = "inward"
    OUT = "outward"


class Manner(Enum):
    """What a partition does to a connection."""

    CUT = "cut"
    """Connections are closed, and new ones refused."""
    SILENT = "silent"
    """Connections stay, what is sent on them is gone, and they are closed when the partition ends."""
    HELD = "held"
    """Connections stay, nothing gets through, and all of it comes when the partition ends, as TCP would repeat it.
    Only for less than HELD_S: Toxiproxy is slow to end it where either side has given its connection up meanwhile."""


@dataclass(frozen=True, slots=True)
class ToxicFault:
    """A toxic of Toxiproxy on all connections of a path, for a while."""

    toxic: str
    """Toxiproxy's name of it."""
    path: Path
    attributes: Mapping[str, int]
    """As Toxiproxy documents them."""
    way: Way = Way.BOTH
    seconds: float = 2.0
    and_kill: bool = False
    """SIGKILL the router at the same instant: what a late close is about."""

    @property
    def kind(self) -> str:
        """Name of the fault in results."""
        kill = " with SIGKILL" if self.and_kill else ""
        return f"{self.toxic}{kill} {self.path.value}{_one_way(self.way)}"

    @property
    def places(self) -> frozenset[Place]:
        """What it takes hold of."""
        return self.path.places

    def __str__(self) -> str:
        values = ", ".join(f"{name} {value}" for name, value in self.attributes.items())
        kill = ", with SIGKILL of the router" if self.and_kill else ""
        return f"{self.toxic} {self.path.value} {self.way.value} ({values}) for {self.seconds:g} s{kill}"


def _one_way(way: Way) -> str:
    return "" if way is Way.BOTH else f" {way.value}"


HELD_S = 1.2
"""Shorter than any silence after which a client (2 s), a router (2 s, of which a heartbeat may be half a second old)
or a call of etcd (3 s) is given up."""


@dataclass(frozen=True, slots=True)
class Partition:
    """Nothing gets through on a path, for a while."""

    path: Path
    manner: Manner
    way: Way = Way.BOTH
    seconds: float = 4.0

    @property
    def kind(self) -> str:
        """Name of the fault in results."""
        return f"{self.manner.value} partition {self.path.value}{_one_way(self.way)}"

    @property
    def places(self) -> frozenset[Place]:
        """What it takes hold of."""
        return self.path.places

    def __str__(self) -> str:
        way = "" if self.way is Way.BOTH else f" {self.way.value}"
        return f"{self.manner.value} partition {self.path.value}{way} for {self.seconds:g} s"


@dataclass(frozen=True, slots=True)
class RouterSignal:
    """A signal to a router; SIGSTOP lasts until its lease has ended, the others' routers start again after a while."""

    places: ClassVar = frozenset({Place.ROUTERS})
    number: signal.Signals
    seconds: float = 2.0
    """From the end of the router to the start of its next process; without meaning for SIGSTOP."""
    subscriber_joins: bool = False
    """A subscriber joins while the router is stopped: it is confirmed only when that router can do no harm (A-6)."""

    @property
    def kind(self) -> str:
        """Name of the fault in results."""
        return self.number.name

    def __str__(self) -> str:
        if self.number is signal.SIGSTOP:
            joins = ", and a subscriber joins meanwhile" if self.subscriber_joins else ""
            return f"SIGSTOP of a router until its lease has ended{joins}"
        return f"{self.number.name} of a router, started again after {self.seconds:g} s"


class Member(Enum):
    """Which member of an etcd of three."""

    LEADER = "leader"
    FOLLOWER = "follower"


@dataclass(frozen=True, slots=True)
class EtcdFault:
    """SIGKILL of a member of etcd, which is started again, or SIGSTOP and SIGCONT."""

    places: ClassVar = frozenset({Place.ETCD})
    member: Member
    number: signal.Signals = signal.SIGKILL
    seconds: float = 4.0

    @property
    def kind(self) -> str:
        """Name of the fault in results."""
        return f"{self.number.name} etcd {self.member.value}"

    def __str__(self) -> str:
        back = "goes on" if self.number is signal.SIGSTOP else "is started again"
        return f"{self.number.name} of etcd's {self.member.value}, which {back} after {self.seconds:g} s"


@dataclass(frozen=True, slots=True)
class ClientSignal:
    """A signal to a client with a durable journal: its next process goes on from it, and after SIGSTOP it goes on."""

    places: ClassVar = frozenset({Place.CLIENTS})
    role: str
    """publisher or subscriber"""
    seconds: float = 1.0
    number: signal.Signals = signal.SIGKILL
    returns: bool = True
    """Whether it comes back; only a member of a shared subscription may be gone for good."""

    @property
    def kind(self) -> str:
        """Name of the fault in results."""
        return f"{self.number.name} {self.role}{'' if self.returns else ', gone for good'}"

    def __str__(self) -> str:
        if not self.returns:
            return f"{self.number.name} of a {self.role}, which never comes back"
        back = "which goes on" if self.number is signal.SIGSTOP else "started again"
        return f"{self.number.name} of a {self.role}, {back} after {self.seconds:g} s"


@dataclass(frozen=True, slots=True)
class FullDisk:
    """A client's files can grow no more, so that its journal cannot be written; it ends, and is started with room."""

    places: ClassVar = frozenset({Place.CLIENTS})
    role: str
    """publisher or subscriber"""
    seconds: float = 1.0

    @property
    def kind(self) -> str:
        """Name of the fault in results."""
        return f"full disk {self.role}"

    def __str__(self) -> str:
        return f"full disk of a {self.role}, which is started with room {self.seconds:g} s after it ended"


FaultPlan: TypeAlias = ToxicFault | Partition | RouterSignal | EtcdFault | ClientSignal | FullDisk


@dataclass(frozen=True, slots=True)
class Expectation:
    """What must hold besides a clean verdict."""

    resumes: bool = True
    """At least one link is resumed: the faults were felt."""
    fences: bool | None = None
    """Whether a router gives up its incarnation though its process lives on (K-3); None = it may or may not."""


class Shape(Enum):
    """How the routers are linked."""

    MESH = "mesh"
    CHAIN = "chain"


PUBLISHERS = {"p1": "load/p1", "p2": "load/p2", "p3": "load/p3"}
# In this order each begins at another router than its publisher, so that all links between routers have a load.
SUBSCRIBERS = {"s2": "load/p2", "s3": "load/p3", "s1": "load/p1", "all": "load/*"}
STEADY = Load(
    publishers=PUBLISHERS,
    subscribers=SUBSCRIBERS,
    # More than any experiment sends: publishers are stopped when the last fault is over.
    rows=300_000,
    rate=250.0,
    # Four seconds of messages: a publisher goes on for as long as a router may be silent.
    window=1_000,
    # Like a program that commits many rows at a time: up to 200 deliveries of each are unsettled at any instant.
    batch=200,
    batch_s=0.8,
)
SHARED = replace(
    STEADY,
    subscribers=dict.fromkeys(("w1", "w2", "w3", "w4"), "load/*"),
    share="workers",
    is_durable=True,
    least=20_000,
    groups=20,
)
"""Four members of one shared subscription, at all routers; half of the messages are in groups, which come in order."""
QUICK_LEASE = {LEASE: "5"}
"""A router is fenced after 3.3 s without etcd and its key is gone after 5 s: fit for rehearsing."""
LONG_LEASE = {LEASE: "10"}
"""The default: a change of etcd's leader takes up to 3 s, in which no router may be fenced."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """A network, a load, and what is done to it."""

    name: str
    summary: str
    rounds: Sequence[Sequence[FaultPlan]]
    """What happens together; a round begins when the one before is over and every client has messages again."""
    expectation: Expectation = Expectation()
    routers: int = 3
    shape: Shape = Shape.MESH
    etcd_members: int = 1
    load: Load = STEADY
    settings: Mapping[str, str] = field(default_factory=lambda: QUICK_LEASE)

    @property
    def plans(self) -> list[FaultPlan]:
        """All its faults."""
        return [fault for together in self.rounds for fault in together]

    @property
    def faults(self) -> int:
        """How many faults it fires."""
        return len(self.plans)

    @property
    def situation(self) -> str:
        """What is added to the name of every fault: members that wait for each other cost something else."""
        return "" if self.load.share is None else f", {self.name}"

    def kind_of(self, fault: FaultPlan) -> str:
        """Name of the fault in results: where the network makes another fault of it, that is said too."""
        if self.situation:
            return f"{fault.kind}{self.situation}"
        if not isinstance(fault, Partition):
            return fault.kind
        if fault.path is Path.ROUTER_ROUTER and self.shape is Shape.CHAIN:
            return f"{fault.kind}, no other way"
        if Place.ETCD_CONNECTIONS in fault.places and fault.seconds > float(self.settings[LEASE]):
            return f"{fault.kind}, beyond the lease"
        return fault.kind
