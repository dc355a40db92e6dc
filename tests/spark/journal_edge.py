"""A real edge with journals that a test fills itself, in the edge's store: no network is needed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bridges.journal import log
from bridges.journal.cli import transact
from bridges.journal.model import JournalSettings, NewMessage, StoredMessage
from oncewire.store.store import Transaction
from oncewire.wire import encode_data_message
from tests.edge.edge_process import ONCEWIRE, settings

END_S = 60.0


class JournalEdge:
    """The edge, which can be killed and started again at another port.

    Args:
        folder: for its store and settings.
        more: of the table [edge] and below.
    """

    def __init__(self, folder: Path, more: str = "") -> None:
        self.store = f"sqlite:///{folder}/edge.db"
        self._file = folder / "edge.toml"
        self._file.write_text(settings(self.store, ["amqp://127.0.0.1:1"], '[[journal]]\nname = "settings"', more=more))
        self._process: subprocess.Popen[str] | None = None
        self.url = ""

    def __enter__(self) -> JournalEdge:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.end()

    def start(self, port: int = 0) -> None:
        """Start it and wait until its HTTP answers."""
        self._process = subprocess.Popen(
            [*ONCEWIRE, "edge", "serve", "--config", str(self._file), "--log-format=json", f"--http-port={port}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stderr is not None
        for line in self._process.stderr:
            sys.stderr.write(line)
            if line.startswith("{") and json.loads(line)["event"] == "edge_started":
                self.url = json.loads(line)["http"]
                return
        self.end()
        raise AssertionError("the edge did not start")

    def end(self) -> None:
        """kill -9."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(END_S)
        assert self._process.stderr is not None
        self._process.stderr.close()

    def make(self, name: str, kept: JournalSettings | None = None) -> None:
        """Make a journal."""
        transact(self.store, lambda do: log.configure(do, name, kept or JournalSettings()))

    def append(self, name: str, values: Sequence[str | bytes], topic: str = "orders") -> None:
        """Messages with these bodies are stored, in one go."""
        bodies = [value.encode() if isinstance(value, str) else value for value in values]
        messages = [NewMessage(encode_data_message(body)) for body in bodies]
        transact(self.store, lambda do: log.append(do, name, messages, topic))

    def append_numbers(self, name: str, start: int, stop: int) -> None:
        """The numbers from start to stop - 1 are stored, as texts."""
        self.append(name, [str(number) for number in range(start, stop)])

    def messages(self, name: str) -> list[StoredMessage]:
        """All that is kept."""
        return transact(self.store, lambda do: log.read(do, name, log.state(do, name).trimmed, 10_000, 1 << 30)[1])

    def trim(self, name: str, position: int) -> None:
        """Delete messages up to a position."""
        transact(self.store, lambda do: log.trim(do, name, position))

    def replace(self, name: str) -> None:
        """Delete a journal and make it again."""

        def again(do: Transaction) -> None:
            log.delete(do, name)
            log.configure(do, name, JournalSettings())

        transact(self.store, again)
