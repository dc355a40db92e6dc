"""The simulated world: routers with real record cores, a simulated etcd, clients, and all that is under way.

Nothing happens by itself: `choices()` lists what may happen next, `do()` makes it happen. A schedule, seeded or
written by hand, decides the order; so every interleaving of messages, watches, timers and faults can be reached.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from chaos.simulator.clients import PLAIN, TIMEOUT_S, Connection, Mark, Publisher, Subscriber, Traits
from chaos.simulator.cores import SHIPPED, Cores
from chaos.simulator.etcd import SimEtcd
from chaos.simulator.judge import Judge
from chaos.simulator.stock_clients import StockPublisher, StockSubscriber
from delivery_records import effects, inputs
from delivery_records.limits import Limits
from delivery_records.records import Records
from delivery_records.tags import link_key
from delivery_records.view import Kind, RouterRecord, router_key

NONCE = b"test"
Choice: TypeAlias = tuple[str, int] | tuple[str, int, int]


@dataclass(slots=True)
class Router:
    """One router process; `records` is None while it is down or fenced."""

    index: int
    rid: int = 0
    records: Records | None = None
    seen: int = 0
    """Revisions of the etcd log its watch has delivered."""
    is_isolated: bool = False
    """Cut off from etcd; its lease runs out after it fenced itself (N-3)."""
    replies: deque[inputs.Input] = field(default_factory=deque)


class World:
    """Routers, publishers and subscribers, and what is under way."""

    def __init__(
        self, routers: int, publishers: int, subscribers: int, messages: int, *,
        window: int = 4, prefetch: int = 2, traits: Traits = PLAIN, cores: Cores = SHIPPED,
    ) -> None:  # fmt: skip
        """Start all routers; no client is attached yet."""
        self.now = 0.0
        self.traits = traits
        self.limits = Limits(window=window, publisher_timeout_s=TIMEOUT_S)
        self.cores = cores
        self.etcd = SimEtcd()
        self.judge = Judge(self)
        self.connections: dict[int, Connection] = {}
        self.frames: dict[tuple[int, int], deque[inputs.Input]] = {}
        """(sender's rid, receiver's rid) -> what is under way."""
        self.story: list[Choice] = []
        self.on_turn: Callable[[Router, list[effects.Effect]], None] | None = None
        """Called with the effects of each router turn, for whoever writes the story down."""
        self._links: dict[str, int] = {}
        self.routers = [Router(index) for index in range(routers)]
        for router in self.routers:
            self.start_router(router.index)
        stock_publisher = publishers - 1 if traits.stock_publisher else None
        stock_subscriber = subscribers - 1 if traits.stock_subscriber else None
        self.publishers = [
            (StockPublisher if index == stock_publisher else Publisher)(self, index, messages)
            for index in range(publishers)
        ]
        self.subscribers = [
            (StockSubscriber if index == stock_subscriber else Subscriber)(self, index, prefetch)
            for index in range(subscribers)
        ]

    def is_stock_publisher(self, index: int) -> bool:
        """True for a publisher without a map."""
        return isinstance(self.publishers[index], StockPublisher)

    def is_stock_subscriber(self, index: int) -> bool:
        """True for a subscriber without a map."""
        return isinstance(self.subscribers[index], StockSubscriber)

    def clients(self) -> list[Publisher | Subscriber]:
        """All publishers and subscribers."""
        return [*self.publishers, *self.subscribers]

    def subscription_key(self, index: int) -> str:
        """The etcd key of a subscriber's attachment."""
        return link_key(f"s{index}", "link")

    def publisher_key(self, index: int) -> str:
        """The etcd key of a publisher's attachment."""
        return link_key(f"p{index}", "link")

    # ------------------------------------------------------------------ routers

    def start_router(self, index: int) -> None:
        """K-1: key under a lease, snapshot at a revision >= that put, then the watch."""
        router = self.routers[index]
        router.rid = router.rid + 1 if router.rid else 100 * (index + 1)
        router.is_isolated = False
        router.replies.clear()
        self.etcd.start_router(RouterRecord(f"r{index}", router.rid))
        router.records = self.cores.records(
            rid=router.rid, node_id=f"r{index}", nonce=NONCE, limits=self.limits
        )
        revision, entries = self.etcd.snapshot()
        router.seen = revision
        self.feed(router, [inputs.StoreHealth(True), inputs.ViewSnapshot(revision, entries)])

    def stop_router(self, index: int) -> None:
        """Crash, or fence (K-3): all memory is gone and all its connections drop."""
        router = self.routers[index]
        router.records = None
        router.replies.clear()
        for connection in self.connections.values():
            if connection.router == index:
                connection.up.clear()
                self._drop_client_of(connection)
        for pair in [pair for pair in self.frames if pair[1] == router.rid]:
            del self.frames[pair]

    def _drop_client_of(self, connection: Connection) -> None:
        for client in self.clients():
            if client.connection is connection:
                client.disconnect()

    def lose_frames_of(self, index: int) -> None:
        """What a router had under way is lost, too."""
        for pair in [pair for pair in self.frames if pair[0] == self.routers[index].rid]:
            del self.frames[pair]

    def router_of(self, rid: int) -> Router | None:
        """The live router with this incarnation."""
        return next((r for r in self.routers if r.rid == rid and r.records is not None), None)

    def open(self, client: str, router: int) -> Connection:
        """A client's new link at a router, numbered per client, so that shortened stories stay readable."""
        self._links[client] = self._links.get(client, 0) + 1
        kind, index = client[0], int(client[1:])
        link = (10_000 if kind == "p" else 20_000) + 100 * index + self._links[client]
        connection = Connection(link, router, deque(), deque())
        self.connections[link] = connection
        return connection

    # ------------------------------------------------------------------ steps

    def feed(self, router: Router, batch: list[inputs.Input]) -> None:
        """One turn of a router, and what its effects set under way."""
        assert router.records is not None
        self._carry_out(router, router.records.handle(batch, self.now))

    def run_timers(self, router: Router) -> None:
        """Let due deadlines happen."""
        assert router.records is not None
        self._carry_out(router, router.records.handle_timer(self.now))

    def _carry_out(self, router: Router, done: list[effects.Effect]) -> None:
        if self.on_turn is not None and done:
            self.on_turn(router, done)
        for effect in done:
            if isinstance(effect, effects.PeerSend):
                for rid, generation, sequence in effect.targets:
                    frame = inputs.PeerFrame(router.rid, generation, sequence, effect.message)
                    self.frames.setdefault((router.rid, rid), deque()).append(frame)
            elif isinstance(effect, effects.PeerSendDatagram):
                datagram = inputs.PeerDatagram(router.rid, effect.message)
                self.frames.setdefault((router.rid, effect.rid), deque()).append(datagram)
            elif isinstance(effect, effects.Read):
                self._read(router, effect)
            elif isinstance(effect, effects.Propose):
                self._propose(router, effect)
            elif not isinstance(effect, effects.Note):
                connection = self.connections.get(effect.link)
                if connection is not None and connection.is_open:
                    connection.down.append(effect)

    def _read(self, router: Router, read: effects.Read) -> None:
        if router.is_isolated:
            router.replies.append(inputs.StoreFailed(read.nonce, inputs.Failure.UNAVAILABLE))
        else:
            router.replies.append(self.etcd.read(read.nonce, read.key))

    def _propose(self, router: Router, propose: effects.Propose) -> None:
        if router.is_isolated:
            router.replies.append(inputs.StoreFailed(propose.nonce, inputs.Failure.UNAVAILABLE))
        elif not self.etcd.compare_and_swap(propose.key, propose.expect, propose.record):
            router.replies.append(inputs.StoreFailed(propose.nonce, inputs.Failure.CONFLICT))

    def choices(self) -> list[Choice]:
        """Everything that may happen next without a fault."""
        found: list[Choice] = []
        for index, publisher in enumerate(self.publishers):
            if publisher.connection is None:
                found += [("p.connect", index, r.index) for r in self._usable()]
            elif publisher.can_send():
                found.append(("p.send", index))
        for index, subscriber in enumerate(self.subscribers):
            if subscriber.connection is None and subscriber.is_wanted:
                found += [("s.connect", index, r.index) for r in self._usable()]
            if subscriber.can_process():
                found.append(("s.process", index))
            if self.traits.refuses and subscriber.can_refuse():
                found += [("s.reject", index), ("s.release", index), ("s.fail", index)]
        found += [("c.recv", link) for link, c in self.connections.items() if c.down]
        for link, connection in self.connections.items():
            if self.routers[connection.router].records is not None and (
                connection.up or not connection.is_open
            ):
                found.append(("r.recv", link))
        for (sender, receiver), under_way in self.frames.items():
            if under_way and self.router_of(receiver) is not None:
                found.append(("r.frame", sender, receiver))
        found += self._store_choices()
        found += self._lease_choices()
        return found

    def _store_choices(self) -> list[Choice]:
        """What etcd has for routers: events of the watch, and answers."""
        found: list[Choice] = []
        for router in self.routers:
            if router.records is not None:
                if router.seen < self.etcd.revision and not router.is_isolated:
                    found.append(("r.watch", router.index))
                if router.replies:
                    found.append(("r.reply", router.index))
        return found

    def _usable(self) -> list[Router]:
        return [router for router in self.routers if router.records is not None and not router.is_isolated]

    def _lease_choices(self) -> list[Choice]:
        """Leases of the dead run out; the dead start again; the isolated fence themselves or heal."""
        found: list[Choice] = []
        for (kind, _), held in self.etcd.keys.items():
            if kind is Kind.ROUTER:
                assert isinstance(held.record, RouterRecord)
                if self.router_of(held.record.rid) is None:
                    found.append(("k.lease", held.record.rid))
        for router in self.routers:
            if router.records is None:
                found.append(("r.restart", router.index))
            elif router.is_isolated:
                found.append(("r.fence", router.index))
        return found

    def do(self, choice: Choice) -> None:
        """Make one thing happen."""
        self.story.append(choice)
        if choice[0] == "!expire-p" or (choice[0] == "wait" and int(choice[1]) > TIMEOUT_S * 500):
            self.judge.may_expire = True
        verb, arguments = str(choice[0]), [int(part) for part in choice[1:]]
        _ACTIONS[verb](self, *arguments)

    def advance(self, seconds: float) -> None:
        """Let time pass, and everything that falls due meanwhile happen at its own moment."""
        target = self.now + seconds
        while True:
            due = [
                (deadline, router.index)
                for router in self.routers
                if router.records is not None and (deadline := router.records.next_deadline()) is not None
            ]
            if not due or min(due)[0] > target:
                break
            deadline, index = min(due)
            self.now = max(self.now, deadline)
            self.run_timers(self.routers[index])
        self.now = target

    def next_deadline(self) -> float | None:
        """The earliest deadline of any router."""
        deadlines = [
            deadline
            for router in self.routers
            if router.records is not None and (deadline := router.records.next_deadline()) is not None
        ]
        return min(deadlines, default=None)

    # ------------------------------------------------------------------ actions

    def client_receive(self, link: int) -> None:
        """A client reads one frame."""
        connection = self.connections[link]
        effect = connection.down.popleft()
        for client in self.clients():
            if client.connection is connection:
                client.receive(effect)
                return

    def router_receive(self, link: int) -> None:
        """A router reads one frame of a client; behind the last one of a dead connection it sees the loss."""
        connection = self.connections[link]
        router = self.routers[connection.router]
        if connection.up:
            self.feed(router, [connection.up.popleft()])
        else:
            del self.connections[link]
            self.feed(router, [inputs.LinkLost(link)])

    def router_frame(self, sender: int, receiver: int) -> None:
        """A router reads one frame of another router."""
        router = self.router_of(receiver)
        assert router is not None
        self.feed(router, [self.frames[(sender, receiver)].popleft()])

    def watch(self, index: int) -> None:
        """The watch delivers one more revision."""
        router = self.routers[index]
        change = self.etcd.log[router.seen]
        router.seen += 1
        if change.kind is Kind.ROUTER and change.record is None and change.key == _key_of(router):
            self.stop_router(index)  # K-3: its own key is gone
        else:
            self.feed(router, [inputs.ViewChanges(change.mod_revision, [change])])

    def reply(self, index: int) -> None:
        """An answer of etcd arrives."""
        router = self.routers[index]
        self.feed(router, [router.replies.popleft()])

    def end_lease(self, rid: int) -> None:
        """A dead router's lease runs out."""
        for (kind, key), held in list(self.etcd.keys.items()):
            if kind is Kind.ROUTER and isinstance(held.record, RouterRecord) and held.record.rid == rid:
                self.etcd.delete(kind, key)

    def delete_key(self, kind: Kind, key: str) -> None:
        """K-5 decides: the attachment has expired."""
        if (kind, key) in self.etcd.keys:
            self.etcd.delete(kind, key)

    def isolate(self, index: int) -> None:
        """Cut a router off from etcd."""
        router = self.routers[index]
        router.is_isolated = True
        if router.records is not None:
            self.feed(router, [inputs.StoreHealth(False)])

    def reset_channel(self, one: int, other: int) -> None:
        """Everything under way between two routers is lost."""
        rids = self.routers[one].rid, self.routers[other].rid
        self.frames.pop(rids, None)
        self.frames.pop((rids[1], rids[0]), None)


