"""What the crash plan's job adds to the sink from outside: named points at which everything is killed, and a control.

The product knows nothing of this. The job registers `CrashingAmqp` in place of the format `amqp`; its writer is the
sink's own, and in the process of a commit the embedded node gets the classes below in place of its outbox and journal.

Points, in the order of a batch:

    manifest    the batch is decided, nothing is published
    midpublish  a share of its rows is published, and that is recorded
    published   all rows are accepted by the network, and that is not recorded
    done        the sink's commit has done all, Spark has not noted it
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import bridges.node.publisher
import bridges.node.storage
from bridges.node.identity import identity_of
from bridges.node.model import AS_USUAL, Manifest, Publishing, StagedPart, Writer
from bridges.node.outbox import Outbox
from bridges.node.outbox_journal import OutboxJournal, Rows
from bridges.node.staged_parts import delete_parts
from bridges.spark.data_source import AmqpDataSource
from bridges.spark.sink import AmqpStreamWriter, StagedMessage
from oncewire.client.journal_records import PublisherChanges
from oncewire.store.store import Transaction
from oncewire.wire import decode_message
from tests.spark.crash_points import NO_MANIFEST, ROWS, Crash, hits, kill_everything, maybe_kill, note


class CrashingOutbox(Outbox):
    """Dies when a batch is decided, or found decided."""

    def commit(
        self, writer: Writer, batch: int, parts: Sequence[StagedPart], publishing: Publishing = AS_USUAL
    ) -> Manifest:
        """See Outbox."""
        found = super().commit(writer, batch, parts, publishing)
        maybe_kill("manifest", batch)
        return found


class ForgetfulOutbox(CrashingOutbox):
    """The negative control: a batch that is not done is decided anew by each attempt.

    Identities are then what the attempt computes: the place of a row in its batch. All else is as in the product.
    """

    _is_decided = False

    def commit(
        self, writer: Writer, batch: int, parts: Sequence[StagedPart], publishing: Publishing = AS_USUAL
    ) -> Manifest:
        """See Outbox."""
        self._is_decided = False
        return super().commit(writer, batch, parts, publishing)

    def _find(self, do: Transaction, generation: int, batch: int) -> Manifest | None:
        found = super()._find(do, generation, batch)
        return None if found is not None and not found.is_done and not self._is_decided else found

    def _write_manifest(
        self, do: Transaction, generation: int, batch: int, run: str, is_atomic: bool, staged: Sequence[tuple[int, int]]
    ) -> int:
        self._is_decided = True
        known = self._find(do, generation, batch)
        if known is None:
            return super()._write_manifest(do, generation, batch, run, is_atomic, staged)
        assert sum(rows for _, rows in staged) == known.rows
        delete_parts(do, "manifest = ?", (known.number,))
        ((number,),) = do.execute("SELECT first FROM node_spans WHERE manifest = ?", (known.number,))
        for part, rows in staged:
            do.execute("UPDATE node_parts SET manifest = ? WHERE id = ?", (known.number, part))
            do.execute("UPDATE node_part_topics SET first = ? WHERE part = ?", (number, part))
            number += rows
        return known.number


class CrashingJournal(OutboxJournal):
    """Writes down what is sent, and dies while a batch is being published."""

    dies_after_commit: Crash | None = None

    def annotated(self, topic: str, rows: Rows, start: int, stop: int) -> list[bytes]:
        """See OutboxJournal."""
        payloads = super().annotated(topic, rows, start, stop)
        for payload in payloads:
            identity, body = identity_of(payload), decode_message(payload).body
            assert identity is not None
            assert isinstance(body, bytes)
            note("sent", f"{identity.producer} {identity.sequence} {body.decode()}\n")
        return payloads

    def write_publisher(self, link_name: str, changes: PublisherChanges) -> None:
        """See OutboxJournal."""
        known = self._topics[link_name]
        ended = {number for number, _ in changes.decided}
        for batch in {number // ROWS for number in ended}:
            of_batch = range(batch * ROWS, (batch + 1) * ROWS)
            count = sum(number < known.floor or number in known.settled or number in ended for number in of_batch)
            if count == ROWS:
                maybe_kill("published", batch)
            crash = hits("midpublish", batch)
            if crash is not None and count >= crash.share * ROWS:
                self.dies_after_commit = crash
        super().write_publisher(link_name, changes)

    def commit(self) -> None:
        """See OutboxJournal."""
        super().commit()
        if self.dies_after_commit is not None:
            kill_everything(self.dies_after_commit)


class CrashingWriter(AmqpStreamWriter):
    """The sink's writer, and the points around it."""

    def _use_own_classes(self) -> None:
        """In this process, a worker of Spark: the embedded node is made of what is below."""
        outbox = ForgetfulOutbox if os.environ.get(NO_MANIFEST) else CrashingOutbox
        setattr(bridges.node.storage, "Outbox", outbox)  # noqa: B010  # not a place that types know
        setattr(bridges.node.publisher, "OutboxJournal", CrashingJournal)  # noqa: B010

    def write(self, iterator: Any) -> StagedMessage:
        """See AmqpStreamWriter."""
        self._use_own_classes()
        return super().write(iterator)

    def commit(self, messages: Sequence[StagedMessage | None], batchId: int) -> None:  # noqa: N803
        """See AmqpStreamWriter."""
        self._use_own_classes()
        super().commit(messages, batchId)
        maybe_kill("done", batchId)


class CrashingAmqp(AmqpDataSource):
    """The format `amqp` with a writer that may die."""

    @classmethod
    def name(cls) -> str:
        """See AmqpDataSource."""
        return "crashing-amqp"

    def streamWriter(self, schema: Any, overwrite: bool) -> CrashingWriter:  # noqa: N802
        """See AmqpDataSource."""
        return CrashingWriter(self.options, schema)
