"""CPU time of a router for each message by TCP, TLS, WebSocket and both: 1 KiB, one publisher, one subscriber.

The two routers run at the same time and are loaded in turn, so that a busy minute of the machine hits all. CPU time
is utime + stime of the router; the load generator's own is not in it. Needs trustme (the extra `test`).

    python benchmarks/bench_tls.py [--rounds 5] [--seconds 3] [--size 1024] [--json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from harness import carry_out, is_missing, machine, run_load, standalone_router
from load import CA_FILE, WEBSOCKET

CPU = "router_cpu_us_per_delivered"


def measure(rounds: int, options: list[str]) -> dict[str, list[float]]:
    """CPU microseconds for each message, of each run, by scheme."""
    import trustme

    authority = trustme.CA()
    own = authority.issue_cert("127.0.0.1")
    found: dict[str, list[float]] = {"amqp": [], "amqps": [], "ws": [], "wss": []}
    with tempfile.TemporaryDirectory() as folder:
        ca, certificate = Path(folder) / "ca.pem", Path(folder) / "own.pem"
        authority.cert_pem.write_to_path(ca)
        own.private_key_and_cert_chain_pem.write_to_path(certificate)
        with (
            standalone_router("--http-websocket=true") as plain,
            standalone_router(
                "--listen-tls=true", "--http-tls=true", "--http-websocket=true", f"--tls-cert-file={certificate}"
            ) as secured,
        ):
            for number in range(rounds):
                print(f"round {number + 1} of {rounds}", file=sys.stderr)
                for scheme, runs in found.items():
                    router = secured if scheme in {"amqps", "wss"} else plain
                    environment = {CA_FILE: str(ca)} if router is secured else {}
                    if scheme.startswith("ws"):
                        environment[WEBSOCKET] = "1"
                        router = replace(router, address=router.http)
                    runs.append(run_load(router, [router], [router], *options, **environment)[CPU])
    return found


def main(options: argparse.Namespace) -> bool | None:
    """Measure and print."""
    if is_missing("trustme"):
        return False
    found = measure(options.rounds, ["--seconds", str(options.seconds), "--size", str(options.size)])
    medians = {name: statistics.median(runs) for name, runs in found.items()}
    ratios = {name: median / medians["amqp"] for name, median in medians.items()}
    if options.json:
        head = {"benchmark": "tls", "machine": machine(), "size": options.size}
        print(json.dumps({**head, "runs": found, "medians": medians, "ratios": ratios}))
        return None
    print(f"{machine()}; {options.size} bytes, median of {options.rounds} runs of {options.seconds:g} s (min-max)\n")
    for name, runs in found.items():
        span = f"({min(runs):.1f}-{max(runs):.1f})"
        print(f"{name:<6} {medians[name]:6.1f} us for each message {span:<14} {ratios[name]:.2f} times amqp")
    return None


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="CPU time of a router by transport.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--size", type=int, default=1024, help="bytes of a message's body")
    carry_out(parser, main)
