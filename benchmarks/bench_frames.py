"""What each kind of frame that a client may send costs a router, behind a small and a large window.

A client sends a thousand frames of one kind in one go, on a connection that has a window of unsettled deliveries in
both directions: what a frame costs must not depend on the window. Printed are the router's worst loop time meanwhile
(`oncewire_loop_lag_worst_seconds`: how late its loop was), the time per frame until the router answered a question
sent behind them all, and the router's CPU time per frame. Frames that say something of a whole window (attach, detach,
end) are sent one at a time, and cost what the window holds. On a machine with other work only the CPU time means
anything. Run it with

    python benchmarks/bench_frames.py [--windows 1000 100000] [--frames 1000] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from harness import Router, carry_out, machine, standalone_router

from oncewire.wire import (
    ACCEPTED,
    RELEASED,
    Connection,
    ConnectionOpened,
    Disposition,
    Event,
    Flow,
    LinkAttached,
    LinkDetached,
    LinkFlow,
    Modified,
    Performative,
    Received,
    ReceiverLink,
    Role,
    SaslClient,
    SenderLink,
    SessionBegun,
    SessionEnded,
    Source,
    Target,
    encode_data_message,
)
from oncewire.wire.frames import encode_frame
from oncewire.wire.performative_codec import encode_performative

EVERYTHING = (0, 0x80000000)
ATTACH = "attach and detach, refused"
BEGIN = "begin and end"
TRANSFER = "transfer, one delivery each"
"""As many as the window of a new session takes."""
SESSIONS = 200
"""A connection has at most 256."""
PER_LINK = 50_000
"""A publisher's window has at most 65,536 deliveries."""
MAP = 20_000
"""Entries of a map that is presented: they fit a frame of the router, 1 MiB."""
PATIENCE_S = 1200.0
METRIC = "oncewire_loop_lag_worst_seconds "
SETTLE_S = 0.6
"""The router looks at its loop twice a second or so."""


@contextmanager
def busy_router(window: int, *flags: str) -> Iterator[Router]:
    """A router whose window is as large as AMQP's sessions allow here, for the time of the block."""
    flags = ("--log-level=error", f"--limits-window={window}", "--listen-idle-timeout-s=3600", *flags)
    with standalone_router(*flags) as router:
        yield router
        os.kill(router.pid, signal.SIGKILL)  # an orderly stop would wait for deliveries that nobody settles


def worst_lag_s(router: Router) -> float:
    """How late its loop was at most since the last call."""
    with urllib.request.urlopen(f"http://{router.http}/metrics") as answer:
        text = answer.read().decode()
    return float(next(line for line in text.splitlines() if line.startswith(METRIC)).split()[1])


def loop_cpu_s(router: Router) -> float:
    """CPU time of the thread with the event loop so far (proc(5): nanoseconds on a core)."""
    return int(Path(f"/proc/{router.pid}/schedstat").read_text().split()[0]) / 1e9


class Client:
    """One connection and one session of the wire engine on a blocking socket."""

    def __init__(self, address: str, container_id: str, max_frame_size: int) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.engine = Connection(
            Role.CLIENT,
            container_id=container_id,
            sasl=SaslClient("ANONYMOUS"),
            idle_time_out_ms=0,
            max_frame_size=max_frame_size,
        )
        self.heard: list[Event] = []
        self.engine.open()
        self.until(lambda event: isinstance(event, ConnectionOpened))
        self.session = self.engine.begin()

    def flush(self) -> None:
        """Write what the engine has to say."""
        self.socket.sendall(self.engine.data_to_send())

    def until(self, wanted: Callable[[Event], bool]) -> Event:
        """Read until such an event comes."""
        while True:
            self.flush()
            self.engine.receive_data(self.socket.recv(1 << 18), 0.0)
            found = None
            for event in self.engine.events():
                self.heard.append(event)
                found = event if found is None and wanted(event) else found
            if found is not None:
                return found

    def ask(self) -> None:
        """Wait until the router has carried out everything sent before."""
        session = self.engine.begin()
        self.until(lambda event: isinstance(event, SessionBegun) and event.session is session)
        session.end()


