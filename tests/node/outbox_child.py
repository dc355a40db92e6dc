"""A process that writes batches and publishes them until it is killed: `python outbox_child.py PATH`.

It starts each time at a batch before the newest, as a query does that lost its last commit; each run makes other rows.
Everything that reaches the (imagined) network is printed first.
"""

from __future__ import annotations

import random
import secrets
import sys
from pathlib import Path

from bridges.node.arrow_bodies import count_topics, encode_rows
from bridges.node.model import StagedPart, Writer
from bridges.node.outbox import Outbox
from bridges.node.outbox_journal import OutboxJournal
from oncewire.client.core_effects import PublisherEffect, SendTransfer
from oncewire.client.outcomes import ACCEPTED
from oncewire.client.publisher_core import PublisherCore
from oncewire.wire import decode_message, encode_data_message


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


class Publisher:
    def __init__(self, path: Path) -> None:
        self.journal = OutboxJournal(path, "sink")
        self.core: PublisherCore | None = None
        self.unsettled: list[int] = []

    def start(self) -> None:
        state = self.journal.open_publisher("out")
        self.core = PublisherCore(recovered=state, window=64)
        self.core.begin_attach()
        self.core.attached(capable=True, resume="resumed" if state.session else "new")
        self.carry_out(self.core.flow(1 << 30, session=1))
        self.work()

    def carry_out(self, effects: list[PublisherEffect]) -> None:
        for effect in effects:
            if isinstance(effect, SendTransfer):
                body = decode_message(effect.payload).body
                assert isinstance(body, bytes)
                say(f"sent {effect.number} {body.decode()}")
                self.unsettled.append(effect.number)

    def work(self) -> None:
        """Submit what is decided, and let the network accept some of it in any order."""
        if self.core is None:
            self.start()
        core = self.core
        assert core is not None
        while core.has_room(0) and (rows := self.journal.rows_from("out", core.next_number)) is not None:
            (payload,) = self.journal.annotated("out", rows, core.next_number, core.next_number + 1)
            core.submit(payload)
        self.commit(core)
        random.shuffle(self.unsettled)
        accepted = [self.unsettled.pop() for _ in range(len(self.unsettled) * 2 // 3)]
        for number in accepted:
            say(f"ended {number} -")
        core.disposition([(n, n.to_bytes(8, "big")) for n in accepted], ACCEPTED, False)
        self.commit(core)

    def commit(self, core: PublisherCore) -> None:
        while core.wants_commit:
            self.journal.begin()
            self.journal.write_publisher("out", core.next_commit())
            self.journal.commit()
            self.carry_out(core.committed())


def main() -> None:
    path = Path(sys.argv[1])
    outbox = Outbox(path, "sink")
    publisher = Publisher(path)
    run = secrets.token_hex(3)
    writer = Writer("query", run)
    batch = max(0, outbox.marks().manifests - 2)
    while True:
        parts = []
        for partition in range(random.randrange(1, 4)):
            rows = [f"{batch}/{run}/{secrets.token_hex(2)}" for _ in range(random.randrange(1, 6))]
            body = encode_rows(["out"] * len(rows), [encode_data_message(row.encode()) for row in rows])
            part = StagedPart(partition, run, 1, len(rows))
            outbox.stage(writer, batch, part, 0, count_topics(body), body)
            parts.append(part)
        outbox.commit(writer, batch, parts)
        publisher.work()
        batch += 1


if __name__ == "__main__":
    main()
