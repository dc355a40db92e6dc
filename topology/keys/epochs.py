"""Epochs: the numbers that name attachments, made of etcd's revisions (A-2e).

Attaches that wait for etcd at the same time are written in one transaction, and all that it writes has one revision.
An epoch names one of them: it is the revision, and the *ordinal* of the key among those of its transaction, which the
value holds. The record core knows epochs only; what asks etcd knows revisions only.
"""

from __future__ import annotations

from typing import Final

ORDINAL_BITS: Final = 7
"""128 writes, as etcd takes in a transaction at most (`--max-txn-ops`). A session is an epoch and has 6 bytes in a tag:
2^41 revisions are left, 7,000 writes a second for ten years."""
MAX_ORDINAL: Final = (1 << ORDINAL_BITS) - 1


def epoch_of(revision: int, ordinal: int = 0) -> int:
    """The epoch of what was written at this revision, as this one of its transaction; 0: of an absent key."""
    return revision << ORDINAL_BITS | ordinal


def last_epoch_of(revision: int) -> int:
    """No later epoch belongs to this revision or an earlier one: how far a view is that has applied it."""
    return revision << ORDINAL_BITS | MAX_ORDINAL


def revision_of(epoch: int) -> int:
    """The revision that an epoch was written at; 0: there is no key."""
    return epoch >> ORDINAL_BITS
