#!/usr/bin/env python3
"""Runs a command beside what a user runs on the same machine: `.ci/beside.py COMMAND...`.

The user has a context in use, an `oncewire local` whose routers listen on 5672 and following, and a program on 8672
that knows no HTTP. The command runs as this user. It fails also where it passed and the user noticed it: a router has
ended or accepted a connection or a delivery, the program on 8672 was connected to, or a file in the home folder
appeared, changed or was deleted.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.request import urlopen

ONCEWIRE = Path(__file__).resolve().parents[1] / ".venv" / "bin" / "oncewire"
AMQP_PORT, TAKEN_PORT, HTTP_PORT = 5672, 8672, 9672
CONTEXT = (
    "context",
    "add",
    "mine",
    "--url",
    f"amqp://127.0.0.1:{AMQP_PORT}",
    "--http",
    f"http://127.0.0.1:{HTTP_PORT}",
)
COUNTED = ("oncewire_client_connections_accepted", "oncewire_connections_turned_away", "oncewire_deliveries")
ROW = ("id", "key", "subscriptions", "publishers")
END_S = 60.0


class Stranger:
    """Who listens on the default port for HTTP: answers nonsense, and counts."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", TAKEN_PORT))
        self.connections = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            connection, _ = self.listener.accept()
            self.connections += 1
            with connection:
                connection.sendall(b"\0\1 220 no HTTP here\n")


class User:
    """The user: home, commands, and the network."""

    def __init__(self, home: Path) -> None:
        self.home = home
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("ONCEWIRE_", "XDG_"))}
        self.environment = {**kept, "HOME": str(home)}

    def oncewire(self, *arguments: str) -> str:
        """Run a command of theirs; returns what it prints."""
        done = subprocess.run(
            [ONCEWIRE, *arguments], env=self.environment, stdout=subprocess.PIPE, text=True, timeout=END_S, check=True
        )
        return done.stdout

    @contextmanager
    def network(self) -> Iterator[list[dict[str, object]]]:
        """Run `oncewire local`; yields its routers."""
        command = [ONCEWIRE, "local", "--routers=2", "--json", f"--http-port={HTTP_PORT}"]
        # A session of its own: Ctrl-C is for the command.
        process = subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE, start_new_session=True)
        assert process.stdout is not None
        try:
            routers: list[dict[str, object]] = json.loads(process.stdout.readline())["routers"]
            assert routers[0]["url"] == f"amqp://127.0.0.1:{AMQP_PORT}", f"{AMQP_PORT} was in use: {routers}"
            yield routers
        finally:
            process.send_signal(signal.SIGTERM)
            code = process.wait(END_S)
            assert code == 0, f"the user's network ended with code {code}"

    def sees(self, routers: list[dict[str, object]], stranger: Stranger) -> dict[str, object]:
        """What must stay as it is."""
        seen: dict[str, object] = {f"connections to {TAKEN_PORT}": stranger.connections}
        for router in routers:
            with urlopen(f"{router['http']}/metrics", timeout=END_S) as answer:  # noqa: S310  # of our own network
                found = re.findall(r"^(\w+(?:\{.*\})?) (.*)$", answer.read().decode(), re.MULTILINE)
            seen |= {f"{router['id']} {name}": value for name, value in found if name.startswith(COUNTED)}
            seen[f"process of {router['id']}"] = Path(f"/proc/{router['pid']}/cmdline").read_bytes()
        rows = json.loads(self.oncewire("inspect", "routers", "--json"))["routers"]
        seen["routers that inspect shows"] = [[row[name] for name in ROW] for row in rows]
        files = (path for path in self.home.rglob("*") if path.is_file())
        # Setting up uses pip's cache, as it should.
        seen |= {str(path): path.read_bytes() for path in files if ".cache/pip" not in str(path)}
        return seen


def main(command: list[str]) -> int:
    """Run the command; returns its exit code, or 1 where the user noticed it."""
    with tempfile.TemporaryDirectory(prefix="oncewire-user-") as folder:
        user, stranger = User(Path(folder)), Stranger()
        with closing(stranger.listener), user.network() as routers:
            user.oncewire("pub", "orders", "two coffees")
            user.oncewire(*CONTEXT)
            before = user.sees(routers, stranger)
            code = subprocess.run(command, env={**os.environ, "HOME": folder}, check=False).returncode
            after = user.sees(routers, stranger)
    differences = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    for name in differences:
        sys.stderr.write(f"the user noticed: {name}: {before.get(name)!r} -> {after.get(name)!r}\n")
    return code or (1 if differences else 0)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # in good order: the network ends, too
    sys.exit(main(sys.argv[1:]))