def fill(router: Router, window: int, map_of: int) -> Client:
    """A client that publishes to itself and answers nothing: so many deliveries are unsettled in each direction.

    Args:
        router: where.
        window: deliveries it publishes.
        map_of: entries its frames hold; its links get no credit for more (C-4).
    """
    client = Client(router.address, f"busy-{window}-{map_of}", 512 + 48 * map_of)
    topic = f"t-{map_of}"
    senders = []
    for number in range(max(1, window // PER_LINK)):
        sender = client.session.attach_sender(f"p{number}", source=Source("p"), target=Target(topic))
        client.until(lambda event, link=sender: isinstance(event, LinkFlow) and event.link is link)
        senders.append(sender)
    receiver = client.session.attach_receiver("s", source=Source(topic), target=Target("s"), unsettled={})
    client.until(lambda event: isinstance(event, LinkAttached) and event.link is receiver)
    receiver.grant(window)
    client.ask()
    client.heard.clear()
    body = encode_data_message(b"body")
    sent = 0
    for sender in senders:
        for tag in range(min(window, PER_LINK)):
            if not sender.credit and map_of < window:
                break  # its map is full
            if not sender.credit:
                client.until(lambda event, link=sender: isinstance(event, LinkFlow) and event.link is link)
            sender.send(b"%d" % tag, body)
            sent += 1
            if not sent % 500:
                client.ask()
    client.ask()
    client.heard.clear()
    return client


@dataclass(frozen=True, slots=True)
class Kind:
    """Frames of one kind: the n-th one."""

    name: str
    frames: Callable[[int], list[tuple[int, Performative]]]


FULL_MAP = 160
"""Frames of 8 KiB."""


def _kinds(window: int, receiver: int) -> list[Kind]:
    def plain(make: Callable[[int], Performative]) -> Callable[[int], list[tuple[int, Performative]]]:
        return lambda number: [(0, make(number))]

    beyond = (window * 2, 0x7FFFFFFF)
    drain = Flow(0, 1 << 20, 0, 1 << 20, receiver, 0, 1 << 20, drain=True)
    failed = Modified(delivery_failed=True)
    return [
        Kind("disposition that says nothing, of all", plain(lambda _: Disposition(True, *EVERYTHING, False))),
        Kind("disposition received, of all", plain(lambda _: Disposition(True, *EVERYTHING, False, Received(0, 0)))),
        Kind("disposition settled, of none", plain(lambda _: Disposition(True, *beyond, True))),
        Kind("disposition of the sender, of all", plain(lambda _: Disposition(False, *EVERYTHING, False, ACCEPTED))),
        Kind("flow of a link", plain(lambda _: Flow(0, 1 << 20, 0, 1 << 20, 0, 0, 10))),
        Kind("flow of a link with echo", plain(lambda _: Flow(0, 1 << 20, 0, 1 << 20, 0, 0, 10, echo=True))),
        Kind("flow of a session with echo", plain(lambda _: Flow(0, 1 << 20, 0, 1 << 20, echo=True))),
        Kind("flow of a subscriber with drain", plain(lambda _: drain)),
        Kind(BEGIN, lambda _: []),
        Kind(ATTACH, lambda _: []),
        Kind(TRANSFER, lambda _: []),
        Kind("disposition accepted, one each", plain(lambda n: Disposition(True, n * 3, n * 3, False, ACCEPTED))),
        Kind("disposition released, one each", plain(lambda n: Disposition(True, n * 3 + 1, None, True, RELEASED))),
        Kind("disposition modified, one each", plain(lambda n: Disposition(True, n * 3 + 2, None, True, failed))),
        Kind("disposition accepted, of all up to there", plain(lambda n: Disposition(True, 0, n * 3, False, ACCEPTED))),
        Kind("disposition accepted, of all", plain(lambda _: Disposition(True, *EVERYTHING, False, ACCEPTED))),
        Kind("disposition settled, of all", plain(lambda _: Disposition(True, *EVERYTHING, True, ACCEPTED))),
    ]


def receiver_of(client: Client) -> ReceiverLink:
    """The subscriber of `fill`."""
    return next(link for link in client.session.links if isinstance(link, ReceiverLink))


def _flow_of_receiver(client: Client) -> Kind:
    """Flows of the subscriber of a client whose map is full: each asks the router what may go now."""
    flow = Flow(0, 1 << 20, 0, 1 << 20, receiver_of(client).handle, 0, 1 << 20)
    return Kind("flow of a link with a full map", lambda _: [(0, flow)])


@dataclass(frozen=True, slots=True)
class Cost:
    """Of the frames of one kind: the worst loop time, and wall-clock and CPU time per frame, in seconds."""

    worst: float
    per_frame: float
    cpu: float


def _prepare(client: Client, kind: Kind, frames: int) -> tuple[bytes, int]:
    """The bytes to send, and how many frames they are."""
    if kind.name == BEGIN:
        frames = min(frames, 2 * SESSIONS)
        for _ in range(frames // 2):
            client.engine.begin().end()
    elif kind.name == ATTACH:
        for number in range(frames // 2):  # as many handles as there are, for they are free when the answer is read
            client.session.attach_sender(f"x{number}", source=Source("p"), target=Target()).detach(True)
    elif kind.name == TRANSFER:
        subscribed = receiver_of(client).remote_attach
        assert subscribed is not None
        assert subscribed.source is not None
        session = client.engine.begin()  # with an incoming-window of its own
        client.until(lambda event: isinstance(event, SessionBegun) and event.session is session)
        sender = session.attach_sender("more", source=Source("p"), target=Target(subscribed.source.address))
        client.until(lambda event: isinstance(event, LinkFlow) and event.link is sender and bool(sender.credit))
        body = encode_data_message(b"body")
        client.flush()
        sent = []
        for number in range(min(frames, sender.credit)):
            sender.send(b"%d" % number, body)
            sent.append(client.engine.data_to_send())
            if not sent[-1]:  # it waits for the session's window: no frame
                break
        sent = [data for data in sent if data]
        return b"".join(sent), len(sent)
    else:
        return b"".join(
            encode_frame(channel, encode_performative(performative))
            for number in range(frames)
            for channel, performative in kind.frames(number)
        ), frames
    return client.engine.data_to_send(), frames


def measure(router: Router, client: Client, kind: Kind, frames: int) -> Cost:
    """The cost of so many frames of a kind, sent in one go."""
    data, frames = _prepare(client, kind, frames)

    def send() -> None:
        client.socket.sendall(data)
        client.ask()

    return _cost(router, send, frames)


def _cost(router: Router, act: Callable[[], None], frames: int) -> Cost:
    time.sleep(SETTLE_S)
    worst_lag_s(router)
    cpu = loop_cpu_s(router)
    began = time.monotonic()
    act()
    took = time.monotonic() - began
    cpu = loop_cpu_s(router) - cpu
    time.sleep(SETTLE_S)
    return Cost(worst_lag_s(router), took / frames, cpu / frames)


def single_frames(router: Router, client: Client, window: int) -> Iterator[tuple[str, Cost]]:
    """Frames about the whole window of a client that `fill` made; then it is of no more use."""
    subscriber = receiver_of(client)
    publisher = next(link for link in client.session.links if isinstance(link, SenderLink))
    assert subscriber.remote_attach is not None
    topic = subscriber.remote_attach.source
    assert topic is not None
    count = min(MAP, window)
    foreign = {b"%012d" % number: None for number in range(count)}

    def attached(link: ReceiverLink | SenderLink) -> None:
        answer = client.until(lambda event: isinstance(event, LinkAttached | LinkDetached) and event.link is link)
        assert isinstance(answer, LinkAttached), answer
        client.ask()

    def detach(link: ReceiverLink | SenderLink) -> Cost:
        def act() -> None:
            link.detach(False)
            client.until(lambda event: isinstance(event, LinkDetached) and event.link is link)

        return _cost(router, act, 1)

    def subscribe(unsettled: dict[bytes, None]) -> tuple[ReceiverLink, Cost]:
        links: list[ReceiverLink] = []

        def act() -> None:
            link = client.session.attach_receiver(
                "s", source=Source(topic.address), target=Target("s"), unsettled=unsettled
            )
            links.append(link)
            attached(link)

        cost = _cost(router, act, 1)
        return links[0], cost

    yield "detach of a subscriber", detach(subscriber)
    link, cost = subscribe({})
    yield "attach of a subscriber, empty map", cost
    detach(link)
    link, cost = subscribe(foreign)
    yield "attach of a subscriber, foreign map", cost
    yield "detach of a publisher", detach(publisher)
    name = publisher.name

    def publish() -> None:
        again = client.session.attach_sender(
            name, source=Source("p"), target=Target(topic.address), unsettled={b"%d" % n: None for n in range(count)}
        )
        attached(again)

    yield "attach of a publisher, with its map", _cost(router, publish, 1)

    def end() -> None:
        session = client.session
        session.end()
        client.until(lambda event: isinstance(event, SessionEnded) and event.session is session)

    yield "end of the session with all of it", _cost(router, end, 1)


def main(options: argparse.Namespace) -> None:
    """Measure and print."""
    rows: dict[str, list[Cost]] = {}
    for window in options.windows:
        with busy_router(min(window, PER_LINK)) as router:
            client = fill(router, window, FULL_MAP)
            kind = _flow_of_receiver(client)
            rows.setdefault(kind.name, []).append(measure(router, client, kind, options.frames))
            client.socket.close()
            client = fill(router, window, window)
            for kind in _kinds(window, receiver_of(client).handle):
                rows.setdefault(kind.name, []).append(measure(router, client, kind, options.frames))
            client.socket.close()
        with busy_router(min(window, PER_LINK)) as router:
            for name, cost in single_frames(router, fill(router, window, window), window):
                rows.setdefault(name, []).append(cost)
    if options.json:
        found = {name: [asdict(cost) for cost in costs] for name, costs in rows.items()}
        print(json.dumps({"benchmark": "frames", "machine": machine(), "windows": options.windows, "rows": found}))
        return
    print(machine())
    heads = "".join(f"{f'{window:,} unsettled':>42}" for window in options.windows)
    units = f"{'worst loop ms':>18}{'us/frame':>12}{'CPU us':>12}" * len(options.windows)
    print(f"{'':44}{heads}\n{'':44}{units}")
    for name, costs in rows.items():
        shown = (f"{cost.worst * 1e3:18.1f}{cost.per_frame * 1e6:12.1f}{cost.cpu * 1e6:12.1f}" for cost in costs)
        print(f"{name:44}" + "".join(shown))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Worst loop time of a router per kind of frame.")
    parser.add_argument("--windows", type=int, nargs="+", default=[1000, 100_000], help="unsettled deliveries")
    parser.add_argument("--frames", type=int, default=1000, help="frames of a kind, sent in one go")
    carry_out(parser, main)
