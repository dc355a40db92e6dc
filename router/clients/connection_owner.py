"""What a client's connection needs of those who have all connections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from oncewire.transport.turn import Backlog, Turn
from router.clients.attach_pace import AttachPace
from router.clients.client_quota import ClientQuota
from router.clients.link_refusal import LinkRefusal
from router.clients.local_node import LocalNode
from router.clients.session_window import SessionWindows, WindowLimits
from router.clients.sole_connection import SoleConnections
from router.process.logs import EventLog
from router.routed.links import RoutedLinks
from router.settings.config import RouterConfig

C_contra = TypeVar("C_contra", contravariant=True)
"""The connection, which names its owner: so this file does not import it."""


class ConnectionOwner(Protocol[C_contra]):
    """`ClientListener` is it."""

    config: RouterConfig
    log: EventLog
    turn: Turn
    unfinished: Backlog
    """Connections whose last read is not carried out yet."""
    node: LocalNode | None
    is_draining: bool
    """No client is taken any more, and who has no links is redirected (K-8a)."""

    current_config: Callable[[], RouterConfig]
    """Gives `config`: one function for all that ask later."""

    def window_limits(self) -> WindowLimits:
        """What bounds the bytes of a client's session (C-6)."""

    def add(self, connection: C_contra) -> None:
        """A client has connected."""

    def remove(self, connection: C_contra) -> None:
        """A client is disconnected."""

    def refusal(
        self, connection: C_contra, hostname: str
    ) -> tuple[str, str] | tuple[str, str, dict[str, object]] | None:
        """Condition, text and info where it is refused; None = it is admitted, and a service registered (R-1)."""

    def redirect(self, container_id: str) -> dict[str, object] | None:
        """The info of a redirect for this client (K-8a); None = there is no other router."""

    def attach_pace(self, connection: C_contra) -> AttachPace:
        """How often this connection may attach."""

    sole: SoleConnections
    """Who asked to be the only connection of its container."""
    routed: RoutedLinks | None
    """Links to services; None = no incarnation serves (R-1)."""

    def quota(self, connection: C_contra, windows: SessionWindows) -> ClientQuota:
        """How much the user of this connection may use."""

    def count_refusal(self, connection: C_contra, link_name: str, refusal: LinkRefusal) -> None:
        """An attach was refused before the record core was asked."""
