"""Errors of the bridge node. Each states what failed, why, and what to do; each has a code for the wire."""

from __future__ import annotations

from bridges.doors.errors import BadRequest as BadRequest  # noqa: PLC0414  # the node raises it, too
from bridges.doors.errors import BridgeError

NodeError = BridgeError
"""Base of all errors of ``bridges.node``, those of its doors included."""


class StorageError(NodeError, OSError):
    """A file of the node cannot be opened, read or written."""

    code = "storage"


class JournalReplaced(NodeError):
    """The journal is another one than the offsets were taken from: positions mean something else there."""

    code = "journal-replaced"


class RangeTrimmed(NodeError):
    """The range begins before the oldest message that is kept."""

    code = "range-trimmed"


class RangeNotThere(NodeError):
    """The range ends behind the newest message: the journal is older than the offsets (a restored copy?)."""

    code = "range-not-there"


class RangeHole(NodeError):
    """Positions are missing inside the range: the journal is damaged."""

    code = "range-hole"


class SubscriptionGap(NodeError):
    """Messages are missing inside the range: the network had deleted the subscription, and made a new one."""

    code = "subscription-gap"


class SubscriptionEnded(NodeError):
    """The node does not receive the subscription any more: an operator, or its retention, has ended it."""

    code = "subscription-ended"


class OwnedByAnother(NodeError):
    """Another query reads this subscription, or writes to this sink."""

    code = "owned-by-another"


class Fenced(NodeError):
    """A newer run of the same query has taken over."""

    code = "fenced"


class BatchForgotten(NodeError):
    """The batch is older than the newest one that was decided, and its own decision is not kept any more."""

    code = "batch-forgotten"


class SnapshotUnknown(NodeError):
    """A processor's attempt begins where none can begin: its checkpoint and the node do not belong together."""

    code = "snapshot-unknown"


class PartMissing(NodeError):
    """A part of a batch was not staged, or its size differs from the commit."""

    code = "part-missing"


class OutboxFull(NodeError):
    """Too much is waiting to be published; it continues when subscribers have accepted some of it."""

    code = "outbox-full"
    is_temporary = True


class TooLarge(NodeError):
    """A request is over one of the node's limits."""

    code = "too-large"


class NotAuthenticated(NodeError):
    """The two ends do not share a secret."""

    code = "not-authenticated"


class NodeUnavailable(NodeError, ConnectionError):
    """The bridge node cannot be reached, or the connection broke."""

    code = "unavailable"
    is_temporary = True


class InternalError(NodeError):
    """A fault of the node itself; its log has more."""

    code = "internal"


_BY_CODE: dict[str, type[NodeError]] = {
    kind.code: kind
    for kind in (
        BadRequest,
        StorageError,
        JournalReplaced,
        RangeTrimmed,
        RangeNotThere,
        RangeHole,
        SubscriptionGap,
        SubscriptionEnded,
        OwnedByAnother,
        Fenced,
        BatchForgotten,
        SnapshotUnknown,
        PartMissing,
        OutboxFull,
        TooLarge,
        NotAuthenticated,
        NodeUnavailable,
        InternalError,
    )
}


def error_of(code: str, what: str, why: str, fix: str) -> NodeError:
    """The error that a server described; a code that is not known gives the base class."""
    return _BY_CODE.get(code, NodeError)(what, why, fix)
