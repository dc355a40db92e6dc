"""Nodes of the router itself, such as `$management`: their links carry no delivery of the network.

The record core never hears of these links. Whatever serves such a node implements `LocalNode`; a connection knows no
more of it.
"""

from __future__ import annotations

from typing import Protocol

from oncewire.wire import DeliveryReceived, LinkFlow, LinkState, ReceiverLink, SenderLink


class NodeLink:
    """The shell of one link between a client and a local node."""

    __slots__ = ()

    def on_delivery(self, event: DeliveryReceived) -> None:
        """The client has sent a message; it can do so only where it is the sender."""

    def on_flow(self, event: LinkFlow) -> None:
        """The client has given credit; a client that sends says nothing the node needs."""


class NodeClient(Protocol):
    """A client's connection, as a local node needs it."""

    peer_host: str

    @property
    def user(self) -> str | None:
        """Who has logged in; None without a login."""
        ...

    def mark_dirty(self) -> None:
        """Write at the end of this turn."""


class NodePeer(Protocol):
    """A local node's side of one client connection."""

    @property
    def has_requests(self) -> bool:
        """Whether the client has a sender to the node: only then is a dynamic source one for answers."""
        ...

    def open(self, link: ReceiverLink | SenderLink) -> None:
        """Answer an attach that is for the node.

        Raises:
            LinkRefusal: the client may not attach.
        """

    def forget(self, shell: NodeLink) -> None:
        """A link is detached."""


class LocalNode(Protocol):
    """A node of the router itself."""

    def serves(self, link: ReceiverLink | SenderLink) -> bool:
        """Whether an attach is for this node."""
        ...

    def peer(self, client: NodeClient) -> NodePeer:
        """The node's side of a connection that has no links to it yet."""
        ...


class NodeLinks:
    """The links of one connection to the local node."""

    __slots__ = ("_client", "_dynamic", "_node", "_peer")

    def __init__(self, node: LocalNode | None, client: NodeClient) -> None:
        """There are none yet; without a node there never are."""
        self._node = node
        self._client = client
        self._peer: NodePeer | None = None
        self._dynamic: list[ReceiverLink | SenderLink] = []

    def serves(self, link: ReceiverLink | SenderLink) -> bool:
        """Whether an attach is for the node."""
        return self._node is not None and self._node.serves(link)

    def postpones(self, link: ReceiverLink | SenderLink) -> bool:
        """Whether the attach has a dynamic source: it is answered behind the rest of the read, by `take_postponed`.

        The sender that says what the source is for may come in the same read.
        """
        if not is_dynamic(link):
            return False
        self._dynamic.append(link)
        return True

    def takes(self, link: ReceiverLink | SenderLink) -> bool:
        """Whether an attach that was postponed is for the node; else its source is an address for the network (X-2)."""
        return not is_dynamic(link) or (self._peer is not None and self._peer.has_requests)

    def take_postponed(self) -> list[ReceiverLink | SenderLink]:
        """Attaches to open now that everything of the read was looked at."""
        if not self._dynamic:
            return self._dynamic
        dynamic, self._dynamic = self._dynamic, []
        return [link for link in dynamic if link.local_attach is None and link.state is LinkState.ATTACH_RECEIVED]

    def open(self, link: ReceiverLink | SenderLink) -> None:
        """Answer an attach.

        Raises:
            LinkRefusal: the client may not attach.
        """
        if self._peer is None:
            assert self._node is not None
            self._peer = self._node.peer(self._client)
        self._peer.open(link)

    def forget(self, shell: NodeLink) -> None:
        """A link is detached."""
        if self._peer is not None:
            self._peer.forget(shell)


def is_dynamic(link: ReceiverLink | SenderLink) -> bool:
    """Whether a client asks for a source with an address of the router's making."""
    remote = link.remote_attach
    return isinstance(link, SenderLink) and remote is not None and remote.source is not None and remote.source.dynamic
