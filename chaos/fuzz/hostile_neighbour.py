"""Target `record-core`: the record core of a router that another router sends nonsense to, in well-formed messages."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, replace

from chaos.fuzz.router_messages import datagram, message
from chaos.fuzz.target import Counts, Finding
from chaos.simulator.etcd import SimEtcd
from delivery_records.channels import codec
from delivery_records.model import effects, inputs
from delivery_records.model.messages import Hello
from delivery_records.model.outcomes import DeliveryOutcome
from delivery_records.model.view import RouterRecord, SubscriptionMode
from delivery_records.records import Records

HOSTILE, OURS = 7001, 7002
MESSAGES = 150
"""Of one run."""
MOST_EFFECTS = 400
"""Of one message, beside those that each entry it names brings."""
TOPIC = "orders"
LAST_GENERATION = 1 << 31
"""A neighbour that names the last one there is has closed its own channel for good, and nobody else's."""
LATER_S = (0.0, 0.0, 0.0, 0.1, 1.0, 30.0)
"""Between two messages."""


class _Router:
    """A core with an etcd that answers at once; two subscribers and a publisher are attached to it."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.now = 1000.0
        self.etcd = SimEtcd()
        self.core = Records(rid=OURS, node_id="r2", nonce=b"nets")
        self.deliveries: dict[int, list[bytes]] = {}
        self.sent = 0
        self._seen = 0
        self._under_way: deque[inputs.Input] = deque()
        for name, rid in (("r1", HOSTILE), ("r2", OURS)):
            self.etcd.start_router(RouterRecord(name, rid))
        revision, entries = self.etcd.snapshot()
        self._seen = revision
        self.feed(inputs.StoreHealth(True), inputs.ViewSnapshot(revision, entries))
        self.feed(inputs.PathsChanged(frozenset({HOSTILE}), frozenset()))
        mode = SubscriptionMode.EXACTLY_ONCE
        for link, name in ((1, "s"), (2, "t")):
            self.feed(inputs.SubscriberAttach(link, name, "link", TOPIC, {}, True, mode, "link-detach", 60.0))
            self.feed(inputs.ClientFlow(link, limit=1000, delivery_count=1))
        self.feed(inputs.PublisherAttach(3, "p", "link", TOPIC, {}, True))

    def feed(self, *batch: inputs.Input) -> int:
        """One turn, and all that follows from it; returns the number of effects."""
        count = self._carry_out(self.core.handle(batch, self.now))
        while self._under_way or self._seen < self.etcd.revision:
            if self._under_way:
                found: inputs.Input = self._under_way.popleft()
            else:
                change = self.etcd.log[self._seen]
                self._seen += 1
                found = inputs.ViewChanges(change.mod_revision, [change])
            count += self._carry_out(self.core.handle([found], self.now))
        return count

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        until = self.now + seconds
        for _ in range(1000):
            deadline = self.core.next_deadline()
            if deadline is None or deadline > until:
                break
            self.now = max(self.now, deadline)
            self._carry_out(self.core.handle_timer(self.now))
            self.feed()
        else:
            raise Finding("timers fire without end")
        self.now = until

    def _carry_out(self, done: list[effects.Effect]) -> int:
        for effect in done:
            if isinstance(effect, effects.Faulted):
                raise effect.error
            if isinstance(effect, effects.Read):
                self._under_way.append(self.etcd.read(effect.nonce, effect.key))
            elif isinstance(effect, effects.Propose):
                if not self.etcd.compare_and_swap(effect.key, effect.expect, effect.record):
                    self._under_way.append(inputs.StoreFailed(effect.nonce, inputs.StoreFailure.CONFLICT))
            elif isinstance(effect, effects.AskEcho):
                self._under_way.append(inputs.ClientFlow(effect.link, echoed_epoch=effect.epoch))
            elif isinstance(effect, effects.SendToRouters):
                codec.encode_frame(OURS, effect.targets, effect.message)
            elif isinstance(effect, effects.SendDatagram):
                codec.encode_datagram(OURS, effect.rid, effect.message)
            elif isinstance(effect, effects.Deliver):
                self.deliveries.setdefault(effect.link, []).append(effect.tag)
        return len(done)

    def act(self) -> None:
        """The clients of this router do something, too."""
        rng = self.rng
        if rng.random() < 0.5:
            self.sent += 1
            self.feed(inputs.PublisherTransfer(3, self.sent, b"%d" % self.sent, b"body"))
        for link, tags in self.deliveries.items():
            if tags:
                outcome = rng.choice((DeliveryOutcome.ACCEPTED, DeliveryOutcome.RELEASED))
                self.feed(inputs.SubscriberDisposition(link, [tags.pop()], outcome, rng.random() < 0.5))
        if rng.random() < 0.3 and self.sent:
            self.feed(inputs.PublisherSettle(3, [b"%d" % rng.randrange(1, self.sent + 1)]))


@dataclass(frozen=True, slots=True)
class RecordCore:
    """The target; see `Target`."""

    name: str = "record-core"
    about: str = (
        "well-formed messages and datagrams with nonsense in them from a neighbour that is logged in, in sequence and "
        "out of it, into the record core of a router with clients; nothing is raised, not even a confined fault "
        "(K-3b), what it sends can be encoded, and no message has more effects than its entries explain"
    )
    code: tuple[str, ...] = ("delivery_records", "chaos.fuzz.router_messages", "chaos.simulator.etcd")

    def run(self, number: int) -> Counts:
        """See `Target`."""
        rng = random.Random(f"{self.name} {number}")
        router = _Router(rng)
        counts = Counts()
        for _ in range(MESSAGES):
            found, entries = _next(rng, router.core)
            count = router.feed(found)
            if count > MOST_EFFECTS + 20 * entries:
                raise Finding(f"{count} effects of {found!r}")
            counts.inputs += 1
            if rng.random() < 0.2:
                router.act()
            router.wait(rng.choice(LATER_S))
        router.wait(600.0)
        return counts


def _next(rng: random.Random, core: Records) -> tuple[inputs.RouterFrame | inputs.RouterDatagram, int]:
    if rng.random() < 0.15:
        sent = datagram(rng)
        if isinstance(sent, Hello) and sent.generation > LAST_GENERATION:
            sent = replace(sent, generation=LAST_GENERATION)
        return inputs.RouterDatagram(HOSTILE, sent), 0
    channel = core.channels.channel(HOSTILE)
    generation = channel.generation if rng.random() < 0.9 else rng.choice((0, channel.generation + 1, LAST_GENERATION))
    sequence = channel.received + 1 if rng.random() < 0.9 else rng.choice((0, channel.received + 2, (1 << 64) - 1))
    found = message(rng)
    entries = len(getattr(found, "runs", ())) + len(getattr(found, "tags", ()))
    return inputs.RouterFrame(HOSTILE, generation, sequence, found), entries


RECORD_CORE = RecordCore()
