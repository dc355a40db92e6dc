"""The benchmarks' own programs against real routers: exact counts in every mode, and no memory held afterwards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.router.processes import running_router

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
TIMEOUT_S = 90


def run_script(name: str, *options: str) -> tuple[int, dict[str, Any]]:
    """Run a script of the folder as `make bench` does: its exit code and the JSON it printed."""
    # The folder of the script has to be on its path: the benchmarks share a module.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONSAFEPATH"}
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / name), *options],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env=environment,
        check=False,
    )
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, found


@pytest.mark.slow
def test_a_hundred_thousand_settled_messages_leave_no_memory_behind() -> None:
    code, found = run_script("bench_memory.py", "--messages", "100000", "--first", "20000", "--json")
    assert found["fits"], found
    assert code == 0


@pytest.mark.parametrize(
    "mode", [["two-step"], ["three-step"], ["three-step", "--stock"]], ids=["two steps", "three steps", "stock"]
)
async def test_every_message_is_delivered_once_in_order_and_settled(mode: list[str]) -> None:
    async with running_router("--standalone") as router:
        address = f"127.0.0.1:{router.port}"
        code, found = run_script(
            "load.py",
            "--publish",
            address,
            "--subscribe",
            address,
            "--subscribers",
            "2",
            "--mode",
            *mode,
            "--messages",
            "3000",
            "--warmup",
            "0",
        )
        left = await router.state()
    assert code == 0
    assert (found["published"], found["accepted"], found["delivered"]) == (3000, 3000, 6000)
    assert (found["lost"], found["repeated"], found["unsettled"]) == (0, 0, 0)
    # The clients closed their links for good, so the router knows nothing of them any more (G6).
    assert (left["windows"], left["endpoints"], left["publishers"], left["subscriptions"]) == ([], [], [], [])
