"""Which connections of a listener may stay while it is not known who they are from: a pure core.

Silent connections must not use up what others need. A newcomer over a limit takes the place of the oldest connection of
the address that has most; one that is younger than `PATIENCE_S` may be about to say who it is, and is left alone.
"""

from __future__ import annotations

import ipaddress
from collections import defaultdict
from dataclasses import dataclass

PATIENCE_S = 1.0
"""Within this time an honest client has sent its first bytes, also behind some hundred others: it is not replaced."""
ADDRESS_PART = 2
"""One address may have one in so many of the places: behind it may be a gateway with thousands of clients, or a
proxy, and all connect at once after a failover."""

IPV6_BITS = 64
"""Of an IPv6 address: the rest is the choice of whoever has the network (RFC 4291, 2.5.4)."""


@dataclass(slots=True)
class _Place:
    host: str
    since: float
    is_known: bool = False


class Admission:
    """The places of one listener.

    Connections have keys, which a connection that has ended gives back with `leave`. Keys to close are those to be
    closed by the caller; they have left already.
    """

    __slots__ = ("_by_host", "_keeps_known", "_places", "closed", "most", "refused", "time_s")

    def __init__(self, most: int, time_s: float, *, keeps_known: bool = False) -> None:
        """All places are free.

        Args:
            most: places.
            time_s: for a connection to say who it is, from its beginning.
            keeps_known: whether it has its place also afterwards; else others count it.
        """
        self.most = most
        self.time_s = time_s
        self.closed = 0
        """Connections that were closed: they said nothing in time, or gave their place to another one."""
        self.refused = 0
        """Newcomers for which there was no place."""
        self._keeps_known = keeps_known
        self._places: dict[int, _Place] = {}
        self._by_host: defaultdict[str, dict[int, None]] = defaultdict(dict)

    @property
    def count(self) -> int:
        """Connections that have places."""
        return len(self._places)

    @property
    def of_an_address(self) -> int:
        """Places that one address may have."""
        return max(1, self.most // ADDRESS_PART)

    def has(self, key: int) -> bool:
        """Whether this connection has a place."""
        return key in self._places

    def has_place(self, host: str) -> bool:
        """Whether there is a place for one more from `host`."""
        return self.count < self.most and len(self._by_host.get(host, ())) < self.of_an_address

    def arrive(self, key: int, host: str, now: float) -> int | None:
        """A connection from `host` begins: the key to close for it, which is its own where there is no place.

        Args:
            key: its name until it leaves.
            host: the address it comes from.
            now: seconds, monotonic.
        """
        if self.has_place(host):
            self._take(key, host, now)
            return None
        own = self._by_host.get(host, {})
        most = own if len(own) >= self.of_an_address else max(self._by_host.values(), key=len)
        gives_way = self._oldest(most, now)
        if gives_way is None:
            self.refused += 1
            return key
        self.closed += 1
        self.leave(gives_way)
        self._take(key, host, now)
        return gives_way

    def _take(self, key: int, host: str, now: float) -> None:
        self._places[key] = _Place(host, now)
        self._by_host[host][key] = None

    def _oldest(self, keys: dict[int, None], now: float) -> int | None:
        """Who of an address gives way: the first that has not said who it is, else the first of the others."""
        for is_known in (False, True):
            first = next((key for key in keys if self._places[key].is_known is is_known), None)
            if first is not None and now - self._places[first].since >= PATIENCE_S:
                return first
        return None

    def know(self, key: int) -> None:
        """It has said who it is."""
        if not self._keeps_known:
            self.leave(key)
        elif key in self._places:
            self._places[key].is_known = True

    def leave(self, key: int) -> None:
        """It has ended; harmless for one that has left."""
        place = self._places.pop(key, None)
        if place is not None:
            keys = self._by_host[place.host]
            del keys[key]
            if not keys:
                del self._by_host[place.host]

    def overdue(self, now: float) -> list[int]:
        """Keys to close: those that have not said in time who they are."""
        found: list[int] = []
        for key, place in self._places.items():  # the oldest first
            if now - place.since < self.time_s:
                break
            if not place.is_known:
                found.append(key)
        for key in found:
            self.leave(key)
        self.closed += len(found)
        return found


def group_of(host: str) -> str:
    """What counts as one address: of IPv6 the network of 64 bits, of which everybody has many addresses."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if address.version == 4:
        return host
    mapped = address.ipv4_mapped
    return str(mapped) if mapped is not None else str(ipaddress.ip_network((address, IPV6_BITS), strict=False))
