"""Errors of the store, and the base of those of its features. Each says what could not be done, why, and what to do."""

from __future__ import annotations

from oncewire.errors import OncewireError


class EdgeError(OncewireError):
    """Base of all errors of the store and of what stands on it. An operation that raises one has changed nothing."""


class InvalidRequest(EdgeError, ValueError):
    """An argument cannot be: the application's code or settings must change."""


class PayloadTooLarge(EdgeError, ValueError):
    """The payload or result is larger than the queue takes (``max_payload_bytes``), or the message than routers do."""


class LimitReached(EdgeError):
    """A client would make something grow beyond its limit; what it has stays."""


class PartMissing(EdgeError, ImportError):
    """An optional package is not installed."""


class NeedsTransactions(EdgeError, NotImplementedError):
    """The store changes one document at a time, and this would change several (W-1)."""


class StoreError(EdgeError):
    """The store could not be opened, read or written. What was committed before stays as it is."""


class StoreFull(StoreError):
    """No space is left for the store."""


class StoreBusy(StoreError):
    """Another program keeps the store locked for longer than this one waits."""


class StoreCorrupt(StoreError):
    """The store is damaged or is something else."""


class StoreVersionUnknown(StoreError):
    """Another version of Oncewire wrote the store: a newer one, or one whose tables are not read any more."""


class StatementFailed(StoreError):
    """The database refused a statement, such as one of the application's own in a transaction."""


def refused_statement(message: str, database: str, fix: str) -> StatementFailed:
    """The database refuses a statement, often one of the application's own: its message is what could not be done."""
    return StatementFailed(message, f"{database} refuses the statement; the transaction has changed nothing", fix)


class StoreUnreachable(StoreError, ConnectionError):
    """The store cannot be reached or opened, or the connection broke."""


def closed_store() -> StoreUnreachable:
    """Another part of the program has closed the store."""
    return StoreUnreachable("the store cannot be used", "it was closed", "open it again")


class TakenOver(EdgeError):
    """Another process has taken over (W-23), or the subscription of this feed was ended: only that ends `run`."""


class SubscriptionEnded(TakenOver):
    """The subscription was ended for good, by whoever ran it: nobody is to run it again."""


class UnknownName(EdgeError, LookupError):
    """There is no queue or journal of that name in the store."""


class LinkStolen(EdgeError):
    """The AMQP link was attached again since: nothing is stored for its earlier attach (W-18)."""
