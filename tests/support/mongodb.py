"""A server with MongoDB's protocol of the tests' own: FerretDB on a temporary folder, gone when the tests are.

FerretDB 1 reads a document and writes it back in two steps, so two clients lose changes of each other.
`running_mongodb` lets one command through at a time, which makes each of them one step, as work queues need it.
"""

from __future__ import annotations

import os
import shutil
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.waiting import wait_until
from topology.etcd.server import free_port

VARIABLE = "ONCEWIRE_FERRETDB"
PROGRAM = "oncewire-ferretdb"
"""What scripts/install_ferretdb.sh builds: started as PROGRAM file:FOLDER/ HOST:PORT."""
MEMORY = Path("/dev/shm")
"""Linux's file system in memory: each database is many small files, made for one test."""
LOOPBACK = "127.0.0.1"
HEADER_BYTES = 4
"""A message of the protocol begins with its length, the length included."""
# The shell ends the server when its standard input closes, so also when the tests are killed.
RUN = '"$@" & server=$!; read -r line; kill $server; wait $server'


def find_ferretdb() -> Path | None:
    """Returns the server program: what the variable names, one on PATH, or the one beside this Python."""
    named = os.environ.get(VARIABLE) or shutil.which(PROGRAM) or str(Path(sys.prefix) / "bin" / PROGRAM)
    return Path(named) if os.access(named, os.X_OK) else None


@contextmanager
def running_ferretdb() -> Iterator[tuple[str, int]]:
    """Runs the server as it is; yields host and port."""
    program = find_ferretdb()
    assert program is not None
    folder = tempfile.mkdtemp(prefix="oncewire-ferretdb-", dir=MEMORY if MEMORY.is_dir() else None)
    address = (LOOPBACK, free_port())
    # synchronous: the tests kill our processes, not the machine.
    files = f"file:{folder}/?_pragma=synchronous(off)"
    command: list[str | Path] = ["sh", "-c", RUN, "sh", program, files, f"{address[0]}:{address[1]}"]
    try:
        with (Path(folder) / "log").open("wb") as log:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)
        try:
            wait_until(lambda: _accepts(address), "the server does not start")
            yield address
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(60)
    finally:
        shutil.rmtree(folder)


def _accepts(address: tuple[str, int]) -> bool:
    with suppress(OSError):
        socket.create_connection(address, 1).close()
        return True
    return False


def _message(stream: socket.socket) -> bytes:
    """Returns the next whole message; empty at the end of the stream."""
    whole = b""
    wanted = HEADER_BYTES
    while len(whole) < wanted:
        part = stream.recv(min(wanted - len(whole), 1 << 16))
        if not part:
            return b""
        whole += part
        if len(whole) == HEADER_BYTES:
            wanted = int.from_bytes(whole, "little")
    return whole


class _OneAtATime(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, upstream: tuple[str, int]) -> None:
        super().__init__((LOOPBACK, 0), _Passing)
        self.upstream = upstream
        self.turn = threading.Lock()


class _Passing(socketserver.BaseRequestHandler):
    server: _OneAtATime

    def handle(self) -> None:
        """Each command has one reply."""
        with suppress(OSError), socket.create_connection(self.server.upstream) as upstream:
            for stream in (upstream, self.request):
                stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while command := _message(self.request):
                with self.server.turn:
                    upstream.sendall(command)
                    reply = _message(upstream)
                if not reply:
                    return
                self.request.sendall(reply)


@contextmanager
def running_mongodb() -> Iterator[str]:
    """Runs a server that changes documents atomically; yields ``mongodb://HOST:PORT``."""
    with running_ferretdb() as address, _OneAtATime(address) as passing:
        thread = threading.Thread(target=passing.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield "mongodb://{}:{}".format(*passing.server_address)
        finally:
            passing.shutdown()
            thread.join()
