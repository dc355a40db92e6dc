"""Breaks off connections whose server has answered nothing for too long: libpq has a time for connecting alone.

A server whose machine is gone is noticed by TCP; one that is stopped, or behind a proxy that holds everything back, is
not.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

LOOK_S = 1.0
"""How often waits are looked at: they end so much late."""


class HasSocket(Protocol):
    """A connection to a server."""

    def fileno(self) -> int:
        """The descriptor of its socket; raises when there is none."""
        ...


def shut_down(connection: HasSocket, gone: type[Exception]) -> None:
    """Shut the socket down under whoever waits for it, in any thread: the wait ends with an error.

    Args:
        connection: to the server.
        gone: what it raises when it has no socket any more.
    """
    with suppress(OSError, gone), socket.socket(fileno=os.dup(connection.fileno())) as other:
        other.shutdown(socket.SHUT_RDWR)


class Patience:
    """The waits for one store's server.

    Args:
        break_off: called in a thread of its own with a connection that has waited for too long.
    """

    def __init__(self, break_off: Callable[[HasSocket], None]) -> None:
        self._break_off = break_off
        self._waits: dict[HasSocket, float] = {}
        self._is_over = threading.Event()
        threading.Thread(target=self._watch, name="store-patience", daemon=True).start()

    @contextmanager
    def within(self, seconds: float, connection: HasSocket) -> Iterator[None]:
        """In the block the server answers within some seconds, or the connection is broken off."""
        self._waits[connection] = time.monotonic() + seconds
        try:
            yield
        finally:
            self._waits.pop(connection, None)

    def _watch(self) -> None:
        while not self._is_over.wait(LOOK_S):
            now = time.monotonic()
            for connection, ends_at in list(self._waits.items()):
                if now >= ends_at:
                    self._break_off(connection)

    def close(self) -> None:
        """Watch no longer."""
        self._is_over.set()
