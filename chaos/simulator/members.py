"""Which routers are members: leases, cuts from etcd, outages, stalls, fences and restarts (K-1, K-3, K-3a, K-8)."""

from __future__ import annotations

from chaos.simulator import coverage
from chaos.simulator.amqp_sessions import AmqpSessions
from chaos.simulator.etcd import LEASE_TTL_S
from chaos.simulator.judge import Judge
from chaos.simulator.routers import Router, record_of
from chaos.simulator.state import Feed, StopRouter, WorldState
from chaos.simulator.steps import Choice
from chaos.simulator.store_access import StoreAccess
from delivery_records.model import inputs
from delivery_records.model.view import Kind, RouterRecord, router_key

KEEP_ALIVE_S = 1.0
"""Between two keep-alives: what routers do (`topology.members.membership`)."""


class Members:
    """The routers of a world as members of the network."""

    def __init__(
        self,
        world: WorldState,
        judge: Judge,
        amqp_sessions: AmqpSessions,
        store: StoreAccess,
        feed: Feed,
        stop_router: StopRouter,
    ) -> None:
        """Serve `world`."""
        self._world = world
        self._etcd = world.etcd
        self._judge = judge
        self._amqp_sessions = amqp_sessions
        self._store = store
        self._feed = feed
        self._stop_router = stop_router
        self._is_put_back = False
        """Older data were put back, and no router has started since."""

    def grant(self, router: Router) -> None:
        """A new incarnation takes its lease."""
        world = self._world
        if world.traits.leases:
            now = world.now
            router.lease = world.cores.lease_clock(LEASE_TTL_S, KEEP_ALIVE_S, router.clock(now))
            self._etcd.leases[router.rid] = now + LEASE_TTL_S

    def choices(self) -> list[Choice]:
        """What etcd has for routers; leases end, the dead start again, the isolated fence themselves or are healed."""
        found: list[Choice] = []
        world = self._world
        revision, now = self._etcd.revision, world.now
        known = max(router.seen for router in world.routers) if self._is_put_back else 0
        for router in world.routers:
            if router.records is None:
                # K-9: one that remembers less than another notices nothing (What stays open, 4).
                if self._etcd.is_up and router.seen >= known:
                    found.append(("r.restart", router.index))
            elif now >= router.stalled_until:
                if not router.is_isolated and (router.seen < revision or router.must_reload):
                    found.append(("r.watch", router.index))
                if router.replies:
                    found.append(("r.reply", router.index))
                self._add_ends(found, router)
        if self._etcd.is_up:
            found += [("k.lease", rid) for rid in self._ended_leases()]
        else:
            found.append(("k.return", 0))
        return found

    def _add_ends(self, found: list[Choice], router: Router) -> None:
        """An isolated router fences itself, or is healed before."""
        lease = router.lease
        if lease is None:
            if router.is_isolated:
                found.append(("r.fence", router.index))
            return
        if router.is_isolated and self._etcd.is_up:
            found.append(("r.rejoin", router.index))
        if not lease.vet(router.clock(self._world.now)):
            found.append(("r.fence", router.index))

    def _ended_leases(self) -> list[int]:
        """With leases: those whose time is over. Else: any of a router that is dead or has fenced itself (N-3)."""
        world = self._world
        if world.traits.leases:
            return [rid for rid, end in self._etcd.leases.items() if world.now >= end]
        return [rid for rid in self._etcd.routers if world.router_of(rid) is None]

    def deadlines(self) -> list[float]:
        """When something here happens by itself: a stall is over, a fence falls due, a lease ends."""
        world = self._world
        found = [r.stalled_until for r in world.routers if r.records is not None and r.is_stalled(world.now)]
        if not world.traits.leases or not self._etcd.is_up:
            return found
        for rid, end in self._etcd.leases.items():
            router = world.router_of(rid)
            if router is None or not self._keeps_alive(router):
                found.append(end)
        return found + [
            max(router.when(router.lease.deadline), router.stalled_until)
            for router in world.routers
            if router.lease is not None and not self._keeps_alive(router)
        ]

    def _keeps_alive(self, router: Router) -> bool:
        if router.records is None or router.is_isolated or not self._etcd.is_up:
            return False
        return not (router.is_frozen and router.is_stalled(self._world.now))

    def keep_leases_alive(self) -> None:
        """Keep-alives that are due. Nothing is read between two steps, so one stands for all before it."""
        for router in self._world.routers:
            if router.lease is not None and self._keeps_alive(router):
                reading = router.clock(self._world.now)
                if reading < router.lease.next_keep_alive:
                    continue
                if self._etcd.renew(router.rid, self._world.now):
                    router.lease.keep_alive_sent(reading)
                    router.lease.keep_alive_succeeded(reading)
                else:
                    router.lease.lose()

    def end_lease(self, rid: int) -> None:
        """A lease runs out, or is revoked."""
        self._etcd.leases.pop(rid, None)
        holder = self._world.router_of(rid)
        for client in self._world.clients():
            # For the others its link is gone now, whatever the client and its router still believe (K-5).
            if holder is not None and client.connection is not None and client.connection.router == holder.index:
                self._judge.on_left(client)
        self._amqp_sessions.on_router_lost(rid)
        self._world.coverage[coverage.LEASE_FIRST] += holder is not None and holder.is_stalled(self._world.now)
        for (kind, key), held in list(self._etcd.keys.items()):
            if kind is Kind.ROUTER and isinstance(held.record, RouterRecord) and held.record.rid == rid:
                self._etcd.delete(kind, key)

    # ------------------------------------------------------------------ faults and their ends

    def isolate(self, index: int) -> None:
        """Cut a router off from etcd."""
        router = self._world.routers[index]
        router.is_isolated = True
        if router.records is not None:
            self._feed(router, [inputs.StoreHealth(False)])

    def rejoin(self, index: int) -> None:
        """The cut is over before the router has fenced itself."""
        router = self._world.routers[index]
        self._world.coverage[coverage.SURVIVED_CUT] += 1
        router.is_isolated = False
        self._feed(router, [inputs.StoreHealth(True)])

    def stall(self, index: int, milliseconds: int) -> None:
        """The router's event loop is stalled."""
        router = self._world.routers[index]
        router.stalled_until = self._world.now + milliseconds / 1000
        router.is_frozen = False

    def freeze(self, index: int, milliseconds: int) -> None:
        """The whole process is stopped (SIGSTOP), and no keep-alive is sent."""
        self.stall(index, milliseconds)
        self._world.routers[index].is_frozen = True

    def fence(self, index: int) -> None:
        """K-3: the fence deadline is over, or seems to be."""
        rid = self._world.routers[index].rid
        self._world.coverage[coverage.FENCED] += self._etcd.leases.get(rid, 0.0) > self._world.now
        self._stop_router(index)

    def outage(self) -> None:
        """The whole of etcd is away for everybody; its data is safe."""
        self._etcd.is_up = False
        for router in self._world.routers:
            if router.records is not None and not router.is_isolated:
                self.isolate(router.index)

    def come_back(self) -> None:
        """The store is there again; the routers find that out one by one."""
        self._etcd.come_back(self._world.now)

    def leave(self, index: int) -> None:
        """K-8: an orderly stop. Clients are disconnected, the key says so, the lease is revoked."""
        router = self._world.routers[index]
        self._stop_router(index)
        leaving = record_of(router, leaving=True)
        if (Kind.ROUTER, router_key(leaving)) in self._etcd.keys:
            self._etcd.start_router(leaving)
            self.end_lease(router.rid)

    def compact(self) -> None:
        """Nothing older than now can be watched any more (K-4)."""
        self._etcd.compacted = self._etcd.revision

    def cancel_watch(self, index: int) -> None:
        """A router's watch breaks: only a snapshot helps (K-4)."""
        self._world.routers[index].must_reload = True

    def restore(self, back: int) -> None:
        """A backup that lacks the last `back` revisions is restored by the book: a new nonce, all routers restarted."""
        self._go_back(back)
        self._draw_nonce()

    def roll_back(self, back: int) -> None:
        """The same under the same cluster id and without a new nonce: nobody is notified (K-9)."""
        self._go_back(back)
        self._is_put_back = True

    def _go_back(self, back: int) -> None:
        self.black_out()
        world = self._world
        self._store.forget()
        self._etcd.restore(max(0, self._etcd.revision - back))
        self._etcd.is_up = True
        self._etcd.leases.clear()
        if world.traits.leases:
            for (kind, _), held in self._etcd.keys.items():
                if kind is Kind.ROUTER and isinstance(held.record, RouterRecord):
                    self._etcd.leases[held.record.rid] = world.now + LEASE_TTL_S
        world.restores += 1
        self._judge.on_restore()

    def _draw_nonce(self) -> None:
        """`oncewire cluster new-nonce`."""
        self._world.nonces += 1
        self._world.nonce_revision = self._etcd.next_epoch

    def check_history(self, router: Router) -> None:
        """K-9: a router that starts refuses data that lack what it remembers; an operator confirms them."""
        self._is_put_back = False
        if router.history.why_lost(self._world.nonce, self._etcd.revision):
            self._draw_nonce()

    def black_out(self) -> None:
        """All routers at once (G8)."""
        for router in self._world.routers:
            if router.records is not None:
                self._stop_router(router.index)
