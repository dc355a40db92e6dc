"""A store as the journal of a feed's subscriber and of the outbox's publishers.

So what the client must remember and what the store holds of messages change in one transaction (W-19, W-22).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from bridges.store import statements as sql
from bridges.store.crash_points import CrashPoint, passed
from bridges.store.feed_map_core import FeedMap, MapRow, entries_of
from oncewire.client import Journal, JournalError, JournalOwnerError, JournalUnusable, OutcomeKind
from oncewire.client.journal_records import (
    DoneId,
    MessageIdentity,
    PublisherChanges,
    PublisherState,
    StoredMessage,
    SubscriberChanges,
    SubscriberState,
)
from oncewire.client.sqlite_journal import outcome_from_text, outcome_to_text
from oncewire.store.errors import EdgeError, TakenOver
from oncewire.store.open_store import OpenStore
from oncewire.store.owners import Owner
from oncewire.store.store import Job, Row, Transaction
from oncewire.store.transaction import chunks

T = TypeVar("T")
logger = logging.getLogger("oncewire.store")


class StoreJournal(Journal):
    """What a feed and the publisher of the outbox have in common: a transaction is collected, then run as a whole.

    Args:
        store: where the transactions are.
        owner: whose transactions these are.
    """

    is_durable = True
    is_shared = True

    def __init__(self, store: OpenStore[Any], owner: Owner) -> None:
        self._store = store
        self._owner = owner
        self._jobs: list[Job] = []
        self._inside: CrashPoint | None = None
        self._behind: CrashPoint | None = None

    def bind(self, container_id: str) -> None:
        """Serve the owner's container only; see Journal."""
        if container_id != self._owner.container:
            raise JournalOwnerError(
                f"the journal of {self._owner.name} cannot be used by container-id {container_id!r}",
                f"the network knows it as {self._owner.container!r}",
                f"connect with container_id={self._owner.container!r}",
            )

    def check_owner(self) -> None:
        """Check that no other process has taken over (W-23, P-b); see Journal."""
        self._run(self._owner.check)

    def begin(self) -> None:
        """Start a transaction; see Journal."""
        self._jobs = []
        self._inside = self._behind = None

    def add(self, job: Job) -> None:
        """Do something more in the transaction that was begun."""
        self._jobs.append(job)

    def commit(self) -> None:
        """Make the transaction durable; see Journal."""
        jobs, inside, behind = self._jobs, self._inside, self._behind

        def whole(do: Transaction) -> None:
            self._owner.check(do)
            for job in jobs:
                job(do)
            if inside is not None:
                passed(inside)

        self._run(whole)
        if behind is not None:
            passed(behind)

    def rollback(self) -> None:
        """Drop the transaction; see Journal."""
        self._jobs = []

    def close(self) -> None:
        """The store is not this object's; see Journal."""

    def open_publisher(self, link_name: str) -> PublisherState:
        """Only the outbox has publishers; see Journal."""
        raise self._no_such_link(link_name)

    def open_subscriber(self, link_name: str) -> SubscriberState:
        """Only a feed has a subscriber; see Journal."""
        raise self._no_such_link(link_name)

    def write_publisher(self, link_name: str, changes: PublisherChanges) -> None:
        """Only the outbox has publishers; see Journal."""
        raise self._no_such_link(link_name)

    def write_subscriber(self, link_name: str, changes: SubscriberChanges) -> None:
        """Only a feed has a subscriber; see Journal."""
        raise self._no_such_link(link_name)

    def _no_such_link(self, link_name: str) -> JournalError:
        return JournalUnusable(
            f"the link {link_name!r} cannot be kept in the journal of {self._owner.name}",
            "it is of the other kind",
            "give it a journal of its own",
        )

    def _run(self, job: Callable[[Transaction], T]) -> T:
        try:
            return self._store.transact_blocking(job)
        except TakenOver as error:
            raise JournalOwnerError(error.what, error.why, error.fix) from error
        except EdgeError as error:
            raise JournalUnusable(error.what, error.why, error.fix) from error


class FeedJournal(StoreJournal):
    """The journal of a feed's subscriber: its map, and by `add` what the transaction makes of messages (W-19).

    After a commit that failed `open_subscriber` comes first, as a link does that is attached anew.
    """

    keeps_ids = True

    def __init__(self, store: OpenStore[Any], owner: Owner) -> None:
        super().__init__(store, owner)
        self._map = FeedMap()

    def open_subscriber(self, link_name: str) -> SubscriberState:
        """Read the map; see Journal."""
        name = self._owner.name

        def read(do: Transaction) -> tuple[int, list[MapRow], list[Row]]:
            self._owner.check(do)
            ((incarnation,),) = do.execute(sql.INCARNATION, (name,))
            rows = [MapRow(bytes(tag), *row) for tag, *row in do.execute(sql.FEED_TAGS, (name,))]
            return incarnation, rows, do.execute(sql.FEED_IDS, (name,))

        incarnation, rows, ids = self._run(read)
        self._map = FeedMap(rows)
        entries = (entry for row in rows for entry in entries_of(row))
        return SubscriberState(
            incarnation,
            tuple((tag, outcome_from_text(text) if text else None) for tag, text in entries),
            tuple(DoneId(MessageIdentity(user, bytes(digest)), bool(rejected)) for user, digest, rejected in ids),
        )

    def write_subscriber(self, link_name: str, changes: SubscriberChanges) -> None:
        """Add the changes of the map; see Journal."""
        name = self._owner.name
        entries = ((tag, None if outcome is None else outcome_to_text(outcome)) for tag, outcome in changes.entries)
        rows = self._map.change(entries, changes.forgotten)

        def write(do: Transaction) -> None:
            do.write_many(sql.DELETE_TAGS, [(name, tag) for tag in rows.gone])
            do.write_many(sql.CHANGE_TAGS, [(*row, name, tag) for row, tag in rows.changed])
            do.write_many(sql.PUT_TAGS, [(name, *row) for row in rows.added])
            ids = (*changes.forgotten_ids, *(done.identity for done in changes.done_ids))  # one kept anew is the newest
            do.write_many(sql.DELETE_ID, [(name, *identity) for identity in ids])
            do.write_many(sql.PUT_ID, [(name, *done.identity, int(done.is_rejected)) for done in changes.done_ids])
            do.execute(sql.PUT_INCARNATION, (changes.incarnation, name))

        if self._jobs:  # what was made of messages
            self._inside, self._behind = CrashPoint.FEED_PUSHED, CrashPoint.FEED_COMMITTED
        self.add(write)


