"""A whole network in one process: so many routers with so many subscriptions, and what each of them costs.

The routers are the cores that real ones run: record cores over a simulated etcd, and link states that flood a ring with
chords (each router has four neighbours). Frames go from router to router along best paths, one copy for each next hop.
Every topic has one publisher, and subscribers spread over all routers. Each publisher sends a message, which opens the
channels, and then ten more; the script fails unless every subscriber got the messages of its topic once and their
settlements, and every publisher was accepted.
Time is simulated, and no socket is in it: CPU seconds are those of the cores alone.

    python benchmarks/bench_network.py [--routers 10 30 100] [--subscriptions 10000] [--topics 100] [--json]
"""

from __future__ import annotations

import argparse
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence

from harness import BenchmarkError, Row, carry_out, show

from chaos.simulator.etcd import SimEtcd
from delivery_records.model import effects, inputs
from delivery_records.model.outcomes import DeliveryOutcome
from delivery_records.model.view import RouterRecord, SubscriptionMode
from delivery_records.records import Records
from topology.links.linkstate import LinkStateView, SendTo

TIMEOUT_S = 3600.0
MAP_BOUND = 20_000
TURN = 100
"""Changes of one turn of the watch, and inputs of one turn of a router."""
STEP_S = 0.01
"""Simulated time between two rounds in which nothing is under way: routers collect barriers for so long."""
MESSAGES = 10
"""Of each publisher, behind the first."""
IDLE_ROUNDS = 2_000
"""So many of them in a row without an end, and the network is stuck."""


class Core:
    """One router: its cores, and what has come for it."""

    def __init__(self, index: int, now: float) -> None:
        """Alone, with an empty view."""
        self.rid = index + 1
        self.seen = 0
        self.records = Records(rid=self.rid, node_id=f"r{index}", nonce=b"test")
        self.links = LinkStateView(self.rid, f"r{index}", now)
        self.inbox: list[inputs.Input] = []