def _key_of(router: Router) -> str:
    return router_key(RouterRecord(f"r{router.index}", router.rid))


_ACTIONS: dict[str, Callable[..., None]] = {
    "p.connect": lambda world, p, r: world.publishers[p].connect(r),
    "p.send": lambda world, p: world.publishers[p].send(),
    "s.connect": lambda world, s, r: world.subscribers[s].connect(r),
    "s.process": lambda world, s: world.subscribers[s].process(),
    "s.reject": lambda world, s: world.subscribers[s].process(Mark.REJECTED),
    "s.release": lambda world, s: world.subscribers[s].process(Mark.RELEASED),
    "s.fail": lambda world, s: world.subscribers[s].process(Mark.FAILED),
    "c.recv": World.client_receive,
    "r.recv": World.router_receive,
    "r.frame": World.router_frame,
    "r.watch": World.watch,
    "r.reply": World.reply,
    "r.restart": World.start_router,
    "r.fence": World.stop_router,
    "k.lease": World.end_lease,
    "!crash": World.stop_router,
    "!lose": World.lose_frames_of,
    "!drop-p": lambda world, p: world.publishers[p].disconnect(),
    "!drop-s": lambda world, s: world.subscribers[s].disconnect(),
    "!isolate": World.isolate,
    "!reset": World.reset_channel,
    "!expire-s": lambda world, s: world.delete_key(Kind.SUBSCRIPTION, world.subscription_key(s)),
    "!expire-p": lambda world, p: world.delete_key(Kind.PUBLISHER, world.publisher_key(p)),
    "!crash-p": lambda world, p: world.publishers[p].crash(),
    "!crash-s": lambda world, s: world.subscribers[s].crash(),
    "!close-s": lambda world, s: world.subscribers[s].close(),
    "wait": lambda world, ms: world.advance(ms / 1000),
}
