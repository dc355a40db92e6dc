"""One connection's part in the rates of attaches (attach_rate_core.py): asks the clock, and knows whose it is."""

from __future__ import annotations

import time
from typing import Protocol

from oncewire.transport.admission_core import group_of
from router.clients.attach_rate_core import CONNECTION_PART, AttachRates, Bucket


class PacedClient(Protocol):
    """A connection, as far as its rate needs it."""

    peer_host: str

    @property
    def user(self) -> str | None:
        """Who has logged in; None without a login."""
        ...

    @property
    def attach_rate(self) -> float:
        """Attaches a second of the user who has logged in; asked once."""
        ...

    @property
    def waiting_for_store(self) -> int:
        """Operations of all clients that wait for etcd."""
        ...


class AttachPace:
    """Counts the attaches of one connection."""

    __slots__ = ("_bucket", "_client", "_rate", "_rates", "is_new")

    def __init__(self, client: PacedClient, rates: AttachRates) -> None:
        """It has not attached.

        Args:
            client: the connection.
            rates: of all.
        """
        self.is_new = False
        """It has attached since `delay` was asked for."""
        self._client = client
        self._rates = rates
        self._rate = 0.0
        self._bucket: Bucket | None = None

    @property
    def _user(self) -> str:
        """Who it counts for. A name that is no address cannot be mistaken for one."""
        client = self._client
        return group_of(client.peer_host) if client.user is None else f"user {client.user}"

    def take(self) -> None:
        """The client attaches."""
        now = time.monotonic()
        if self._bucket is None:
            self._rate = self._client.attach_rate
            self._bucket = Bucket(self._rate / CONNECTION_PART, now)
        self.is_new = True
        self._rates.take(self._user, self._bucket, self._rate, now)

    def delay(self) -> float:
        """Seconds for which the connection is not to be read; 0 = go on."""
        self.is_new = False
        if self._bucket is None:
            return 0.0
        return self._rates.delay(self._user, self._bucket, self._client.waiting_for_store, time.monotonic())
