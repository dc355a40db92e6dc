"""What a fault may hit, and how many deliveries are unsettled through each.

* A router: the windows of publishers there and the entries of subscriptions there.
* A link between routers: the entries of subscriptions at one end whose publishers are all at the other end (or, in a
  chain, on the other side of the link). Subscriptions with publishers on both sides are not counted, so this is a
  lower bound.
* A member of etcd, or etcd as a whole: everything, for all routers live by it.
* A client: its own window or entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

from chaos.clients.client_plan import PublisherPlan, SubscriberPlan
from chaos.clients.client_process import ClientProcess
from chaos.experiments.plans import (
    UNSETTLED_AT_FAULT,
    ClientSignal,
    EtcdFault,
    FaultPlan,
    FullDisk,
    Partition,
    Path,
    RouterSignal,
    Shape,
    ToxicFault,
)
from chaos.experiments.proxied_network import ProxiedNetwork, Wire
from chaos.network.network_state import RouterState
from chaos.network.trial import Trial
from delivery_records.model.topics import matches
from oncewire.client.source_terms import member_name

ETCD = "etcd"


@dataclass(frozen=True, slots=True)
class Target:
    """What a fault hits, at the instant it was chosen."""

    name: str
    unsettled: int
    router: RouterState | None = None
    wires: tuple[Wire, ...] = ()
    client: ClientProcess | None = None
    reach: frozenset[str] = frozenset()
    """Names of the processes that are struck and of the connections that are hit by it or go with them."""

    @property
    def is_loaded(self) -> bool:
        """Whether enough deliveries are unsettled through it."""
        return self.unsettled >= UNSETTLED_AT_FAULT

    def hides(self, other: Target) -> bool:
        """Whether nobody could notice the one fault, because all it hits is hit by the other too."""
        return self.reach <= other.reach or other.reach <= self.reach


def targets_of(
    fault: FaultPlan, states: Mapping[str, RouterState], network: ProxiedNetwork, trial: Trial, shape: Shape
) -> list[Target]:
    """All that this fault could hit now, whatever the load there.

    Args:
        fault: what is to happen.
        states: what each router says of itself.
        network: where the proxies are.
        trial: where the clients are.
        shape: how the routers are linked.
    """
    match fault:
        case EtcdFault():
            return [_everything(states, ())]
        case ClientSignal(role=role) | FullDisk(role=role):
            clients = trial.publishers if role == "publisher" else trial.subscribers
            return [_client(client, states) for client in clients.values()]
        case RouterSignal():
            return [_process(state, network) for state in states.values()]
        case ToxicFault(path=Path.ROUTERS_ETCD) | Partition(path=Path.ROUTERS_ETCD):
            return [_everything(states, tuple(network.wires_of(Path.ROUTERS_ETCD, "")))]
        case ToxicFault(path=Path.ROUTER_ROUTER) | Partition(path=Path.ROUTER_ROUTER):
            return [_link(wire, states, trial, shape) for wire in network.wires[Path.ROUTER_ROUTER]]
        case ToxicFault(path=Path.ROUTER_NETWORK) | Partition(path=Path.ROUTER_NETWORK):
            return [_island(state, network, states, trial) for state in states.values()]
        case ToxicFault(path=path) | Partition(path=path):
            return [_router(state, tuple(network.wires_of(path, state.router))) for state in states.values()]


def _names(wires: Iterable[Wire]) -> frozenset[str]:
    return frozenset(wire.name for wire in wires)


def _process(state: RouterState, network: ProxiedNetwork) -> Target:
    with_it = (
        wire for wires in network.wires.values() for wire in wires if state.router in (wire.dialer, wire.acceptor)
    )
    return Target(state.router, state.unsettled, state, reach=_names(with_it) | {state.router})


def _router(state: RouterState, wires: tuple[Wire, ...]) -> Target:
    return Target(state.router, state.unsettled, state, wires, reach=_names(wires))


def _everything(states: Mapping[str, RouterState], wires: tuple[Wire, ...]) -> Target:
    unsettled = sum(state.unsettled for state in states.values())
    return Target(ETCD, unsettled, wires=wires, reach=_names(wires) | {ETCD})


def _client(client: ClientProcess, states: Mapping[str, RouterState]) -> Target:
    state = states.get(client.router)
    unsettled = 0 if state is None else _records_of(client, state)
    return Target(client.name, unsettled, client=client, reach=frozenset({client.name}))


def _link(wire: Wire, states: Mapping[str, RouterState], trial: Trial, shape: Shape) -> Target:
    near, far = {wire.dialer}, {wire.acceptor}
    if shape is Shape.CHAIN:
        # Routers of a chain are named in its order, and each dials the next one.
        near = {name for name in states if name <= wire.dialer}
        far = states.keys() - near
    crossing = _crossing(near, far, states, trial)
    return Target(wire.name, crossing, states.get(wire.acceptor), (wire,), reach=_names([wire]))


def _island(state: RouterState, network: ProxiedNetwork, states: Mapping[str, RouterState], trial: Trial) -> Target:
    wires = tuple(network.wires_of(Path.ROUTER_NETWORK, state.router))
    alone = {state.router}
    crossing = _crossing(alone, states.keys() - alone, states, trial)
    return Target(state.router, crossing, state, wires, reach=_names(wires))


def _crossing(near: Set[str], far: Set[str], states: Mapping[str, RouterState], trial: Trial) -> int:
    """Entries of subscriptions on one side whose publishers are all on the other side."""
    count = 0
    for subscriber in trial.subscribers.values():
        state = states.get(subscriber.router)
        sources = {each.router for each in trial.publishers.values() if _feeds(each, subscriber)}
        if state is None or not sources:
            continue
        if (subscriber.router in near and sources <= far) or (subscriber.router in far and sources <= near):
            count += _records_of(subscriber, state)
    return count


def _feeds(publisher: ClientProcess, subscriber: ClientProcess) -> bool:
    assert isinstance(publisher.plan, PublisherPlan)
    assert isinstance(subscriber.plan, SubscriberPlan)
    return matches(subscriber.plan.address, publisher.plan.topic)


def _records_of(client: ClientProcess, state: RouterState) -> int:
    """What a router holds for one client: its window, or the entries of its subscription."""
    # Records are known by container-id and link name; a client of ours uses its name for both.
    share = client.plan.share if isinstance(client.plan, SubscriberPlan) else None
    record = f"{client.name}/{member_name(share, client.name)}"
    return sum(count for what, count in state.records.items() if what.endswith(f" of {record}"))
