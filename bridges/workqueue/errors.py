"""Errors of the work queue, beside those of its store."""

from __future__ import annotations

from oncewire.store.errors import EdgeError, InvalidRequest, UnknownName

QueueError = EdgeError
"""Base of all errors of ``bridges.workqueue``, those of its store included."""


class NoFurtherTime(InvalidRequest):
    """A schedule describes no time, or none any more."""


class UnknownQueue(UnknownName):
    """There is no queue of that name in the store."""


class UnknownEntry(QueueError, LookupError):
    """There is no such history entry or schedule, or none any more."""


class AlreadyReassigned(QueueError):
    """The handle is past: the item was settled, or another worker has reserved it since (W-5)."""


class QueueEmpty(QueueError, TimeoutError):
    """No item became ready within the time that the caller waits."""
