"""The gates of a router's listeners: places and descriptors for connections of which it is not known who they are from.

All sockets of a router share its descriptors. Each listener has a part of them, so that health checks are answered, and
neighbours linked, however many clients connect.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator
from dataclasses import dataclass

from oncewire.transport.admission_core import Admission
from oncewire.transport.gate import ListenerGate
from router.process.logs import EventLog, RouterEvent
from router.settings.config import RouterConfig

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
                RouterEvent.DESCRIPTORS_SHORT,
                limit=found.limit,
                wanted=found.wanted,
                clients=found.clients,
                fix=f"raise the limit (ulimit -n {found.wanted}, or LimitNOFILE= of systemd), or lower "
                "limits.max_connections",
            )

    def __iter__(self) -> Iterator[ListenerGate]:
        return iter((self.clients, self.neighbours, self.http))
