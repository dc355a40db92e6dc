"""Plain readers of a topic: committed messages, or all of them, as an async iterator."""

from __future__ import annotations

import asyncio
import secrets
import ssl
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from oncewire.client.errors import UsageError
from oncewire.client.isolation import Isolation
from oncewire.client.login import TokenSource
from oncewire.client.put_off import ended
from oncewire.client.transactions.feed import Feed
from oncewire.client.transactions.inputs import InputJournal
from oncewire.client.transactions.messages import ReceivedMessage
from oncewire.client.transactions.opening import StoreThread
from oncewire.client.transactions.receiving import Network, Receiving
from oncewire.client.transactions.sequencer import RING_MESSAGES
from oncewire.client.transactions.store import Store
from oncewire.store.opening import SQLITE_PREFIX

BATCH = 500
"""Positions that are read before the place in the input is stored."""
CRASHED_S = 60
"""How long the network keeps the subscription of a reader without a store that crashed: nobody can resume it."""


class Reader:
    """Reads topics. Made by ``read_committed`` and ``read_uncommitted``; use it with ``async with``, then iterate."""

    def __init__(
        self,
        network: Network,
        topics: Sequence[str],
        isolation: Isolation,
        store: str | None,
        name: str | None,
        timeout_s: int | None,
        ring_messages: int,
    ) -> None:
        if (store is None) is not (name is None):
            raise UsageError(
                "the reader cannot be made", "it has a store or a name, but not both", "give both, or neither"
            )
        self._network = network
        self._topics = topics
        self._isolation = isolation
        self._url = store
        self._name = name or f"reader-{secrets.token_hex(8)}"
        self._timeout_s = timeout_s if store is not None else CRASHED_S
        self._ring_messages = ring_messages
        self._thread = StoreThread()
        self._closing = AsyncExitStack()
        self._running: asyncio.Task[None] | None = None
        self._unread: deque[ReceivedMessage] = deque()

    async def __aenter__(self) -> Reader:
        """Open the store and subscribe: what is published from now on is read.

        Raises:
            UsageError: the address or the name cannot be used.
            StoreError: the store cannot be opened.
            ClientError: no router can be reached, or it refuses.
        """
        async with AsyncExitStack() as closing:
            closing.callback(self._thread.stop)
            url = self._url
            if url is None:
                folder = closing.enter_context(tempfile.TemporaryDirectory(prefix="oncewire-reader-"))
                url = f"{SQLITE_PREFIX}{Path(folder) / 'input.db'}"
            self._store: Store[Any] = await self._thread.open(url, self._name)
            closing.push_async_callback(self._thread.call, self._store.close)
            self._inputs, self._feed = await self._thread.call(self._prepare)
            self._receiving = Receiving(self._network, self._name, self._inputs, self._thread, self._backlog)
            closing.push_async_callback(self._leave)
            await self._receiving.open(self._topics, self._timeout_s, is_kept=self._url is not None)
            self._running = asyncio.ensure_future(self._receiving.run())
            self._running.add_done_callback(lambda _: self._receiving.wake())
            self._closing = closing.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave. With a store, the network keeps the subscription for the next process of this name."""
        async with self._closing:
            if self._running is not None:
                self._running.cancel()
                await ended(self._running)

    async def _leave(self) -> None:
        await self._receiving.close(unsubscribe=self._url is None)

    def _prepare(self) -> tuple[InputJournal, Feed]:
        inputs = InputJournal(self._store)
        return inputs, Feed(self._store, inputs, self._topics, self._isolation, self._ring_messages)

    def _backlog(self) -> int:
        return self._inputs.last_position - self._feed.position

    async def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """Yield messages, each once.

        With a store, what was yielded counts as read when the next batch is asked for: a reader that crashes gets the
        messages of its last batch again.

        Raises:
            StoreFenced: another process has opened the store under this name.
            ClientError: something failed for good. Open the reader again.
        """
        assert self._running is not None, "use `async with`"
        while True:
            while not self._unread and not self._feed.has_more:
                if self._running.done():
                    self._running.result()  # raises
                await self._receiving.changed()
            if not self._unread:  # else an iteration before was broken off
                await self._thread.call(self._read)
            while self._unread:
                yield self._unread.popleft()
            await self._thread.call(self._save)
            self._receiving.made_room()

    def _read(self) -> None:
        self._unread.extend(self._feed.messages(BATCH))

    def _save(self) -> None:
        with self._store.transaction(self._feed.sequencers):
            self._feed.trim()


def read_committed(
    routers: str | Sequence[str],
    *topics: str,
    store: str | None = None,
    name: str | None = None,
    timeout: int | None = None,
    ring_messages: int = RING_MESSAGES,
    ssl_context: ssl.SSLContext | None = None,
    token: TokenSource | None = None,
) -> Reader:
    """Read committed messages: each once, a transaction's when it commits, all together.

    Args:
        routers: addresses as for ``connect()``.
        topics: topics or patterns.
        store: where the place in the input survives this process; without it and `name` it ends with the process.
        name: of that place in the store.
        timeout: seconds the network keeps the subscription of a named reader; None = the longest it allows.
        ring_messages: pending messages in memory for each topic; what falls out is read from the journal again.
        ssl_context: for ``amqps``.
        token: as for ``connect()``.
    """
    network = Network(routers, ssl_context, token=token)
    return Reader(network, topics, Isolation.READ_COMMITTED, store, name, timeout, ring_messages)


def read_uncommitted(
    routers: str | Sequence[str],
    *topics: str,
    store: str | None = None,
    name: str | None = None,
    timeout: int | None = None,
    ssl_context: ssl.SSLContext | None = None,
    token: TokenSource | None = None,
) -> Reader:
    """Read all messages as they come, each once, also those that are rolled back. Arguments as ``read_committed``."""
    network = Network(routers, ssl_context, token=token)
    return Reader(network, topics, Isolation.READ_UNCOMMITTED, store, name, timeout, 0)
