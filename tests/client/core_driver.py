"""Drives the pure cores directly: a journal in memory that can be cut off at any commit, and short verbs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from oncewire.client.core_effects import DeliverMessage, GrantCredit, PublisherEffect, SendTransfer, SubscriberEffect
from oncewire.client.journal_records import (
    DoneId,
    MessageIdentity,
    PublisherChanges,
    PublisherState,
    StoredMessage,
    SubscriberChanges,
    SubscriberState,
)
from oncewire.client.outcomes import ACCEPTED, DoneBy, Outcome, Subscriptions
from oncewire.client.publisher_core import PublisherCore
from oncewire.client.subscriber_core import SubscriberCore

T = TypeVar("T")


def only(kind: type[T], effects: Sequence[object]) -> list[T]:
    """The effects of one kind, in order."""
    return [effect for effect in effects if isinstance(effect, kind)]


def done_by(*names: str) -> DoneBy:
    """These are done with a message, as a router reports that does not say who has processed it."""
    return DoneBy(Subscriptions(len(names), names))


def sent(effects: Sequence[object]) -> list[int]:
    """Numbers of the messages that were sent."""
    return [effect.number for effect in only(SendTransfer, effects)]


def tag(number: int) -> bytes:
    return number.to_bytes(8, "big")


class PublisherDisk:
    """What a durable journal would hold: only whole commits change it."""

    def __init__(self) -> None:
        self.next_number = self.exposed_before = self.session = 0
        self.messages: dict[int, StoredMessage] = {}

    def write(self, changes: PublisherChanges) -> None:
        for message in changes.stored:
            assert message.number not in self.messages
            self.messages[message.number] = message
        for number, outcome in changes.decided:
            message = self.messages.pop(number)
            if not outcome.is_accepted:
                self.messages[number] = StoredMessage(number, message.payload, message.in_doubt, outcome)
        for number in changes.forgotten:
            self.messages.pop(number)
        for number in changes.doubted:
            message = self.messages[number]
            self.messages[number] = StoredMessage(number, message.payload, True, message.outcome)
        self.next_number = changes.next_number
        self.exposed_before = changes.exposed_before
        self.session = changes.session

    def state(self) -> PublisherState:
        return PublisherState(
            self.next_number,
            self.exposed_before,
            self.session,
            tuple(self.messages[number] for number in sorted(self.messages)),
        )

    def commit(self, core: PublisherCore) -> list[PublisherEffect]:
        """Write everything the core wants written."""
        effects: list[PublisherEffect] = []
        while core.wants_commit:
            self.write(core.next_commit())
            effects += core.committed()
        return effects


class SubscriberDisk:
    """What a durable journal would hold: only whole commits change it."""

    def __init__(self) -> None:
        self.incarnation = 0
        self.entries: dict[bytes, Outcome | None] = {}
        self.done_ids: dict[MessageIdentity, DoneId] = {}

    def write(self, changes: SubscriberChanges) -> None:
        for forgotten in changes.forgotten:
            self.entries.pop(forgotten, None)
        for name, outcome in changes.entries:
            assert self.entries.get(name) is None, "an outcome is recorded once"
            self.entries[name] = outcome
        self.incarnation = changes.incarnation
        for identity in changes.forgotten_ids:
            self.done_ids.pop(identity, None)
        for done in changes.done_ids:
            assert done.identity not in self.done_ids, "an id is kept once"
            self.done_ids[done.identity] = done

    def state(self) -> SubscriberState:
        return SubscriberState(self.incarnation, tuple(self.entries.items()), tuple(self.done_ids.values()))

    def commit(self, core: SubscriberCore) -> list[SubscriberEffect]:
        """Write everything the core wants written."""
        effects: list[SubscriberEffect] = []
        while core.wants_commit:
            self.write(core.next_commit())
            effects += core.committed()
        return effects


class PublisherDriver:
    """A publisher core with its disk."""

    def __init__(self, **settings: object) -> None:
        self.settings = settings
        self.disk = PublisherDisk()
        self.core = PublisherCore(**settings)  # type: ignore[arg-type]

    def restart(self) -> None:
        """The process was killed and starts again from its journal."""
        self.core = PublisherCore(recovered=self.disk.state(), **self.settings)  # type: ignore[arg-type]

    def commit(self) -> list[PublisherEffect]:
        return self.disk.commit(self.core)

    def submit(self, count: int = 1, size: int = 3) -> list[PublisherEffect]:
        """Submit messages and commit; what that sends comes back."""
        for _ in range(count):
            self.core.submit(b"x" * size)
        return self.commit()

    def attach(self, credit: int = 100, session: int = 7, resume: str = "resumed") -> list[PublisherEffect]:
        """Attach, prove life, get credit; returns what followed the credit."""
        self.core.begin_attach()
        processed = self.core.requirement.counts.processing
        reply = self.core.attached(
            capable=True, resume=resume, require=self.core.requirement.asked, require_processed=processed
        )
        assert reply == []
        self.core.flow(0, echo=41)
        effects = self.core.flow(credit, session=session)
        return effects + self.commit()

    def notify(
        self, numbers: Sequence[int], outcome: Outcome | None = ACCEPTED, *, settled: bool = False
    ) -> list[PublisherEffect]:
        """The router reports an outcome; delivery-ids are numbers + 1000."""
        deliveries = [(1000 + number, tag(number)) for number in numbers]
        return self.core.disposition(deliveries, outcome, settled) + self.commit()


class SubscriberDriver:
    """A subscriber core with its disk; keeps count of the credit a router would see."""

    def __init__(self, **settings: object) -> None:
        self.settings = settings
        self.disk = SubscriberDisk()
        self.core = SubscriberCore(**settings)  # type: ignore[arg-type]
        self.credit = 0
        self.next_id = 0
        self.delivered: list[DeliverMessage] = []

    def restart(self) -> None:
        """The process was killed and starts again from its journal."""
        self.core = SubscriberCore(recovered=self.disk.state(), **self.settings)  # type: ignore[arg-type]
        self.delivered.clear()

    def _note(self, effects: list[SubscriberEffect]) -> list[SubscriberEffect]:
        for effect in effects:
            if isinstance(effect, GrantCredit):
                self.credit = effect.credit
            elif isinstance(effect, DeliverMessage):
                self.delivered.append(effect)
        return effects

    def attach(
        self, kept: Sequence[bytes] | None = None, incarnation: int = 5, bound: int = 1000
    ) -> list[SubscriberEffect]:
        """Attach; the router keeps what was presented unless asked otherwise."""
        presented = self.core.begin_attach(bound)
        assert presented is not None
        self.credit = 0
        kept = list(presented.unsettled) if kept is None else kept
        return self._note(self.core.attached(kept, capable=True, incarnation=incarnation))

    def transfer(
        self, tag: bytes, *, settled: bool = False, resume: bool = False, aborted: bool = False
    ) -> list[SubscriberEffect]:
        """A transfer comes; it must have credit."""
        assert self.credit > 0, "the router has no credit for this"
        self.credit -= 1
        self.next_id += 1
        payload = b"" if resume and settled else b"body of " + tag
        return self._note(
            self.core.transfer(self.next_id, tag, payload, settled=settled, resume=resume, aborted=aborted)
        )

    def commit(self) -> list[SubscriberEffect]:
        return self._note(self.disk.commit(self.core))

    def process(self, outcome: Outcome = ACCEPTED) -> list[SubscriberEffect]:
        """The application finishes the oldest delivery."""
        self.core.complete(self.delivered.pop(0).serial, outcome)
        return self.commit()

    def settle(self, *tags: bytes) -> None:
        self.core.settled([(0, tag) for tag in tags])
