"""A queue's store as the journal of a feed's subscriber and of the outbox's publishers.

So what the client must remember and what the queues hold change in one transaction (W-19, W-22).
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from bridges.workqueue import sql_statements as sql
from bridges.workqueue.crash_points import CrashPoint, passed
from bridges.workqueue.errors import QueueError, TakenOver
from bridges.workqueue.queue_store import QueueStore
from bridges.workqueue.rules_core import to_s, to_us
from bridges.workqueue.sql_base import chunks
from bridges.workqueue.store import Job, Operations
from oncewire.client import Journal, JournalError, JournalOwnerError, JournalUnusable, OutcomeKind
from oncewire.client.journal_records import (
    PublisherChanges,
    PublisherState,
    StoredMessage,
    SubscriberChanges,
    SubscriberState,
)
from oncewire.client.sqlite_journal import outcome_from_text, outcome_to_text

T = TypeVar("T")
logger = logging.getLogger("oncewire.workqueue")
OWNERS_NOTICE = " owners"
"""Announced like a queue (W-13): the owner before and whoever stands by look at once. No queue can have this name."""
LEASE_S = 15.0
"""An owner that has not renewed for so long counts as gone. If it was only late, its epoch fences it (W-23)."""
NOBODY = 0
"""The lease of what nobody runs."""
ENDED = -1
"""The lease of a feed whose subscription was ended."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The right to run one feed, or the publisher of a store's outbox, until another process takes over (W-23).

    Attributes:
        name: what is run.
        container: the container-id toward the network, the same for all who ever run it.
        epoch: higher than that of all before.
    """

    name: str
    container: str
    epoch: int

    def check(self, do: Operations) -> None:
        """Refuse the transaction if another process has taken over (W-23).

        Raises:
            TakenOver: it has.
        """
        rows = do.execute(sql.OWNER, (self.name,))
        if not rows or rows[0][0] != self.epoch:
            raise TakenOver(
                f"{self.name} ends here", "another process has taken over", "leave it to that one; `run` stands by"
            )

    def renew(self, do: Operations) -> None:
        """Hold the lease for longer (W-26).

        Raises:
            TakenOver: another process has taken over.
        """
        self.check(do)
        do.execute(sql.PUT_LEASE, (_lease_end(do), self.name, self.epoch))

    def give_back(self, do: Operations, lease: int = NOBODY) -> None:
        """Let those who stand by take over at once, or with ENDED end; without effect for an earlier owner."""
        do.execute(sql.PUT_LEASE, (lease, self.name, self.epoch))
        do.touched.add(OWNERS_NOTICE)


def take_over(do: Operations, name: str) -> Owner:
    """Become the one who runs this; the transactions of all others are refused from now on (W-23)."""
    # A container-id must be unique in the network, which may have several stores.
    new = (name, f"workqueue-{secrets.token_hex(8)}", _lease_end(do))
    ((container, epoch),) = do.execute(sql.TAKE_OVER, new)
    do.touched.add(OWNERS_NOTICE)
    return Owner(name, container, epoch)


def lease_left(do: Operations, name: str) -> float | None:
    """Seconds for which somebody counts as running this; None = its subscription was ended.

    Nobody else can take over before the transaction ends.
    """
    ((lease,),) = do.execute(sql.LEASE, (name,)) or [(NOBODY,)]
    return None if lease == ENDED else max(0.0, to_s(lease) - do.now)


def _lease_end(do: Operations) -> int:
    return to_us(do.now + LEASE_S)


class StoreJournal(Journal):
    """What a feed and the publisher of the outbox have in common: a transaction is collected, then run as a whole.

    Args:
        store: of the queues.
        owner: whose transactions these are.
    """

    is_durable = True
    is_shared = True

    def __init__(self, store: QueueStore, owner: Owner) -> None:
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

        def whole(do: Operations) -> None:
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

    def _run(self, job: Callable[[Operations], T]) -> T:
        try:
            return self._store.transact_blocking(job)
        except TakenOver as error:
            raise JournalOwnerError(error.what, error.why, error.fix) from error
        except QueueError as error:
            raise JournalUnusable(error.what, error.why, error.fix) from error


class FeedJournal(StoreJournal):
    """The journal of a feed's subscriber: its map, and by `add` the items of the same transaction (W-19)."""

    def open_subscriber(self, link_name: str) -> SubscriberState:
        """Read the map; see Journal."""
        name = self._owner.name

        def read(do: Operations) -> SubscriberState:
            self._owner.check(do)
            ((incarnation,),) = do.execute(sql.INCARNATION, (name,))
            rows = do.execute(sql.FEED_TAGS, (name,))
            return SubscriberState(
                incarnation, tuple((bytes(tag), outcome_from_text(text) if text else None) for tag, text in rows)
            )

        return self._run(read)

    def write_subscriber(self, link_name: str, changes: SubscriberChanges) -> None:
        """Add the changes of the map; see Journal."""
        name = self._owner.name

        def write(do: Operations) -> None:
            for tags in chunks(changes.forgotten):
                marks = ", ".join("?" * len(tags))
                do.execute(sql.DELETE_TAGS.replace("/*ids*/", marks), (name, *tags))
            for tag, outcome in changes.entries:
                do.execute(sql.PUT_TAG, (name, tag, None if outcome is None else outcome_to_text(outcome)))
            do.execute(sql.PUT_INCARNATION, (changes.incarnation, name))

        if self._jobs:  # items
            self._inside, self._behind = CrashPoint.FEED_PUSHED, CrashPoint.FEED_COMMITTED
        self.add(write)


