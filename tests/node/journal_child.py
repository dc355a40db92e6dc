"""A process that receives until it is killed: `python journal_child.py PATH`.

Delivers numbered messages to the client's own core and journal, some of them twice, in the order a network might, and
prints what it knows to be durable.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from bridges.node.journal import Arrival, ReceiverJournal
from bridges.node.producers_core import Identity, Judgement
from oncewire.client.core_effects import DeliverMessage
from oncewire.client.outcomes import ACCEPTED
from oncewire.client.sqlite_journal import SqliteJournal
from oncewire.client.subscriber_core import SubscriberCore


def main() -> None:
    client_journal = SqliteJournal(sys.argv[1])
    client_journal.bind("child")
    core = SubscriberCore(recovered=client_journal.open_subscriber("s"), prefetch=1 << 20)
    presented = core.begin_attach(1 << 20)
    assert presented is not None
    core.attached(list(presented.unsettled), capable=True, incarnation=1)
    journal = ReceiverJournal(client_journal.connection, Path(sys.argv[1]), "flights")
    source = journal.source_id("orders")
    rng = random.Random(journal.last)
    # What the journal lacks is sent again, and some of what it has, in another delivery.
    number = max(0, journal.last - 20)
    while True:
        group = [number + rng.randrange(-15, 1) if rng.random() < 0.3 else number + i for i in range(5)]
        group = [n for n in group if n >= 0]
        number += 5
        group += range(max(0, number - 5), number)
        client_journal.begin()
        arrivals = []
        for n in group:
            (effect,) = (
                e for e in core.transfer(0, rng.randbytes(16), b"", resume=False) if isinstance(e, DeliverMessage)
            )
            core.complete(effect.serial, ACCEPTED)
            arrivals.append(Arrival(source, b"%d" % n, Identity("p", n, max(0, number - 60))))
        judged = journal.append(arrivals, 0)
        client_journal.write_subscriber("s", core.next_commit())
        client_journal.commit()
        core.committed()
        new = [n for n, judgement in zip(group, judged, strict=True) if judgement is Judgement.NEW]
        sys.stdout.write("".join(f"{n}\n" for n in new))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
