"""Which router to try next, when, and what an ended link means. No sockets and no clock here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from oncewire.client.errors import UsageError
from oncewire.wire import Fields
from oncewire.wire.vocabulary import HOSTNAME, NETWORK_HOST, PORT, SAME_EVERYWHERE, SCHEME

AMQP_PORT = 5672
AMQPS_PORT = 5671
_PORTS = {"amqp": AMQP_PORT, "amqps": AMQPS_PORT, "ws": 80, "wss": 443}
_SCHEMES = (("amqp", "amqps"), ("ws", "wss"))
"""Without a WebSocket and with one; without TLS and with it."""
WEBSOCKET_PATH = "/amqp"
"""Where routers have theirs: the path of a URL that names none."""
BACK_OFF_FIRST_S = 0.1
"""Longest wait before the first round of tries: 10,000 clients of a crashed router must not arrive at once."""
BACK_OFF_CAP_S = 5.0
"""Longest wait: a router that is reachable again is found within it."""
MAX_ADDRESSES = 64
"""Addresses remembered: those given, and those that routers announced."""
REDIRECTS_AT_ONCE = 3
"""Redirects in a row that are followed without a pause: routers that send clients to each other must not make them
spin."""
STEALS_ALLOWED = 3
"""Times a link may be stolen within STEAL_WINDOW_S. A late attach of our own lost connection can do it once; more
often means that another process uses the same identity, and two of them would steal from each other for ever."""
STEAL_WINDOW_S = 60.0


class Address(NamedTuple):
    """One router: where, as whom, and through what. Its text form never holds the password.

    Attributes:
        tls: whether through TLS.
        path: of the WebSocket that carries AMQP; None = there is none.
    """

    host: str
    port: int
    user: str | None = None
    password: str | None = None
    tls: bool = False
    path: str | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path or ''}"

    def __repr__(self) -> str:
        return f"<{self}>"

    @property
    def scheme(self) -> str:
        """Of its URL."""
        return _SCHEMES[self.path is not None][self.tls]


def parse_url(url: str) -> Address:
    """Read ``amqp://[USER:PASSWORD@]HOST[:PORT]`` (``amqps`` = TLS), or ``ws://...[/PATH]`` (``wss``) for a WebSocket.

    Raises:
        UsageError: it is something else.
    """
    what = f"{_without_password(url)!r} is no address of a router"
    fix = "write amqp://HOST:PORT or amqp://USER:PASSWORD@HOST:PORT (amqps:// for TLS, wss:// for a WebSocket)"
    try:
        parts = urlsplit(url if "://" in url else f"amqp://{url}")
        port = parts.port
    except ValueError as error:
        # The error holds what it took for the port: a part of a password that has a slash.
        why = str(error) if "@" not in url else "user and password must be percent-encoded, and the port a number"
        raise UsageError(what, why, fix) from None
    if parts.scheme not in _PORTS:
        raise UsageError(what, f"its scheme is {parts.scheme!r}", fix)
    if not parts.hostname:
        raise UsageError(what, "it names no host", fix)
    is_websocket = parts.scheme in _SCHEMES[True]
    if (parts.path.strip("/") and not is_websocket) or parts.query or parts.fragment:
        raise UsageError(what, f"something follows the {'path' if is_websocket else 'port'}", fix)
    if is_websocket and not _has_websocket():
        why = "AMQP over WebSocket needs aiohttp, which is not installed"
        raise UsageError(f"{_without_password(url)!r} cannot be used", why, 'pip install "oncewire[websocket]"')
    if (parts.username is None) != (parts.password is None):
        raise UsageError(what, "a user without a password, or the other way round", fix)
    return Address(
        parts.hostname,
        port or _PORTS[parts.scheme],
        None if parts.username is None else unquote(parts.username),
        None if parts.password is None else unquote(parts.password),
        parts.scheme in {"amqps", "wss"},
        (parts.path or WEBSOCKET_PATH) if is_websocket else None,
    )


def _has_websocket() -> bool:
    from importlib.util import find_spec  # here, because few clients need it

    return find_spec("aiohttp") is not None


def _without_password(url: str) -> str:
    head, at, tail = url.rpartition("@")
    return f"...@{tail}" if at and head else url


class Failover:
    """The list of routers as a ring, with full-jitter back-off.

    Args:
        urls: the addresses given, tried in this order first.
        uniform: a source of chance: ``uniform(low, high)``.

    Raises:
        UsageError: no address, or one that cannot be read.
    """

    def __init__(self, urls: Sequence[str], uniform: Callable[[float, float], float]) -> None:
        self._addresses = list(dict.fromkeys(parse_url(url) for url in urls))
        if not self._addresses:
            raise UsageError("no router is named", "the list of addresses is empty", "give at least one address")
        self._uniform = uniform
        self._given = len(self._addresses)
        self._next = 0
        self._failures = 0
        self._redirects = 0
        self._is_reported = False
        """The next address is the one of a redirect."""
        self._causes: dict[Address, str] = {}

    @property
    def addresses(self) -> tuple[Address, ...]:
        """All addresses known, in the order they are tried."""
        return tuple(self._addresses)

    @property
    def attempts(self) -> list[tuple[str, str]]:
        """(address, cause) of the last failure at each address."""
        return [(str(address), cause) for address, cause in self._causes.items()]

    def next_try(self, *, first: bool = False) -> tuple[Address, float]:
        """The address to try now and the seconds to wait before.

        The wait is random each time, from 0 to a bound that doubles with each round through the addresses.
        """
        address = self._addresses[self._next % len(self._addresses)]
        self._next = (self._next + 1) % len(self._addresses)
        is_reported, self._is_reported = self._is_reported, False
        if (first and self._failures == 0) or (is_reported and self._redirects <= REDIRECTS_AT_ONCE):
            return address, 0.0
        rounds = min(self._failures // len(self._addresses), 16)
        return address, self._uniform(0.0, min(BACK_OFF_CAP_S, BACK_OFF_FIRST_S * 2**rounds))

    def failed(self, address: Address, cause: str) -> None:
        """The connection to this address could not be made, or did no good."""
        self._failures += 1
        self._causes[address] = cause

    def succeeded(self) -> None:
        """A link works: the next loss starts with short waits again."""
        self._failures = 0
        self._redirects = 0
        self._causes.clear()

    def prefer(self, address: Address) -> None:
        """Try this address next, and without a pause (a redirect)."""
        if address not in self._addresses:
            del self._addresses[max(self._given, MAX_ADDRESSES - 1) :]  # a router that lives is worth more
            self._addresses.append(address)
        self._next = self._addresses.index(address)
        self._redirects += 1
        self._is_reported = True

    def learn(self, addresses: Iterable[Address]) -> None:
        """Remember the addresses a router announced (``failover-server-list``) beside those that were given.

        They replace those announced before, which may be of stopped routers.
        """
        following = self._addresses[self._next % len(self._addresses)]
        given = self._addresses[: self._given]
        room = max(0, MAX_ADDRESSES - self._given)
        reported = [address for address in dict.fromkeys(addresses) if address not in given][:room]
        self._addresses = given + reported
        self._next = self._addresses.index(following) if following in self._addresses else self._given


def reported_address(info: Mapping[Any, object], base: Address) -> Address | None:
    """The address in the info map of a redirect or an entry of ``failover-server-list``; None if there is none.

    User and password stay those of `base`, and the scheme where none is named. A change from TLS to plain text is not
    followed, nor one to a WebSocket or from it: what reaches one may not reach the other. An address without a scheme
    is no WebSocket.
    """
    host = info.get(NETWORK_HOST) or info.get(HOSTNAME)
    port = info.get(PORT, base.port)
    plain, secured = _SCHEMES[base.path is not None]
    scheme = info.get(SCHEME, base.scheme if base.path is None else None)
    if not isinstance(host, str) or not host or isinstance(port, bool) or not isinstance(port, int):
        return None
    if not 0 < port < 1 << 16 or scheme not in {plain, secured} or (base.tls and scheme == plain):
        return None
    return base._replace(host=host, port=int(port), tls=scheme == secured)


class LinkEnd(Enum):
    """What the client does after a detach."""

    AGAIN = "again"
    """Attach again after a pause."""
    EXPIRED = "expired"
    """The publisher's session has expired (A-5)."""
    DELETED = "deleted"
    """The subscription was deleted (E-7): the next attach creates a new one."""
    STOLEN = "stolen"
    """Another attach of the same identity took it."""
    ELSEWHERE = "elsewhere"
    """This router cannot serve it: try another one."""
    REFUSED = "refused"
    """Trying again changes nothing: the application must know."""


