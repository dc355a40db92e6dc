"""Which service a new link goes to (R-2), and whether an attach goes on (R-3)."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence

from router.routed.terms import MAX_HOPS, Way


def prefix_of(address: str | None, prefixes: Iterable[str]) -> str | None:
    """The longest prefix that an address begins with; None = it is no address of a service."""
    if address is None:
        return None
    return max((prefix for prefix in prefixes if address.startswith(prefix)), key=len, default=None)


def nearest(places: Iterable[int], distances: Mapping[int, int], name: str) -> int | None:
    """The router with the nearest service; of equally near ones the name chooses, so that links spread.

    Args:
        places: incarnations that have a service.
        distances: cost of the path to each router that can be reached.
        name: of the link.
    """
    reachable = sorted(rid for rid in places if rid in distances)
    if not reachable:
        return None
    lowest = min(distances[rid] for rid in reachable)
    found = [rid for rid in reachable if distances[rid] == lowest]
    return found[zlib.crc32(name.encode()) % len(found)]


def least_loaded(loads: Sequence[int]) -> int:
    """The place of the service connection with the fewest links; the first of them."""
    return min(range(len(loads)), key=loads.__getitem__)


def goes_on(way: Way) -> bool:
    """Whether an attach may be forwarded once more: paths that change at that moment may form a circle."""
    return way.hops < MAX_HOPS
