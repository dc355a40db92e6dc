"""The node `$management` of a router: links of clients, requests that wait, answers on their way.

A client attaches a sender to `$management`, and a receiver either with a dynamic source, whose address it then gives as
reply-to, or with the source `$management` and a target address of its own choice, which it gives as reply-to. No record
of a delivery is touched: requests are settled when they are read, answers are sent settled.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import deque
from dataclasses import dataclass

from oncewire.wire import (
    ACCEPTED,
    AmqpError,
    DecodeError,
    DeliveryReceived,
    LimitError,
    LinkFlow,
    LocalProtocolError,
    ReceiverLink,
    Rejected,
    SenderLink,
    SenderSettleMode,
    Source,
    Symbol,
    Target,
    decode_message,
)
from router.clients.link_refusal import LinkRefusal, refuse_filters
from router.clients.local_node import NodeClient, NodeLink
from router.operator.access import Access, AccessDenied, Caller
from router.operator.amqp_requests import Answering, Request, encode_answer, read_request
from router.process.logs import EventLog
from topology.inspector.schema.model import Role

ADDRESS = "$management"
REPLY_PREFIX = "$management/reply/"
MAX_LINKS = 8
"""Management links of one connection: a console has two."""
CREDIT = 16
"""Requests of one link that may be under way."""
MAX_WAITING = 64
"""Requests of all clients that wait; more are answered with 503."""
WORKERS = 4
"""Requests carried out at once: one may wait for etcd, and the others need not wait for it."""
MAX_ANSWERS = 32
"""Answers that wait for a client's credit; more are dropped, for nobody reads them."""
MAX_REQUEST_BYTES = 64 * 1024


class RequestLink(NodeLink):
    """A client's sender to `$management`."""

    __slots__ = ("_peer", "link")

    def __init__(self, peer: ManagementPeer, link: ReceiverLink) -> None:
        self._peer = peer
        self.link = link

    def on_delivery(self, event: DeliveryReceived) -> None:
        """A request has come: settle it, and have it answered."""
        link = self.link
        problem = None if event.aborted else self._take(event.payload)
        with contextlib.suppress(LocalProtocolError):  # detached in the same read
            if not event.settled and not event.aborted:
                state = ACCEPTED if problem is None else Rejected(AmqpError(Symbol(problem[0]), problem[1]))
                link.dispose([event.delivery_id], state, True)
            link.grant(CREDIT)

    def _take(self, payload: bytes) -> tuple[str, str] | None:
        try:
            message = decode_message(payload)
        except DecodeError as error:
            return "amqp:decode-error", str(error)
        reply_to = None if message.properties is None else message.properties.reply_to
        reply = self._peer.reply_links.get(reply_to or "")
        if reply is None:
            return "amqp:precondition-failed", f"reply-to {reply_to!r} is the address of no receiver of this connection"
        self._peer.node.submit(_Waiting(read_request(message), self._peer.caller(), reply))
        return None


class ReplyLink(NodeLink):
    """A client's receiver of answers."""

    __slots__ = ("_connection", "_count", "_waiting", "link")

    def __init__(self, connection: NodeClient, link: SenderLink) -> None:
        self.link = link
        self._connection = connection
        self._waiting: deque[bytes] = deque(maxlen=MAX_ANSWERS)
        self._count = 0

    def send(self, answer: bytes) -> None:
        """Send an answer as soon as the client gives credit."""
        self._waiting.append(answer)
        self._send_waiting()

    def on_flow(self, event: LinkFlow) -> None:
        """The client has given credit; what is here goes out, and drained credit is given back (2.6.7)."""
        self._send_waiting()
        if event.drain:
            with contextlib.suppress(LocalProtocolError):  # detached in the same read
                self.link.drained()

    def _send_waiting(self) -> None:
        with contextlib.suppress(LocalProtocolError):  # the client is gone
            while self._waiting and self.link.credit:
                self._count += 1
                self._send(self._waiting.popleft())
        self._connection.mark_dirty()

    def _send(self, answer: bytes) -> None:
        tag = b"%d" % self._count
        try:
            self.link.send(tag, answer, settled=True)
        except LimitError:
            text = "the answer is larger than this client takes; ask with a smaller count, or raise max-message-size"
            correlation = decode_message(answer).properties
            found = None if correlation is None else correlation.correlation_id
            self.link.send(tag, encode_answer(found, 413, text, {}), settled=True)


@dataclass(frozen=True, slots=True)
class _Waiting:
    request: Request
    caller: Caller
    reply: ReplyLink


