"""The folder of a node, and what can be asked of it: the same for the server and for an embedded node.

    FOLDER/journals/SUBSCRIPTION.db    one for each subscription
    FOLDER/outboxes/SINK.db            one for each sink

All methods may be called from any thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from pathlib import Path

from bridges.node.errors import BadRequest, StorageError
from bridges.node.gaps import Gap
from bridges.node.interface import Offsets
from bridges.node.journal import JournalControl
from bridges.node.model import MAX_OUTBOX_BYTES, NAME_PATTERN, SINK_PATTERN, Chunk, Manifest
from bridges.node.outbox import Outbox

MAX_SINKS = 256
"""Each keeps a connection to the routers and a file open."""
DELETE_ROUNDS = 16
"""Deletions in one go after a trim; the house-keeping does the rest."""


class Storage:
    """Journals and outboxes below one folder.

    Args:
        folder: made if it does not exist.
        max_outbox_bytes: see `Outbox`.
        retention_s: how long messages are kept after they were trimmed, where `set_retention` says nothing else.

    Raises:
        StorageError: it cannot be made.
    """

    def __init__(self, folder: Path, *, max_outbox_bytes: int = MAX_OUTBOX_BYTES, retention_s: float = 0.0) -> None:
        self._journals = folder / "journals"
        self._outboxes = folder / "outboxes"
        self._max_outbox_bytes = max_outbox_bytes
        try:
            for needed in (folder, self._journals, self._outboxes):
                needed.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            fix = "check that this user may write there, and that the disk has room"
            raise StorageError(f"{folder} cannot be used", error.strerror or str(error), fix) from error
        self._lock = threading.Lock()
        self._open_journals: dict[str, JournalControl] = {}
        self._open_outboxes: dict[str, Outbox] = {}
        self._default_retention_s = retention_s
        self._retention_s: dict[str, float] = {}

    def close(self) -> None:
        """Let go of all files."""
        with self._lock:
            for journal in self._open_journals.values():
                journal.close()
            for outbox in self._open_outboxes.values():
                outbox.close()
            self._open_journals.clear()
            self._open_outboxes.clear()

    # --- journals -----------------------------------------------------------------------------------------------------

    def journal_path(self, subscription: str) -> Path:
        """Where a subscription's journal is, or would be.

        Raises:
            BadRequest: no subscription can have that name.
        """
        if not NAME_PATTERN.fullmatch(subscription):
            raise BadRequest(
                f"{subscription!r} cannot be the name of a subscription",
                "it has 1 to 100 of A-Z a-z 0-9 _ . - and starts with a letter or digit",
                "choose another",
            )
        return self._journals / f"{subscription}.db"

    def subscriptions(self) -> list[str]:
        """Subscriptions that have a journal."""
        return sorted(path.stem for path in self._journals.glob("*.db"))

    def set_retention(self, subscription: str, retention_s: float) -> None:
        """How long messages of a subscription are kept after they were trimmed."""
        with self._lock:
            self._retention_s[subscription] = retention_s

    def journal(self, subscription: str) -> JournalControl:
        """The journal of a subscription.

        Raises:
            BadRequest: no subscription can have that name.
            StorageError: it has none, or the file cannot be used.
        """
        path = self.journal_path(subscription)
        with self._lock:
            found = self._open_journals.get(subscription)
            if found is None:
                retention_s = self._retention_s.get(subscription, self._default_retention_s)
                found = self._open_journals[subscription] = JournalControl(path, retention_s)
            return found

    def offsets(
        self,
        subscription: str,
        low: int | None = None,
        *,
        max_rows: int | None = None,
        max_bytes: int | None = None,
        ended: str = "",
    ) -> Offsets:
        """Where a subscription stands, and where a range from `low` may end; see `Node.offsets`."""
        journal = self.journal(subscription)
        marks = journal.marks()
        end, gaps = marks.last, tuple[Gap, ...]()
        if low is not None:
            end = journal.end_within(low, max_rows=max_rows, max_bytes=max_bytes)
            gaps = journal.gaps(low, end)
        places = marks.deleted, marks.trimmed, marks.last, end
        return Offsets(marks.uuid, *places, marks.owner, gaps, ended, marks.released)

    def read(self, subscription: str, low: int, high: int, *, uuid: str | None, query: str | None) -> Generator[Chunk]:
        """The messages of (low, high]; see `JournalReader.read`. A query that reads first owns the subscription."""
        journal = self.journal(subscription)
        if query is not None:
            journal.claim(query)
        yield from journal.read(low, high, uuid=uuid, owner=query)

    def trim(self, subscription: str, position: int, query: str | None) -> None:
        """A reader is done with everything up to a position; see `JournalControl.trim`."""
        self.journal(subscription).trim(position, time.time(), owner=query)
        self.delete_expired(subscription)

    def delete_expired(self, subscription: str) -> None:
        """Delete what needs to be kept no longer, a bounded number of messages."""
        journal = self.journal(subscription)
        for _ in range(DELETE_ROUNDS):
            if not journal.delete_expired(time.time()):
                return

    # --- outboxes -----------------------------------------------------------------------------------------------------

    def outbox_path(self, sink: str) -> Path:
        """Where a sink's outbox is, or would be; `Outbox` checks the name."""
        return self._outboxes / f"{sink}.db"

    def sinks(self) -> list[str]:
        """Sinks that have an outbox."""
        return sorted(path.stem for path in self._outboxes.glob("*.db"))

    def outbox(self, sink: str) -> Outbox:
        """The outbox of a sink, made if there is none; errors as `Outbox`."""
        with self._lock:
            found = self._open_outboxes.get(sink)
            if found is None:
                path = self.outbox_path(sink)
                if SINK_PATTERN.fullmatch(sink) and not path.exists():
                    self._check_sinks()
                found = self._open_outboxes[sink] = Outbox(path, sink, max_bytes=self._max_outbox_bytes)
            return found

    def _check_sinks(self) -> None:
        if len(self.sinks()) >= MAX_SINKS:
            raise BadRequest(
                "no sink can be added",
                f"the node has {MAX_SINKS}",
                "use another node, or delete outboxes that are not needed any more",
            )

    def manifest(self, sink: str, number: int) -> Manifest:
        """A manifest that was decided.

        Raises:
            BadRequest: there is no such sink or manifest.
        """
        if sink not in self.sinks():
            raise BadRequest(f"there is no sink {sink!r}", "nothing was staged for it", "commit a batch first")
        found = self.outbox(sink).manifest(number)
        if found is None:
            raise BadRequest(
                f"sink {sink!r} has no manifest {number}", "it was not decided, or long ago", "commit the batch again"
            )
        return found

    def sink_state(self, sink: str) -> dict[str, object]:
        """Where a sink stands, for people and metrics."""
        marks = self.outbox(sink).marks()
        return {
            "outbox": marks.uuid,
            "query": marks.query,
            "epoch": marks.epoch,
            "manifests": marks.manifests,
            "waiting_manifests": marks.waiting_manifests,
            "waiting_bytes": marks.waiting_bytes,
            "staged_bytes": marks.staged_bytes,
        }
