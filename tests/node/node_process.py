"""Real bridge node processes for tests: each is a child of the test, on free ports, and ended by it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bridges.node.client import RemoteNode, read_secret

START_S = 60.0


class NodeProcess:
    """A node with a folder of its own, which can be killed and started again at the same addresses."""

    def __init__(self, folder: Path, routers: list[str], more: str = "") -> None:
        self.folder = folder
        self.config = folder.parent / f"{folder.name}.toml"
        self._routers = routers
        self._more = more
        self._port = 0
        self._process: subprocess.Popen[str] | None = None
        self.announced: dict[str, str] = {}

    def start(self) -> None:
        """Start the process and wait until pipelines can connect."""
        self.config.write_text(
            f'name = "node"\nfolder = "{self.folder}"\nrouters = {json.dumps(self._routers)}\n'
            f'listen.port = {self._port}\nlisten.unix = "{self.folder}.sock"\nhttp.port = 0\n{self._more}'
        )
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "bridges.node", "--announce", "--config", self.config],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait(START_S)
            raise AssertionError(f"the node did not start: exit code {self.end()}")
        self.announced = json.loads(line)
        self._port = int(self.announced["tcp"].rpartition(":")[2])

    def end(self, number: signal.Signals = signal.SIGKILL) -> int:
        """Signal the process, if it still runs, and wait for its end; returns the exit code."""
        assert self._process is not None
        self._process.send_signal(number)
        code = self._process.wait(START_S)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process = None
        return code

    def restart(self) -> None:
        """kill -9, and start again."""
        self.end()
        self.start()

    def connect(self, kind: str = "tcp", patience_s: float = 30.0) -> RemoteNode:
        """A client of it."""
        secret = read_secret(Path(self.announced["secret"]))
        return RemoteNode(self.announced[kind], secret, patience_s=patience_s)

    @property
    def is_running(self) -> bool:
        """Whether it was started and not ended."""
        return self._process is not None


@contextmanager
def running_node(folder: Path, routers: list[str], more: str = "") -> Iterator[NodeProcess]:
    """A node for the time of the block."""
    node = NodeProcess(folder, routers, more)
    node.start()
    try:
        yield node
    finally:
        if node.is_running:
            node.end()
