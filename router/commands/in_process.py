"""Routers of a network in one process, in a thread with a loop of its own, over a store in memory: for tests.

Routers, links, sockets and the client's side are the shipped ones. What is missing is etcd and the processes: a network
starts in a fraction of a second, and the lease of a killed router ends at once, where etcd waits for its time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from oncewire.client.loop_thread import LoopThread
from router.node import RouterNode
from router.settings.config_loading import merge
from topology.etcd.memory_store import MemoryEtcd

READY_S = 30.0
"""For all routers to be linked: 0.2 s on a quiet machine."""
LOOK_S = 0.01
LEASE_TTL_S = 300
"""Longer than any test stops in a debugger: a killed router's lease is ended by hand."""
BASE = {
    "listen.port": 0,
    "inter_router.port": 0,
    "http.host": "",
    "etcd.lease_ttl_s": LEASE_TTL_S,
    # A machine under tests is busy: a thread that gets no time is no router that is unreachable.
    "inter_router.silence_s": 60.0,
}
"""What holds unless the test sets it."""


class NotIdle(Exception):
    """Routers still hold deliveries when the time is over. The text names who has them."""


@dataclass(slots=True)
class _Running:
    node: RouterNode
    task: asyncio.Task[None]


class AmqpNetwork:
    """Routers r1, r2, ... that are all linked, each listening on a free port of the loopback interface.

    Use it with ``with``. Its methods block, and any thread may call them; a test with asyncio loses nothing by that,
    but for `wait_until_idle`, which it calls in a thread.
    """

    def __init__(self, routers: int = 3, *, settings: Mapping[str, object] | None = None) -> None:
        """Start nothing yet.

        Args:
            routers: how many.
            settings: of all routers by key, for example ``{"limits.window": 64}``. HTTP is off unless `http.host` is
                set.

        Raises:
            CliError: there is no such setting, or its value cannot be used.
        """
        self.names = [f"r{number + 1}" for number in range(routers)]
        self._settings = BASE | dict(settings or {})
        self._etcd = MemoryEtcd()
        self._thread = LoopThread()
        self._running: dict[str, _Running] = {}
        self._urls: dict[str, str] = {}

    def __enter__(self) -> Self:
        """Start the routers and wait until all are linked.

        Raises:
            CliError: a setting cannot be used.
            TimeoutError: they are not linked in time.
        """
        self._thread.start()
        try:
            self._thread.call(self._start_all)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all routers at once."""
        self._thread.call(self._end_all)
        self._thread.stop()

    @property
    def urls(self) -> list[str]:
        """Addresses of all routers, running or not, for ``connect``."""
        return [self._urls[name] for name in self.names]

    def url(self, name: str) -> str:
        """The address of one router; a restart keeps it."""
        return self._urls[name]

    @property
    def running(self) -> list[str]:
        """Names of the routers that run."""
        return [name for name in self.names if name in self._running]

    def kill(self, name: str | None = None) -> str:
        """Crash a router: its sockets are dropped, nothing it holds is sent, and its lease ends.

        Args:
            name: of the router; None = the one with the most connections of clients.

        Returns:
            The name of the router that was killed.

        Raises:
            ValueError: no router of that name runs.
        """
        return self._thread.call(lambda: self._kill(name))

    def restart(self, name: str) -> None:
        """Start a router that was killed, at the address it had, and wait until all are linked.

        Raises:
            ValueError: it runs, or there is none of that name.
            CliError: another program has taken its port.
            TimeoutError: they are not linked in time.
        """
        self._thread.call(lambda: self._restart(name))

    def wait_until_idle(self, timeout: float = 10.0) -> None:
        """Wait until no router holds a delivery: each is settled at its publisher and at all its subscribers.

        What a publisher has not sent is not known to routers: wait for `flush` before.

        Args:
            timeout: seconds.

        Raises:
            NotIdle: the time is over. The text names the publishers that wait and the subscriptions they wait for.
        """
        self._thread.call(lambda: self._wait_until_idle(timeout))

    def state(self, name: str) -> dict[str, Any]:
        """What a router knows of the network and holds, as `/api/v1/state` has it.

        Raises:
            ValueError: no router of that name runs.
        """

        async def look() -> dict[str, Any]:
            return self._tables(self._found(name))

        return self._thread.call(look)

    # --- in the thread's loop -----------------------------------------------------------------------------------------

    async def _start_all(self) -> None:
        for name in self.names:
            self._start(name)
        await self._wait_linked()

    def _start(self, name: str) -> None:
        settings = {**self._settings, "id": name}
        if name in self._urls:
            settings["listen.port"] = urlsplit(self._urls[name]).port
        config = merge(settings, "the settings of amqp_network").config
        node = RouterNode(config, version("oncewire"), open_store=self._etcd.client)
        self._running[name] = _Running(node, asyncio.create_task(node.run()))

    async def _wait_linked(self) -> None:
        await _until(self._are_linked, READY_S)
        for name, each in self._running.items():
            self._urls[name] = each.node.amqp_url

    def _are_linked(self) -> bool:
        rids = set()
        for each in self._running.values():
            if each.task.done():
                each.task.result()
            incarnation = each.node.lifecycle.incarnation
            if incarnation is None or each.node.lifecycle.waiting_for():
                return False
            rids.add(incarnation.membership.rid)
        return all(
            rids <= {incarnation.membership.rid, *incarnation.neighbours.routing.next_hops}
            and incarnation.records.view.routers.keys() == rids
            for each in self._running.values()
            if (incarnation := each.node.lifecycle.incarnation) is not None
        )

    def _found(self, name: str) -> _Running:
        found = self._running.get(name)
        if found is None:
            raise ValueError(f"no router {name!r} runs: these do: {', '.join(self.running) or 'none'}")
        return found

    async def _kill(self, name: str | None) -> str:
        if name is None:
            name = max(self.running, key=lambda each: self._running[each].node.listener.connection_count, default="")
        found = self._found(name)
        del self._running[name]
        await _end(found)
        return name

    async def _restart(self, name: str) -> None:
        if name in self._running or name not in self.names:
            raise ValueError(f"router {name!r} cannot be restarted: {', '.join(self.running)} run; kill it before")
        self._start(name)
        await self._wait_linked()

    async def _end_all(self) -> None:
        ending, self._running = list(self._running.values()), {}
        await asyncio.gather(*map(_end, ending))

    async def _wait_until_idle(self, timeout: float) -> None:
        try:
            await _until(lambda: not self._held(), timeout)
        except TimeoutError:
            held = "; ".join(self._held())
            raise NotIdle(
                f"the network still holds deliveries after {timeout:g} s: {held}. Let the subscribers named accept or "
                "reject what they have, or give more time"
            ) from None

    def _held(self) -> list[str]:
        """Who has deliveries that are not settled."""
        found = []
        for name, each in self._running.items():
            tables = self._tables(each)
            for window in tables.get("windows", ()):
                if window["unsettled"]:
                    owing = ", ".join(map(str, window["waiting_for"])) or "its router"
                    found.append(f"{window['unsettled']} of publisher {window['publisher']} at {name} wait for {owing}")
            found += [
                f"subscription {endpoint['subscription']} at {name} has {endpoint['entries']}"
                for endpoint in tables.get("endpoints", ())
                if endpoint["entries"]
            ]
        return found

    @staticmethod
    def _tables(found: _Running) -> dict[str, Any]:
        incarnation = found.node.lifecycle.incarnation
        return {} if incarnation is None else incarnation.records.describe()


async def _end(running: _Running) -> None:
    running.node.abort()
    running.task.cancel()
    await asyncio.gather(running.task, return_exceptions=True)


async def _until(condition: Callable[[], bool], timeout_s: float) -> None:
    ends_at = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > ends_at:
            raise TimeoutError(f"the routers did not get there in {timeout_s:g} s")
        await asyncio.sleep(LOOK_S)
