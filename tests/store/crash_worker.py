"""One process on a store, killed at a place: ``crash_worker.py KIND ADDRESS ROLE PLACE``.

`feed` takes messages from a sender that sends again what it has no acceptance of, and stores a note for each with the
map of its subscription; `publish` sends what the outbox has to a receiver that knows the numbers that it has got;
`decide` puts messages into the outbox, each with a note; `own` takes over, and writes its epoch while it owns. The
sender and the receiver outlive it: files beside the process.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from bridges.store import statements as sql
from bridges.store.client_journals import FeedJournal, OutboxJournal
from bridges.store.outbox import NewMessage, publish
from oncewire.client.journal_records import PublisherChanges, StoredMessage, SubscriberChanges
from oncewire.client.outcomes import ACCEPTED
from oncewire.store.contents import Contents
from oncewire.store.open_store import OpenStore
from oncewire.store.owners import take_over
from oncewire.store.store import Transaction
from tests.store.databases import SqlDatabase
from tests.store.killing import killed_at
from tests.store.test_stores import NOTE, NOTES

MESSAGES = 24
TOPIC = "t"
FEED = "feed"


class Peer:
    """What the other end of a link has noted, in a file: a process that dies does not take it along."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def note(self, number: int, text: str = "") -> None:
        """It outlives this process from here on."""
        with self._path.open("a") as file:
            file.write(f"{number} {text}\n")

    def noted(self) -> list[tuple[int, str]]:
        """In the order of the notes."""
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        return [(int(line.partition(" ")[0]), line.partition(" ")[2]) for line in lines]


def feed(store: OpenStore[Transaction], peer: Peer) -> None:
    """Accept each message once, with what it means here; what the sender has settled leaves the map."""
    journal = FeedJournal(store, store.transact_blocking(lambda do: take_over(do, FEED)))
    journal.check_owner()
    known = {tag for tag, _ in journal.open_subscriber(FEED).entries}
    settled = {number for number, _ in peer.noted()}
    for number in range(MESSAGES):
        tag = b"%d" % number
        if number in settled:
            continue
        if tag not in known:
            journal.begin()
            journal.add(lambda do: do.write(NOTE, (number, "fed")))  # noqa: B023  # it runs in this step
            gone = tuple(b"%d" % other for other in settled if b"%d" % other in known)
            journal.write_subscriber(FEED, SubscriberChanges(1, ((tag, ACCEPTED),), gone))
            journal.commit()
            known = (known | {tag}) - {*gone}
        peer.note(number)
        settled.add(number)
    journal.begin()
    journal.write_subscriber(FEED, SubscriberChanges(1, (), tuple(known)))
    journal.commit()


def decide(store: OpenStore[Transaction], peer: Peer) -> None:
    """Each message with a note, in one transaction."""
    for number in range(MESSAGES):

        def job(do: Transaction) -> None:
            if not do.execute("SELECT 1 FROM notes WHERE number = ?", (number,)):  # noqa: B023
                do.write(NOTE, (number, "decided"))  # noqa: B023
                publish(do, [NewMessage(TOPIC, b"%d" % number), NewMessage("other", b"x")])  # noqa: B023

        store.transact_blocking(job)


def send(store: OpenStore[Transaction], peer: Peer) -> None:
    """Publish what is in the outbox. The receiver drops a number that it has, as a router does with a known tag."""
    journal = OutboxJournal(store, store.transact_blocking(lambda do: take_over(do, "publisher")), lambda _: None)
    state = journal.open_publisher(TOPIC)
    unsettled, following = list(state.messages), state.next_number

    def change(stored: tuple[StoredMessage, ...], decided: list[int]) -> None:
        journal.begin()
        outcomes = tuple((number, ACCEPTED) for number in decided)
        journal.write_publisher(TOPIC, PublisherChanges(stored, following, following, 1, outcomes))
        journal.commit()

    while True:
        got = dict(peer.noted())
        for message in unsettled:
            if message.number not in got:
                peer.note(message.number, message.payload.decode())
            else:
                assert got[message.number] == message.payload.decode()
        if unsettled:
            change((), [message.number for message in unsettled])
        rows = store.transact_blocking(lambda do: do.execute(sql.NEXT_ROWS, (TOPIC, following, 2)))  # noqa: B023
        unsettled = [StoredMessage(number, bytes(payload)) for number, payload in rows]
        if not unsettled:
            return
        assert [message.number for message in unsettled] == [*range(following, following + len(unsettled))]
        following += len(unsettled)
        change(tuple(unsettled), [])


def own(store: OpenStore[Transaction], peer: Peer) -> None:
    """What an owner does: it renews its lease, writes under its epoch, and gives back."""
    owner = store.transact_blocking(lambda do: take_over(do, "it"))

    def write(do: Transaction) -> None:
        owner.check(do)
        do.write(NOTE, (owner.epoch, "owned"))

    for _ in range(3):
        store.transact_blocking(owner.renew)
        store.transact_blocking(write)
    store.transact_blocking(owner.give_back)


ROLES = {"feed": feed, "decide": decide, "publish": send, "own": own}


async def main(kind: str, address: str, role: str, place: str, peer: str) -> None:
    """Run a role to its end."""
    store = SqlDatabase(kind, address).open_with(Contents([NOTES]))
    killed_at(store, place)
    opened: OpenStore[Transaction] = OpenStore(store)
    ROLES[role](opened, Peer(Path(peer)))
    await opened.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