class Network:
    """Routers, a simulated etcd, and clients that answer at once."""

    def __init__(self, routers: int) -> None:
        """Start the routers; nobody is attached, and no link is up."""
        self.now = 0.0
        self.etcd = SimEtcd()
        self.cores = [Core(index, self.now) for index in range(routers)]
        self.states = self.hops = 0
        """Link states sent, and frames between neighbours."""
        self.confirmed: set[int] = set()
        self.got: Counter[tuple[int, bytes]] = Counter()
        self.settled = self.accepted = 0
        self.sent: dict[int, int] = {}
        """A publisher's link -> how many messages it has sent."""
        for core in self.cores:
            self.etcd.start_router(RouterRecord(core.records.node_id, core.rid))
        for core in self.cores:
            core.seen, entries = self.etcd.snapshot()
            core.inbox = [inputs.StoreHealth(True), inputs.ViewSnapshot(core.seen, entries)]

    # --- link states

    def connect(self) -> None:
        """Bring all links up and flood what follows from it."""
        count = len(self.cores)
        chord = max(2, round(count**0.5))
        waiting: deque[tuple[int, SendTo]] = deque()
        for index, core in enumerate(self.cores):
            others = {(index + step) % count for step in (1, -1, chord, -chord)} - {index}
            for other in sorted(others):
                waiting.extend(self._sent(core.rid, core.links.neighbour_up(other + 1, 1, self.now)))
        while waiting:
            sender, sent = waiting.popleft()
            for rid in sent.neighbours:
                self.states += len(getattr(sent.message, "states", ()))
                waiting.extend(self._sent(rid, self.cores[rid - 1].links.receive(sent.message, sender, self.now)))

    def find_paths(self) -> None:
        """Compute the best paths of each router, once."""
        for core in self.cores:
            changed = core.links.update_paths()
            if changed is not None:
                core.inbox.append(changed)

    @staticmethod
    def _sent(rid: int, done: Sequence[object]) -> list[tuple[int, SendTo]]:
        return [(rid, effect) for effect in done if isinstance(effect, SendTo)]

    # --- clients

    def subscribe(self, link: int, topic: str) -> None:
        """A subscriber with a map attaches, its subscription lasts for an hour without it."""
        attach = inputs.SubscriberAttach(
            link,
            f"s{link}",
            "in",
            topic,
            {},
            exactly_once=True,
            mode=SubscriptionMode.EXACTLY_ONCE,
            expiry_policy="link-detach",
            timeout_s=TIMEOUT_S,
            map_bound=MAP_BOUND,
        )
        self.cores[link % len(self.cores)].inbox += [attach, inputs.ClientFlow(link, limit=100)]

    def publish(self, link: int, topic: str) -> None:
        """A publisher attaches; it sends its message with its first credit."""
        self.sent[link] = 0
        attach = inputs.PublisherAttach(
            link, f"p{link}", "out", topic, {}, exactly_once=True, timeout_s=TIMEOUT_S, map_bound=MAP_BOUND
        )
        self.cores[link % len(self.cores)].inbox.append(attach)

    def send(self, link: int) -> None:
        """A publisher sends its next message."""
        number = self.sent[link] = self.sent[link] + 1
        transfer = inputs.PublisherTransfer(link, number, number.to_bytes(4, "big"), b"message")
        self.cores[link % len(self.cores)].inbox.append(transfer)

    # --- turns

    def run(self, what: str, is_done: Callable[[], bool]) -> None:
        """Go on until `is_done()`.

        Raises:
            BenchmarkError: it does not come to that.
        """
        idle = 0
        while not is_done():
            turns = [self._turn(core) for core in self.cores]
            if any(turns):
                idle = 0
                continue
            idle += 1
            self.now += STEP_S
            for core in self.cores:
                due = core.records.next_deadline()
                if due is not None and due <= self.now:
                    self._carry_out(core, core.records.handle_timer(self.now))
            if idle > IDLE_ROUNDS:
                raise BenchmarkError(f"{what}: nothing happens any more")

    def _turn(self, core: Core) -> bool:
        news = self.etcd.log[core.seen : core.seen + TURN]
        if news:
            core.seen += len(news)
            self._carry_out(core, core.records.handle([inputs.ViewChanges(core.seen, news)], self.now))
        batch, core.inbox = core.inbox[:TURN], core.inbox[TURN:]
        if batch:
            self._carry_out(core, core.records.handle(batch, self.now))
        return bool(news or batch)

    def _carry_out(self, core: Core, done: Sequence[effects.Effect]) -> None:
        for effect in done:
            if isinstance(effect, effects.SendToRouters):
                self._forward(core, {target[0] for target in effect.targets})
                for rid, generation, sequence in effect.targets:
                    frame = inputs.RouterFrame(core.rid, generation, sequence, effect.message)
                    self.cores[rid - 1].inbox.append(frame)
            elif isinstance(effect, effects.SendDatagram):
                self._forward(core, {effect.rid})
                self.cores[effect.rid - 1].inbox.append(inputs.RouterDatagram(core.rid, effect.message))
            elif isinstance(effect, effects.Read):
                core.inbox.append(self.etcd.read(effect.nonce, effect.key))
            elif isinstance(effect, effects.Propose):
                if not self.etcd.compare_and_swap(effect.key, effect.expect, effect.record):
                    core.inbox.append(inputs.StoreFailed(effect.nonce, inputs.StoreFailure.CONFLICT))
            elif isinstance(effect, effects.Faulted):
                raise effect.error
            else:
                self._notify_client(core, effect)

    def _forward(self, core: Core, targets: set[int]) -> None:
        """Count the copies that a frame needs: one for each next hop, at each router it passes (T-2)."""
        by_hop: dict[int, set[int]] = {}
        for rid in targets:
            by_hop.setdefault(core.links.paths.next_hops[rid], set()).add(rid)
        for hop, behind in by_hop.items():
            self.hops += 1
            if beyond := behind - {hop}:
                self._forward(self.cores[hop - 1], beyond)

    def _notify_client(self, core: Core, effect: effects.Effect) -> None:
        if isinstance(effect, effects.AskEcho):
            core.inbox.append(inputs.ClientFlow(effect.link, limit=100, echoed_epoch=effect.epoch))
        elif isinstance(effect, effects.Confirm):
            self.confirmed.add(effect.link)
        elif isinstance(effect, effects.GrantPublisherCredit) and effect.limit and not self.sent[effect.link]:
            self.send(effect.link)
        elif isinstance(effect, effects.Deliver):
            self.got[effect.link, effect.tag] += 1
            outcome = DeliveryOutcome.ACCEPTED
            core.inbox.append(inputs.SubscriberDisposition(effect.link, [effect.tag], outcome, False))
        elif isinstance(effect, effects.Dispose):
            self.accepted += len(effect.delivery_ids) * (effect.outcome is DeliveryOutcome.ACCEPTED)
            tags = [number.to_bytes(4, "big") for number in effect.delivery_ids]
            core.inbox.append(inputs.PublisherSettle(effect.link, tags))
        elif isinstance(effect, effects.SettleAtSubscriber):
            self.settled += len(effect.tags)
        elif isinstance(effect, (effects.DetachLink, effects.CloseConnection)):
            raise BenchmarkError(f"a client was sent away: {effect}")


