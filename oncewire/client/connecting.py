"""`connect()`: makes a client of what a program states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from oncewire.client.defaults import CONNECT_S, IDLE_TIME_OUT_S, MAX_FRAME_SIZE, MAX_MESSAGE_SIZE

if TYPE_CHECKING:
    import ssl

    from oncewire.client.connection import Client
    from oncewire.client.events import ClientEvent
    from oncewire.client.journals import JournalSource
    from oncewire.client.login import TokenSource


def connect(
    urls: str | Sequence[str],
    *,
    container_id: str | None = None,
    journal: JournalSource | None = None,
    ssl_context: ssl.SSLContext | None = None,
    timeout: float = CONNECT_S,
    idle_time_out: float = IDLE_TIME_OUT_S,
    max_frame_size: int = MAX_FRAME_SIZE,
    max_message_size: int = MAX_MESSAGE_SIZE,
    allow_plain: bool = False,
    token: TokenSource | None = None,
    hostname: str | None = None,
    on_event: Callable[[ClientEvent], None] | None = None,
) -> Client:
    """Create a client. It connects when it is entered with ``async with``, or awaited.

    Args:
        urls: ``amqp://[USER:PASSWORD@]HOST[:PORT]`` of one router or several (``amqps`` for TLS; ``ws``, ``wss`` for a
            WebSocket). The client uses one at a time and changes to the next when it fails; routers may announce more.
        container_id: this program's identity in the network, one process at a time. With the links' names it makes
            subscriptions and sessions that the next process can resume. None = the one that `journal` keeps; without a
            journal it is random, and `Client.container_id` has it.
        journal: a path or a SqliteJournal: of all links with a name that are given no journal of their own. It keeps
            a container-id of its own, if none is given; its lock lets one process at a time have it.
        ssl_context: for ``amqps`` and ``wss``; None = Python's default.
        timeout: seconds to try before the first connection, or a link, counts as failed.
        idle_time_out: seconds of silence after which a router counts as unreachable.
        max_frame_size: bytes, 4,096 or more; bounds the unsettled maps (C-4).
        max_message_size: bytes of the largest message that subscribers take; routers reject a larger one for them.
        allow_plain: log in with SASL PLAIN also without TLS at a router on another machine, if it has no SCRAM.
            Everybody on the way can read the password. So it is with a token.
        token: returns the token (or an awaitable of it) to log in with instead of user and password; called before
            each connection. A router closes a connection whose token has expired: the links resume on the next one.
        hostname: the virtual host to open, such as ``vhost:sales``; None = the one of the user, or of the URL's host.
        on_event: called in the event loop with what happens to connection and links.

    Raises:
        UsageError: an address cannot be read, or has a user beside `token`; `max_frame_size` is too small, or
            `container_id` too long.
    """
    from oncewire.client.connection import Client  # here, because a program that does not connect needs none of it
    from oncewire.client.connector import ConnectOptions

    return Client(
        [urls] if isinstance(urls, str) else list(urls),
        container_id=container_id,
        journal=journal,
        timeout=timeout,
        options=ConnectOptions(
            ssl_context, idle_time_out, max_frame_size, allow_plain, token, hostname, max_message_size
        ),
        on_event=on_event,
    )
