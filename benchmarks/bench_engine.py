"""CPU time of the wire engine per message, in one process and without sockets.

A publisher and a subscriber stand at two connections of a router that forwards every message with the exactly-once
exchange: transfer, accepted, settled. Only the router's side is timed. Run it with

    python benchmarks/bench_engine.py [--messages N] [--size BYTES] [--json]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

from oncewire.wire import (
    ACCEPTED,
    Connection,
    DeliveryReceived,
    DispositionReceived,
    Event,
    ReceiverLink,
    Role,
    SenderLink,
    Source,
    Target,
)

# Read sizes of the router: 50 messages a read is a busy socket, 1 an idle one.
BATCHES = (50, 1)


class Pair:
    """A router's connection and the client at its other end."""

    def __init__(self) -> None:
        self.router = Connection(Role.SERVER, container_id="router")
        self.client = Connection(Role.CLIENT, container_id="client")
        self.client.open()

    def exchange(self) -> list[Event]:
        """Move bytes until both are quiet; return what the router heard."""
        heard: list[Event] = []
        while True:
            up, down = self.client.data_to_send(), self.router.data_to_send()
            if not up and not down:
                return heard
            self.router.receive_data(up, 0.0)
            heard += self.router.events()
            self.client.receive_data(down, 0.0)
            self.client.events()

    def router_reads(self) -> list[Event]:
        self.router.receive_data(self.client.data_to_send(), 0.0)
        return self.router.events()

    def client_reads(self) -> list[Event]:
        self.client.receive_data(self.router.data_to_send(), 0.0)
        return self.client.events()


def publisher_pair() -> tuple[Pair, SenderLink, ReceiverLink]:
    pair = Pair()
    sender = pair.client.begin().attach_sender("p", source=Source(), target=Target("topic"), unsettled={})
    pair.exchange()
    (receiver,) = pair.router.sessions[0].links
    assert isinstance(receiver, ReceiverLink)
    receiver.reply(source=Source(), target=Target("topic"), unsettled={})
    receiver.grant(1 << 30)
    pair.exchange()
    return pair, sender, receiver


def subscriber_pair() -> tuple[Pair, SenderLink, ReceiverLink]:
    pair = Pair()
    receiver = pair.client.begin().attach_receiver("s", source=Source("topic"), target=Target(), unsettled={})
    pair.exchange()
    (sender,) = pair.router.sessions[0].links
    assert isinstance(sender, SenderLink)
    sender.reply(source=Source("topic"), target=Target(), unsettled={})
    receiver.grant(1 << 30)
    pair.exchange()
    return pair, sender, receiver


class Exchange:
    """One publisher, one subscriber and the router's two connections between them; counts the router's CPU time."""

    def __init__(self, size: int) -> None:
        self.publishers, self.publisher, self.ingress = publisher_pair()
        self.subscribers, self.egress, self.subscriber = subscriber_pair()
        self.body = bytes(size)
        self.sent = self.settled = 0
        self.seconds = {"transfer in and out": 0.0, "accept back": 0.0, "settle on": 0.0}

    def publish(self, batch: int) -> None:
        for _ in range(batch):
            self.publisher.send(b"tag-%d" % self.sent, self.body)
            self.sent += 1

    def forward(self) -> bytes:
        send = self.egress.send
        for event in self.publishers.router_reads():
            if isinstance(event, DeliveryReceived):
                send(event.tag, event.payload)
        return self.subscribers.router.data_to_send()

    def accept(self) -> bytes:
        for event in self.subscribers.router_reads():
            if isinstance(event, DispositionReceived):
                self.ingress.dispose(event.ids, ACCEPTED, False)
        return self.publishers.router.data_to_send()

    def settle(self) -> bytes:
        for event in self.publishers.router_reads():
            if isinstance(event, DispositionReceived):
                self.egress.settle(event.ids)
        return self.subscribers.router.data_to_send()

    def timed(self, step: str, work: Callable[[], bytes]) -> bytes:
        before = time.process_time()
        data = work()
        self.seconds[step] += time.process_time() - before
        return data

    def subscriber_hears(self, data: bytes) -> list[Event]:
        self.subscribers.client.receive_data(data, 0.0)
        return self.subscribers.client.events()

    def run(self, batch: int) -> None:
        """Carry one batch through all three steps."""
        self.publish(batch)
        heard = self.subscriber_hears(self.timed("transfer in and out", self.forward))
        self.subscriber.dispose([e.delivery_id for e in heard if isinstance(e, DeliveryReceived)], ACCEPTED, False)
        self.publishers.client.receive_data(self.timed("accept back", self.accept), 0.0)
        for event in self.publishers.client.events():
            if isinstance(event, DispositionReceived):
                self.publisher.settle(event.ids)
        for event in self.subscriber_hears(self.timed("settle on", self.settle)):
            if isinstance(event, DispositionReceived):
                self.settled += len(event.ids)


def three_steps(messages: int, size: int, batch: int) -> dict[str, float]:
    """Forward messages from one publisher to one subscriber; return microseconds per message by step."""
    exchange = Exchange(size)
    while exchange.sent < messages:
        exchange.run(batch)
    assert exchange.settled == exchange.sent
    return {step: seconds / exchange.sent * 1e6 for step, seconds in exchange.seconds.items()}


def one_way(messages: int, size: int) -> tuple[float, float]:
    """Return microseconds per message to send, and to receive and dispatch, in batches of 50."""
    pair, sender, _ = publisher_pair()
    body = bytes(size)
    sending = receiving = 0.0
    for start in range(0, messages, 50):
        tags = [b"tag-%d" % number for number in range(start, start + 50)]
        send = sender.send
        before = time.process_time()
        for tag in tags:
            send(tag, body, settled=False)
        data = pair.client.data_to_send()
        middle = time.process_time()
        pair.router.receive_data(data, 0.0)
        events = pair.router.events()
        receiving += time.process_time() - middle
        sending += middle - before
        pair.client_reads()
        ids = [e.delivery_id for e in events if isinstance(e, DeliveryReceived)]
        sender.settle(ids)
        pair.router_reads()
        pair.client_reads()
    return sending / messages * 1e6, receiving / messages * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--messages", type=int, default=50_000)
    parser.add_argument("--size", type=int, default=256, help="bytes of a message (default 256)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    sending, receiving = one_way(options.messages, options.size)
    if options.json:
        batches = {batch: three_steps(options.messages, options.size, batch) for batch in BATCHES}
        result = {"benchmark": "engine", "send_us": sending, "receive_us": receiving, "three_steps_us": batches}
        print(json.dumps(result))
        return
    print(f"send one message                    {sending:6.2f} us")
    print(f"receive and dispatch one message    {receiving:6.2f} us")
    for batch in BATCHES:
        steps = three_steps(options.messages, options.size, batch)
        print(f"three steps, {batch:2} a read               {sum(steps.values()):6.2f} us per message")
        for name, micros in steps.items():
            print(f"    {name:32}{micros:6.2f} us")


if __name__ == "__main__":
    main()
