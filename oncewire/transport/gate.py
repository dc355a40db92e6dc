"""The gate of a listener: places for connections of which it is not known who they are from."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from oncewire.transport.admission_core import Admission, group_of

SWEEP_S = 0.5
"""Between two looks at who has ended, or says nothing; short against any time for an open."""
LOOK_AGAIN_S = 0.05
"""Where there is no place for a newcomer, it is looked so often who has ended; that takes 0.1 ms for 1,000."""


class RefusalLog(Protocol):
    """Where refusals are written."""

    def connection_refused(self, listener: str, peer: str, why: str) -> None:
        """A connection from this address was closed."""

    def accept_failed(self, listener: str, why: str) -> None:
        """Nothing can be accepted just now."""


@dataclass(slots=True)
class _Held:
    """A connection that has a place; its socket has another descriptor, or none, when it has ended."""

    socket: socket.socket
    protocol: asyncio.BaseProtocol | None = None


class ListenerGate:
    """Lets connections in at one listener, and closes those that do not say who they are (see `Admission`)."""

    def __init__(
        self, name: str, admission: Admission, log: RefusalLog, is_full: Callable[[], bool] = lambda: False
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
            self._notify(host, "this listener has as many connections as it may have")
            return False
        if not admission.has_place(group) and now - self._looked_at >= LOOK_AGAIN_S:
            self._drop_ended(now)
        closed = admission.arrive(key, group, now)
        if closed is not None:
            self._notify(host, "too many connections do not say who they are")
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
        self._log.accept_failed(self.name, error.strerror or str(error))

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

    def _notify(self, host: str, why: str) -> None:
        self._log.connection_refused(self.name, host, why)
