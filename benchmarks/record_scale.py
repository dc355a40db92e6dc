"""Runs the benchmarks of docs/scale.md and keeps what they print in docs/evidence/scale.json, part by part.

A part that is run again takes the place of the one before. Each has its command, the load average before it, and what
the script printed: the machine, its Python, the load average behind it, and the figures.

    python benchmarks/record_scale.py [PART ...]

`python benchmarks/plot_scale.py` then draws the plots.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from oncewire.cli.version import is_compiled

HERE = Path(__file__).parent
RECORD = HERE.parent / "docs" / "evidence" / "scale.json"
PARTS = {
    "connections": "bench_scale.py connections --count 1000 3000 10000",
    "subscriptions": "bench_scale.py subscriptions --count 1000 10000 100000",
    "watch": "bench_scale.py subscriptions --count 3000 --routers 4",
    "storm": "bench_scale.py storm --count 1000 10000",
    "network": "bench_network.py",
    "topics": "bench_topics.py",
    "windows": "bench_windows.py --windows 1000 10000 100000",
    "sizes": "bench_sizes.py",
    "transports": "bench_tls.py",
    "latency": "bench_latency.py --seconds 10",
    "soak": "bench_soak.py --seconds 540",
}
"""By name: the script with its options."""
FAILED = 1


def run_part(command: str) -> dict[str, Any]:
    """Run one script and return what is kept of it.

    Raises:
        subprocess.CalledProcessError: it failed; what it said is on standard error.
    """
    load = ", ".join(f"{number:.1f}" for number in os.getloadavg())
    script, *options = command.split()
    done = subprocess.run(
        [sys.executable, str(HERE / script), *options, "--json"], stdout=subprocess.PIPE, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    build = "compiled" if is_compiled() else "pure Python"
    return {"command": command, "build": build, "load average before": load, **found}


def keep(name: str, found: dict[str, Any]) -> None:
    """Put it into the file, in the order of PARTS."""
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    record[name] = found
    ordered = {each: record[each] for each in PARTS if each in record}
    RECORD.write_text(json.dumps(ordered, indent=1) + "\n")


def main() -> int:
    """Run and keep."""
    parser = argparse.ArgumentParser(description="Write docs/evidence/scale.json.")
    parser.add_argument("parts", choices=[*PARTS, []], nargs="*", help="without any: all, which takes an hour")
    options = parser.parse_args()
    for name in options.parts or PARTS:
        print(f"{name}: {PARTS[name]}", file=sys.stderr)
        try:
            found = run_part(PARTS[name])
        except subprocess.CalledProcessError as error:
            print(f"record_scale: {error}", file=sys.stderr)
            return FAILED
        keep(name, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
