"""Who may stay at the doors of a process, and what was refused there: a router's admission, before the login."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from oncewire.transport.admission_core import Admission
from oncewire.transport.gate import ListenerGate
from oncewire.transport.log_limit_core import LogLimit

MAX_HTTP = 256
"""Connections to the HTTP side, as a router has by default."""
HELLO_S = 10.0
"""How long a connection may take to prove the secret, or to send the header of a request."""
HTTP = "http"
"""The name of the door for operators, in metrics."""


class Doors:
    """The listeners of a process, and what was refused at them; see `RefusalLog`.

    Args:
        logger: of the process.
        serves: for people: whom each door lets in, by the listener's name in metrics, beside operators over HTTP.
        opening: the admission of each of these.
    """

    def __init__(
        self,
        logger: logging.Logger,
        serves: Mapping[str, str] | None = None,
        opening: Mapping[str, Admission] | None = None,
    ) -> None:
        """Nobody has come."""
        admissions = {**(opening or {}), HTTP: Admission(MAX_HTTP, HELLO_S, keeps_known=True)}
        self.gates = {name: ListenerGate(name, admission, self) for name, admission in admissions.items()}
        self.handshakes_failed = 0
        self.logins_failed = dict.fromkeys(self.gates, 0)
        """Wrong secrets; wrong passwords and tokens."""
        self._logger = logger
        self._serves = {**(serves or {}), HTTP: "operators"}
        self._limit = LogLimit()

    @property
    def http(self) -> ListenerGate:
        """The gate of operators."""
        return self.gates[HTTP]

    def connection_refused(self, listener: str, peer: str, why: str) -> None:
        """Log that somebody is refused, once a minute for the same address and reason."""
        missed = self._limit.take((listener, peer, why), time.monotonic())
        if missed is not None:
            text = "refused %s at the door for %s: %s (%d more since this was logged)"
            self._logger.warning(text, peer or "a local connection", self._serves[listener], why, missed)

    def accept_failed(self, listener: str, why: str) -> None:
        """Log that nothing can be accepted just now."""
        if self._limit.take((listener, why), time.monotonic()) is not None:
            self._logger.warning("no connection can be accepted at the door for %s: %s", self._serves[listener], why)

    def handshake_failed(self, listener: str, why: str) -> None:
        """A client does not speak TLS, or not as the door wants it."""
        self.handshakes_failed += 1
        self.connection_refused(listener, "a client", f"TLS: {why}")

    def login_failed(self, listener: str, peer: str, why: str) -> None:
        """Somebody has no secret or password, or a wrong one."""
        self.logins_failed[listener] += 1
        self.connection_refused(listener, peer, why)

    def notify_fault(self, doing: str, error: Exception) -> None:
        """Log a fault of ours with its place, once a minute for the same one."""
        if self._limit.take((doing, type(error)), time.monotonic()) is not None:
            self._logger.error("%s failed", doing, exc_info=error)
