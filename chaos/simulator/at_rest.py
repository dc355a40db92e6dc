"""What a world must look like at rest: everybody attached and done (G5), nothing kept anywhere (G6)."""

from __future__ import annotations

from chaos.simulator.judge import Judge
from chaos.simulator.operators import Operators
from chaos.simulator.routers import Router
from chaos.simulator.state import WorldState
from chaos.simulator.violation import Violation
from delivery_records.model.view import Kind, RouterRecord


def check_rest(world: WorldState, judge: Judge, operators: Operators) -> None:
    """Ask the clients, the routers and etcd.

    Raises:
        Violation: BLOCKED or LEAK.
    """
    _check_publishers(world)
    _check_subscribers(world, judge)
    operators.check_rest()
    for router in world.routers:
        if router.records is None:
            raise Violation(f"BLOCKED: router {router.index} does not come back")
        _check_router(world, router)
    live = {router.rid for router in world.routers}
    for (kind, key), held in world.etcd.keys.items():
        if kind is Kind.ROUTER and isinstance(held.record, RouterRecord) and held.record.rid not in live:
            raise Violation(f"LEAK: etcd keeps {key}, an incarnation that is gone")


def _check_publishers(world: WorldState) -> None:
    for publisher in world.publishers:
        if left := publisher.leftover():
            raise Violation(f"BLOCKED: p{publisher.index} {left}")
        if not publisher.is_wanted:
            is_kept = (Kind.PUBLISHER, world.publisher_key(publisher.index)) in world.etcd.keys
            if is_kept and not world.traits.mortals:  # there the session of a ghost outlasts the world
                raise Violation(f"LEAK: the key of p{publisher.index} is there after it was closed")
        elif publisher.connection is None or not publisher.is_replied:
            raise Violation(f"BLOCKED: p{publisher.index} is not attached again")
        elif publisher.is_closing:
            raise Violation(f"BLOCKED: the close of p{publisher.index} is never answered")


def _check_subscribers(world: WorldState, judge: Judge) -> None:
    for subscriber in world.subscribers:
        index = subscriber.index
        if left := subscriber.leftover():
            raise Violation(f"LEAK: s{index} {left}")
        if not subscriber.is_wanted:
            if judge.has_key(index):
                raise Violation(f"LEAK: the subscription of s{index} is back after it was closed")
            continue
        if world.comes_later(subscriber):
            continue  # a publisher closed before it sent what the late joiner waits for
        if subscriber.connection is None or not subscriber.is_replied:
            raise Violation(f"BLOCKED: s{index} is not attached again")
        if subscriber.is_closing:
            raise Violation(f"BLOCKED: the close of s{index} is never answered")
        weaker = world.is_at_most_once(index) or world.is_stock_subscriber(index)
        if not weaker and not judge.is_confirmed(index):
            raise Violation(f"BLOCKED: s{index} is never notified that its subscription counts")


def _check_router(world: WorldState, router: Router) -> None:
    assert router.records is not None
    for ingress in router.records.ingresses.values():
        if len(ingress.window):
            raise Violation(f"LEAK: router {router.index} keeps records of {ingress.name}")
        if any(any(share.assignments().values()) for share in ingress.fanout.shares.values()):
            raise Violation(f"LEAK: router {router.index} keeps assignments of {ingress.name}")
    for egress in router.records.egresses.values():
        # Another cluster's entries, named by its nonce, stay until the application decides (c.3).
        if any(entries for session, entries in egress.sessions.items() if session[:4] == world.nonce):
            raise Violation(f"LEAK: router {router.index} keeps entries of {egress.name}")
        if egress.outgoing.held:
            raise Violation(f"LEAK: router {router.index} holds {egress.outgoing.held} deliveries of {egress.name}")
