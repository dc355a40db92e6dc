"""The simulated world: routers with real record cores, a simulated etcd, clients, and all that is under way.

Nothing happens by itself: `choices()` lists what may happen next, `do()` makes it happen. A schedule, seeded or
written by hand, decides the order; so every interleaving of messages, watches, timers and faults can be reached.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace

from chaos.simulator import coverage
from chaos.simulator.actions import ACTIONS
from chaos.simulator.amqp_sessions import AmqpSessions, ends_of
from chaos.simulator.at_rest import check_rest
from chaos.simulator.casting import AnyPublisher, AnySubscriber, publisher_kind, subscriber_kind
from chaos.simulator.connections import SimulatedConnection
from chaos.simulator.cores import SHIPPED, Cores
from chaos.simulator.drains import Drains
from chaos.simulator.expiry_judge import SimulatedTtl
from chaos.simulator.filters import SimulatedFilters, SimulatedGroups
from chaos.simulator.judge import Judge
from chaos.simulator.key_changes import KeyChanges
from chaos.simulator.large_parts import check_outcomes, read_part
from chaos.simulator.members import Members
from chaos.simulator.mortals import Mortals
from chaos.simulator.operators import Operators
from chaos.simulator.pairs import Pairs
from chaos.simulator.patience_judge import PatienceJudge
from chaos.simulator.peer_paths import PeerPaths
from chaos.simulator.publishers import Publisher
from chaos.simulator.roles import ClientRole
from chaos.simulator.routers import Router, key_of, record_of
from chaos.simulator.shipped_publisher import ShippedPublisher
from chaos.simulator.state import LETTER_MARK, WorldState
from chaos.simulator.steps import Choice
from chaos.simulator.store_access import StoreAccess
from chaos.simulator.strangers import Strangers
from chaos.simulator.streams_judge import StreamsJudge
from chaos.simulator.to_clients import ToClients
from chaos.simulator.traits import PLAIN, Traits
from delivery_records.model import effects, inputs
from delivery_records.model.message_format import MessageFormat
from delivery_records.model.messages import Sync
from delivery_records.model.outcomes import Decision
from delivery_records.model.view import Kind

PAUSE_S = 2.0
"""So long nobody is held up but in a pause of the schedule."""
IDLE_TIMEOUT_S = 30.0
"""What routers ask of their clients' connections."""
BATCH = 8
"""Inputs of one turn, or changes of one answer of the watch, where they come in batches."""
BACK_OFF_S = 5.0
"""A client that was refused for a steal (A-8a) does not try again at once."""
CONNECTIONS = 10_000_000
"""Numbers of connections begin here; each has the number of its first link behind it."""


