"""Routers that drain before they stop (K-8a), and what is promised to their clients."""

from __future__ import annotations

from chaos.simulator import coverage
from chaos.simulator.connections import SimulatedConnection
from chaos.simulator.judge import Judge
from chaos.simulator.marks import Mark
from chaos.simulator.members import Members
from chaos.simulator.routers import Router, record_of
from chaos.simulator.state import Feed, StopRouter, WorldState
from chaos.simulator.steps import Choice
from chaos.simulator.stock_clients import StockPublisher, StockSubscriber
from chaos.simulator.violation import Violation
from delivery_records.model import effects, inputs
from delivery_records.model.limits import DRAIN_CHECK_S
from delivery_records.model.parts import Part
from delivery_records.model.view import Kind, router_key

REDIRECT = "amqp:connection:redirect"


class Drains:
    """The draining routers of a world."""

    def __init__(self, world: WorldState, judge: Judge, members: Members, feed: Feed, stop_router: StopRouter) -> None:
        """Serve `world`."""
        self._world = world
        self._judge = judge
        self._members = members
        self._feed = feed
        self._stop_router = stop_router

    def begin(self, index: int, milliseconds: int) -> None:
        """The router is asked to stop: it takes no connection, its key says so, and its clients are to move."""
        world = self._world
        router = world.routers[index]
        if router.drains_until is not None:
            return
        limit_s = milliseconds / 1000
        router.drains_until = router.clock(world.now) + limit_s
        record = record_of(router)
        if world.etcd.is_up and not router.is_isolated and (Kind.ROUTER, router_key(record)) in world.etcd.keys:
            world.etcd.start_router(record)
        links = [[link] for link, connection in world.connections.items() if connection.router == index]
        self._feed(router, [inputs.Drain(links, limit_s)])

    def choices(self) -> list[Choice]:
        """A drained router stops when its last client is gone.

        Raises:
            Violation: one has clients beyond its limit.
        """
        found: list[Choice] = []
        world = self._world
        for router in world.routers:
            if router.records is None or router.drains_until is None or router.is_stalled(world.now):
                continue
            if not router.records.links:
                found.append(("r.drained", router.index))
            else:
                self._check_limit(router)
        return found

    def _check_limit(self, router: Router) -> None:
        assert router.records is not None
        assert router.drains_until is not None
        clock = router.clock(self._world.now)
        due = router.records.next_deadline()
        has_overslept = due is not None and due <= clock
        if clock > router.drains_until + 2 * DRAIN_CHECK_S and not has_overslept:
            links = sorted(router.records.links)
            raise Violation(f"BLOCKED: router {router.index} has drained to its limit and still holds links {links}")

    def end(self, index: int) -> None:
        """K-8: everybody is gone, and so is the router."""
        router = self._world.routers[index]
        if router.is_isolated:
            self._stop_router(index)
        else:
            self._members.leave(index)

    def on_close(self, router: Router, connection: SimulatedConnection, effect: effects.CloseConnection) -> None:
        """A connection is closed; at rest if that is a drain's doing and its limit is not reached."""
        world = self._world
        if effect.condition != REDIRECT or router.drains_until is None:
            return
        if router.clock(world.now) >= router.drains_until:
            world.coverage[coverage.DRAIN_LIMIT] += 1
            return
        client = world.client_of(connection)
        if isinstance(client, StockSubscriber):
            world.coverage[coverage.LEFT_AT_REST] += 1
            self._judge.on_left_at_rest(client.index, client.done_here)
        elif isinstance(client, StockPublisher):
            world.coverage[coverage.LEFT_AT_REST] += 1
            self._check_doubt(client, connection)

    def _check_doubt(self, publisher: StockPublisher, connection: SimulatedConnection) -> None:
        """K-8a: what it will send again, for it keeps no map, is what the router has never read."""
        under_way = [*connection.up, *publisher.parts.waiting(connection)]
        begun = [
            item.message if isinstance(item, inputs.PublisherTransfer) else item.data
            for item in under_way
            if isinstance(item, inputs.PublisherTransfer)
            or (isinstance(item, inputs.LargeTransfer) and item.part is Part.FIRST)
        ]
        unread = {int.from_bytes(beginning[1:5], "big") for beginning in begun}
        again = set(publisher.resend) if publisher.is_replied else set(publisher.map)
        doubted = [
            number
            for number, mark in publisher.map.items()
            if mark is Mark.NONE and number not in unread and number not in again
        ]
        if doubted:
            raise Violation(f"DOUBT: p{publisher.index} leaves at rest and must send {doubted} again")