_LINK_ENDS: dict[str, LinkEnd] = {
    "": LinkEnd.AGAIN,
    "oncewire:session-expired": LinkEnd.EXPIRED,
    "amqp:resource-deleted": LinkEnd.DELETED,
    "amqp:link:stolen": LinkEnd.STOLEN,
    "amqp:link:detach-forced": LinkEnd.AGAIN,
    "amqp:link:redirect": LinkEnd.ELSEWHERE,
    "amqp:connection:forced": LinkEnd.ELSEWHERE,
    "amqp:resource-limit-exceeded": LinkEnd.ELSEWHERE,
    "amqp:internal-error": LinkEnd.ELSEWHERE,
    "amqp:resource-locked": LinkEnd.AGAIN,
    "amqp:illegal-state": LinkEnd.AGAIN,
    "amqp:link:transfer-limit-exceeded": LinkEnd.AGAIN,
}


def end_of(condition: str, info: Fields | None = None) -> LinkEnd:
    """What a detach with this condition (empty: none) and info means; conditions not listed are refusals."""
    if info is not None and info.get(SAME_EVERYWHERE) is True:
        return LinkEnd.AGAIN  # elsewhere the client's other links would be refused, too
    return _LINK_ENDS.get(condition, LinkEnd.REFUSED)


class Steals:
    """Counts how often a link was stolen, to stop fighting for it."""

    def __init__(self) -> None:
        self._times: list[float] = []

    def is_too_many(self, now: float) -> bool:
        """Count a steal; True when another process evidently uses the identity."""
        self._times = [time for time in self._times if now - time < STEAL_WINDOW_S]
        self._times.append(now)
        return len(self._times) >= STEALS_ALLOWED
