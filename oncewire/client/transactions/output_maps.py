"""The unsettled maps of what a store publishes, in the store itself (ST-7).

An intent is an entry of the map of its topic's publisher: its number is the delivery tag. Beside the intents a map is a
row for each topic. So a map changes in the transaction that decides on a message, and in the one that records its
outcome; whoever opens the store next resumes with it, as the same publisher.

What the network released was sent to nobody, for want of subscriptions. It is marked and stays; when the session has
ended, the next one sends it again, with the same tag and before what comes behind it (ST-8).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence, Set
from typing import Any, Protocol

from oncewire.client.journal_records import PublisherChanges, PublisherState, StoredMessage
from oncewire.client.outcomes import TOO_FEW, Outcome, OutcomeKind
from oncewire.client.transactions.sequence_set import SequenceSet
from oncewire.client.transactions.store_schema import Intent, OutputMap
from oncewire.wire import mark_in_doubt

_IN_DOUBT = frozenset({OutcomeKind.MODIFIED, OutcomeKind.UNKNOWN})


def is_published_again(outcome: Outcome) -> bool:
    """Whether it is open if everybody has the message: it stays in the store, as a message with a new number.

    Not where subscriptions have ended without processing it, so that fewer have than are required: others have it.
    """
    return outcome.kind in _IN_DOUBT and outcome.condition != TOO_FEW


class Statements(Protocol):
    """What the maps need of their store, inside its transactions."""

    name: str
    unconfirmed: list[Intent]

    def new_number(self) -> int:
        """Return a number that no other intent ever has."""

    def run(self, statement: str, parameters: Sequence[object] = ()) -> Sequence[Sequence[Any]]:
        """Run one statement."""

    def run_many(self, statement: str, rows: Sequence[Sequence[object]]) -> None:
        """Run one statement for each row of parameters."""


class OutputMaps:
    """All maps of one store, read when it is opened."""

    def __init__(self, store: Statements) -> None:
        self._store = store
        self._by_topic: dict[str, OutputMap] = {}
        self._by_link: dict[str, OutputMap] = {}
        self._released: set[int] = set()

    def read(self, limit: int) -> None:
        """Read what the owner before left; beyond so many topics those that no intent is for are deleted."""
        topics = {intent.topic for intent in self._store.unconfirmed}
        rows = self._store.run(
            "SELECT topic, link, exposed_before, session FROM oncewire_store_publishers WHERE store = ?",
            (self._store.name,),
        )
        for topic, link, exposed_before, session in rows:
            if len(rows) <= limit or topic in topics:
                self._add(OutputMap(topic, link, exposed_before, session))
            else:
                self._store.run(
                    "DELETE FROM oncewire_store_publishers WHERE store = ? AND topic = ?", (self._store.name, topic)
                )
        self.give_links(topics)
        released = self._store.run("SELECT number FROM oncewire_store_released WHERE store = ?", (self._store.name,))
        self._released = {number for (number,) in released}

    def give_links(self, topics: Iterable[str]) -> None:
        """See to it that each topic has a link, before its first message is decided on.

        Its name is random: in a store that is made anew numbers begin again, and P-2 holds for each session.
        """
        for topic in topics:
            if topic not in self._by_topic:
                link = f"out-{secrets.token_hex(8)}"
                self._add(OutputMap(topic, link))
                self._store.run(
                    "INSERT INTO oncewire_store_publishers VALUES (?, ?, ?, 0, 0)", (self._store.name, topic, link)
                )

    def _add(self, known: OutputMap) -> None:
        self._by_topic[known.topic] = self._by_link[known.link] = known

    def link(self, topic: str) -> str:
        """Return the name of the link that publishes to a topic."""
        return self._by_topic[topic].link

    def state(self, link: str) -> PublisherState:
        """Return what a publisher resumes with."""
        known = self._by_link[link]
        waits = self.has_released(known.topic)
        messages = tuple(
            StoredMessage(each.number, each.encode())
            for each in self._of(known.topic)
            # ST-8: behind what waits only what was sent is of this session
            if not waits or (each.number < known.exposed_before and each.number not in self._released)
        )
        next_number = messages[-1].number + 1 if messages else known.exposed_before
        return PublisherState(next_number, known.exposed_before, known.session, messages)

    def _of(self, topic: str) -> list[Intent]:
        return [each for each in self._store.unconfirmed if each.topic == topic]

    def has_released(self, topic: str) -> bool:
        """Whether messages of a topic wait for subscriptions (ST-8)."""
        return bool(self._released) and any(each.number in self._released for each in self._of(topic))

    def send_released(self, topic: str) -> None:
        """ST-8: the session that released messages has ended; the topic's next publisher sends them again.

        In the transaction that is open.
        """
        known = self._by_topic[topic]
        numbers = [each.number for each in self._of(topic)]
        known.exposed_before, known.session = min([known.exposed_before, *numbers]), 0
        self._store.run(
            "UPDATE oncewire_store_publishers SET exposed_before = ?, session = 0 WHERE store = ? AND topic = ?",
            (known.exposed_before, self._store.name, topic),
        )
        self._store.run_many(
            "DELETE FROM oncewire_store_released WHERE store = ? AND number = ?",
            [(self._store.name, number) for number in numbers],
        )
        self._released.difference_update(numbers)

    def write(self, link: str, changes: PublisherChanges, kept: Set[int]) -> bool:
        """Write a publisher's changes in the transaction that is open: its messages are there already.

        Args:
            link: its name.
            changes: what it has recorded.
            kept: numbers of what was released and waits for subscriptions.

        Returns:
            Whether more of them may reach a socket when it has committed (P-1).
        """
        store = self._store.name
        known = self._by_link[link]
        again = [number for number, outcome in changes.decided if is_published_again(outcome)]
        released = [number for number, _ in changes.decided if number in kept]
        stays = {*again, *released}
        ended = [number for number, _ in changes.decided if number not in stays]
        self._store.run_many(
            "DELETE FROM oncewire_store_intents WHERE store = ? AND number BETWEEN ? AND ?",
            [(store, *ends) for ends in SequenceSet((number, number) for number in ended).ranges()],
        )
        self._store.run_many(  # P-2: the tag is used up
            "UPDATE oncewire_store_intents SET number = ? WHERE store = ? AND number = ?",
            [(self._store.new_number(), store, number) for number in again],
        )
        self._store.run_many(
            "INSERT INTO oncewire_store_released VALUES (?, ?)", [(store, number) for number in released]
        )
        self._released.update(released)
        if changes.doubted:
            self._store.run_many(  # they are sent again in a new session, also by the next owner
                "UPDATE oncewire_store_intents SET payload = ? WHERE store = ? AND number = ?",
                [
                    (mark_in_doubt(each.encode()), store, each.number)
                    for each in self._store.unconfirmed
                    if each.number in changes.doubted
                ],
            )
        self._store.run(
            "UPDATE oncewire_store_publishers SET exposed_before = ?, session = ? WHERE store = ? AND link = ?",
            (changes.exposed_before, changes.session, store, link),
        )
        is_exposing = changes.exposed_before > known.exposed_before
        known.exposed_before, known.session = changes.exposed_before, changes.session
        return is_exposing