class OutboxJournal(StoreJournal):
    """The journal of the outbox's publishers: its rows are their messages, numbers and delivery tags (W-22).

    A link's name is its topic. A row is there before its publisher takes it, so taking it stores nothing but how far
    the publisher is. A row goes when its outcome is accepted, and stays with any other one (W-24).

    Args:
        store: where the transactions are.
        owner: whose transactions these are.
        on_progress: called in the journal's thread when messages have got their outcome, with how many.
        on_released: called there with a topic whose messages were sent to nobody and wait for subscriptions (W-28);
            None = these have their outcome, as others do.

    Attributes:
        released: topics with messages that wait.
    """

    def __init__(
        self,
        store: OpenStore[Any],
        owner: Owner,
        on_progress: Callable[[int], None],
        on_released: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(store, owner)
        self._on_progress = on_progress
        self._on_released = on_released
        self.keeps_released = on_released is not None
        self.released: set[str] = set()
        self._newly_released: set[str] = set()
        self._exposed_before: dict[str, int] = {}
        self._decided = 0

    def commit(self) -> None:
        """Make the transaction durable; see Journal."""
        has_outcomes = self._behind is CrashPoint.OUTCOMES_COMMITTED
        super().commit()
        decided, self._decided = self._decided, 0
        newly, self._newly_released = self._newly_released, set()
        self.released |= newly
        for topic in newly:
            assert self._on_released is not None
            self._on_released(topic)
        if has_outcomes:
            self._on_progress(decided)

    def rollback(self) -> None:
        """Drop the transaction; see Journal."""
        super().rollback()
        self._newly_released = set()
        self._decided = 0

    def open_publisher(self, link_name: str) -> PublisherState:
        """Read how far a topic's publisher is, and what it has no outcome of; see Journal."""

        def read(do: Transaction) -> PublisherState:
            self._owner.check(do)
            rows = do.execute(sql.LINK, (link_name,))
            if not rows:
                return PublisherState()
            next_number, exposed_before, session = rows[0]
            if do.execute(sql.HAS_RELEASED, (link_name,)):
                self.released.add(link_name)
            # Behind what waits only what was sent is of this session.
            stop = min(next_number, exposed_before) if link_name in self.released else next_number
            sent = do.execute(sql.SENT_ROWS, (link_name, stop))
            messages = tuple(StoredMessage(number, bytes(payload)) for number, payload in sent)
            return PublisherState(next_number, exposed_before, session, messages)

        return self._run(read)

    def write_publisher(self, link_name: str, changes: PublisherChanges) -> None:
        """Add a publisher's progress; see Journal."""
        assert not changes.doubted, "publishers of an outbox send nothing again that is in doubt"
        accepted = [number for number, outcome in changes.decided if outcome.is_accepted]
        is_kept = OutcomeKind.RELEASED if self.keeps_released else None
        released = [number for number, outcome in changes.decided if outcome.kind is is_kept]

        def write(do: Transaction) -> None:
            for statement, of_kind in ((sql.DELETE_ROWS, accepted), (sql.RELEASE_ROWS, released)):
                for numbers in chunks(of_kind):
                    marks = ", ".join("?" * len(numbers))
                    do.execute(statement.replace("/*ids*/", marks), (link_name, *numbers))
            for number, outcome in changes.decided:
                if not outcome.is_accepted and outcome.kind is not is_kept:
                    logger.error("message %d for topic %r is %s", number, link_name, outcome.kind.value)
                    do.execute(sql.END_ROW, (outcome_to_text(outcome), link_name, number))
            link = (link_name, changes.next_number, changes.exposed_before, changes.session)
            do.execute(sql.PUT_LINK, link)

        if released:
            self._newly_released.add(link_name)
        self._decided += len(changes.decided) - len(released)
        if changes.decided:
            self._inside, self._behind = CrashPoint.OUTCOMES_WRITTEN, CrashPoint.OUTCOMES_COMMITTED
        elif changes.exposed_before > self._exposed_before.get(link_name, 0):
            self._inside, self._behind = CrashPoint.ROWS_NOTED, CrashPoint.ROWS_EXPOSED
        self._exposed_before[link_name] = changes.exposed_before
        self.add(write)

    def send_released(self, topic: str) -> Job:
        """W-28: the session that released messages has ended; the topic's next publisher sends them again."""

        def write(do: Transaction) -> None:
            self._owner.check(do)
            do.execute(sql.SEND_RELEASED, (topic,))
            do.execute(sql.BEGIN_ANEW, (topic,))

        return write
