"""Names that several processes ask for, shared out evenly: each is run by one of them, its owner (CO-10, CO-11).

A claim is a row for each process that asks. Who is to own what follows from the claims alone; what counts is the lease
and epoch of the owner (`owners.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from oncewire.store.errors import TakenOver
from oncewire.store.migrations import Feature
from oncewire.store.owners import OWNERS_NOTICE, Owner, lease_left, make_way, take_over
from oncewire.store.rules_core import to_s, to_us
from oncewire.store.sharing_core import shared_out
from oncewire.store.store import Transaction

CLAIMS: Final = Feature(
    "claims",
    (
        (
            # epoch: with which the member owns the name; 0 = it asks only. expires: until when it counts as there.
            """CREATE TABLE oncewire_claims (
                name TEXT NOT NULL, member TEXT NOT NULL, epoch BIGINT NOT NULL, expires BIGINT NOT NULL,
                PRIMARY KEY (name, member))""",
        ),
    ),
)
_PUT: Final = """
INSERT INTO oncewire_claims (name, member, epoch, expires) VALUES (?, ?, ?, ?)
ON CONFLICT (name, member) DO UPDATE SET epoch = excluded.epoch, expires = excluded.expires"""
_PURGE: Final = "DELETE FROM oncewire_claims WHERE expires <= ?"
_LEAVE: Final = "DELETE FROM oncewire_claims WHERE name = ? AND member = ?"
_ALL: Final = """
SELECT claims.name, claims.member, claims.expires, claims.epoch, owners.epoch, owners.lease
FROM oncewire_claims AS claims LEFT JOIN oncewire_owners AS owners ON owners.name = claims.name
WHERE claims.expires > ?"""


@dataclass(frozen=True, slots=True)
class Found:
    """What a member has found when it looked.

    Attributes:
        owned: what it owns, by name.
        wanted_elsewhere: what it owns and is to hand over to a member that owns less.
        seconds: until the next claim of another member ends, if nobody renews it; None: there is none.
    """

    owned: Mapping[str, Owner]
    wanted_elsewhere: frozenset[str]
    seconds: float | None


def look(do: Transaction, member: str, asked: Mapping[str, Owner | None], lease_s: float) -> Found:
    """Renew what a member owns and asks for, and take what is free and for it.

    Args:
        do: the transaction.
        member: names this process among all that use the store.
        asked: what it asks for, with what it owns.
        lease_s: seconds for which that counts without another look.
    """
    now = to_us(do.now)
    # W-26: who has stopped in a transaction holds nobody up; this one waits for no row that is locked.
    waits = {name: make_way(do, name) for name in sorted(asked)}
    owned = {name: owner for name, owner in sorted(asked.items()) if owner is not None and _is_renewed(do, owner)}
    expires = now + to_us(lease_s)
    asking: dict[str, set[str]] = {name: {member} for name in asked}
    owners = dict.fromkeys(owned, member)
    unknown = set(asked)
    others = []
    for name, other, until, epoch, newest, lease in do.execute(_ALL, (now,)):
        if other == member:
            unknown.discard(name)
            continue
        asking.setdefault(name, set()).add(other)
        if epoch and epoch == newest and lease > now:
            owners[name] = other
        others.append(to_s(until) - do.now)
    if unknown:  # others look at once whether they own more
        do.touched.add(OWNERS_NOTICE)
    do.write_many(_PUT, [(name, member, owned[name].epoch if name in owned else 0, expires) for name in sorted(asked)])
    shared = shared_out(asking, owners)
    for name in sorted(asked):
        # The lease says whether it is free: nobody can take it before this transaction ends.
        if name in owners or shared[name] != member:
            continue
        if waits[name]:
            others.append(waits[name])
        elif lease_left(do, name) == 0:
            owned[name] = take_over(do, name, lease_s)
            do.write(_PUT, (name, member, owned[name].epoch, expires))
    do.write(_PURGE, (now,))
    return Found(owned, frozenset(name for name in owned if shared[name] != member), min(others, default=None))


def _is_renewed(do: Transaction, owner: Owner) -> bool:
    try:
        owner.renew(do)
    except TakenOver:
        return False
    return True


def leave(do: Transaction, member: str, name: str, owner: Owner | None) -> None:
    """Ask for a name no longer, and let others have it at once."""
    if owner is not None:
        owner.give_back(do)
    do.execute(_LEAVE, (name, member))
    do.touched.add(OWNERS_NOTICE)
