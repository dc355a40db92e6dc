"""What becomes of a client's connection after a fault of our own (rule K-3b): it ends, and nothing else does."""

from __future__ import annotations

from typing import Protocol

from oncewire.wire import INTERNAL_ERROR
from router.process.logs import EventLog, Part


class FailingClient(Protocol):
    """The connection; `ClientConnection` is it."""

    log: EventLog
    container_id: str
    peer: str

    def close(self, condition: str, description: str, info: dict[str, object] | None = None) -> None:
        """Close the connection with an error."""

    def drop_all(self) -> None:
        """End the links and the transport at once; nothing more is written."""


class ConnectionFaults:
    """Faults of our own while one client is served."""

    __slots__ = ("_client", "_has_failed")

    def __init__(self, client: FailingClient) -> None:
        """There was none."""
        self._client = client
        self._has_failed = False
        """The next one closes nothing any more."""

    def on_fault(self, error: Exception, doing: str) -> None:
        """K-3b: it ends that client's connection, and nothing else."""
        self._log(error, doing)
        self.fail()

    def on_output_fault(self, error: Exception) -> None:
        """K-3b: a close would have to be written by what has just failed."""
        self._log(error, "what a client is sent")
        self._drop()

    def fail(self) -> None:
        """End the connection with an error, at once if even that does not work."""
        if self._has_failed:
            self._drop()
            return
        self._has_failed = True
        try:
            self._client.close(INTERNAL_ERROR, "a fault of this router; its log has the traceback")
        except Exception as error:  # noqa: BLE001  (the engine is where the fault is)
            self._client.log.fault(Part.CLIENT, error, "close a connection after a fault")
            self._drop()

    def _drop(self) -> None:
        self._has_failed = True
        self._client.drop_all()

    def _log(self, error: Exception, doing: str) -> None:
        client = self._client
        client.log.fault(Part.CLIENT, error, f"{doing} ({client.container_id or client.peer})")
