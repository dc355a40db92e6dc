"""What a message costs a router by the number of topics, and of subscriptions whose patterns do not match.

- topics: one publisher's connection has a link for each topic and sends to them in turn; one subscriber has one
  subscription for all (`many/#`), or one for each.
- patterns: so many idle subscriptions with patterns that match nothing, beside one flow on another topic. Its
  subscription names the topic, or has a pattern. The last column is the attach of a publisher to a topic that the
  router has not seen yet: it looks at every subscription once.

One router, exactly-once, bodies of 100 bytes, 500 unsettled in all.

    python benchmarks/bench_topics.py [--topics 1 100 1000] [--patterns 0 1000 10000] [--seconds 3] [--json]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from abusers import publisher as attach_of_publisher
from bench_scale import attach_all, flags
from harness import BenchmarkError, Router, Row, amount, carry_out, machine, standalone_router, table, whole
from load import SUBSCRIBER_CREDIT, Failed, Publisher, Run, Subscriber, measure
from raw_clients import FLOW, connected, wait_for

from oncewire.wire import (
    ACCEPTED,
    ConnectionOpened,
    DeliveryReceived,
    DispositionReceived,
    Event,
    LinkAttached,
    LinkFlow,
    ReceiverLink,
    ReceiverSettleMode,
    SenderLink,
    Source,
    Target,
    TerminusDurability,
)
from oncewire.wire.vocabulary import CONFIRMED, ECHO, EXACTLY_ONCE

LINKS = 200
"""Of one session; a session has at most 256."""
WINDOW, SIZE = 500, 100
PUBLISHERS = 100
"""Attaches of which the average is taken."""


def with_topic(options: argparse.Namespace, topic: str) -> argparse.Namespace:
    """The same options for a client of load.py that attaches to this."""
    return argparse.Namespace(**{**vars(options), "topic": topic})


class TopicsPublisher(Publisher):
    """Sends to its topics in turn, by a link for each."""

    def __init__(self, address: str, options: argparse.Namespace) -> None:
        super().__init__(address, with_topic(options, options.topics[0]))
        self.links = [self.link]
        self._topics: Sequence[str] = options.topics
        self._without_credit = {"load", *map(str, range(1, len(options.topics)))}

    def _attach(self) -> None:
        """All but the first topic, whose link came with the connection; several sessions come after it."""
        for number, topic in enumerate(self._topics[1:], 1):
            if number % LINKS == 1:
                session = self.engine.begin()
            self.links.append(
                session.attach_sender(
                    str(number),
                    source=Source(),
                    target=Target(address=topic),
                    unsettled={},
                    rcv_settle_mode=ReceiverSettleMode.SECOND,
                    desired_capabilities=[EXACTLY_ONCE],
                )
            )
        self.write()

    def handle(self, events: list[Event]) -> None:
        """Settle what is accepted, each at its link."""
        for event in events:
            if isinstance(event, ConnectionOpened):
                self._attach()
            elif isinstance(event, DispositionReceived):
                if event.state != ACCEPTED:
                    raise Failed(f"{self.name}: the outcome of a delivery is {event.state}")
                self.accepted += len(event.ids)
                assert isinstance(event.link, SenderLink)
                event.link.settle(event.ids)
            elif isinstance(event, LinkFlow):
                properties = event.properties or {}
                if ECHO in properties:
                    assert isinstance(event.link, SenderLink)
                    event.link.flow({ECHO: properties[ECHO]})
                elif event.credit_limit:
                    self._without_credit.discard(event.link.name)
                    self.is_ready = not self._without_credit
            else:
                super().handle([event])
        self.send()

    def send(self) -> None:
        """Send what window, credit and limit allow."""
        stop, links = min(self.limit, self.accepted + self.window), self.links
        while self.sent < stop:
            link = links[self.sent % len(links)]
            if not link.credit:
                break
            link.send(self.sent.to_bytes(8, "big"), self._message)
            self.sent += 1


class TopicsSubscriber(Subscriber):
    """Has a subscription for each pattern; messages come in order topic by topic."""

    def __init__(self, address: str, options: argparse.Namespace, number: int) -> None:
        super().__init__(address, with_topic(options, options.patterns[0]), number)
        self._patterns: Sequence[str] = options.patterns
        names = ["load", *map(str, range(1, len(options.patterns)))]
        self._unconfirmed = set(names)
        self._taken = dict.fromkeys(names, 0)
        self._next = list(range(len(options.topics)))

    def _attach(self) -> None:
        """All but the first pattern, whose link came with the connection."""
        for number, pattern in enumerate(self._patterns[1:], 1):
            if number % LINKS == 1:
                session = self.engine.begin()
            session.attach_receiver(
                str(number),
                target=Target(),
                rcv_settle_mode=ReceiverSettleMode.SECOND,
                unsettled={},
                source=Source(address=pattern, durable=TerminusDurability.UNSETTLED_STATE, timeout=60),
                desired_capabilities=[EXACTLY_ONCE],
            )
        self.write()

    def handle(self, events: list[Event]) -> None:
        """Accept what came, link by link."""
        for event in events:
            if isinstance(event, ConnectionOpened):
                self._attach()
            elif isinstance(event, DispositionReceived):
                self.settled += len(event.ids)
            elif isinstance(event, LinkAttached):
                assert isinstance(event.link, ReceiverLink)
                event.link.grant(SUBSCRIBER_CREDIT)
            elif isinstance(event, LinkFlow):
                if CONFIRMED in (event.properties or {}):
                    self._unconfirmed.discard(event.link.name)
                    self.is_ready = not self._unconfirmed
            elif not isinstance(event, DeliveryReceived):
                super().handle([event])
        arrived = [event for event in events if isinstance(event, DeliveryReceived)]
        for event in arrived:
            self._note(int.from_bytes(event.tag[-8:], "big"))
        self._accept(arrived)

    def _note(self, number: int) -> None:
        """Count it, or that it is not the next one of its topic."""
        topics = len(self._next)
        if number == self._next[number % topics]:
            self._next[number % topics] = number + topics
            self.expected += 1
        elif number > self._next[number % topics]:
            self.lost += 1
        else:
            self.repeated += 1
        self.received += 1

    def _accept(self, arrived: Sequence[DeliveryReceived]) -> None:
        """Accept at each link what came there, and top up its credit."""
        by_link: dict[str, list[DeliveryReceived]] = {}
        for event in arrived:
            by_link.setdefault(event.link.name, []).append(event)
        for name, mine in by_link.items():
            link = mine[0].link
            link.dispose([event.delivery_id for event in mine], ACCEPTED, False)
            self._taken[name] += len(mine)
            if self._taken[name] > SUBSCRIBER_CREDIT // 2:
                self._taken[name] = 0
                link.grant(SUBSCRIBER_CREDIT)


class TopicsRun(Run):
    """One publisher of many topics and one subscriber; nothing is detached, for the router ends with the run."""

    make_publisher = TopicsPublisher
    make_subscriber = TopicsSubscriber

    def close(self) -> None:
        """Close the connections."""
        for client in self._clients:
            client.engine.close()
            client.write()
            client.socket.close()


def flow(router: Router, topics: Sequence[str], patterns: Sequence[str], seconds: float) -> Row:
    """What one flow counts: rate and CPU time."""
    options = argparse.Namespace(
        publish=router.address,
        subscribe=[router.address],
        subscribers=1,
        topics=topics,
        patterns=patterns,
        name="topics",
        mode="three-step",
        stock=False,
        window=WINDOW,
        size=SIZE,
        pid=[router.pid],
        warmup=0.5,
        seconds=seconds,
        messages=None,
    )
    found = measure(TopicsRun(options), options)
    if found["lost"] or found["repeated"] or found["unsettled"]:
        raise BenchmarkError(f"a message was lost, repeated or not settled: {found}")
    return {"messages/s": found["messages_per_s"], "router CPU us per message": found["router_cpu_us_per_delivered"]}


def of_topics(count: int, *, one_for_all: bool, seconds: float) -> Row:
    """So many topics, taken by one subscription or by as many."""
    topics = [f"many/{number}" for number in range(count)]
    patterns = ["many/#"] if one_for_all else topics
    with standalone_router(*flags()) as router:
        return {"topics": count, "subscriptions": len(patterns), **flow(router, topics, patterns, seconds)}


def of_patterns(count: int, pattern: str, seconds: float) -> Row:
    """A flow on one topic beside so many subscriptions whose patterns do not match."""
    with standalone_router(*flags()) as router:
        clients = attach_all(router.address, count, lambda number: f"idle/{number}/*/x") if count else []
        row = {"idle patterns": count, "subscription": pattern, **flow(router, ["load/one"], [pattern], seconds)}
        (own,) = connected(router.address, 1, "publishers")
        before = router.cpu_s()
        for number in range(PUBLISHERS):
            own.send(attach_of_publisher(number, f"p{number}", f"fresh/{number}"))
        wait_for([own], lambda each: each.counts.get(FLOW, 0) >= PUBLISHERS)
        row["CPU us per attach of a publisher"] = round((router.cpu_s() - before) * 1e6 / PUBLISHERS)
        for each in (own, *clients):
            each.close()
        return row


def main(options: argparse.Namespace) -> None:
    """Measure and print."""
    topics = [
        of_topics(count, one_for_all=one, seconds=options.seconds)
        for count in options.topics
        for one in ((True,) if count == 1 else (True, False))
    ]
    patterns = [
        of_patterns(count, pattern, options.seconds) for count in options.patterns for pattern in ("load/one", "load/*")
    ]
    if options.json:
        print(json.dumps({"benchmark": "topics", "machine": machine(), "topics": topics, "patterns": patterns}))
    else:
        print(f"{machine()}\n\n{table(topics)}\n\n{table(patterns)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="CPU time per message by topics and patterns.")
    parser.add_argument("--topics", type=whole, nargs="+", default=[1, 100, 1000])
    parser.add_argument("--patterns", type=int, nargs="+", default=[0, 1000, 10_000])
    parser.add_argument("--seconds", type=amount, default=3.0, help="of each run, behind half a second of warm-up")
    carry_out(parser, main)
