"""Errors of the client. Each states what failed, why, and what to do about it."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from oncewire.client.outcomes import Outcome, counted, ending
from oncewire.errors import OncewireError


class ClientError(OncewireError):
    """Base of all errors of ``oncewire.client``."""


class UsageError(ClientError, ValueError):
    """The application used the client wrongly: change its code or settings."""


class BodyNotDecoded(ClientError, ValueError):
    """The codec of a subscriber, consumer or responder cannot read a message's body. Reject it, or read `body`."""


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
            "check that a router runs at one of the addresses and that the network reaches it",
        )
        self.attempts = tuple(attempts)


class AuthenticationFailed(ClientError, ConnectionError):
    """A router refused user and password; a retry would not help."""


class ClientClosed(ClientError):
    """The client, publisher or subscriber was closed, or failed, while this was in progress."""


class LinkRefused(ClientError):
    """A router refused the link for a permanent reason.

    Attributes:
        condition: the AMQP error condition, empty if the router gave none.
    """

    def __init__(self, what: str, why: str, fix: str, condition: str = "") -> None:
        super().__init__(what, why, fix)
        self.condition = condition


class LinkStolen(LinkRefused):
    """Another process uses the same container-id and link name and stole the link repeatedly."""


class MessageTooLarge(UsageError):
    """The message is larger than the router accepts (``max_message_size``)."""


class StillOwed(ClientError, TimeoutError):  # the name the documentation uses; it is not a fault
    """``send(timeout=)``: not every subscription has accepted yet. The message stays in flight and is not lost.

    Attributes:
        subscriptions: the first subscriptions with a pending outcome, as container-id/link-name; empty when the router
            could not be asked.
        count: total number of them.
        sending: the message; ``await sending`` continues to wait.
    """

    def __init__(self, subscriptions: Sequence[str], count: int, why: str, sending: Awaitable[Outcome]) -> None:
        super().__init__(
            "the message has no outcome yet",
            why,
            "keep waiting (`await error.sending`), or find out why those subscriptions are slow or disconnected"
            + (f"; {ending(subscriptions[0])}" if subscriptions else ""),
        )
        self.subscriptions = tuple(subscriptions)
        self.count = count
        self.sending = sending


class WindowFull(ClientError, TimeoutError):
    """``send(timeout=)``: the message was not taken, because earlier messages fill the publisher's window."""

    def __init__(self, seconds: float, waiting: int) -> None:
        super().__init__(
            f"the message was not taken within {seconds:g} s",
            f"{waiting} messages without an outcome fill the window",
            "send it later; find out which subscriptions are slow or disconnected",
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
            f"{counted(len(outcomes), 'message')} {'was' if len(outcomes) == 1 else 'were'} not accepted",
            f"the first is {first.kind.value}" + (f" ({reason})" if reason else ""),
            "decide by the outcome: correct it, send it again as a new message, or abandon it",
        )
        self.outcomes = tuple(outcomes)


class JournalError(ClientError):
    """A journal could not be opened, read or written. What was committed before stays as it is."""


class JournalLocked(JournalError):
    """Another process uses this journal, or keeps its database locked."""


class JournalOwnerError(JournalError):
    """The journal belongs to another container-id, or two links of one client want the same part of it."""


class JournalUnreachable(JournalError):
    """No edge serves journals now, or none can be reached; a later try may find one."""


class JournalFull(JournalError):
    """No space is left for the journal; the message or acceptance was not stored."""


class JournalCorrupt(JournalError):
    """The file is not a SQLite database, is damaged, or was written by a newer version."""


class JournalUnusable(JournalError):
    """The file cannot be opened or written (rights, a read-only or failing disk), or was closed before its client."""


class StoreError(ClientError):
    """A store could not be opened, read or written. What was committed before stays as it is."""


class StoreFenced(StoreError):
    """A later owner has opened the store: this one can no longer commit. Stop; do not open it again."""


class StoreLocked(StoreError):
    """Another program holds the database lock for longer than this one waits."""


class StoreFull(StoreError):
    """The database has no space left, or the limit of unconfirmed intents is reached."""


class StoreCorrupt(StoreError):
    """The database is damaged, or another version of Oncewire wrote it."""


class StoreUnusable(StoreError):
    """The database cannot be reached, opened or written, or a transaction failed: open the store again."""


class ProcessFailed(ClientError):
    """A consumer's function raised, repeatedly at the same place. Each of its transactions was rolled back.

    Attributes:
        error: what it raised last.
        positions: of the messages at which it did; empty if that cannot be known.
    """

    def __init__(self, what: str, why: str, fix: str, error: BaseException, positions: Sequence[int] = ()) -> None:
        super().__init__(what, why, fix)
        self.error = error
        self.positions = tuple(positions)
