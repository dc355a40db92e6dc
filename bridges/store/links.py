"""Links of clients that send to an address of the store: what a link pushed is known until it settles (W-17, W-18).

Functions of a transaction, for any feature that stores what clients send.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bridges.store import statements as sql
from oncewire.store.errors import LimitReached, LinkStolen
from oncewire.store.rules_core import to_us
from oncewire.store.store import Transaction
from oncewire.store.transaction import chunks

LINK_EXPIRY_S = 86_400.0
"""A sender that was disconnected for a day has lost its unsettled map, or nobody waits for it (W-17)."""
MAX_LINKS = 100_000
"""Of one store: each attach under a new name is a row for a day (W-17), and names are the clients'."""
PURGED_LINKS = 16
"""Expired links that an attach deletes: more than it adds, so they never pile up."""


@dataclass(frozen=True, slots=True)
class LinkState:
    """An AMQP link that pushes, as the store knows it (W-17).

    Attributes:
        generation: of this attach; each has a higher one (W-18).
        known: the tags among those presented that were pushed.
        left: the tags that are kept and were not presented. Their sender has settled them, if this attach is its
            newest: its first delivery shows that, and they are forgotten with it.
    """

    generation: int
    known: frozenset[bytes]
    left: frozenset[bytes] = frozenset()


def resume_link(do: Transaction, link: str, tags: Sequence[bytes]) -> LinkState:
    """Begin a new generation of a link, and compare the tags that its attach presents with those that were pushed.

    Raises:
        LimitReached: the link is new, and there are too many.
    """
    now_us = to_us(do.now)
    for (gone,) in do.execute(sql.PURGE_LINKS, (now_us, PURGED_LINKS)):
        do.execute(sql.FORGET_TAGS_OF, (gone,))
    generation = int(do.execute(sql.RAISE_LINK, (link, now_us + to_us(LINK_EXPIRY_S)))[0][0])
    if generation == 1 and do.execute(sql.COUNT_LINKS, (MAX_LINKS + 1,))[0][0] > MAX_LINKS:
        raise LimitReached(
            "the link was refused",
            f"senders have attached under {MAX_LINKS} names within a day",
            "attach again under a name that the store knows, or later, or with rcv-settle-mode first",
        )
    wanted = set(tags)
    known = [bytes(tag) for (tag,) in do.execute(sql.LINK_TAGS, (link,))]
    # W-17: nothing is forgotten yet, for this may be a late attach that its sender has given up.
    return LinkState(generation, frozenset(wanted.intersection(known)), frozenset(known) - wanted)


def check_generation(do: Transaction, link: str, generation: int) -> None:
    """Refuse what an earlier attach of a link wants stored, and keep the newest one from expiring.

    Raises:
        LinkStolen: the link has a later generation (W-18).
    """
    rows = do.execute(sql.AMQP_LINK, (link,))
    if not rows or rows[0][0] != generation:
        raise LinkStolen(
            "the delivery was not stored",
            "its link was attached again since, or its time is over",
            "attach again and present the unsettled deliveries",
        )
    now_us = to_us(do.now)
    if rows[0][1] < now_us + to_us(LINK_EXPIRY_S) // 2:
        do.execute(sql.RENEW_LINK, (now_us + to_us(LINK_EXPIRY_S), link))


def find_deliveries(do: Transaction, link: str, tags: Sequence[bytes]) -> dict[bytes, int]:
    """Return what deliveries were stored as, of those that were."""
    found: dict[bytes, int] = {}
    for some in chunks(tags):
        statement = sql.DELIVERIES.replace("/*tags*/", ", ".join("?" * len(some)))
        found.update((bytes(tag), int(item)) for tag, item in do.execute(statement, (link, *some)))
    return found


def note_deliveries(do: Transaction, link: str, items: Mapping[bytes, int]) -> None:
    """Store what deliveries became, in the transaction that makes it so."""
    do.write_many(sql.NOTE_DELIVERY, [(link, tag, item) for tag, item in items.items()])


def settle_deliveries(do: Transaction, link: str, generation: int, tags: Sequence[bytes]) -> None:
    """Forget deliveries that their sender has settled; without effect for an earlier generation."""
    rows = do.execute(sql.AMQP_LINK, (link,))
    if rows and rows[0][0] == generation:
        do.write_many(sql.FORGET_DELIVERY, [(link, tag) for tag in tags])
