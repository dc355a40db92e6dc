"""Routers with real record cores around one in-memory etcd, fed by hand: inputs in, effects out.

Nothing is hidden: a test sees every effect of every router, and may hold back the watch, etcd's answers or the frames
between two routers. What is not held back is carried out at once, in order, until nothing is under way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from chaos.simulator.etcd import SimEtcd
from delivery_records.model import effects, inputs
from delivery_records.model.inputs import StoreFailure
from delivery_records.model.limits import Limits
from delivery_records.model.message_format import NO_FORMAT, MessageFormat
from delivery_records.model.patience import Patience
from delivery_records.model.tags import link_key
from delivery_records.model.view import Kind, RouterRecord, SubscriptionMode, router_key
from delivery_records.records import Records
from delivery_records.subscriber.filters import FilterEngine
from tests.delivery_records.links import TOPIC, PublisherLink, SubscriberLink
from tests.delivery_records.nodes import Node

NONCE = b"nets"


class Net:
    """Some routers, one etcd, and what is under way between them."""

    def __init__(
        self,
        routers: int = 1,
        *,
        limits: Limits | None = None,
        message_format: MessageFormat = NO_FORMAT,
        records: Callable[..., Records] = Records,
        filters: FilterEngine | None = None,
    ) -> None:
        """Start all routers (K-1); `records` makes their cores."""
        self.filters = filters
        self._records = records
        self.now = 1000.0
        self.limits = limits or Limits()
        self.message_format = message_format
        self.etcd = SimEtcd()
        self.nodes: list[Node] = []
        self.frames: dict[tuple[int, int], deque[inputs.RouterFrame | inputs.RouterDatagram]] = {}
        self.held: set[tuple[int, int]] = set()
        """Pairs (sender, receiver) of indices whose frames are held back."""
        self.lost: Callable[[inputs.RouterFrame | inputs.RouterDatagram], bool] = lambda frame: False
        """Frames for which this is true are lost."""
        self.expects_faults = False
        """Whether a fault that a core confines (K-3b) is what the test is about; else it is a failure."""
        self._links = 0
        for _ in range(routers):
            self.start_router()

    # ------------------------------------------------------------------ routers

    def start_router(self) -> Node:
        """One more router: key, snapshot, watch (K-1)."""
        rid = 7001 + len(self.nodes)
        node = Node(rid, self._core(rid))
        self.nodes.append(node)
        self.etcd.start_router(RouterRecord(f"r{len(self.nodes) - 1}", rid))
        self.load_snapshot(node, inputs.StoreHealth(True))
        return node

    def _core(self, rid: int) -> Records:
        return self._records(
            rid=rid,
            node_id=f"r{rid - 7001}",
            nonce=NONCE,
            limits=self.limits,
            message_format=self.message_format,
            filters=self.filters,
        )

    def load_snapshot(self, node: Node, *before: inputs.Input) -> None:
        """K-4: the watch was lost; load everything at the newest revision."""
        revision, entries = self.etcd.snapshot()
        node.seen = revision
        self.feed(node, *before, inputs.ViewSnapshot(revision, entries))

    def kill(self, node: Node, *, leaving: bool = False, lease_ends: bool = True) -> None:
        """The router stops and forgets everything; its key goes with its lease."""
        node.is_gone = True
        record = RouterRecord(node.core.node_id, node.rid, leaving=leaving)
        if leaving:
            self.etcd.put(Kind.ROUTER, router_key(record), record)  # K-8
        for pair in [pair for pair in self.frames if node.rid in pair]:
            del self.frames[pair]
        if lease_ends:
            self.end_lease(node)

    def end_lease(self, node: Node) -> None:
        """The router's key disappears."""
        self.etcd.delete(Kind.ROUTER, router_key(RouterRecord(node.core.node_id, node.rid)))
        self.run()

    # ------------------------------------------------------------------ time and what is under way

    def feed(self, node: Node, *batch: inputs.Input) -> None:
        """One turn of a router, and everything that follows from it."""
        self.turn(node, *batch)
        self.run()

    def turn(self, node: Node, *batch: inputs.Input) -> None:
        """One turn of a router and no more, not even the timers that are due."""
        self._carry_out(node, node.core.handle(batch, self.now))

    def run(self) -> None:
        """Carry out what is under way until nothing moves; no time passes."""
        for _ in range(100_000):
            if not any(self._step(node) for node in self.nodes if not node.is_gone):
                return
        raise AssertionError("the routers never come to rest")

    def _step(self, node: Node) -> bool:
        deadline = node.core.next_deadline()
        if deadline is not None and deadline <= self.now:
            self._carry_out(node, node.core.handle_timer(self.now))
            return True
        if node.waiting and not node.is_store_held:
            self._operate(node, node.waiting.popleft())
            return True
        if node.answers:
            self._carry_out(node, node.core.handle([node.answers.popleft()], self.now))
            return True
        if node.seen < self.etcd.revision and not node.is_watch_held:
            changes = self.etcd.changes(node.seen, 1)
            node.seen += len(changes)
            self._carry_out(node, node.core.handle([inputs.ViewChanges(changes[-1].mod_revision, changes)], self.now))
            return True
        return self._read_peer(node)

    def _read_peer(self, node: Node) -> bool:
        for sender in self.nodes:
            under_way = self.frames.get((sender.rid, node.rid))
            pair = (self.nodes.index(sender), self.nodes.index(node))
            if under_way and pair not in self.held:
                self._carry_out(node, node.core.handle([under_way.popleft()], self.now))
                return True
        return False

    def advance(self, seconds: float) -> None:
        """Let time pass; every deadline happens at its own moment."""
        target = self.now + seconds
        while True:
            self.run()
            deadlines = [
                deadline
                for node in self.nodes
                if not node.is_gone and (deadline := node.core.next_deadline()) is not None
            ]
            if not deadlines or min(deadlines) > target:
                break
            self.now = max(self.now, min(deadlines))
        self.now = target
        self.run()

    def _carry_out(self, node: Node, done: list[effects.Effect]) -> None:
        node.done += done
        for effect in done:
            if isinstance(effect, (effects.Read, effects.Propose)):
                node.waiting.append(effect)
            elif isinstance(effect, effects.SendToRouters):
                for rid, generation, sequence in effect.targets:
                    self._send(node, rid, inputs.RouterFrame(node.rid, generation, sequence, effect.message))
            elif isinstance(effect, effects.SendDatagram):
                self._send(node, effect.rid, inputs.RouterDatagram(node.rid, effect.message))
            elif isinstance(effect, effects.Faulted) and not self.expects_faults:
                raise effect.error

    def _send(self, node: Node, rid: int, frame: inputs.RouterFrame | inputs.RouterDatagram) -> None:
        receiver = next((n for n in self.nodes if n.rid == rid), None)
        if receiver is not None and not receiver.is_gone and not self.lost(frame):
            self.frames.setdefault((node.rid, rid), deque()).append(frame)

    def _operate(self, node: Node, operation: effects.Read | effects.Propose) -> None:
        fault = node.faults.popleft() if node.faults else None
        if fault is not None:
            node.answers.append(inputs.StoreFailed(operation.nonce, fault.failure))
            if not fault.is_applied:
                return
        if isinstance(operation, effects.Read):
            node.answers.append(self.etcd.read(operation.nonce, operation.key))
        elif not self.etcd.compare_and_swap(operation.key, operation.expect, operation.record, operation.shared):
            node.answers.append(inputs.StoreFailed(operation.nonce, StoreFailure.CONFLICT))

    # ------------------------------------------------------------------ clients

    def new_link(self) -> int:
        """A link number that was not used before."""
        self._links += 1
        return self._links

    def publisher(
        self,
        node: Node,
        name: str = "p",
        *,
        topic: str = TOPIC,
        unsettled: inputs.UnsettledMap | None = None,
        settles_first: bool = False,
        timeout_s: float | None = None,
        map_bound: int = 0,
        starts: Sequence[tuple[bytes, int]] = (),
        owner: inputs.Owner = inputs.NOBODY,
    ) -> PublisherLink:
        """A publisher with the capability, attached and alive (A-4)."""
        link = PublisherLink(self, node)
        link.attach(
            name,
            topic=topic,
            unsettled=unsettled if unsettled is not None else {},
            exactly_once=True,
            settles_first=settles_first,
            timeout_s=timeout_s,
            map_bound=map_bound,
            starts=starts,
            owner=owner,
        )
        link.echo()
        return link

    def stock_publisher(
        self, node: Node, name: str = "p", *, topic: str = TOPIC, unsettled: inputs.UnsettledMap | None = None
    ) -> PublisherLink:
        """A publisher that does not know the capability."""
        link = PublisherLink(self, node)
        link.attach(name, topic=topic, unsettled=unsettled, exactly_once=False)
        return link

    def subscriber(
        self,
        node: Node,
        name: str = "s",
        *,
        topic: str | None = TOPIC,
        unsettled: inputs.UnsettledMap | None = None,
        limit: int = 1000,
        mode: SubscriptionMode = SubscriptionMode.EXACTLY_ONCE,
        policy: str = "link-detach",
        timeout_s: float | None = 60.0,
        map_bound: int = 0,
        incomplete: bool = False,
        answers: bool = True,
        place: inputs.LinkPlace = inputs.NO_PLACE,
        patience: Patience | None = None,
        owner: inputs.Owner = inputs.NOBODY,
        share: inputs.Share | None = None,
        filter_text: str = "",
        stores: bool = False,
    ) -> SubscriberLink:
        """A subscriber with the capability, attached, alive (A-10), confirmed and with credit."""
        link = SubscriberLink(self, node)
        link.attach(
            name,
            topic=topic,
            unsettled=unsettled if unsettled is not None else {},
            mode=mode,
            policy=policy,
            timeout_s=timeout_s,
            map_bound=map_bound,
            incomplete=incomplete,
            exactly_once=mode is SubscriptionMode.EXACTLY_ONCE,
            place=place,
            patience=patience,
            owner=owner,
            share=share,
            filter_text=filter_text,
            stores=stores,
        )
        if answers and link.all(effects.AskEcho):
            link.echo()
        self.advance(0.05)
        if limit:
            link.flow(limit)
        return link

    def stock_subscriber(
        self,
        node: Node,
        name: str = "s",
        *,
        topic: str = TOPIC,
        limit: int = 1000,
        unsettled: inputs.UnsettledMap | None = None,
        share: inputs.Share | None = None,
    ) -> SubscriberLink:
        """A subscriber without the capability: at-least-once, usually without a map."""
        link = SubscriberLink(self, node)
        link.attach(name, topic=topic, unsettled=unsettled, mode=SubscriptionMode.AT_LEAST_ONCE, share=share)
        self.advance(0.05)
        if limit:
            link.flow(limit)
        return link

    def subscription_path(self, name: str = "s") -> str:
        """The etcd path of a subscriber's attachment."""
        return f"subs/{link_key(name, 'link')}"

    def publisher_path(self, name: str = "p") -> str:
        """The etcd path of a publisher's attachment."""
        return f"pubs/{link_key(name, 'link')}"

    def has_subscription(self, name: str = "s") -> bool:
        """True while its key exists."""
        return (Kind.SUBSCRIPTION, link_key(name, "link")) in self.etcd.keys

    def has_publisher(self, name: str = "p") -> bool:
        """True while its key exists."""
        return (Kind.PUBLISHER, link_key(name, "link")) in self.etcd.keys

    def delete_subscription(self, name: str = "s") -> None:
        """As if it had expired."""
        self.etcd.delete(Kind.SUBSCRIPTION, link_key(name, "link"))
        self.run()
