"""Connections that are to be the only one of their container at this router (sole-connection-for-container, OASIS).

JMS clients ask for it: no two of them have the same client identifier. A router knows its own connections only; at two
routers the links of two such clients steal each other (A-8).
"""

from __future__ import annotations

from typing import Final, Protocol

from oncewire.wire import INVALID_FIELD, RESOURCE_LOCKED, Connection, Open, Symbol, UInt
from router.clients.link_policy import LinkPolicy

SOLE_CONNECTION: Final = Symbol("sole-connection-for-container")
ENFORCEMENT: Final = Symbol("sole-connection-enforcement-policy")
DETECTION: Final = Symbol("sole-connection-detection-policy")
CLOSE_EXISTING: Final = 1
"""Of the enforcement policy; else the new connection is refused."""
STRONG: Final = UInt(0)
"""Of the detection policy: connections that do not ask for it count, too."""
NOT_ESTABLISHED: Final = Symbol("amqp:connection-establishment-failed")
"""Property of an open behind which a close comes: the client need not wait for it to know."""
_TAKEN = "another connection of this container-id is open at this router: close it, or open with another one"
_REPLACED = "a new connection of this container has asked to be the only one"

Problem = tuple[str, str, dict[str, object]]
"""Condition, text and info of a close."""
_Who = tuple[str, str, str]
"""User, hostname and container-id."""


class SoleClient(Protocol):
    """A client's connection."""

    engine: Connection

    @property
    def policy(self) -> LinkPolicy:
        """Knows the user."""
        ...

    def close(self, condition: str, description: str, info: dict[str, object] | None = None) -> None:
        """Close the connection."""


class SoleConnections:
    """Those of one router."""

    __slots__ = ("_of", "_refused", "_sole")

    def __init__(self) -> None:
        """Nobody is connected."""
        self._of: dict[_Who, dict[SoleClient, None]] = {}
        """The open connections of each container."""
        self._sole: set[SoleClient] = set()
        """Those that asked to be the only one."""
        self._refused: set[SoleClient] = set()

    def before_open(self, client: SoleClient, remote: Open, own: Open) -> None:
        """A client has opened: decide whether it may, and say so in our open."""
        asks = SOLE_CONNECTION in remote.desired_capabilities
        others = self._of.get(_who(client, remote), {})
        closes = asks and (remote.properties or {}).get(ENFORCEMENT) == CLOSE_EXISTING
        if asks:
            own.offered_capabilities = (*own.offered_capabilities, SOLE_CONNECTION)
            own.properties = {**(own.properties or {}), DETECTION: STRONG}
        if others and not closes and (asks or not self._sole.isdisjoint(others)):
            self._refused.add(client)
            own.properties = {**(own.properties or {}), NOT_ESTABLISHED: True}

    def enter(self, client: SoleClient) -> Problem | None:
        """The connection is open; why it is closed again. Others that it asked to replace are closed."""
        remote = client.engine.remote_open
        assert remote is not None
        client.engine.before_open = None  # it refers to the client, which refers to the engine
        if client in self._refused:
            self._refused.discard(client)
            return str(INVALID_FIELD), _TAKEN, {str(INVALID_FIELD).removeprefix("amqp:"): Symbol("container-id")}
        of = self._of.setdefault(_who(client, remote), {})
        if SOLE_CONNECTION in remote.desired_capabilities:
            for other in list(of):
                self.leave(other)
                other.close(str(RESOURCE_LOCKED), _REPLACED, {str(ENFORCEMENT).removesuffix("-policy"): True})
            of = self._of.setdefault(_who(client, remote), {})
            self._sole.add(client)
        of[client] = None
        return None

    def leave(self, client: SoleClient) -> None:
        """A connection has ended."""
        self._refused.discard(client)
        self._sole.discard(client)
        remote = client.engine.remote_open
        if remote is None:
            return
        who = _who(client, remote)
        of = self._of.get(who)
        if of is not None:
            of.pop(client, None)
            if not of:
                del self._of[who]


def _who(client: SoleClient, remote: Open) -> _Who:
    return client.policy.user or "", remote.hostname or "", remote.container_id