class ManagementPeer:
    """The management links of one client connection."""

    def __init__(self, node: ManagementNode, connection: NodeClient) -> None:
        """It has none yet."""
        self.node = node
        self.reply_links: dict[str, ReplyLink] = {}
        """By the address that a request gives as reply-to."""
        self._connection = connection
        self._links: set[NodeLink] = set()

    def caller(self) -> Caller:
        """Who the client is, by the roles of now."""
        return self.node.access.caller_at(self._connection.peer_host, self._connection.user)

    @property
    def has_requests(self) -> bool:
        """Whether a sender of the client is attached: only then is a dynamic source one for answers."""
        return any(isinstance(shell, RequestLink) for shell in self._links)

    def open(self, link: ReceiverLink | SenderLink) -> None:
        """Answer an attach that is for the management node.

        Raises:
            LinkRefusal: the client may not, or has enough links.
        """
        if len(self._links) >= MAX_LINKS:
            raise LinkRefusal("amqp:resource-limit-exceeded", f"a connection may have {MAX_LINKS} management links")
        try:
            self.node.access.require(self.caller(), Role.VIEWER)
        except AccessDenied as denied:
            raise LinkRefusal("amqp:unauthorized-access", f"{denied}. {denied.fix}") from None
        shell: RequestLink | ReplyLink
        if isinstance(link, ReceiverLink):
            shell = RequestLink(self, link)
            link.reply(source=_source_of(link), target=Target(address=ADDRESS), max_message_size=MAX_REQUEST_BYTES)
            link.grant(CREDIT)
        else:
            shell = self._open_reply(link)
        link.context = shell
        self._links.add(shell)

    def _open_reply(self, link: SenderLink) -> ReplyLink:
        remote = link.remote_attach
        assert remote is not None
        asked = remote.source
        assert asked is not None
        target = remote.target
        refuse_filters(asked)
        if asked.dynamic:
            address = REPLY_PREFIX + secrets.token_hex(16)
            source = Source(address=address, dynamic=True, expiry_policy=Symbol("link-detach"))
        else:
            address = (target.address if isinstance(target, Target) else None) or ""
            if not address:
                raise LinkRefusal(
                    "amqp:invalid-field", "ask for a dynamic source, or give the target an address for reply-to"
                )
            source = Source(address=ADDRESS)
        if address in self.reply_links:
            raise LinkRefusal("amqp:not-allowed", f"another receiver of this connection has the address {address!r}")
        shell = self.reply_links[address] = ReplyLink(self._connection, link)
        link.reply(source=source, target=target, snd_settle_mode=SenderSettleMode.SETTLED)
        return shell

    def forget(self, shell: NodeLink) -> None:
        """A link is gone."""
        self._links.discard(shell)
        self.reply_links = {address: each for address, each in self.reply_links.items() if each is not shell}


class ManagementNode:
    """`$management` of one router process."""

    def __init__(self, answering: Answering, access: Access, log: EventLog) -> None:
        """Nothing is asked yet; `run` answers."""
        self.access = access
        self._log = log
        self._answering = answering
        self._waiting: asyncio.Queue[_Waiting] = asyncio.Queue(MAX_WAITING)

    def serves(self, link: ReceiverLink | SenderLink) -> bool:
        """Whether an attach is for the management node: of all nodes it alone offers dynamic sources."""
        remote = link.remote_attach
        if remote is None:
            return False
        if isinstance(link, ReceiverLink):
            return isinstance(remote.target, Target) and remote.target.address == ADDRESS
        source = remote.source
        return source is not None and (source.dynamic or source.address == ADDRESS)

    def peer(self, client: NodeClient) -> ManagementPeer:
        """The management links of a connection; there are none yet."""
        return ManagementPeer(self, client)

    async def run(self) -> None:
        """Answer requests until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for number in range(WORKERS):
                tasks.create_task(self._work(), name=f"management {number}")

    async def _work(self) -> None:
        while True:
            waiting = await self._waiting.get()
            try:
                answer = await self._answering.answer(waiting.request, waiting.caller)
            except Exception as error:  # noqa: BLE001  (a fault of ours ends one request, not the management)
                self._log.internal_error(error, "management")
                answer = encode_answer(waiting.request.correlation, 500, "internal error: see the router's log", {})
            waiting.reply.send(answer)

    def submit(self, waiting: _Waiting) -> None:
        """Have a request answered, if not too many wait already."""
        try:
            self._waiting.put_nowait(waiting)
        except asyncio.QueueFull:
            text = "too many requests wait; send the next one when this router has answered"
            waiting.reply.send(encode_answer(waiting.request.correlation, 503, text, {}))


def _source_of(link: ReceiverLink) -> Source | None:
    return None if link.remote_attach is None else link.remote_attach.source
