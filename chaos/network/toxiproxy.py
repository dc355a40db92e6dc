"""The real Toxiproxy on loopback: found, started, driven with toxiproxy-python, ended.

Which one: $TOXIPROXY_SERVER > `toxiproxy-server` on PATH > the one `make tools` puts beside the Python interpreter. The
package toxiproxy-python knows one server per process, and waits for each answer: it is called in threads here.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self, TypeVar

from topology.etcd.server import free_port, tied_to_parent

VARIABLE = "TOXIPROXY_SERVER"
PROGRAM = "toxiproxy-server"
GET_IT = "run `make tools` in the project's folder, which builds it, or set TOXIPROXY_SERVER to its path"
READY_TIMEOUT_S = 20.0
"""It listens within milliseconds; a busy machine may take longer."""
POLL_S = 0.02
PORT_ATTEMPTS = 5
"""Between choosing a free port and listening on it another process may take it."""

UPSTREAM = "upstream"
"""The stream from who connected to who listens."""
DOWNSTREAM = "downstream"

T = TypeVar("T")


class ToxiproxyNotFound(Exception):
    """There is no Toxiproxy to start. The text says why; `GET_IT` how to get one."""


class ToxiproxyFailed(Exception):
    """Toxiproxy did not start, or refused a request. The text says why."""


@dataclass(frozen=True, slots=True)
class ProxyAddress:
    """A proxy that exists: who connects to `listen` talks to `upstream`."""

    name: str
    listen: str
    """host:port"""
    upstream: str


def find_toxiproxy() -> str:
    """Path of the server program.

    Raises:
        ToxiproxyNotFound: there is none, or what the variable names is none.
    """
    named = os.environ.get(VARIABLE)
    if named:
        if not os.access(named, os.X_OK):
            raise ToxiproxyNotFound(f"{VARIABLE}={named} is no program that can be run")
        return str(Path(named).absolute())
    beside = Path(sys.prefix) / "bin" / PROGRAM
    found = shutil.which(PROGRAM) or (str(beside) if os.access(beside, os.X_OK) else None)
    if found is None:
        raise ToxiproxyNotFound(f"no {PROGRAM} on PATH, none beside {sys.executable}, and {VARIABLE} is not set")
    return str(Path(found).absolute())


class ToxiproxyServer:
    """One Toxiproxy of our own. Use as an async context manager; it ends with this process, however that ends."""

    _in_use: ClassVar[bool] = False

    def __init__(self, log: Path, seed: int = 0) -> None:
        """Nothing is started yet.

        Args:
            log: file for what the server prints.
            seed: for its own dice (jitter).

        Raises:
            ToxiproxyNotFound: there is nothing to run.
        """
        self.path = find_toxiproxy()
        self._log = log
        self._seed = seed
        self._proxies: dict[str, Any] = {}
        """toxiproxy-python's object of each proxy."""
        self._api: Any = None
        self.version = ""
        """What it says of itself when it runs."""
        self._finalizer: weakref.finalize[..., ToxiproxyServer] | None = None

    @property
    def description(self) -> str:
        """What runs, for people."""
        return f"Toxiproxy {self.version} ({self.path})"

    # --- life ---------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Start it and wait until it answers.

        Raises:
            ToxiproxyNotFound: toxiproxy-python is missing.
            ToxiproxyFailed: it ended or did not answer.
        """
        # One at a time: the package keeps the server's address in a class.
        assert not ToxiproxyServer._in_use, "toxiproxy-python knows one server per process"
        try:
            from toxiproxy import Toxiproxy
        except ImportError as error:
            raise ToxiproxyNotFound(
                f"the package toxiproxy-python cannot be imported: {error}; `pip install toxiproxy-python`"
            ) from None
        # A proxy of the user's for the web is not meant for what runs on this machine.
        os.environ["no_proxy"] = ",".join(filter(None, [os.environ.get("no_proxy"), "127.0.0.1"]))
        self._api = Toxiproxy()
        for attempts_left in range(PORT_ATTEMPTS - 1, -1, -1):
            try:
                await self._start(free_port())
                break
            except ToxiproxyFailed as error:
                if "address already in use" not in str(error) or not attempts_left:
                    raise
        ToxiproxyServer._in_use = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End it, and with it every connection through it."""
        ToxiproxyServer._in_use = False
        if self._finalizer is not None:
            self._finalizer()
        self._proxies.clear()

    async def _start(self, port: int) -> None:
        process = self._spawn(port)
        self._api.update_api_consumer("127.0.0.1", port)
        ends_at = time.monotonic() + READY_TIMEOUT_S
        while process.poll() is None and time.monotonic() < ends_at:
            answer = await self._call(self._api.version)
            if answer:
                self.version = _version_in(answer.decode(errors="replace"))
                return
            await asyncio.sleep(POLL_S)
        _end(process)
        why = "ended" if process.returncode is not None else f"does not answer after {READY_TIMEOUT_S:g} s"
        raise ToxiproxyFailed(f"{self.path} {why}: {self._log.read_text(errors='replace')[-2000:].strip()}")

    def _spawn(self, port: int) -> subprocess.Popen[bytes]:
        command = [self.path, "-host", "127.0.0.1", "-port", str(port), "-seed", str(self._seed)]
        with self._log.open("wb") as log:
            # A session of its own: Ctrl-C in a terminal is for us, who then end it last.
            process = subprocess.Popen(
                tied_to_parent(command), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self._finalizer = weakref.finalize(self, _end, process)
        return process

    # --- proxies ------------------------------------------------------------------------------------------------------

    async def create(self, name: str, listen: str, upstream: str) -> ProxyAddress:
        """Let it listen at `listen` and pass on to `upstream` (both host:port).

        Raises:
            ToxiproxyFailed: it cannot.
        """
        self._proxies[name] = await self._call(lambda: self._api.create(upstream, name, listen, True))
        return ProxyAddress(name, listen, upstream)

    async def set_enabled(self, proxy: ProxyAddress, *, enabled: bool) -> None:
        """Let connections through, or end all of them and refuse further ones."""
        driver = self._proxies[proxy.name]
        await self._call(driver.enable if enabled else driver.disable)

    async def add_toxic(
        self,
        proxy: ProxyAddress,
        name: str,
        kind: str,
        stream: str,
        attributes: Mapping[str, int],
        *,
        toxicity: float = 1.0,
    ) -> None:
        """Add a toxic to all connections through a proxy, those there are and those to come.

        Args:
            proxy: which.
            name: of the toxic, unique at this proxy.
            kind: Toxiproxy's name of it, such as `latency`.
            stream: UPSTREAM or DOWNSTREAM.
            attributes: as Toxiproxy documents them for this kind.
            toxicity: the share of connections that are hit, drawn one by one.
        """
        driver = self._proxies[proxy.name]
        await self._call(
            lambda: driver.add_toxic(
                name=name, type=kind, stream=stream, toxicity=toxicity, attributes=dict(attributes)
            )
        )

    async def remove_toxic(self, proxy: ProxyAddress, name: str) -> None:
        """Take a toxic away again."""
        driver = self._proxies[proxy.name]
        await self._call(lambda: driver.destroy_toxic(name))

    async def _call(self, work: Callable[[], T]) -> T:
        import requests
        from toxiproxy.exceptions import InvalidToxic, NotFound, ProxyExists

        try:
            return await asyncio.to_thread(work)
        except (InvalidToxic, NotFound, ProxyExists, requests.RequestException, KeyError) as error:
            # A refusal the package does not know ends in a missing key of the proxy it expected.
            raise ToxiproxyFailed(f"Toxiproxy refused: {type(error).__name__}: {error}") from error


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _version_in(answer: str) -> str:
    """The version in the server's answer; a server built from source calls itself `git`."""
    found = re.search(r'"version"\s*:\s*"([^"]*)"', answer)
    return found.group(1) if found else answer.strip()
