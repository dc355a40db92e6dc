"""A reader of a journal as applications see it: a subscriber whose messages an edge keeps (J-19 to J-24)."""

from __future__ import annotations

from oncewire.client.errors import LinkRefused
from oncewire.client.journal_writer import JournalWriter
from oncewire.client.link import LinkOwner
from oncewire.client.receiving_link import GONE
from oncewire.client.source_terms import JOURNAL, SourceTerms
from oncewire.client.subscriber import Subscriber
from oncewire.client.subscriber_core import SubscriberCore
from oncewire.wire import RESOURCE_DELETED, AmqpError, AmqpSession, DeliveryReceived, ReceiverLink, Source, vocabulary
from oncewire.wire.journal_tags import journal_position

FIX = 'check the name of the journal and the start; "first" is the oldest message that is kept'


class JournalReader(Subscriber):
    """Made by ``Client.journal()``.

    One that is settled has no cursor and keeps its position itself: each further attach starts behind the newest
    message that is here, or before the first one at the position that the first reply named (J-20).
    """

    _gone = frozenset({RESOURCE_DELETED})  # not found is the edge, and the cursor is where it was

    def __init__(
        self,
        client: LinkOwner,
        name: str,
        source: str,
        journal: JournalWriter,
        core: SubscriberCore,
        terms: SourceTerms,
        *,
        is_named: bool,
    ) -> None:
        super().__init__(client, name, JOURNAL + source, journal, core, terms, is_named=is_named)
        self._source = source
        self._keeps_position = terms.settled
        self._newest = b""

    async def close(self) -> None:
        """As of a subscriber. Where no edge is there to end the cursor of one without a name, it ends by itself."""
        self._gone = GONE
        await super().close()

    def _source_to_close(self) -> Source:
        """The journal: a source of null leads to no edge. What this may make is closed at once."""
        return self._terms.source(self.topic)

    @property
    def next_position(self) -> int:
        """Of a settled reader that is attached: the position of the message that comes next (J-20)."""
        newest = journal_position(self._newest)
        if newest is not None:
            return newest + 1
        assert isinstance(self._terms.start, int), "the answer names the start"
        return self._terms.start

    def _attach(self, session: AmqpSession) -> ReceiverLink | None:
        newest = journal_position(self._newest)
        if self._keeps_position and newest is not None:
            self._terms = self._terms.at(newest + 1)
        return super()._attach(session)

    def _attached(self) -> None:
        remote = None if self._wire is None else self._wire.remote_attach
        if self._keeps_position and remote is not None:
            known = self._core.incarnation
            if known and known != vocabulary.number_in(remote.properties, vocabulary.INCARNATION):
                self._fail(self._refusal(RESOURCE_DELETED, "it was deleted and made again: positions begin anew"))
                return
            self._terms = self._terms.at_place_of(remote.source)
        super()._attached()

    def _on_delivery(self, event: DeliveryReceived) -> None:
        """A message of the journal."""
        super()._on_delivery(event)
        if not event.aborted:
            self._newest = event.tag

    def _after_detach(self, error: AmqpError | None, condition: str, description: str) -> None:
        if condition == RESOURCE_DELETED:  # J-27: a journal that is made again is another one
            self._fail(self._refusal(condition, description))
        else:
            super()._after_detach(error, condition, description)

    def _refusal(self, condition: str, description: str) -> LinkRefused:
        return LinkRefused(
            f"journal {self._source!r} cannot be read",
            f"{self.client._router_name} reports {condition}: {description or 'no reason given'}",
            FIX,
            condition,
        )
