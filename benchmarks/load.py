"""Load for routers: one publisher with a window of unsettled deliveries, some subscribers, everything counted.

A process of its own on `oncewire.wire` and plain sockets, so that it costs little and knows nothing of the router. It
publishes for some seconds or some messages, waits until every delivery is settled, and prints one line of JSON.

    python benchmarks/load.py --publish 127.0.0.1:5672 --subscribe 127.0.0.1:5672 --seconds 5 --pid ROUTER_PID

Exit code 3: a message was lost, came twice or out of order, or was not settled at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import socket
import ssl
import sys
import time
from collections.abc import Callable
from pathlib import Path

from load_websocket import Framing

from oncewire.wire import (
    ACCEPTED,
    Connection,
    ConnectionClosed,
    ConnectionLost,
    DeliveryReceived,
    DispositionReceived,
    Event,
    LinkAttached,
    LinkDetached,
    LinkFlow,
    ReceiverLink,
    ReceiverSettleMode,
    Role,
    SaslClient,
    SenderLink,
    Source,
    Target,
    TerminusDurability,
    encode_data_message,
)
from oncewire.wire.vocabulary import CONFIRMED, ECHO, EXACTLY_ONCE

SUBSCRIBER_CREDIT = 4096
"""More than any window, so that the publisher's window alone paces the run (C-3)."""
READ_BYTES = 256 * 1024
SETUP_DEADLINE_S = 30.0
DRAIN_DEADLINE_S = 20.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
FAILED = 3


class Failed(Exception):
    """The run cannot go on; the text says why."""


CA_FILE = "LOAD_CA_FILE"
"""A variable: the authority of the routers' certificates; with it the load goes through TLS."""


WEBSOCKET = "LOAD_WEBSOCKET"
"""A variable: with it the load goes through WebSockets; addresses are those of HTTP listeners then."""


