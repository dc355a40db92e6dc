"""Who runs what in a store: one process at a time, which renews its lease; a later one fences it off (W-23, W-26)."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Final

from oncewire.store.errors import TakenOver
from oncewire.store.rules_core import to_s, to_us
from oncewire.store.store import Transaction

OWNERS_NOTICE = " owners"
"""Announced like a queue (W-13): the owner before and whoever stands by look at once. No queue can have this name."""
LEASE_S = 15.0
"""An owner that has not renewed for so long counts as gone, unless it asks for another time. If it was only late, its
epoch fences it (W-23)."""
TAKEN_S = 0.2
"""Between two looks at a row that another transaction has."""
NOBODY = 0
"""The lease of what nobody runs."""
ENDED = -1
"""The lease of a feed whose subscription was ended."""


# W-23: whoever takes over raises the epoch; the container-id stays.
_TAKE_OVER: Final = """
INSERT INTO oncewire_owners (name, container, epoch, incarnation, lease) VALUES (?, ?, 1, 0, ?)
ON CONFLICT (name) DO UPDATE SET epoch = oncewire_owners.epoch + 1, lease = excluded.lease RETURNING container, epoch"""
_OWNER: Final = "SELECT epoch FROM oncewire_owners WHERE name = ? /*lock*/"
_LEASE: Final = "SELECT lease FROM oncewire_owners WHERE name = ? /*lock*/"
_SEEN_LEASE: Final = "SELECT lease FROM oncewire_owners WHERE name = ?"
_END_SILENT: Final = "/*end silent*/"
_PUT_LEASE: Final = "UPDATE oncewire_owners SET lease = ? WHERE name = ? AND epoch = ?"


@dataclass(frozen=True, slots=True)
class Owner:
    """The right to run one feed, or the publisher of a store's outbox, until another process takes over (W-23).

    Attributes:
        name: what is run.
        container: the container-id toward the network, the same for all who ever run it.
        epoch: higher than that of all before.
        lease_s: how long it counts as running this after each renewal.
    """

    name: str
    container: str
    epoch: int
    lease_s: float = LEASE_S

    def check(self, do: Transaction) -> None:
        """Refuse the transaction if another process has taken over (W-23).

        Raises:
            TakenOver: it has.
        """
        rows = do.execute(_OWNER, (self.name,))
        if not rows or rows[0][0] != self.epoch:
            raise TakenOver(
                f"{self.name} ends here", "another process has taken over", "leave it to that one; `run` stands by"
            )

    def renew(self, do: Transaction) -> None:
        """Hold the lease for longer (W-26).

        Raises:
            TakenOver: another process has taken over.
        """
        self.check(do)
        do.execute(_PUT_LEASE, (to_us(do.now + self.lease_s), self.name, self.epoch))

    def give_back(self, do: Transaction, lease: int = NOBODY) -> None:
        """Let those who stand by take over at once, or with ENDED end; without effect for an earlier owner."""
        do.execute(_PUT_LEASE, (lease, self.name, self.epoch))
        do.touched.add(OWNERS_NOTICE)


def take_over(do: Transaction, name: str, lease_s: float | None = None) -> Owner:
    """Become the one who runs this; the transactions of all others are refused from now on (W-23).

    Args:
        do: the transaction.
        name: what is run.
        lease_s: as of `Owner`; None = LEASE_S.
    """
    lease_s = LEASE_S if lease_s is None else lease_s
    # A container-id must be unique in the network, which may have several stores.
    new = (name, f"edge-{secrets.token_hex(8)}", to_us(do.now + lease_s))
    ((container, epoch),) = do.execute(_TAKE_OVER, new)
    do.touched.add(OWNERS_NOTICE)
    return Owner(name, container, epoch, lease_s)


def make_way(do: Transaction, name: str) -> float:
    """Seconds after which it is worth to look again: until an owner's lease has run out, and nobody has its row (W-26).

    An owner that was stopped, or cut off, in a transaction would keep its locks: that transaction is ended. This one
    waits for no lock.
    """
    ((lease,),) = do.execute(_SEEN_LEASE, (name,)) or [(NOBODY,)]
    is_taken = bool(do.execute(_END_SILENT, (name, to_us(do.now))))
    return max(TAKEN_S if is_taken else 0.0, to_s(lease) - do.now)


def lease_left(do: Transaction, name: str) -> float | None:
    """Seconds for which somebody counts as running this; None = its subscription was ended.

    Nobody else can take over before the transaction ends.
    """
    ((lease,),) = do.execute(_LEASE, (name,)) or [(NOBODY,)]
    return None if lease == ENDED else max(0.0, to_s(lease) - do.now)
