"""What serves ``journal://NAME`` at routers: readers, and senders that append (docs/journals.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bridges.journal import log
from bridges.journal.messages import PREFIX, journal_of, new_message
from bridges.journal.model import KeyOf, NewMessage
from bridges.journal.reader_link import ReaderLink
from bridges.store import links
from bridges.store.push_core import ToPush
from bridges.store.push_link import PushLink
from bridges.store.serving import AddressService, Kind, Served
from oncewire.client.service import ServiceLink
from oncewire.store.store import Transaction
from oncewire.wire import DeliveryReceived


class JournalTarget:
    """A journal that a client sends to (J-18).

    Args:
        name: of the journal.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._compact_by: KeyOf | None = None

    def check(self, do: Transaction) -> None:
        """See PushTarget."""
        self._compact_by = log.state(do, self._name).settings.compact_by

    def decode(self, event: DeliveryReceived) -> NewMessage:
        """See PushTarget."""
        return new_message(event.payload, event.message_format, self._compact_by)

    def push(self, do: Transaction, items: Sequence[ToPush], link: str | None, generation: int) -> list[Any]:
        """See PushTarget; what is new is appended as one."""
        if link is None:
            return list(log.append(do, self._name, [each.item for each in items]))
        links.check_generation(do, link, generation)
        known = links.find_deliveries(do, link, [each.tag for each in items])
        new = {each.tag: each.item for each in items if each.tag not in known}
        positions = dict(zip(new, log.append(do, self._name, list(new.values())), strict=True))
        links.note_deliveries(do, link, positions)
        known |= positions
        return [known[each.tag] for each in items]


def journal_link(service: AddressService, link: ServiceLink) -> Served:
    """The journal's end of a link that a client attached.

    Raises:
        InvalidRequest: the address names no journal, or the attach asks for what cannot be.
    """
    name = journal_of(link.address)
    if link.is_sending:
        return ReaderLink(service.start, service.store, link, name)
    return PushLink(service.start, service.store, link, JournalTarget(name))


ADDRESSES: dict[str, Kind] = {PREFIX: journal_link}