class Client:
    """One connection with one link."""

    def __init__(self, address: str, container_id: str) -> None:
        host, _, port = address.rpartition(":")
        self.name = container_id
        self.socket = socket.create_connection((host, int(port)), timeout=SETUP_DEADLINE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if (authority := os.environ.get(CA_FILE)) is not None:
            context = ssl.create_default_context(cafile=authority)
            self.socket = context.wrap_socket(self.socket, server_hostname=host)
        self._framing = Framing(self.socket, address) if os.environ.get(WEBSOCKET) else None
        self.socket.setblocking(False)
        self.engine = Connection(
            Role.CLIENT,
            container_id=container_id,
            sasl=SaslClient("ANONYMOUS"),
            now=time.monotonic(),
            desired_capabilities=[EXACTLY_ONCE],
        )
        self.is_ready = False
        self.is_detached = False
        self._unwritten = b""

    def read(self) -> None:
        """Take what has come and answer it."""
        while True:
            try:
                data = self.socket.recv(READ_BYTES)
            except (BlockingIOError, ssl.SSLWantReadError):
                return
            if not data:
                raise Failed(f"{self.name}: the router closed the connection")
            self._take(data if self._framing is None else self._framing.taken(data))
            if not isinstance(self.socket, ssl.SSLSocket):
                return  # what TLS has read already, a selector does not report

    def _take(self, data: bytes) -> None:
        self.engine.receive_data(data, time.monotonic())
        self.handle(self.engine.events())
        self.write()

    def handle(self, events: list[Event]) -> None:
        """What every client does."""
        for event in events:
            if isinstance(event, ConnectionLost | ConnectionClosed):
                raise Failed(f"{self.name}: the connection has ended: {event.error}")
            if isinstance(event, LinkDetached):
                if event.error is not None:
                    raise Failed(f"{self.name}: the router detached the link: {event.error}")
                self.is_detached = True

    def write(self) -> None:
        """Write what the engine has to say, as far as the socket takes it."""
        fresh = self.engine.data_to_send()
        data = self._unwritten + (self._framing.framed(fresh) if self._framing and fresh else fresh)
        if data:
            try:
                sent = self.socket.send(data)
            except (BlockingIOError, ssl.SSLWantWriteError):
                sent = 0
            self._unwritten = data[sent:]

    @property
    def is_behind(self) -> bool:
        """Whether the socket has not taken everything."""
        return bool(self._unwritten)


class Publisher(Client):
    """Sends while less than a window is unsettled."""

    def __init__(self, address: str, options: argparse.Namespace) -> None:
        super().__init__(address, f"{options.name}-publisher")
        self.window: int = options.window
        self.sent = 0
        self.accepted = 0
        self.limit = 0
        """Messages to send in all; raised by the run."""
        self._message = encode_data_message(bytes(options.size))
        self._settles = options.mode == "three-step"
        self.engine.open()
        exactly_once = self._settles and not options.stock
        self.link: SenderLink = self.engine.begin().attach_sender(
            "load",
            source=Source(),
            target=Target(address=options.topic),
            rcv_settle_mode=ReceiverSettleMode.SECOND if self._settles else ReceiverSettleMode.FIRST,
            unsettled={} if exactly_once else None,
            desired_capabilities=[EXACTLY_ONCE] if exactly_once else [],
        )
        self.write()

    def handle(self, events: list[Event]) -> None:
        """Settle what is accepted, then send again; before that answer the proof of life and wait for credit."""
        accepted: list[int] = []
        for event in events:
            if isinstance(event, DispositionReceived):
                if event.state != ACCEPTED:
                    raise Failed(f"{self.name}: the outcome of a delivery is {event.state}")
                accepted += event.ids
            elif isinstance(event, LinkFlow):
                properties = event.properties or {}
                if ECHO in properties:
                    self.link.flow({ECHO: properties[ECHO]})
                elif event.credit_limit:
                    self.is_ready = True
            else:
                super().handle([event])
        if accepted:
            self.accepted += len(accepted)
            if self._settles:
                self.link.settle(accepted)
        self.send()

    def send(self) -> None:
        """Send what window, credit and limit allow."""
        link = self.link
        stop = min(self.limit, self.accepted + self.window, self.sent + link.credit)
        send, message = link.send, self._message
        for number in range(self.sent, stop):
            send(number.to_bytes(8, "big"), message)
        if stop > self.sent:
            self.sent = stop


class Subscriber(Client):
    """Accepts everything, and checks that each message comes once and in order."""

    def __init__(self, address: str, options: argparse.Namespace, number: int) -> None:
        super().__init__(address, f"{options.name}-subscriber-{number}")
        self.received = 0
        self.settled = 0
        self.lost = 0
        self.repeated = 0
        self.expected = 0
        """Number of the next message."""
        self._used = 0
        self._is_first = options.mode == "two-step"
        self._is_exactly_once = not self._is_first and not options.stock
        self.engine.open()
        self.link: ReceiverLink = self.engine.begin().attach_receiver(
            "load",
            source=Source(
                address=options.topic,
                durable=TerminusDurability.UNSETTLED_STATE if self._is_exactly_once else TerminusDurability.NONE,
                timeout=60 if self._is_exactly_once else 0,
            ),
            target=Target(),
            rcv_settle_mode=ReceiverSettleMode.FIRST if self._is_first else ReceiverSettleMode.SECOND,
            unsettled={} if self._is_exactly_once else None,
            desired_capabilities=[EXACTLY_ONCE] if self._is_exactly_once else [],
        )
        self.write()

    def handle(self, events: list[Event]) -> None:
        """Accept what came, top up credit."""
        arrived: list[int] = []
        for event in events:
            if isinstance(event, DeliveryReceived):
                arrived.append(event.delivery_id)
                number = int.from_bytes(event.tag[-8:], "big")  # the network's tag ends with the publisher's
                if number == self.expected:
                    self.expected = number + 1
                else:
                    self._misplaced(number)
            elif isinstance(event, DispositionReceived):
                self.settled += len(event.ids)
            elif isinstance(event, LinkAttached):
                self.link.grant(SUBSCRIBER_CREDIT)
                self.is_ready = not self._is_exactly_once
            elif isinstance(event, LinkFlow):
                self.is_ready = self.is_ready or CONFIRMED in (event.properties or {})
            else:
                super().handle([event])
        if arrived:
            self.received += len(arrived)
            self.link.dispose(arrived, ACCEPTED, self._is_first)
            if self._is_first:
                self.settled += len(arrived)
            self._used += len(arrived)
            if self._used > SUBSCRIBER_CREDIT // 2:
                self._used = 0
                self.link.grant(SUBSCRIBER_CREDIT)

    def _misplaced(self, number: int) -> None:
        """Count what is missing before it, or that it came before."""
        if number > self.expected:
            self.lost += number - self.expected
            self.expected = number + 1
        else:
            self.repeated += 1


class Run:
    """One publisher, its subscribers, and the loop that serves them."""

    make_publisher: type[Publisher] = Publisher
    make_subscriber: type[Subscriber] = Subscriber

    def __init__(self, options: argparse.Namespace) -> None:
        self._pids: list[int] = options.pid
        self._selector = selectors.DefaultSelector()
        addresses = options.subscribe
        self.subscribers = [
            self.make_subscriber(addresses[number % len(addresses)], options, number)
            for number in range(options.subscribers)
        ]
        self._clients: list[Client] = list(self.subscribers)
        for client in self.subscribers:
            self._selector.register(client.socket, selectors.EVENT_READ, client)
        self._serve_until(lambda: all(client.is_ready for client in self.subscribers), SETUP_DEADLINE_S, "attached")
        self.publisher = self.make_publisher(options.publish, options)
        self._clients.append(self.publisher)
        self._selector.register(self.publisher.socket, selectors.EVENT_READ, self.publisher)
        self._serve_until(lambda: self.publisher.is_ready, SETUP_DEADLINE_S, "given credit")

    def serve(self, timeout: float) -> None:
        """One turn: answer everything that has come."""
        for key, ready in self._selector.select(timeout):
            client = key.data
            if ready & selectors.EVENT_READ:
                client.read()
            else:
                client.write()
            wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if client.is_behind else 0)
            if key.events != wanted:
                self._selector.modify(client.socket, wanted, client)

    def _serve_until(self, condition: Callable[[], bool], deadline_s: float, what: str) -> None:
        ends_at = time.monotonic() + deadline_s
        while not condition():
            if time.monotonic() > ends_at:
                raise Failed(f"not everything was {what} within {deadline_s:g} s: {self.counts()}")
            self.serve(0.1)

    def publish(self, seconds: float | None, messages: int | None) -> None:
        """Publish until the time is over or so many messages more are sent; without waiting for the last outcomes."""
        publisher = self.publisher
        publisher.limit = sys.maxsize if messages is None else publisher.sent + messages
        publisher.send()
        publisher.write()
        ends_at = None if seconds is None else time.monotonic() + seconds
        while publisher.sent < publisher.limit and (ends_at is None or time.monotonic() < ends_at):
            self.serve(0.1)
        publisher.limit = publisher.sent

    def drain(self) -> None:
        """Wait until everything that was sent is accepted, delivered and settled."""
        self._serve_until(self.is_done, DRAIN_DEADLINE_S, "settled")

    def is_done(self) -> bool:
        """Whether nothing is unsettled anywhere."""
        sent = self.publisher.sent
        return self.publisher.accepted == sent and all(
            subscriber.expected == sent and subscriber.settled >= sent for subscriber in self.subscribers
        )

    def close(self) -> None:
        """Unsubscribe and close, so that the router forgets everything about this run."""
        for link in (self.publisher.link, *(subscriber.link for subscriber in self.subscribers)):
            link.detach(closed=True)
        for client in self._clients:
            client.write()
        self._serve_until(lambda: all(client.is_detached for client in self._clients), DRAIN_DEADLINE_S, "detached")
        for client in self._clients:
            client.engine.close()
            client.write()
            client.socket.close()

    def counts(self) -> dict[str, int]:
        """What was counted until now."""
        sent = self.publisher.sent
        return {
            "published": sent,
            "accepted": self.publisher.accepted,
            "delivered": self.delivered,
            "lost": sum(s.lost + sent - s.expected for s in self.subscribers),
            "repeated": sum(s.repeated for s in self.subscribers),
            "unsettled": sum(sent - s.settled for s in self.subscribers) + sent - self.publisher.accepted,
        }

    @property
    def delivered(self) -> int:
        """Deliveries at all subscribers together."""
        return sum(subscriber.received for subscriber in self.subscribers)

    def router_cpu_s(self) -> float:
        """CPU seconds the watched processes have used until now, utime + stime."""
        return sum(cpu_s(pid) for pid in self._pids)


