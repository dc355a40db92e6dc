"""A former owner is fenced out of every table that an owner of an edge writes (W-23, W-26, J-28)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

from bridges.journal import log
from bridges.journal.contents import JOURNALS
from bridges.journal.model import JournalSettings, KeyOf, NewMessage
from bridges.journal.subscription import JournalSubscription
from bridges.store.client_journals import FeedJournal, OutboxJournal
from bridges.store.outbox import NewMessage as ToPublish
from bridges.store.outbox import publish
from bridges.workqueue import NewItem, Queue, QueueStore
from bridges.workqueue.contents import QueueContents
from oncewire.client import JournalOwnerError
from oncewire.client.journal_records import DoneId, MessageIdentity, PublisherChanges, SubscriberChanges
from oncewire.client.outcomes import ACCEPTED, RELEASED, rejected
from oncewire.store.claims import CLAIMS
from oncewire.store.errors import TakenOver
from oncewire.store.owners import Owner, take_over
from tests.store.databases import SqlDatabase

JOURNAL, QUEUE, TOPIC = "log", "in", "t"
WRITTEN = {
    "oncewire_owners",
    "oncewire_feed_tags",
    "oncewire_feed_ids",
    "oncewire_outbox",
    "oncewire_outbox_links",
    "oncewire_items",
    "oncewire_journals",
    "oncewire_journal_sources",
    "oncewire_journal_messages",
    "oncewire_journal_keys",
    "oncewire_journal_owners",
}
"""All tables that an owner writes as such. Others: readers, workers and direct senders, which any edge serves."""
Write = Callable[[QueueStore, Owner, int], None]


@asynccontextmanager
async def opened(database: SqlDatabase) -> AsyncIterator[QueueStore]:
    async with QueueStore.open(database.url, QueueContents([JOURNALS, CLAIMS])) as store:
        yield store


def contents(database: SqlDatabase) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table of ours."""
    query = (
        "SELECT name FROM sqlite_master WHERE type = 'table'"
        if database.kind == "sqlite"
        else "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
    )
    names = sorted(name for (name,) in database.rows(query) if name.startswith("oncewire_"))
    return {name: sorted(database.rows(f"SELECT * FROM {name}"), key=repr) for name in names}


# --- what owners write ------------------------------------------------------------------------------------------------


def feed(store: QueueStore, owner: Owner, number: int) -> None:
    """Items, and the map of their subscription."""
    journal, tag = FeedJournal(store, owner), b"%04d" % number
    journal.begin()
    journal.add(lambda do: do.push(QUEUE, [NewItem(b"x")]))
    done = DoneId(MessageIdentity("ann", tag * 4))
    journal.write_subscriber("feed", SubscriberChanges(number, ((tag, ACCEPTED),), (), (done,)))
    journal.commit()


def append(store: QueueStore, owner: Owner, number: int) -> None:
    """Messages of a compacted journal."""
    journal = FeedJournal(store, owner)
    message = NewMessage(b"m%d" % number, 0, f"key {number}")
    journal.begin()
    journal.add(lambda do: log.append(do, JOURNAL, [message], f"topic {number}"))
    journal.write_subscriber("journal", SubscriberChanges(number))
    journal.commit()


def decide(store: QueueStore, owner: Owner, number: int) -> None:
    """Outcomes of the outbox: one that was accepted, one that is kept, one that was sent to nobody."""
    journal = OutboxJournal(store, owner, lambda _: None, lambda _: None)
    first = 3 * number
    outcomes = ((first, ACCEPTED), (first + 1, rejected("no:item", "7")), (first + 2, RELEASED))
    journal.begin()
    journal.write_publisher(TOPIC, PublisherChanges((), first + 3, first + 3, number + 1, outcomes))
    journal.commit()


def send_again(store: QueueStore, owner: Owner, _number: int) -> None:
    """What was sent to nobody."""
    store.transact_blocking(OutboxJournal(store, owner, lambda _: None, lambda _: None).send_released(TOPIC))


def renew(store: QueueStore, owner: Owner, _number: int) -> None:
    store.transact_blocking(owner.renew)


def give_back(store: QueueStore, owner: Owner, _number: int) -> None:
    store.transact_blocking(owner.give_back)


def note(store: QueueStore, owner: Owner, number: int) -> None:
    """Who receives for the journal."""
    link = JournalSubscription(store, JOURNAL, TOPIC, "amqp://127.0.0.1:1", edge=f"edge {number}")
    store.transact_blocking(lambda do: link._begin_serving(do, owner))


WRITES: tuple[Write, ...] = (feed, append, decide, send_again, note, renew, give_back)


async def test_a_former_owner_is_fenced_out_of_every_table_that_an_owner_writes(sql_database: SqlDatabase) -> None:
    def prepare(do: Any) -> None:
        log.configure(do, JOURNAL, JournalSettings(compact_by=KeyOf.SUBJECT))
        publish(do, [ToPublish(TOPIC, b"%d" % number) for number in range(12)])

    async with opened(sql_database) as store, opened(sql_database) as other:
        await Queue(store, QUEUE).configure()
        await store.transact(prepare)
        changed: set[str] = set()
        for number, write in enumerate((*WRITES, decide)):
            owner = await store.transact(partial(take_over, name="it"))
            before = contents(sql_database)
            write(store, owner, number % len(WRITES))
            after = contents(sql_database)
            changed |= {name for name in after if after[name] != before[name]}
        assert changed == WRITTEN
        await other.transact(partial(take_over, name="it"))
        before = contents(sql_database)
        for write in WRITES:
            refused = suppress(JournalOwnerError, TakenOver)
            with refused:
                write(store, owner, 3)
                assert write is give_back, f"{write.__name__} was not refused"
            assert contents(sql_database) == before, f"{write.__name__} has written"