class World(WorldState):
    """Routers, publishers and subscribers, and what happens among them."""

    publishers: list[AnyPublisher]
    subscribers: list[AnySubscriber]

    def __init__(
        self,
        routers: int,
        publishers: int,
        subscribers: int,
        messages: int,
        *,
        window: int = 4,
        prefetch: int = 2,
        traits: Traits = PLAIN,
        cores: Cores = SHIPPED,
    ) -> None:
        """Start all routers; no client is attached yet."""
        super().__init__(traits, cores, window)
        self.operators = Operators(self, self.feed)
        self.judge = Judge(self, self.operators)
        self.patience_judge = PatienceJudge(self)
        self.streams_judge = StreamsJudge(self)
        self.amqp_sessions = AmqpSessions(self, self.judge, self.feed)
        self.store = StoreAccess(self)
        self.members = Members(self, self.judge, self.amqp_sessions, self.store, self.feed, self.stop_router)
        self.paths = PeerPaths(self, self.feed)
        self.pairs = Pairs(self)
        self.drains = Drains(self, self.judge, self.members, self.feed, self.stop_router)
        self.strangers = Strangers(self, self.open)
        self.key_changes = KeyChanges(self, self.judge, self.amqp_sessions)
        self.mortals = Mortals(self, self.key_changes.delete)
        self._to_clients = ToClients(self, self.judge, self.patience_judge, self.amqp_sessions, self.pairs, self.drains)
        self.etcd.on_deleted = self.key_changes.on_deleted
        self.etcd.on_written = self.key_changes.on_written
        self.story: list[Choice] = []
        self.on_turn: Callable[[Router, list[effects.Effect]], None] | None = None
        """Called with the effects of each router turn, for whoever writes the story down."""
        self._has_paused = False
        """Time has passed although somebody could do something."""
        self._visited: dict[str, list[int]] = {}
        """The routers a client has connected to."""
        self.routers = [Router(index, rate=self._rate(index), history=cores.history()) for index in range(routers)]
        for router in self.routers:
            self.start_router(router.index)
        self.publishers = [
            publisher_kind(traits, index == publishers - 1)(self, self.judge, self.open, index, messages)
            for index in range(publishers)
        ]
        subscribers += traits.letters
        self.subscribers = [
            subscriber_kind(traits, index == subscribers - 1)(self, self.judge, self.open, index, prefetch)
            for index in range(subscribers)
        ]
        for late in self.subscribers[: traits.letters] if traits.late_letters else ():
            self.hold_off(late, float(traits.late_letters))

    def _rate(self, index: int) -> float:
        """N-3: one clock slow, one right, one fast."""
        percent = self.traits.slow_percent if self.traits.leases else 0
        return (1 - percent / 100, 1.0, 1 + percent / 100)[index % 3]

    # ------------------------------------------------------------------ routers

    def start_router(self, index: int) -> None:
        """K-1: key under a lease, snapshot at a revision >= that put, then the watch."""
        router = self.routers[index]
        self.members.check_history(router)
        router.rid = router.rid + 1 if router.rid else 100 * (index + 1)
        router.is_isolated = router.is_frozen = router.must_reload = False
        router.drains_until = None
        router.stalled_until = 0.0
        router.replies.clear()
        self.members.grant(router)
        self.etcd.start_router(record_of(router))
        router.records = self.cores.records(
            rid=router.rid,
            node_id=f"r{index}",
            nonce=self.nonce,
            nonce_revision=self.nonce_revision,
            limits=self.limits,
            filters=SimulatedFilters(),
            message_format=MessageFormat(
                make_letter=lambda message, _letter: message + LETTER_MARK,
                read_group=SimulatedGroups(self.traits.groups).read,
                read_ttl=SimulatedTtl(self.traits.ttl_s).read,
            ),
        )
        self._live[router.rid] = router
        revision, entries = self.etcd.snapshot()
        router.saw(self.nonce, revision)
        self.feed(router, [inputs.StoreHealth(True), inputs.ViewSnapshot(self.etcd.applied_at(revision), entries)])

    def stop_router(self, index: int) -> None:
        """Crash, or fence (K-3): all memory is gone and all its connections drop."""
        router = self.routers[index]
        self.faults += 1
        if router.records is not None:
            self.count_decisions(router)
            down = sum(other.records is None for other in self.routers)
            self.coverage[coverage.OVERLAP] += bool(down)
            self.coverage[coverage.ALL_DOWN] += down == len(self.routers) - 1
        router.records = None
        router.drains_until = None
        self._live.pop(router.rid, None)
        router.lease = None
        router.replies.clear()
        for connection in [c for c in self.connections.values() if c.router == index]:
            connection.up.clear()
            self._lose_router(connection)
        self.amqp_sessions.on_router_lost(router.rid)
        for pair in [pair for pair in self.frames if pair[1] == router.rid]:
            del self.frames[pair]

    def count_decisions(self, router: Router) -> None:
        """What the record core decided goes into the coverage before it is forgotten."""
        assert router.records is not None
        for decision, count in router.records.counts.items():
            if count:
                self.coverage[decision.value] += count

    def _lose_router(self, connection: SimulatedConnection) -> None:
        client = self.client_of(connection)
        if client is None or not self.traits.late_loss:
            if client is not None:
                client.disconnect()
            self.strangers.lose_router(connection.link)
            return
        self.judge.on_left(client)
        connection.is_dead = True
        del self.connections[connection.link]
        self.dying[connection.link] = connection

    def lose_frames_of(self, index: int) -> None:
        """What a router had under way is lost, too."""
        for pair in [pair for pair in self.frames if pair[0] == self.routers[index].rid]:
            del self.frames[pair]

    def open(self, client: str, router: int) -> SimulatedConnection:
        """A client's new link at a router, numbered per client, so that shortened stories stay readable.

        It is on a connection of its own, with one AMQP session, unless its client has kept one there.
        """
        self._links[client] = self._links.get(client, 0) + 1
        seen = self._visited.setdefault(client, [])
        if router not in seen:
            seen.append(router)
        kind, index, count = client[0], int(client[1:]), self._links[client]
        base = 10_000 if kind == "p" else 20_000
        link = base + 100 * index + count if count < 100 else 100 * base + 10_000 * index + count
        clients: list[ClientRole] = [*(self.publishers if kind == "p" else self.subscribers)]
        kept = self.amqp_sessions.take(clients[index], router)
        place = kept or self.pairs.place_behind(link)
        place = place or inputs.LinkPlace(amqp_session=link, connection=CONNECTIONS + link)
        connection = SimulatedConnection(link, router, deque(), deque(), place=place)
        self.connections[link] = connection
        return connection

    # ------------------------------------------------------------------ steps

    def feed(self, router: Router, batch: list[inputs.Input]) -> None:
        """One turn of a router, and what its effects set under way."""
        assert router.records is not None
        if self.traits.ttl_s:
            self.judge.expiry.on_turn(router, batch)
        if self.traits.stock_publisher:
            self.judge.ends.on_turn(router, batch)
        if self.traits.unread:
            self.judge.steals.on_turn(batch)
        if self.traits.streams:
            self.streams_judge.on_turn(batch)
        self._carry_out(router, router.records.handle(batch, router.clock(self.now)))
        if self.traits.streams:
            self.streams_judge.look(router)
        if self.traits.sharers:
            self.judge.shared.look(router, batch)

    def run_timers(self, router: Router) -> None:
        """Let due deadlines happen."""
        assert router.records is not None
        self._carry_out(router, router.records.handle_timer(router.clock(self.now)))
        if self.traits.streams:
            self.streams_judge.look(router)

    def _carry_out(self, router: Router, done: list[effects.Effect]) -> None:
        if self.on_turn is not None and done:
            self.on_turn(router, done)
        for effect in done:
            if isinstance(effect, effects.SendToRouters):
                for rid, generation, sequence in effect.targets:
                    self._send(router, rid, inputs.RouterFrame(router.rid, generation, sequence, effect.message))
            elif isinstance(effect, effects.SendDatagram):
                self._send(router, effect.rid, inputs.RouterDatagram(router.rid, effect.message))
            elif isinstance(effect, (effects.Read, effects.Propose)):
                self.store.ask(router, effect)
            elif isinstance(effect, effects.OrderAnswered):
                self.operators.on_answer(router, effect)
            elif isinstance(effect, effects.Faulted):
                raise effect.error  # K-3b confines a fault; here each one is a finding
            elif isinstance(effect, effects.Note):
                if effect.decision is Decision.SUBSCRIBER_SLOW:
                    self._to_clients.on_slow(effect)
                elif effect.decision is Decision.EXPIRED:
                    self.judge.on_expired(effect)
                elif effect.decision is Decision.CHANNEL_RESTARTED:
                    self.faults += self._has_paused  # T-3: a watch was late
            elif not isinstance(effect, effects.RoomAgain):
                self._to_clients.send(router, effect)

    def _send(self, router: Router, rid: int, frame: inputs.Input) -> None:
        if self.paths.cut and any((router.index, r.index) in self.paths.cut for r in self.routers if r.rid == rid):
            return
        if isinstance(frame, inputs.RouterFrame):
            self.disturbances += isinstance(frame.message, Sync)
        self.frames.setdefault((router.rid, rid), deque()).append(frame)

    def choices(self) -> list[Choice]:
        """Everything that may happen next without a fault."""
        found: list[Choice] = []
        usable = self.usable_routers()
        for publisher in self.publishers:
            if publisher.connection is None and publisher.may_connect() and self._may_try(publisher):
                found += [("p.connect", publisher.index, r.index) for r in usable]
            found += publisher.choices()
        for subscriber in self.subscribers:
            if subscriber.connection is None and subscriber.may_connect() and self._may_try(subscriber):
                found += [("s.connect", subscriber.index, r.index) for r in usable]
            found += subscriber.choices()
        found += [("c.recv", link) for link, c in self.connections.items() if c.down]
        awake = [router.records is not None and self.now >= router.stalled_until for router in self.routers]
        for link, connection in self.connections.items():
            is_due = (connection.up or not connection.is_open) and not self.pairs.is_held(link)
            if is_due and awake[connection.router]:
                found.append(("r.recv", link))
        for link, connection in self.dying.items():
            if connection.down:
                found.append(("c.recv", link))
            found.append(("c.lost", link))
        found += self._peer_choices()
        found += self.strangers.choices() + self.amqp_sessions.choices()
        found += self.store.choices()
        return found + self.members.choices() + self.drains.choices() + self.operators.choices()

    def _may_try(self, client: ClientRole) -> bool:
        """Not right after it was refused."""
        return self.now >= self._not_before.get(client, 0.0) and not self.comes_later(client)

    def _peer_choices(self) -> list[Choice]:
        found: list[Choice] = []
        clogged = bool(self.paths.clogged)
        for (sender, receiver), under_way in self.frames.items():
            if under_way:
                router = self._live.get(receiver)
                if router is None or self.now < router.stalled_until or (clogged and self._is_clogged(sender, router)):
                    continue
                found.append(("r.frame", sender, receiver))
        return found + self.paths.choices()

    def _is_clogged(self, sender: int, receiver: Router) -> bool:
        return any((r.index, receiver.index) in self.paths.clogged for r in self.routers if r.rid == sender)

    def do(self, choice: Choice) -> None:
        """Make one thing happen."""
        self.story.append(choice)
        self.faults += str(choice[0])[0] == "!"
        if str(choice[0])[0] == "!" or choice[0] in ("p.connect", "p.wake"):
            self.disturbances += 1
        ACTIONS[choice[0]](self, *choice[1:])

    def advance(self, seconds: float) -> None:
        """Let time pass, and everything that falls due meanwhile happen at its own moment."""
        target = self.now + seconds
        self.is_pausing = seconds >= PAUSE_S and bool(self.choices())
        self._has_paused = self._has_paused or self.is_pausing
        while True:
            due = [
                (deadline, router.index) for router in self.routers if (deadline := router.next_deadline()) is not None
            ]
            if not due or min(due)[0] > target:
                break
            deadline, index = min(due)
            self.now = max(self.now, deadline)
            self._end_idle_connections()
            router = self.routers[index]
            if router.records is None or router.next_deadline() != deadline:
                continue
            assert router.records is not None
            reading = router.records.next_deadline()
            assert reading is not None
            router.wake(reading)
            self.run_timers(router)
        self.now = target
        self.is_pausing = False
        if self.traits.streams:
            for router in self.routers:
                self.streams_judge.look(router)
        self.members.keep_leases_alive()
        self._end_idle_connections()

    def check_rest(self) -> None:
        """Everybody has finished, nobody keeps anything, and all promises were kept.

        Raises:
            Violation: not so.
        """
        check_rest(self, self.judge, self.operators)
        self.judge.at_rest()

    def under_way(self) -> int:
        """Frames, requests and answers that wait to be read: a long pause leaves many."""
        frames = sum(len(frames) for frames in self.frames.values())
        return frames + len(self.store) + sum(len(router.replies) for router in self.routers)

    def next_deadline(self) -> float | None:
        """The earliest moment at which something happens by itself."""
        deadlines = [deadline for router in self.routers if (deadline := router.next_deadline()) is not None] + [
            again for again in self._not_before.values() if again > self.now
        ]
        return min(deadlines + self.members.deadlines(), default=None)

    # ------------------------------------------------------------------ actions

    def client_receive(self, link: int) -> None:
        """A client reads one frame."""
        self.coverage[coverage.DYING_READ] += link in self.dying
        connection = self.connections.get(link) or self.dying[link]
        client, read = self.client_of(connection), connection.down.popleft()
        effect = read if client is None else read_part(connection, read)
        if effect is None:
            return
        if client is not None:
            if isinstance(effect, effects.PublisherReply):
                connection.streams = effect.stream_above is not None
            if isinstance(client, (Publisher, ShippedPublisher)):
                check_outcomes(client.parts, effect)
            self._cover(client, effect)
            client.receive(effect)
            if (
                isinstance(effect, effects.DetachLink)
                and connection.leaves_for
                and (effect.by_store or not effect.condition)
            ):
                self.amqp_sessions.keep(client, connection)
            if isinstance(effect, effects.DetachLink) and effect.condition == "amqp:resource-locked":
                self._not_before[client] = self.now + BACK_OFF_S
            if client.connection is not connection:
                self.dying.pop(link, None)
        else:
            self.strangers.receive(connection, effect)

    def _cover(self, client: ClientRole, effect: effects.Effect) -> None:
        if isinstance(effect, (effects.PublisherReply, effects.SubscriberReply)) and effect.resumed:
            kind = "p" if isinstance(effect, effects.PublisherReply) else "s"
            is_third = len(self._visited[f"{kind}{client.index}"]) > 2
            is_down = any(router.records is None for router in self.routers)
            self.coverage[coverage.THIRD_ROUTER] += is_third and is_down

    def client_sees_loss(self, link: int) -> None:
        """A client notices that its router is gone; what it has not read by then is lost."""
        connection = self.dying.pop(link)
        client = self.client_of(connection)
        if client is not None:
            client.disconnect()

    def router_receive(self, link: int) -> None:
        """A router reads one frame of a client; behind the last one of a dead connection it sees the loss."""
        connection = self.connections[link]
        router = self.routers[connection.router]
        if router.lease is not None and not router.lease.vet(router.clock(self.now)):
            self.coverage[coverage.VETTED] += bool(connection.up)
            self.stop_router(router.index)  # K-3a: what was read is thrown away
        elif connection.up:
            self.coverage[coverage.LATE_READ] += not connection.is_open
            connection.read_at = self.now
            batch = self._read(connection.up)
            if self.patience is not None:
                self.patience_judge.on_turn(batch)
            self.feed(router, batch)
        else:
            self._lose_link(router, connection)

    def _lose_link(self, router: Router, connection: SimulatedConnection) -> None:
        """The router sees that a connection is gone; or, of a session that is kept, that the link is."""
        del self.connections[connection.link]
        ends = [] if connection.is_kept or self.pairs.shares(connection) else ends_of(connection.place)
        self.feed(router, [inputs.LinkLost(connection.link), *ends])

    def _end_idle_connections(self) -> None:
        """A router does not keep a dead connection of which it read something beyond its idle time-out (A-9, A-10)."""
        silent = self.now - IDLE_TIMEOUT_S
        self.strangers.end_silent(silent)
        for connection in [c for c in self.connections.values() if not c.is_open and 0.0 < c.read_at < silent]:
            router = self.routers[connection.router]
            if router.records is not None and not router.is_stalled(self.now):
                self._lose_link(router, connection)

    def _read(self, under_way: deque[inputs.Input]) -> list[inputs.Input]:
        """One frame, or all that one read brings."""
        count = min(len(under_way), BATCH) if self.traits.batches else 1
        return [under_way.popleft() for _ in range(count)]

    def router_frame(self, sender: int, receiver: int) -> None:
        """A router reads one frame of another router."""
        router = self.router_of(receiver)
        assert router is not None
        self.feed(router, self._read(self.frames[(sender, receiver)]))

    def watch(self, index: int) -> None:
        """The watch delivers one more revision, or a snapshot when it was compacted or cancelled (K-4)."""
        router = self.routers[index]
        if router.lease is not None and not router.lease.vet(router.clock(self.now)):
            self.stop_router(index)
        elif router.must_reload or router.seen < self.etcd.compacted:
            self._reload(router)
        else:
            changes = self.etcd.changes(router.seen, BATCH if self.traits.batches else 1)
            router.saw(self.nonce, router.seen + len(changes))
            if any(c.kind is Kind.ROUTER and c.record is None and c.key == key_of(router) for c in changes):
                self.stop_router(index)  # K-3: its own key is gone
            else:
                self.feed(router, [inputs.ViewChanges(self.etcd.applied_at(router.seen), changes)])

    def _reload(self, router: Router) -> None:
        router.must_reload = False
        revision, entries = self.etcd.snapshot()
        self.coverage[coverage.RELOADED] += router.seen < revision
        router.skipped = self.etcd.applied_at(revision)
        router.saw(self.nonce, revision)
        if any(entry.kind is Kind.ROUTER and entry.key == key_of(router) for entry in entries):
            self.feed(router, [inputs.ViewSnapshot(router.skipped, entries)])
        else:
            self.stop_router(router.index)

    def reply(self, index: int) -> None:
        """An answer of etcd arrives."""
        router = self.routers[index]
        self.feed(router, [router.replies.popleft()])

    def reload(self) -> None:
        """Operators take the dead-letter topic out of all routers' rules (I-3d, I-3e)."""
        self.is_without_letters = True
        policy = replace(self.limits.policy, dead_letter="")
        self.limits = replace(self.limits, policy=policy)
        for router in self.routers:
            if router.records is not None:
                self.feed(router, [inputs.PoliciesChanged(lambda _topic: policy)])
