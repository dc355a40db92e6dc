"""Errors of the work queue. Each says what could not be done, why, and what to do about it."""

from __future__ import annotations


class QueueError(Exception):
    """Base of all errors of ``bridges.workqueue``. An operation that raises one has changed nothing.

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


class InvalidRequest(QueueError, ValueError):
    """An argument cannot be: the application's code or settings must change."""


class NoFurtherTime(InvalidRequest):
    """A schedule describes no time, or none any more."""


class UnknownQueue(QueueError, LookupError):
    """There is no queue of that name in the store."""


class UnknownEntry(QueueError, LookupError):
    """There is no such history entry or schedule, or none any more."""


class AlreadyReassigned(QueueError):
    """The handle is past: the item was settled, or another worker has reserved it since (W-5)."""


class LinkStolen(QueueError):
    """The AMQP link was attached again since: nothing is pushed for its earlier attach (W-18)."""


class PayloadTooLarge(QueueError, ValueError):
    """The payload or result is larger than the queue takes (``max_payload_bytes``)."""


class QueueEmpty(QueueError, TimeoutError):
    """No item became ready within the time that the caller waits."""


class PartMissing(QueueError, ImportError):
    """An optional package is not installed."""


class NeedsTransactions(QueueError, NotImplementedError):
    """The store changes one document at a time, and this would change several (W-1)."""


class StoreError(QueueError):
    """The store could not be opened, read or written. What was committed before stays as it is."""


class StoreFull(StoreError):
    """No space is left for the store."""


class StoreBusy(StoreError):
    """Another program keeps the store locked for longer than this one waits."""


class StoreCorrupt(StoreError):
    """The store is damaged or is something else."""


class StoreVersionUnknown(StoreError):
    """A newer version of Oncewire wrote the store."""


class StatementFailed(StoreError):
    """The database refused a statement, such as one of the application's own in a transaction."""


class StoreUnreachable(StoreError, ConnectionError):
    """The store cannot be reached or opened, or the connection broke."""


class TakenOver(QueueError):
    """Another process has taken over (W-23), or the subscription of this feed was ended: only that ends `run`."""
