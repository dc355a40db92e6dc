"""Connections that are to be the only one of their container at this router (sole-connection-for-container, OASIS).

JMS clients ask for it: no two of them have the same client identifier. What the connection that is there has asked for
decides, and where it has asked for nothing, what the new one asks for. A router knows its own connections only; at two
routers the links of two such clients steal each other (A-8).
"""

from __future__ import annotations

from typing import Final, Protocol

from oncewire.wire import INVALID_FIELD, RESOURCE_LOCKED, Connection, Fields, Open, Symbol, UInt
from router.clients.link_policy import LinkPolicy

SOLE_CONNECTION: Final = Symbol("sole-connection-for-container")
ENFORCEMENT: Final = Symbol("sole-connection-enforcement-policy")
DETECTION: Final = Symbol("sole-connection-detection-policy")
CLOSE_EXISTING: Final = UInt(1)
"""Of the enforcement policy: the connection that is there gives way. Else the new one is refused."""
REFUSE: Final = UInt(0)
STRONG: Final = UInt(0)
"""Of the detection policy: connections that do not ask for it count, too."""
NOT_ESTABLISHED: Final = Symbol("amqp:connection-establishment-failed")
"""Property of an open behind which a close comes: the client need not wait for it to know."""
_TAKEN = "another connection of this container-id is open at this router: close it, or open with another one"
_REPLACED = "a new connection of this container takes the place of this one"

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

    __slots__ = ("_of", "_policies", "_refused")

    def __init__(self) -> None:
        """Nobody is connected."""
        self._of: dict[_Who, dict[SoleClient, None]] = {}
        """The open connections of each container."""
        self._policies: dict[SoleClient, UInt] = {}
        """Of those that asked to be the only one."""
        self._refused: set[SoleClient] = set()

    def before_open(self, client: SoleClient, remote: Open, own: Open) -> None:
        """A client has opened: decide whether it may, and say so in our open."""
        policy = _policy(remote)
        stated: Fields = {}
        if policy is not None:
            stated[DETECTION] = STRONG
        if policy == CLOSE_EXISTING:
            stated[ENFORCEMENT] = CLOSE_EXISTING
        if self._enforced(_who(client, remote), policy) == REFUSE:
            self._refused.add(client)
            stated[NOT_ESTABLISHED] = True
        if stated:
            own.properties = {**(own.properties or {}), **stated}

    def _enforced(self, who: _Who, policy: UInt | None) -> UInt | None:
        """What decides about a new connection with this policy; None = it disturbs nobody."""
        others = self._of.get(who)
        if not others:
            return None
        return next((self._policies[other] for other in others if other in self._policies), policy)

    def enter(self, client: SoleClient) -> Problem | None:
        """The connection is open; why it is closed again. Others that give way to it are closed."""
        remote = client.engine.remote_open
        assert remote is not None
        client.engine.before_open = None  # it refers to the client, which refers to the engine
        if client in self._refused:
            self._refused.discard(client)
            return str(INVALID_FIELD), _TAKEN, {str(INVALID_FIELD).removeprefix("amqp:"): Symbol("container-id")}
        who, policy = _who(client, remote), _policy(remote)
        if self._enforced(who, policy) == CLOSE_EXISTING:
            for other in list(self._of[who]):
                self.leave(other)
                other.close(str(RESOURCE_LOCKED), _REPLACED, {str(ENFORCEMENT).removesuffix("-policy"): True})
        if policy is not None:
            self._policies[client] = policy
        self._of.setdefault(who, {})[client] = None
        return None

    def leave(self, client: SoleClient) -> None:
        """A connection has ended."""
        self._refused.discard(client)
        self._policies.pop(client, None)
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


def _policy(remote: Open) -> UInt | None:
    """What this client wants done with a second connection; None = it does not ask to be the only one."""
    if SOLE_CONNECTION not in remote.desired_capabilities:
        return None
    return CLOSE_EXISTING if (remote.properties or {}).get(ENFORCEMENT) == CLOSE_EXISTING else REFUSE
