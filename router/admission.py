"""The gates of a router's listeners: places and descriptors for connections of which it is not known who they are from.

All sockets of a router share its descriptors. Each listener has a part of them, so that health checks are answered, and
neighbours linked, however many clients connect.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from oncewire.transport.admission_core import Admission, group_of
from router.config import RouterConfig
from router.logs import EventLog, RouterEvent

SWEEP_S = 0.5
"""Between two looks at who has ended, or says nothing; short against any time for an open."""
LOOK_AGAIN_S = 0.05
"""Where there is no place for a newcomer, it is looked so often who has ended; that takes 0.1 ms for 1,000."""
SPARE_DESCRIPTORS = 64
"""For etcd, logs, files of certificates and users, and what libraries open."""
NEIGHBOURS_OPENING = 256
"""Connections to the listener of routers that are not linked yet: a whole network that starts at once."""
SMALL_PART = 8
"""Where descriptors are short, one part in so many is for HTTP, for neighbours and for opening connections each."""


@dataclass(frozen=True, slots=True)
class Shares:
    """Sockets that each may have.

    Attributes:
        clients: open connections of clients, whatever the settings allow.
        opening: connections of clients that are not open yet.
        neighbours: connections of other routers that are not linked yet.
        http: connections to the HTTP side.
        wanted: descriptors that the settings ask for, all in all.
        limit: descriptors that the process may have.
    """

    clients: int
    opening: int
    neighbours: int
    http: int
    wanted: int
    limit: int

    @property
    def is_short(self) -> bool:
        """Whether the settings ask for more than there is."""
        return self.wanted > self.limit


def shares(config: RouterConfig, limit: int) -> Shares:
    """Share out the descriptors that the process may have; what is short is taken from clients."""
    left = max(limit - SPARE_DESCRIPTORS, SMALL_PART)
    wanted = SPARE_DESCRIPTORS + NEIGHBOURS_OPENING + config.http_max_connections
    wanted += config.max_opening + config.max_connections
    part = left // SMALL_PART if wanted > limit else left
    opening = min(config.max_opening, part)
    neighbours = min(NEIGHBOURS_OPENING, part)
    http = min(config.http_max_connections, part)
    return Shares(left - opening - neighbours - http, opening, neighbours, http, wanted, limit)


def descriptor_limit() -> int:
    """Descriptors that this process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else os.sysconf("SC_OPEN_MAX")


def raise_descriptor_limit() -> None:
    """Let this process have as many descriptors as it may take by itself."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@dataclass(slots=True)
class _Held:
    """A connection that has a place; its socket has another descriptor, or none, when it has ended."""

    socket: socket.socket
    protocol: asyncio.BaseProtocol | None = None


class ListenerGate:
    """Lets connections in at one listener, and closes those that do not say who they are (see `Admission`)."""

    def __init__(
        self, name: str, admission: Admission, log: EventLog, is_full: Callable[[], bool] = lambda: False
    ) -> None:
        """Nobody has come.

        Args:
            name: of the listener, for the log.
            admission: its places.
            log: gets the refusals.
            is_full: whether all that the listener may have is used, by others than those that have places, too.
        """
        self.name = name
        self.admission = admission
        self.is_full = is_full
        self._log = log
        self._held: dict[int, _Held] = {}
        self._keys: dict[asyncio.BaseProtocol, int] = {}
        self._looked_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def admits(self, accepted: socket.socket, host: str) -> bool:
        """See `Gate`."""
        key, admission, group, now = accepted.fileno(), self.admission, group_of(host), time.monotonic()
        self._drop(key)  # the descriptor was that of a connection that has ended
        if self.is_full():
            admission.refused += 1
            self._tell(host, "this listener has as many connections as it may have")
            return False
        if not admission.has_place(group) and now - self._looked_at >= LOOK_AGAIN_S:
            self._drop_ended(now)
        closed = admission.arrive(key, group, now)
        if closed is not None:
            self._tell(host, "too many connections do not say who they are")
            if closed == key:
                return False
            self._close(closed)
        self._held[key] = _Held(accepted)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)
        return True

    def connecting(self, accepted: socket.socket, protocol: asyncio.BaseProtocol) -> None:
        """See `Gate`."""
        key = accepted.fileno()
        self._held[key].protocol = protocol
        self._keys[protocol] = key

    def on_exhausted(self, error: OSError) -> None:
        """See `Gate`."""
        self._log.event(RouterEvent.ACCEPT_FAILED, listener=self.name, why=error.strerror)

    def know(self, protocol: asyncio.BaseProtocol) -> None:
        """It is known who this connection is from."""
        key = self._keys.get(protocol)
        if key is None:
            return
        self.admission.know(key)
        if not self.admission.has(key):
            self._drop(key)

    def release(self, protocol: asyncio.BaseProtocol) -> None:
        """This connection is another listener's from now on, which counts it."""
        key = self._keys.get(protocol)
        if key is not None:
            self._drop(key)

    def _sweep(self) -> None:
        now = time.monotonic()
        self._drop_ended(now)
        for key in self.admission.overdue(now):
            self._close(key)
        is_used = bool(self._held)
        self._timer = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep) if is_used else None

    def _drop_ended(self, now: float) -> None:
        self._looked_at = now
        for key in [key for key, held in self._held.items() if held.socket.fileno() != key]:
            self._drop(key)

    def _drop(self, key: int) -> _Held | None:
        self.admission.leave(key)
        held = self._held.pop(key, None)
        if held is not None and held.protocol is not None:
            self._keys.pop(held.protocol, None)
        return held

    def _close(self, key: int) -> None:
        """End the connection whatever it is doing; its transport notices."""
        held = self._drop(key)
        if held is not None and held.socket.fileno() == key:
            with contextlib.suppress(OSError):
                held.socket.shutdown(socket.SHUT_RDWR)

    def _tell(self, host: str, why: str) -> None:
        self._log.event(RouterEvent.CONNECTION_REFUSED, listener=self.name, peer=host, why=why)


class Gates:
    """The gates of one router's listeners."""

    def __init__(self, config: RouterConfig, log: EventLog) -> None:
        """Share out the descriptors among them."""
        self._log = log
        self.shares = found = shares(config, descriptor_limit())
        time_s = config.open_timeout_s
        self.clients = ListenerGate("client", Admission(found.opening, time_s), log)
        self.neighbours = ListenerGate("inter_router", Admission(found.neighbours, time_s), log)
        self.http = ListenerGate("http", Admission(found.http, time_s, keeps_known=True), log)

    def warn_if_short(self) -> None:
        """Say so where the settings ask for more descriptors than there are."""
        found = self.shares
        if found.is_short:
            self._log.event(
                RouterEvent.DESCRIPTORS_SHORT, limit=found.limit, wanted=found.wanted, clients=found.clients,
                fix=f"raise the limit (ulimit -n {found.wanted}, or LimitNOFILE= of systemd), or lower "
                "limits.max_connections",
            )  # fmt: skip

    def __iter__(self) -> Iterator[ListenerGate]:
        return iter((self.clients, self.neighbours, self.http))