class Stopwatch:
    """CPU seconds of this process since it was last asked."""

    def __init__(self) -> None:
        """Start."""
        self._since = time.process_time()

    def lap(self) -> float:
        """How much it was."""
        before, self._since = self._since, time.process_time()
        return self._since - before


def measure(routers: int, subscriptions: int, topics: int) -> Row:
    """One row of the table.

    Raises:
        BenchmarkError: a message was lost or came twice, or something was left.
    """
    network = Network(routers)
    watch = Stopwatch()
    network.connect()
    flood = watch.lap()
    network.find_paths()
    paths = watch.lap()
    reached = [len(core.links.paths.next_hops) for core in network.cores]
    if set(reached) != {routers - 1}:
        raise BenchmarkError(f"routers reach {min(reached)} others, not {routers - 1}")
    network.run("start", lambda: not any(core.inbox for core in network.cores))
    watch.lap()
    for link in range(subscriptions):
        network.subscribe(link, f"topic/{link // routers % topics}")
    network.run("subscriptions", lambda: len(network.confirmed) == subscriptions)
    attach = watch.lap()
    for topic in range(topics):
        network.publish(subscriptions + topic, f"topic/{topic}")
    network.run("first messages", lambda: network.settled == subscriptions)
    first, network.hops = watch.lap(), 0
    for _ in range(MESSAGES):
        for topic in range(topics):
            network.send(subscriptions + topic)
    network.run("messages", lambda: network.settled == subscriptions * (1 + MESSAGES))
    carried = watch.lap()
    check(network, subscriptions, topics)
    return {
        "routers": routers,
        "subscriptions": subscriptions,
        "link states sent": network.states,
        "CPU ms to flood, each": round(1000 * flood / routers, 2),
        "CPU ms of paths, each": round(1000 * paths / routers, 2),
        "CPU us of an attach, each router": round(1e6 * attach / subscriptions / routers, 1),
        "CPU us of a first delivery": round(1e6 * first / subscriptions, 1),
        "CPU us of a delivery": round(1e6 * carried / subscriptions / MESSAGES, 1),
        "frames between neighbours, of a delivery": round(network.hops / subscriptions / MESSAGES, 2),
    }


def check(network: Network, subscriptions: int, topics: int) -> None:
    """Nothing is missing, and nothing came twice.

    Raises:
        BenchmarkError: not so.
    """
    if set(network.got.values()) != {1} or len(network.got) != subscriptions * (1 + MESSAGES):
        raise BenchmarkError(f"{len(network.got)} deliveries, the most frequent {network.got.most_common(1)}")
    if {link for link, _ in network.got} != set(range(subscriptions)):
        raise BenchmarkError("a subscriber got nothing")
    if network.accepted != topics * (1 + MESSAGES):
        raise BenchmarkError(f"{network.accepted} messages were accepted")


def main(options: argparse.Namespace) -> None:
    """Measure and print."""
    rows = [measure(routers, options.subscriptions, options.topics) for routers in options.routers]
    show("network", rows, options.json)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A network of cores in one process.")
    parser.add_argument("--routers", type=int, nargs="+", default=[10, 30, 100])
    parser.add_argument("--subscriptions", type=int, default=10_000)
    parser.add_argument("--topics", type=int, default=100)
    carry_out(parser, main)
