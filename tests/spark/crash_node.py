"""The bridge node of the crash plan: a node's own program, which kills itself where the environment says.

`python crash_node.py --announce --config FILE`, in a session of its own. Points, in the order of a batch:

    appended    messages are in the journal's transaction, which is not durable
    durable     it is durable, and nobody knows that they are accepted
    chosen      the end of an attempt is durable, Spark does not know it
    staged      a task's rows are staged, the task does not know it
    manifest    the batch is decided, nothing is published, the driver does not know it
    midpublish  a share of its rows is published, and that is recorded
    published   all rows are accepted by the network, and that is not recorded
    trim        a task has said that messages are done with, they are all there
    trimmed     that is noted, and none of them is deleted
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence

import click

import bridges.node.publisher
import bridges.node.receiver
import bridges.node.storage
from bridges.cli import bridge
from bridges.node.journal import Arrival, JournalControl, ReceiverJournal
from bridges.node.model import StagedPart, Writer
from bridges.node.producers_core import Judgement
from oncewire.cli.run import run
from oncewire.client import SqliteJournal
from tests.spark.crash_job_points import CrashingJournal, CrashingOutbox
from tests.spark.crash_points import ROWS, maybe_kill

_appended: list[int] = []
"""How many messages are in the transaction that is open."""


class DyingReceiverJournal(ReceiverJournal):
    """Dies when it has appended the first messages."""

    def append(self, arrivals: Sequence[Arrival], now_us: int) -> list[Judgement]:
        """See ReceiverJournal."""
        judged = super().append(arrivals, now_us)
        if arrivals:
            maybe_kill("appended", 0)
            _appended.append(len(arrivals))
        return judged


class DyingClientJournal(SqliteJournal):
    """Dies when the first messages are durable: they are accepted afterwards."""

    def commit(self) -> None:
        """See SqliteJournal."""
        super().commit()
        if _appended:
            maybe_kill("durable", 0)


class DyingOutbox(CrashingOutbox):
    """Crashes when it has done something, before it reports that."""

    def choose_snapshot(self, start: str, stop: str) -> str:
        """See Outbox."""
        chosen = super().choose_snapshot(start, stop)
        position = sum(int(place["seq"]) for place in json.loads(chosen).values())
        maybe_kill("chosen", position // ROWS - 1)
        return chosen

    def stage(
        self, writer: Writer, batch: int, part: StagedPart, chunk: int, topics: Mapping[str, int], body: bytes
    ) -> bool:
        """See Outbox."""
        is_needed = super().stage(writer, batch, part, chunk, topics, body)
        maybe_kill("staged", batch)
        return is_needed


class DyingControl(JournalControl):
    """Dies before and after messages are given up."""

    def trim(self, position: int, now: float, *, owner: str | None = None) -> None:
        """See JournalControl."""
        maybe_kill("trim", position // ROWS - 1)
        super().trim(position, now, owner=owner)
        maybe_kill("trimmed", position // ROWS - 1)


def main() -> None:
    """Run the node, made of what is above."""
    for module, name, dying in (
        (bridges.node.receiver, "ReceiverJournal", DyingReceiverJournal),
        (bridges.node.receiver, "SqliteJournal", DyingClientJournal),
        (bridges.node.storage, "Outbox", DyingOutbox),
        (bridges.node.storage, "JournalControl", DyingControl),
        (bridges.node.publisher, "OutboxJournal", CrashingJournal),
    ):
        assert hasattr(module, name), f"{module.__name__} has no {name} any more"
        setattr(module, name, dying)
    sys.exit(run(["bridge", "node", *sys.argv[1:]], click.Group(commands={"bridge": bridge})))


if __name__ == "__main__":
    main()
