"""What a journal holds and how it changes: the durable side of the two cores."""

from __future__ import annotations

from typing import NamedTuple

from oncewire.client.outcomes import Outcome


class StoredMessage(NamedTuple):
    """A message as the journal keeps it.

    `outcome` is set while the application has not been notified of an outcome other than accepted.
    """

    number: int
    payload: bytes
    in_doubt: bool = False
    outcome: Outcome | None = None


class PublisherState(NamedTuple):
    """What a publisher's journal holds.

    Attributes:
        next_number: number of the next message; never goes back while the journal lives (P-2).
        exposed_before: messages with smaller numbers may have reached a socket (P-1).
        session: the last session the router stated; 0 = none yet.
        messages: in order of their numbers.
    """

    next_number: int = 0
    exposed_before: int = 0
    session: int = 0
    messages: tuple[StoredMessage, ...] = ()


class PublisherChanges(NamedTuple):
    """One atomic change of the journal.

    Attributes:
        stored: new messages.
        next_number: see PublisherState.
        exposed_before: see PublisherState; goes back only when a session has expired.
        session: see PublisherState.
        decided: (number, outcome): an accepted message is deleted, any other outcome is kept with it until `forgotten`.
        forgotten: numbers whose outcome the application has got.
        doubted: numbers that will be sent again in a new session, marked in-doubt.
    """

    stored: tuple[StoredMessage, ...]
    next_number: int
    exposed_before: int
    session: int
    decided: tuple[tuple[int, Outcome], ...] = ()
    forgotten: tuple[int, ...] = ()
    doubted: tuple[int, ...] = ()


class MessageIdentity(NamedTuple):
    """Of a message with a message-id (D-3): its publisher's user, and a digest of the id with its type."""

    user: str
    digest: bytes


class DoneId(NamedTuple):
    """A message that a subscriber is done with, and whether it rejected it."""

    identity: MessageIdentity
    is_rejected: bool = False


class SubscriberState(NamedTuple):
    """What a subscriber's journal holds.

    Attributes:
        incarnation: of the subscription, as last stated by a router; 0 = none yet.
        entries: (network tag, outcome) of deliveries that are not settled, in order of arrival. Outcome None: arrived
            before one of its session that is done, and not done itself; the body is not kept (S-a).
        done_ids: of messages it is done with, the newest last (D-3).
    """

    incarnation: int = 0
    entries: tuple[tuple[bytes, Outcome | None], ...] = ()
    done_ids: tuple[DoneId, ...] = ()


class SubscriberChanges(NamedTuple):
    """One atomic change of the journal: `forgotten` is deleted, then `entries` written.

    An entry whose tag the journal holds gets its outcome and keeps its place; others are added in the order given.
    In the same way `forgotten_ids` are deleted, then `done_ids` added behind all others (D-3).
    """

    incarnation: int
    entries: tuple[tuple[bytes, Outcome | None], ...] = ()
    forgotten: tuple[bytes, ...] = ()
    done_ids: tuple[DoneId, ...] = ()
    forgotten_ids: tuple[MessageIdentity, ...] = ()
