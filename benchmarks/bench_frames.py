"""The worst loop time of a router for each kind of frame a client may send, behind a small and a large window.

A client sends a thousand frames of one kind in one go, on a connection that has a window of unsettled deliveries in
both directions: what a frame costs must not depend on the window. Printed are the router's worst loop time meanwhile
(`oncewire_loop_lag_worst_seconds`: how late its loop was), and the time per frame until the router answered a question
sent behind them all. Run it with

    python benchmarks/bench_frames.py [--windows 1000 100000] [--frames 1000] [--json]
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass

from harness import machine

from oncewire.wire import (
    ACCEPTED,
    Connection,
    ConnectionOpened,
    Disposition,
    Event,
    Flow,
    LinkAttached,
    LinkFlow,
    Performative,
    Received,
    Role,
    SaslClient,
    SessionBegun,
    Source,
    Target,
    encode_data_message,
)
from oncewire.wire.frames import encode_frame
from oncewire.wire.performative_codec import encode_performative

EVERYTHING = (0, 0x80000000)
ATTACH = "attach and detach, refused"
BEGIN = "begin and end"
SESSIONS = 200
"""A connection has at most 256."""
PER_LINK = 50_000
"""A publisher's window has at most 65,536 deliveries."""
PATIENCE_S = 120.0
METRIC = "oncewire_loop_lag_worst_seconds "
SETTLE_S = 0.6
"""The router looks at its loop twice a second or so."""


class Router:
    """A standalone router process whose window is as large as AMQP's sessions allow here."""

    def __init__(self, window: int) -> None:
        command = [sys.executable, "-P", "-m", "router", "--announce", "--standalone", "--listen-port=0"]
        command += ["--http-port=0", "--log-level=error", f"--limits-window={window}"]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        announced = json.loads(self.process.stdout.readline())
        self.port = int(announced["url"].rpartition(":")[2])
        self.http = announced["http"]

    def worst_lag_s(self) -> float:
        """How late the loop was at most since the last call."""
        with urllib.request.urlopen(f"{self.http}/metrics") as answer:
            text = answer.read().decode()
        return float(next(line for line in text.splitlines() if line.startswith(METRIC)).split()[1])

    def stop(self) -> None:
        """End it at once: an orderly stop would wait for deliveries that nobody settles."""
        self.process.kill()
        self.process.wait()


class Client:
    """One connection and one session of the wire engine on a blocking socket."""

    def __init__(self, port: int, container_id: str, max_frame_size: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.engine = Connection(
            Role.CLIENT, container_id=container_id, sasl=SaslClient("ANONYMOUS"), idle_time_out_ms=0,
            max_frame_size=max_frame_size,
        )  # fmt: skip
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
        map_of: entries its frames hold; what the window has more is held by the router (C-4).
    """
    client = Client(router.port, f"busy-{window}-{map_of}", 512 + 48 * map_of)
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


def _kinds(window: int) -> list[Kind]:
    def plain(make: Callable[[int], Performative]) -> Callable[[int], list[tuple[int, Performative]]]:
        return lambda number: [(0, make(number))]

    beyond = (window * 2, 0x7FFFFFFF)
    return [
        Kind("disposition that says nothing, of all", plain(lambda _: Disposition(True, *EVERYTHING, False))),
        Kind("disposition received, of all", plain(lambda _: Disposition(True, *EVERYTHING, False, Received(0, 0)))),
        Kind("disposition settled, of none", plain(lambda _: Disposition(True, *beyond, True))),
        Kind("disposition of the sender, of all", plain(lambda _: Disposition(False, *EVERYTHING, False, ACCEPTED))),
        Kind("flow of a link", plain(lambda _: Flow(0, 1 << 20, 0, 1 << 20, 0, 0, 10))),
        Kind("flow of a link with echo", plain(lambda _: Flow(0, 1 << 20, 0, 1 << 20, 0, 0, 10, echo=True))),
        Kind("flow of a session with echo", plain(lambda _: Flow(0, 1 << 20, 0, 1 << 20, echo=True))),
        Kind(BEGIN, lambda _: []),
        Kind(ATTACH, lambda _: []),
        Kind("disposition accepted, one each", plain(lambda n: Disposition(True, n * 3, n * 3, False, ACCEPTED))),
        Kind("disposition accepted, of all up to there", plain(lambda n: Disposition(True, 0, n * 3, False, ACCEPTED))),
        Kind("disposition accepted, of all", plain(lambda _: Disposition(True, *EVERYTHING, False, ACCEPTED))),
        Kind("disposition settled, of all", plain(lambda _: Disposition(True, *EVERYTHING, True, ACCEPTED))),
    ]


def _flow_of_receiver(client: Client) -> Kind:
    """Flows of the subscriber of a client whose map is full: each asks the router what may go now."""
    handle = next(link.handle for link in client.session.links if not link.is_sender)
    flow = Flow(0, 1 << 20, 0, 1 << 20, handle, 0, 1 << 20)
    return Kind("flow of a link with a full map", lambda _: [(0, flow)])


def measure(router: Router, client: Client, kind: Kind, frames: int) -> tuple[float, float]:
    """The worst loop time in seconds, and the seconds per frame."""
    time.sleep(SETTLE_S)
    router.worst_lag_s()
    if kind.name == BEGIN:
        frames = min(frames, 2 * SESSIONS)
        for _ in range(frames // 2):
            client.engine.begin().end()
        data = client.engine.data_to_send()
    elif kind.name == ATTACH:
        for number in range(frames // 2):  # as many handles as there are, for they are free when the answer is read
            client.session.attach_sender(f"x{number}", source=Source("p"), target=Target()).detach(True)
        data = client.engine.data_to_send()
    else:
        data = b"".join(
            encode_frame(channel, encode_performative(performative))
            for number in range(frames)
            for channel, performative in kind.frames(number)
        )
    began = time.monotonic()
    client.socket.sendall(data)
    client.ask()
    took = time.monotonic() - began
    time.sleep(SETTLE_S)
    return router.worst_lag_s(), took / frames


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Worst loop time of a router per kind of frame.")
    parser.add_argument("--windows", type=int, nargs="+", default=[1000, 100_000], help="unsettled deliveries")
    parser.add_argument("--frames", type=int, default=1000, help="frames of a kind, sent in one go")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows: dict[str, list[tuple[float, float]]] = {}
    for window in options.windows:
        router = Router(min(window, 50_000))
        try:
            client = fill(router, window, FULL_MAP)
            kind = _flow_of_receiver(client)
            rows.setdefault(kind.name, []).append(measure(router, client, kind, options.frames))
            client.socket.close()
            client = fill(router, window, window)
            for kind in _kinds(window):
                rows.setdefault(kind.name, []).append(measure(router, client, kind, options.frames))
        finally:
            router.stop()
    if options.json:
        print(json.dumps({"benchmark": "frames", "machine": machine(), "windows": options.windows, "rows": rows}))
        return 0
    print(machine())
    heads = "".join(f"{f'{window:,} unsettled':>30}" for window in options.windows)
    print(f"{'':42}{heads}\n{'':42}" + "".join(f"{'worst loop ms':>18}{'us/frame':>12}" for _ in options.windows))
    for name, found in rows.items():
        print(f"{name:42}" + "".join(f"{lag * 1000:18.1f}{per * 1e6:12.1f}" for lag, per in found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
