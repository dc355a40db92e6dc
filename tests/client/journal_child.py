"""A process that works on a journal until it is killed: `python journal_child.py publisher|subscriber|jumbler PATH`.

It prints a line after each commit it knows to be durable, so that the parent can compare.
"""

from __future__ import annotations

import random
import sys

from oncewire.client.core_effects import DeliverMessage
from oncewire.client.outcomes import ACCEPTED
from oncewire.client.publisher_core import PublisherCore
from oncewire.client.sqlite_journal import SqliteJournal
from oncewire.client.subscriber_core import SubscriberCore


def say(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


def publish(journal: SqliteJournal) -> None:
    """Stores messages in groups, each with a row of the application in the same transaction; accepts some."""
    core = PublisherCore(window=1 << 30, recovered=journal.open_publisher("p"))
    core.begin_attach()
    core.attached(capable=True, resume="resumed")
    core.flow(1 << 30, session=1)
    while True:
        for _ in range(7):
            core.submit(b"message %d" % core.next_number)
        accepted = core.next_number - 10
        if accepted >= 0:
            core.disposition([(0, accepted.to_bytes(8, "big"))], ACCEPTED, False)
        while core.wants_commit:
            journal.begin()
            journal.write_publisher("p", core.next_commit())
            journal.connection.execute("UPDATE place SET next = ?", (core.next_number,))
            journal.commit()
            core.committed()
        say(core.next_number)


def subscribe(journal: SqliteJournal) -> None:
    """Processes deliveries, effect and acceptance in one transaction; the router settles old ones."""
    core = SubscriberCore(recovered=journal.open_subscriber("s"), prefetch=1 << 20)
    presented = core.begin_attach(1 << 20)
    assert presented is not None
    core.attached(list(presented.unsettled), capable=True, incarnation=3)
    number = journal.connection.execute("SELECT count(*) FROM effects").fetchone()[0]
    while True:
        tag = b"tag %08d" % number
        core.transfer(number, tag, b"")
        journal.begin()
        journal.connection.execute("INSERT INTO effects VALUES (?)", (tag,))
        core.complete(number_to_serial(core), ACCEPTED)
        journal.write_subscriber("s", core.next_commit())
        journal.commit()
        core.committed()
        if number >= 20:
            core.settled([(0, b"tag %08d" % (number - 20))])
        say(number)
        number += 1


def jumble(journal: SqliteJournal) -> None:
    """Holds thirty deliveries of two sessions and finishes them in any order; what is finished is settled later."""
    core = SubscriberCore(recovered=journal.open_subscriber("s"), prefetch=1 << 20)
    presented = core.begin_attach(1 << 20)
    assert presented is not None
    core.attached(list(presented.unsettled), capable=True, incarnation=3)
    held: list[tuple[int, bytes]] = []

    def receive(tag: bytes, *, resume: bool) -> None:
        (delivery,) = (e for e in core.transfer(0, tag, b"", resume=resume) if isinstance(e, DeliverMessage))
        held.append((delivery.serial, tag))

    database = journal.connection
    for (tag,) in database.execute(
        "SELECT tag FROM arrived WHERE tag NOT IN (SELECT tag FROM effects) ORDER BY rowid"
    ).fetchall():
        receive(tag, resume=tag in presented.unsettled)
    number = database.execute("SELECT count(*) FROM arrived").fetchone()[0]
    rng = random.Random(number)
    finished: list[bytes] = []
    while True:
        while len(held) < 30:
            number += 1
            tag = b"\0nets" + (number % 2).to_bytes(6, "big") + b"%08d" % number
            database.execute("INSERT INTO arrived VALUES (?)", (tag,))
            receive(tag, resume=False)
        journal.begin()
        for _ in range(rng.randrange(1, 4)):
            serial, tag = held.pop(rng.randrange(len(held)))
            database.execute("INSERT INTO effects VALUES (?)", (tag,))
            core.complete(serial, ACCEPTED)
            finished.append(tag)
        journal.write_subscriber("s", core.next_commit())
        journal.commit()
        core.committed()
        if len(finished) > 40:
            core.settled([(0, finished.pop(0))])
        say(number)


def number_to_serial(core: SubscriberCore) -> int:
    """The serial of the one delivery that is not processed."""
    return next(iter(core._unprocessed))


def main() -> None:
    journal = SqliteJournal(sys.argv[2])
    journal.bind("child")
    journal.connection.execute("CREATE TABLE IF NOT EXISTS place (next INTEGER)")
    journal.connection.execute("INSERT INTO place SELECT 0 WHERE NOT EXISTS (SELECT * FROM place)")
    journal.connection.execute("CREATE TABLE IF NOT EXISTS effects (tag BLOB PRIMARY KEY)")
    journal.connection.execute("CREATE TABLE IF NOT EXISTS arrived (tag BLOB)")
    {"publisher": publish, "subscriber": subscribe, "jumbler": jumble}[sys.argv[1]](journal)


if __name__ == "__main__":
    main()
