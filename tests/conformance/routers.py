"""Router processes for this folder: each runs as long as the tests, which share it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tests.router.processes import START_TIMEOUT_S, router_command

LARGEST_MESSAGE = 256 * 1024
"""What the shared router takes, in bytes."""
USER, GUEST, PASSWORD = "ann", "guest", "secret"


@dataclass(frozen=True)
class Router:
    """A running router: where AMQP clients connect, and its HTTP side."""

    port: int
    http: str


@dataclass(frozen=True)
class TwoRouters:
    """AMQP ports of two linked routers."""

    first: int
    second: int


def running(folder: Path, *flags: str) -> Iterator[Router]:
    """A router for the time of a fixture; its log goes to a file, which nobody has to read for it to go on."""
    log = folder / "log"
    command = router_command("--announce", "--standalone", "--listen-port=0", "--http-port=0", *flags)
    with log.open("wb") as errors:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, f"the router did not start: {log.read_text()}"
        announced = json.loads(line)
        port = urlsplit(announced["url"]).port
        assert port is not None
        yield Router(port, announced["http"])
    finally:
        process.kill()
        process.communicate(timeout=START_TIMEOUT_S)
    assert "internal_error" not in log.read_text(), log.read_text()
