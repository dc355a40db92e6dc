"""The folder of a node, and what can be asked of it: the same for the server and for an embedded node.

    FOLDER/journals/SUBSCRIPTION.db    one for each subscription
    FOLDER/outboxes/SINK.db            one for each sink

All methods may be called from any thread.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path

from bridges.node.database import storage_errors
from bridges.node.errors import BadRequest
from bridges.node.gaps import Gap
from bridges.node.journal import JournalControl, JournalMarks
from bridges.node.journal_reader import Chunk, JournalReader
from bridges.node.outbox import (
    AS_USUAL,
    MAX_OUTBOX_BYTES,
    SINK_PATTERN,
    Manifest,
    Outbox,
    Publishing,
    StagedPart,
    Writer,
)

NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
"""A subscription's name is a file name."""
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
        with storage_errors(folder):
            for needed in (folder, self._journals, self._outboxes):
                needed.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._controls: dict[str, tuple[JournalControl, threading.Lock]] = {}
        self._open_outboxes: dict[str, tuple[Outbox, threading.Lock]] = {}
        self._default_retention_s = retention_s
        self._retention_s: dict[str, float] = {}

    def close(self) -> None:
        """Let go of all files."""
        with self._lock:
            for control, lock in self._controls.values():
                with lock:
                    control.close()
            for outbox, lock in self._open_outboxes.values():
                with lock:
                    outbox.close()
            self._controls.clear()
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

    def topics(self, subscription: str) -> list[str]:
        """The topics of a subscription, as its journal knows them."""
        reader = JournalReader(self.journal_path(subscription))
        try:
            return reader.topics()
        finally:
            reader.close()

    def set_retention(self, subscription: str, retention_s: float) -> None:
        """How long messages of a subscription are kept after they were trimmed."""
        with self._lock:
            self._retention_s[subscription] = retention_s

    def _control(self, subscription: str) -> tuple[JournalControl, threading.Lock]:
        path = self.journal_path(subscription)
        with self._lock:
            found = self._controls.get(subscription)
            if found is None:
                retention_s = self._retention_s.get(subscription, self._default_retention_s)
                found = self._controls[subscription] = (JournalControl(path, retention_s), threading.Lock())
            return found

    def marks(self, subscription: str) -> JournalMarks:
        """Where a journal stands; errors as `JournalControl`."""
        control, lock = self._control(subscription)
        with lock:
            return control.marks()

    def initial_offset(self, subscription: str, start: str | int) -> int:
        """See `JournalControl.initial_offset`."""
        control, lock = self._control(subscription)
        with lock:
            return control.initial_offset(start)

    def end_within(self, subscription: str, low: int, max_rows: int | None, max_bytes: int | None) -> int:
        """See `JournalReader.end_within`."""
        reader = JournalReader(self.journal_path(subscription))
        try:
            return reader.end_within(low, max_rows=max_rows, max_bytes=max_bytes)
        finally:
            reader.close()

    def gaps(self, subscription: str, low: int, high: int) -> tuple[Gap, ...]:
        """See `JournalReader.gaps`."""
        reader = JournalReader(self.journal_path(subscription))
        try:
            return reader.gaps(low, high)
        finally:
            reader.close()

    def choose_end(self, subscription: str, start: int, stop: int) -> int:
        """See `JournalControl.choose_end`."""
        control, lock = self._control(subscription)
        with lock:
            return control.choose_end(start, stop)

    def read(self, subscription: str, low: int, high: int, *, uuid: str | None, query: str | None) -> Generator[Chunk]:
        """The messages of (low, high]; see `JournalReader.read`. A query that reads first owns the subscription."""
        if query is not None:
            control, lock = self._control(subscription)
            with lock:
                control.claim(query)
        reader = JournalReader(self.journal_path(subscription))
        try:
            yield from reader.read(low, high, uuid=uuid, owner=query)
        finally:
            reader.close()

    def trim(self, subscription: str, position: int, query: str | None) -> None:
        """A reader is done with everything up to a position; see `JournalControl.trim`."""
        control, lock = self._control(subscription)
        with lock:
            control.trim(position, time.time(), owner=query)
        self.delete_expired(subscription)

    def delete_expired(self, subscription: str) -> None:
        """Delete what needs to be kept no longer, a bounded number of messages."""
        control, lock = self._control(subscription)
        for _ in range(DELETE_ROUNDS):
            with lock:
                if not control.delete_expired(time.time()):
                    return

    def ended(self, subscription: str) -> str:
        """Why a subscription is not received any more, also after a restart (J-14); empty = it is."""
        control, lock = self._control(subscription)
        with lock:
            return control.ended()

    def note_unread(self, subscription: str, unread_s: float) -> None:
        """Store for how long nobody has asked for a subscription (J-14)."""
        control, lock = self._control(subscription)
        with lock:
            control.note_unread(unread_s)

    def drop_unread(self, subscription: str, after_s: float) -> int:
        """Give up messages that no query has processed for so long (J-15), a bounded number; returns how many."""
        control, lock = self._control(subscription)
        dropped = 0
        for _ in range(DELETE_ROUNDS):
            with lock:
                found = control.drop_unread(time.time() - after_s)
            if not found:
                break
            dropped += found
        return dropped

    def release(self, subscription: str) -> None:
        """Take a subscription from its query; see `JournalControl.release`."""
        control, lock = self._control(subscription)
        with lock:
            control.release()

    # --- outboxes -----------------------------------------------------------------------------------------------------

    def outbox_path(self, sink: str) -> Path:
        """Where a sink's outbox is, or would be; `Outbox` checks the name."""
        return self._outboxes / f"{sink}.db"

    def sinks(self) -> list[str]:
        """Sinks that have an outbox."""
        return sorted(path.stem for path in self._outboxes.glob("*.db"))

    def _outbox(self, sink: str) -> tuple[Outbox, threading.Lock]:
        with self._lock:
            found = self._open_outboxes.get(sink)
            if found is None:
                if SINK_PATTERN.fullmatch(sink) and not self.outbox_path(sink).exists():
                    self._check_sinks()
                outbox = Outbox(self.outbox_path(sink), sink, max_bytes=self._max_outbox_bytes)
                found = self._open_outboxes[sink] = (outbox, threading.Lock())
            return found

    def _check_sinks(self) -> None:
        if len(self.sinks()) >= MAX_SINKS:
            raise BadRequest(
                "no sink can be added",
                f"the node has {MAX_SINKS}",
                "use another node, or delete outboxes that are not needed any more",
            )

    def stage(
        self,
        sink: str,
        writer: Writer,
        batch: int,
        part: StagedPart,
        chunk: int,
        topics: Mapping[str, int],
        body: bytes,
    ) -> bool:
        """See `Outbox.stage`."""
        outbox, lock = self._outbox(sink)
        with lock:
            return outbox.stage(writer, batch, part, chunk, topics, body)

    def commit(
        self, sink: str, writer: Writer, batch: int, parts: Sequence[StagedPart], publishing: Publishing = AS_USUAL
    ) -> Manifest:
        """See `Outbox.commit`."""
        outbox, lock = self._outbox(sink)
        with lock:
            return outbox.commit(writer, batch, parts, publishing)

    def choose_snapshot(self, sink: str, start: str, stop: str) -> str:
        """See `Outbox.choose_snapshot`."""
        outbox, lock = self._outbox(sink)
        with lock:
            return outbox.choose_snapshot(start, stop)

    def manifest(self, sink: str, number: int) -> Manifest:
        """A manifest that was decided.

        Raises:
            BadRequest: there is no such sink or manifest.
        """
        if sink not in self.sinks():
            raise BadRequest(f"there is no sink {sink!r}", "nothing was staged for it", "commit a batch first")
        outbox, lock = self._outbox(sink)
        with lock:
            found = outbox.manifest(number)
        if found is None:
            raise BadRequest(
                f"sink {sink!r} has no manifest {number}", "it was not decided, or long ago", "commit the batch again"
            )
        return found

    def sink_state(self, sink: str) -> dict[str, object]:
        """Where a sink stands, for people and metrics."""
        outbox, lock = self._outbox(sink)
        with lock:
            marks = outbox.marks()
        return {
            "outbox": marks.uuid,
            "query": marks.query,
            "epoch": marks.epoch,
            "manifests": marks.manifests,
            "waiting_manifests": marks.waiting_manifests,
            "waiting_bytes": marks.waiting_bytes,
            "staged_bytes": marks.staged_bytes,
        }
