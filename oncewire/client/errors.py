"""Errors of the client. Each says what could not be done, why, and what to do about it."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from oncewire.client.outcomes import Outcome


class ClientError(Exception):
    """Base of all errors of ``oncewire.client``.

    Args:
        what: what could not be done.
        why: the cause, as far as it is known.
        fix: what the caller can do about it.
    """

    def __init__(self, what: str, why: str, fix: str) -> None:
        super().__init__(what, why, fix)
        self.what = what
        self.why = why
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.what}: {self.why}; {self.fix}"


class UsageError(ClientError, ValueError):
    """The application asked for something that cannot be: its own code or settings must change."""


class ConnectFailed(ClientError, ConnectionError):
    """No router could be reached within the time allowed. Attributes as in ClientError.

    Attributes:
        attempts: (address, cause) of the last try at each address.
    """

    def __init__(self, attempts: Sequence[tuple[str, str]], seconds: float) -> None:
        tried = "; ".join(f"{address}: {cause}" for address, cause in attempts) or "no attempt ended in time"
        super().__init__(
            f"no router could be reached within {seconds:g} s",
            tried,
            "check that a router runs at one of the addresses and that nothing blocks the way to it",
        )
        self.attempts = tuple(attempts)


class AuthenticationFailed(ClientError, ConnectionError):
    """A router refused user and password; trying again would not help."""


class ClientClosed(ClientError):
    """The client, publisher or subscriber was closed, or failed, while this was under way."""


class LinkRefused(ClientError):
    """A router refused the link for a reason that trying again does not change.

    Attributes:
        condition: the AMQP error condition, empty if the router gave none.
    """

    def __init__(self, what: str, why: str, fix: str, condition: str = "") -> None:
        super().__init__(what, why, fix)
        self.condition = condition


class LinkStolen(LinkRefused):
    """Another process uses the same container-id and link name and took the link away again and again."""


class MessageTooLarge(UsageError):
    """The message is larger than the router takes (``max_message_size``)."""


class StillOwed(ClientError, TimeoutError):  # the name the documentation uses; it is not a fault
    """``send(timeout=)``: not every subscription has accepted yet. The message stays in flight and is not lost.

    Attributes:
        subscriptions: the first subscriptions that owe an outcome, as container-id/link-name; empty when the router
            could not be asked.
        count: how many there are in all.
        sending: the message; ``await sending`` goes on waiting.
    """

    def __init__(
        self, subscriptions: Sequence[str], count: int, why: str, sending: Awaitable[Outcome]
    ) -> None:
        super().__init__(
            "the message has no outcome yet",
            why,
            "wait on (`await error.sending`), or see why those subscriptions are slow or away",
        )
        self.subscriptions = tuple(subscriptions)
        self.count = count
        self.sending = sending


class WindowFull(ClientError, TimeoutError):
    """``send(timeout=)``: the message was not taken, because messages before it fill the publisher's window."""

    def __init__(self, seconds: float, waiting: int) -> None:
        super().__init__(
            f"the message was not taken within {seconds:g} s",
            f"{waiting} messages without an outcome fill the window",
            "send it later; find out which subscriptions are slow or away",
        )


class NotAccepted(ClientError):
    """Messages ended otherwise than accepted.

    Attributes:
        outcomes: what they ended with, in order.
    """

    def __init__(self, outcomes: Sequence[Outcome]) -> None:
        first = outcomes[0]
        reason = ": ".join(part for part in (first.condition, first.description) if part)
        super().__init__(
            f"{len(outcomes)} message(s) were not accepted",
            f"the first is {first.kind.value}" + (f" ({reason})" if reason else ""),
            "decide by the outcome: correct it, send it again as a new message, or give it up",
        )
        self.outcomes = tuple(outcomes)


class JournalError(ClientError):
    """A journal could not be opened, read or written. What was committed before stays as it is."""


class JournalLocked(JournalError):
    """Another process uses this journal, or keeps its database locked."""


class JournalOwnerError(JournalError):
    """The journal belongs to another container-id, or two links of one client want the same part of it."""


class JournalFull(JournalError):
    """No space is left for the journal; the message or acceptance was not stored."""


class JournalCorrupt(JournalError):
    """The file is no SQLite database, is damaged, or was written by a newer version."""


class JournalUnusable(JournalError):
    """The file cannot be opened or written (permissions, read-only or failing disk)."""


class StoreError(ClientError):
    """A store could not be opened, read or written. What was committed before stays as it is."""


class StoreFenced(StoreError):
    """A later owner has opened the store: nothing of this one can commit any more. End; do not open it again."""


class StoreLocked(StoreError):
    """Another program keeps the database locked for longer than this one waits."""


class StoreFull(StoreError):
    """No space is left in the database, or more intents wait to be confirmed than a store keeps."""


class StoreCorrupt(StoreError):
    """The database is damaged, or another version of Oncewire wrote it."""


class StoreUnusable(StoreError):
    """The database cannot be reached, opened or written, or a transaction failed: open the store again."""