def cpu_s(pid: int) -> float:
    """CPU seconds a process has used: fields 14 and 15 of /proc/PID/stat (proc(5))."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def measure(run: Run, options: argparse.Namespace) -> dict[str, object]:
    """Warm up, publish and count; what happens in between is the measured part."""
    if options.warmup:
        run.publish(options.warmup, None)
    published, delivered = run.publisher.accepted, run.delivered
    cpu, own_cpu, started = run.router_cpu_s(), time.process_time(), time.perf_counter()
    run.publish(options.seconds, options.messages)
    if options.messages is not None:
        run.drain()
    seconds = time.perf_counter() - started
    cpu, own_cpu = run.router_cpu_s() - cpu, time.process_time() - own_cpu
    published, delivered = run.publisher.accepted - published, run.delivered - delivered
    run.drain()
    counts = run.counts()
    run.close()
    return {
        **counts,
        "seconds": round(seconds, 3),
        "messages_per_s": round(published / seconds),
        "delivered_per_s": round(delivered / seconds),
        "router_cpu_us_per_delivered": round(cpu / max(1, delivered) * 1e6, 3),
        "router_cores": round(cpu / seconds, 3),
        "load_cpu_us_per_delivered": round(own_cpu / max(1, delivered) * 1e6, 3),
        "load_cpu_s": round(own_cpu, 3),
    }


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Load for AMQP routers, counted exactly.")
    parser.add_argument("--publish", required=True, metavar="HOST:PORT")
    parser.add_argument("--subscribe", required=True, nargs="+", metavar="HOST:PORT", help="taken in turn")
    parser.add_argument("--subscribers", type=int, default=1)
    parser.add_argument("--topic", default="load")
    parser.add_argument("--name", default=f"load-{os.getpid()}", help="container-ids start with it")
    parser.add_argument("--mode", choices=["two-step", "three-step"], default="three-step")
    parser.add_argument("--stock", action="store_true", help="three steps without the capability and without maps")
    parser.add_argument("--window", type=int, default=500, help="unsettled deliveries of the publisher")
    parser.add_argument("--size", type=int, default=100, help="bytes of a message's body")
    parser.add_argument("--warmup", type=float, default=0.5, help="seconds before the measured part")
    parser.add_argument("--pid", type=int, nargs="*", default=[], help="processes whose CPU time is measured")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--seconds", type=float)
    length.add_argument("--messages", type=int)
    options = parser.parse_args()
    if options.seconds is None and options.messages is None:
        options.seconds = 5.0
    return options


def main() -> int:
    """Run once."""
    options = parse()
    try:
        result = measure(Run(options), options)
    except (Failed, OSError) as error:
        print(f"load: {error}", file=sys.stderr)
        return FAILED
    print(json.dumps(result))
    return FAILED if result["lost"] or result["repeated"] or result["unsettled"] else 0


if __name__ == "__main__":
    sys.exit(main())
