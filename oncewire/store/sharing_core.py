"""Who should own what, where several processes ask for the same: as even as can be, with as few moves as can be. Pure.

Each process computes it from the same rows, and takes or hands over what concerns it (CO-10).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set


def shared_out(asking: Mapping[str, Set[str]], owners: Mapping[str, str]) -> dict[str, str]:
    """Return who should own each name.

    Args:
        asking: the members that ask for each name, one or more; its owner is one of them.
        owners: of the names that have one.
    """
    shared = {name: member for name, member in owners.items() if member in asking.get(name, ())}
    loads = Counter(shared.values())
    for name in sorted(asking.keys() - shared.keys()):
        shared[name] = _least(asking[name], loads)
        loads[shared[name]] += 1
    while (move := _move(asking, shared, loads)) is not None:
        name, member = move
        loads[shared[name]] -= 1
        loads[member] += 1
        shared[name] = member
    return shared


def _least(members: Set[str], loads: Mapping[str, int]) -> str:
    """The member that owns fewest; the first of several."""
    return min(members, key=lambda member: (loads.get(member, 0), member))


def _move(
    asking: Mapping[str, Set[str]], shared: Mapping[str, str], loads: Mapping[str, int]
) -> tuple[str, str] | None:
    """What makes it more even; None: nothing. A difference of one stays, or it would go to and fro."""
    found, widest = None, 1
    for name in sorted(shared):
        member = _least(asking[name], loads)
        gap = loads.get(shared[name], 0) - loads.get(member, 0)
        if gap > widest:
            found, widest = (name, member), gap
    return found
