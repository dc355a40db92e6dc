"""Memory and CPU time of a router by the number of deliveries that one subscriber leaves unsettled.

A client publishes to itself and answers nothing until so many deliveries are unsettled in each direction, 50,000 for
each publisher's link at most; then it accepts all with one disposition, and settles all. Bodies have four bytes.

    python benchmarks/bench_windows.py [--windows 1000 10000 100000] [--json]
"""

from __future__ import annotations

import argparse

from bench_frames import PER_LINK, Client, busy_router, fill, loop_cpu_s, receiver_of
from harness import Router, Row, carry_out, show, whole

from oncewire.wire import ACCEPTED, Disposition, DispositionReceived, Event, SenderLink
from oncewire.wire.frames import encode_frame
from oncewire.wire.performative_codec import encode_performative

FRAME, ENTRY = 1 << 20, 48
"""A router's largest frame, and bytes of a map's entry in it."""
WARM_UP = 100
"""Deliveries of another client before: the first ones pay for what all share."""
ALL = (0, 0x7FFFFFFF)


def filled(router: Router, window: int) -> Client:
    """A client that has received as many deliveries as it published, and has answered none."""
    client = fill(router, window, window)
    subscriber = receiver_of(client)
    if subscriber.credit:
        client.until(lambda _: not subscriber.credit)
    return client


def settle_all(client: Client, window: int) -> None:
    """Accept everything with one disposition, and settle what was accepted, until both directions have settled."""
    settled = 0

    def is_last(event: Event) -> bool:
        nonlocal settled
        if isinstance(event, DispositionReceived):
            if isinstance(event.link, SenderLink):
                event.link.settle(event.ids)
            elif event.settled:
                settled += len(event.ids)
        return settled >= window

    client.socket.sendall(encode_frame(0, encode_performative(Disposition(True, *ALL, False, ACCEPTED))))
    client.until(is_last)


def measure(window: int) -> Row:
    """One router: fill, settle, and look at it before, between and after."""
    # C-4: what is unsettled at a subscriber fits one frame of the router.
    with busy_router(min(window, PER_LINK), f"--limits-max-frame-size={max(FRAME, window * ENTRY + FRAME)}") as router:
        warm = filled(router, WARM_UP)
        settle_all(warm, WARM_UP)
        warm.socket.close()
        before, cpu = router.resident_bytes(), loop_cpu_s(router)
        client = filled(router, window)
        held, delivered = router.resident_bytes(), loop_cpu_s(router)
        settle_all(client, window)
        settled = loop_cpu_s(router)
        left = router.resident_bytes()
        client.socket.close()
    return {
        "unsettled": window,
        "bytes each": round((held - before) / window),
        "router MB": round(held / 1e6, 1),
        "router MB, all settled": round(left / 1e6, 1),
        "CPU us each, to deliver": round((delivered - cpu) * 1e6 / window, 1),
        "CPU us each, to accept and settle": round((settled - delivered) * 1e6 / window, 1),
    }


def main(options: argparse.Namespace) -> None:
    """Measure and print."""
    show("windows", [measure(window) for window in options.windows], options.json)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Memory and CPU time by unsettled deliveries.")
    parser.add_argument("--windows", type=whole, nargs="+", default=[1000, 10_000])
    carry_out(parser, main)
