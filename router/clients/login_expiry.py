"""A login whose token has a limited time: the connection ends with it, and the client logs in again."""

from __future__ import annotations

import asyncio
from typing import Protocol

from oncewire.wire import UNAUTHORIZED_ACCESS
from router.process.logs import EventLog, RouterEvent


class LoggedIn(Protocol):
    """The connection."""

    log: EventLog
    container_id: str
    peer: str

    @property
    def user(self) -> str | None:
        """Who has logged in."""
        ...

    def close(self, condition: str, description: str, info: dict[str, object] | None = None) -> None:
        """Close the connection with an error."""


class LoginExpiry:
    """When the login of one connection is over."""

    __slots__ = ("_client", "_timer")

    def __init__(self, client: LoggedIn) -> None:
        """It never is."""
        self._client = client
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, seconds: float, loop: asyncio.AbstractEventLoop) -> None:
        """It is over then."""
        self._timer = loop.call_later(seconds, self._on_time)

    def stop(self) -> None:
        """The connection has ended."""
        if self._timer is not None:
            self._timer.cancel()

    def _on_time(self) -> None:
        client = self._client
        client.log.event(
            RouterEvent.LOGIN_EXPIRED, container_id=client.container_id, peer=client.peer, user=client.user or ""
        )
        client.close(UNAUTHORIZED_ACCESS, "the token of this login has expired; log in with a new one")
