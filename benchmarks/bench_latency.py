"""Latency of the full exactly-once exchange, from sending to delivery, at a tenth, half and four fifths of saturation.

One router, one publisher, one subscriber, bodies of 100 bytes. At a rate, latency counts from the moment at which the
message was due, so a pause counts for all that were due in it. Saturated, the publisher keeps its window of unsettled
messages full; a message then waits for the window before it: window / rate is what the window explains.

    python benchmarks/bench_latency.py [--seconds 3] [--window 500] [--router HOST:PORT] [--json]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from contextlib import ExitStack

from harness import Router, Row, amount, carry_out, show, standalone_router, whole
from load import Publisher, Run, Subscriber

from oncewire.wire import DeliveryReceived, Event

SHARES = (0.1, 0.5, 0.8)
WARM_UP_S = 0.5
IDLE_WAIT_S = 0.02


class PacedPublisher(Publisher):
    """Sends what is due."""

    def __init__(self, address: str, options: argparse.Namespace) -> None:
        super().__init__(address, options)
        self.rate: float | None = options.rate
        self.began = 0.0
        self.due: list[float] = []
        """When each message was due, or sent where there is no rate."""

    def send(self) -> None:
        """Send what the rate allows, as far as the window does."""
        now, before = time.perf_counter(), self.sent
        if self.rate is not None and self.began:
            self.limit = int((now - self.began) * self.rate)
        super().send()
        if self.rate is None:
            self.due += [now] * (self.sent - before)
        else:
            self.due += [self.began + number / self.rate for number in range(before, self.sent)]


class TimedSubscriber(Subscriber):
    """Notes when each message came."""

    def __init__(self, address: str, options: argparse.Namespace, number: int) -> None:
        super().__init__(address, options, number)
        self.came: list[float] = []

    def handle(self, events: list[Event]) -> None:
        """Note the time, then accept."""
        now = time.perf_counter()
        self.came += [now for event in events if isinstance(event, DeliveryReceived)]
        super().handle(events)


class TimedRun(Run):
    """Publishes at a rate."""

    make_publisher = PacedPublisher
    make_subscriber = TimedSubscriber
    publisher: PacedPublisher
    subscribers: list[TimedSubscriber]  # type: ignore[assignment]  # nobody puts other ones in

    def publish_paced(self, seconds: float) -> None:
        """Publish for so long, and wait for the last outcome."""
        publisher = self.publisher
        publisher.began = now = time.perf_counter()
        publisher.limit = sys.maxsize if publisher.rate is None else 0
        ends_at = now + seconds
        while now < ends_at:
            publisher.send()
            publisher.write()
            due = IDLE_WAIT_S if publisher.rate is None else publisher.began + publisher.sent / publisher.rate - now
            self.serve(max(0.0, min(due, IDLE_WAIT_S)))
            now = time.perf_counter()
        publisher.rate, publisher.limit = None, publisher.sent
        self.drain()


def measure(router: Router, rate: float | None, seconds: float, window: int) -> Row:
    """One run at a rate; None = as fast as the window allows."""
    options = argparse.Namespace(
        publish=router.address,
        subscribe=[router.address],
        subscribers=1,
        topic="latency",
        name=f"latency-{rate}",
        mode="three-step",
        stock=False,
        window=window,
        size=100,
        pid=[],
        rate=rate,
    )
    run = TimedRun(options)
    run.publish_paced(WARM_UP_S + seconds)
    (subscriber,) = run.subscribers
    late = [(came - due) * 1000 for came, due in zip(subscriber.came, run.publisher.due, strict=True)]
    began = run.publisher.due[0] + WARM_UP_S
    late = [each for each, due in zip(late, run.publisher.due, strict=True) if due >= began]
    run.close()
    cuts = statistics.quantiles(late, n=1000)
    return {
        "load": "saturated" if rate is None else f"{rate:,.0f}/s",
        "messages/s": round(len(late) / seconds),
        "p50 ms": round(cuts[499], 2),
        "p99 ms": round(cuts[989], 2),
        "p99.9 ms": round(cuts[998], 2),
    }


def rows(router: Router, seconds: float, window: int) -> list[Row]:
    """Saturated first; the rates follow from it."""
    found = [measure(router, None, seconds, window)]
    rate = found[0]["messages/s"]
    found[0]["window explains ms"] = round(window / rate * 1000, 2)
    for share in SHARES:
        found.append({**measure(router, share * rate, seconds, window), "window explains ms": ""})
        found[-1]["load"] = f"{share:.0%}"
    return found


def main(options: argparse.Namespace) -> None:
    """Measure and print."""
    with ExitStack() as stack:
        given = options.router
        router = Router(0, given, "") if given else stack.enter_context(standalone_router())
        found = rows(router, options.seconds, options.window)
    show("latency", found, options.json)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Latency at rates and saturated.")
    parser.add_argument("--seconds", type=amount, default=3.0, help="of each rate, behind half a second of warm-up")
    parser.add_argument("--window", type=whole, default=500, help="unsettled messages of the publisher")
    parser.add_argument("--router", metavar="HOST:PORT", help="a router that runs; else one of our own")
    carry_out(parser, main)