class OutboxJournal(StoreJournal):
    """The journal of the outbox's publishers: its rows are their messages, numbers and delivery tags (W-22).

    A link's name is its topic. A row is there before its publisher takes it, so taking it stores nothing but how far
    the publisher is. A row goes when its outcome is accepted, and stays with any other one (W-24).

    Args:
        store: of the queues.
        owner: whose transactions these are.
        on_progress: called in the journal's thread when messages have got their outcome.
        on_released: called there with a topic whose messages were sent to nobody and wait for subscriptions (W-28);
            None = these have their outcome, as others do.

    Attributes:
        released: topics with messages that wait.
    """

    def __init__(
        self,
        store: QueueStore,
        owner: Owner,
        on_progress: Callable[[], None],
        on_released: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(store, owner)
        self._on_progress = on_progress
        self._on_released = on_released
        self.keeps_released = on_released is not None
        self.released: set[str] = set()
        self._newly_released: set[str] = set()

    def commit(self) -> None:
        """Make the transaction durable; see Journal."""
        has_outcomes = self._behind is CrashPoint.OUTCOMES_COMMITTED
        super().commit()
        newly, self._newly_released = self._newly_released, set()
        self.released |= newly
        for topic in newly:
            assert self._on_released is not None
            self._on_released(topic)
        if has_outcomes:
            self._on_progress()

    def rollback(self) -> None:
        """Drop the transaction; see Journal."""
        super().rollback()
        self._newly_released = set()

    def open_publisher(self, link_name: str) -> PublisherState:
        """Read how far a topic's publisher is, and what it has no outcome of; see Journal."""

        def read(do: Operations) -> PublisherState:
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

        def write(do: Operations) -> None:
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
        if changes.decided:
            self._inside, self._behind = CrashPoint.OUTCOMES_WRITTEN, CrashPoint.OUTCOMES_COMMITTED
        elif changes.stored:
            self._inside, self._behind = CrashPoint.ROWS_NOTED, CrashPoint.ROWS_EXPOSED
        self.add(write)

    def send_released(self, topic: str) -> Job:
        """W-28: the session that released messages has ended; the topic's next publisher sends them again."""

        def write(do: Operations) -> None:
            self._owner.check(do)
            do.execute(sql.SEND_RELEASED, (topic,))
            do.execute(sql.BEGIN_ANEW, (topic,))

        return write
