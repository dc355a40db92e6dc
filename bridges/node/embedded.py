"""A node inside the process that uses it: the same files and classes, without a server. For one machine.

Several processes may be embedded nodes of one folder (Spark has one for the source, one for each task and one for each
commit): files are shared, and each part of the work is done by the process that is asked for it first.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from bridges.node.arrow_bodies import count_topics, range_batch
from bridges.node.interface import Commit, Node, Offsets
from bridges.node.model import AS_USUAL, NodeSettings, Publishing, StagedPart, Writer
from bridges.node.node import MAX_WAIT_S, BridgeNode, open_storage
from bridges.node.retention import RELEASED
from bridges.node.storage import Storage
from oncewire.client import JournalLocked
from oncewire.client.isolation import Isolation

LOCKED_S = 30.0
"""How long another receiver of the same journal is waited for: a process that was killed may live for a moment."""
LOCKED_POLL_S = 0.5

T = TypeVar("T")


class EmbeddedNode(Node):
    """See Node. Receives and publishes in a thread of this process, from the first call that asks for it to `close`.

    Args:
        settings: of the node; `resumes` is of no effect.
    """

    def __init__(self, settings: NodeSettings) -> None:
        self._settings = settings
        self._storage: Storage | None = None
        self._thread: _NodeThread | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_storage": None, "_thread": None}

    def close(self) -> None:
        """Stop receiving and publishing; the next process resumes what is unsettled."""
        if self._thread is not None:
            self._thread.stop()
            self._thread = None
        if self._storage is not None:
            self._storage.close()
            self._storage = None

    @property
    def _files(self) -> Storage:
        if self._storage is None:
            self._storage = open_storage(self._settings)
        return self._storage

    def _work(self, call: Any, *arguments: object) -> Any:
        """Call a coroutine function of the node in its thread, which is started for it."""
        if self._thread is None:
            self._thread = _NodeThread(self._settings)
        return self._thread.call(call(self._thread.node, *arguments))

    def subscribe(self, subscription: str, topics: Sequence[str], isolation: Isolation | None = None) -> str:
        """See Node."""
        ends_at = time.monotonic() + LOCKED_S
        while True:
            try:
                self._work(BridgeNode.subscribe, subscription, list(topics), isolation)
                break
            except JournalLocked:
                if time.monotonic() >= ends_at:
                    raise
            time.sleep(LOCKED_POLL_S)
        return self._files.journal(subscription).marks().uuid

    def offsets(
        self, subscription: str, low: int | None = None, *, max_rows: int | None = None, max_bytes: int | None = None
    ) -> Offsets:
        """See Node."""
        ended = ""
        if self._thread is not None:
            ended = self._thread.node.ended.get(subscription, "")
            self._thread.soon(self._thread.node.asked, subscription)
        return self._files.offsets(subscription, low, max_rows=max_rows, max_bytes=max_bytes, ended=ended)

    def initial_offset(self, subscription: str, start: str | int) -> int:
        """See Node."""
        return self._files.journal(subscription).initial_offset(start)

    def choose_end(self, subscription: str, start: int, stop: int) -> int:
        """See Node."""
        return self._files.journal(subscription).choose_end(start, stop)

    def read_range(
        self, subscription: str, low: int, high: int, *, journal: str | None = None, query: str | None = None
    ) -> Iterator[Any]:
        """See Node."""
        for chunk in self._files.read(subscription, low, high, uuid=journal, query=query):
            yield range_batch(chunk)

    def trim(self, subscription: str, position: int, query: str | None = None) -> None:
        """See Node."""
        self._files.trim(subscription, position, query)
        if self._thread is not None:
            self._thread.soon(self._thread.node.trimmed, subscription)

    def release(self, subscription: str, *, ends: bool = False) -> bool:
        """See Node."""
        self._files.journal(subscription).release()
        return ends and bool(self._work(BridgeNode.end, subscription, RELEASED))

    def choose_snapshot(self, sink: str, start: str, stop: str) -> str:
        """See Node."""
        return self._files.outbox(sink).choose_snapshot(start, stop)

    def stage_once(
        self, sink: str, writer: Writer, batch: int, partition: int, attempt: str, chunk: int, body: bytes
    ) -> bool:
        """See Node."""
        part = StagedPart(partition, attempt, 0, 0)
        return self._files.outbox(sink).stage(writer, batch, part, chunk, count_topics(body), body)

    def commit(
        self,
        sink: str,
        writer: Writer,
        batch: int,
        parts: Sequence[StagedPart],
        wait_s: float = 0.0,
        publishing: Publishing = AS_USUAL,
    ) -> Commit:
        """See Node. Publishing starts with the call, and continues after it while this process runs."""
        decided = self._files.outbox(sink).commit(writer, batch, parts, publishing)
        return self._wait(sink, decided.number, wait_s, is_first=decided.is_first)

    def discard(self, sink: str, writer: Writer, batch: int) -> None:
        """See Node."""
        self._files.outbox(sink).discard(writer, batch)

    def wait_done(self, sink: str, number: int, wait_s: float) -> Commit:
        """See Node."""
        return self._wait(sink, number, wait_s, is_first=False)

    def _wait(self, sink: str, number: int, wait_s: float, *, is_first: bool) -> Commit:
        ends_at = time.monotonic() + wait_s
        while True:
            left_s = max(0.0, ends_at - time.monotonic())
            found: Commit = self._work(BridgeNode.finished, sink, number, min(left_s, MAX_WAIT_S))
            if found.is_done or time.monotonic() >= ends_at:
                return replace(found, is_first=is_first)

    def status(self) -> dict[str, Any]:
        """See Node. Of this process only."""

        async def state(node: BridgeNode) -> dict[str, object]:
            return await asyncio.to_thread(node.state)

        found: dict[str, Any] = self._work(state)
        return found


class _NodeThread:
    """An event loop with a node in a thread of its own."""

    def __init__(self, settings: NodeSettings) -> None:
        self.node = BridgeNode(replace(settings, resumes=False))
        self._loop = asyncio.new_event_loop()
        self._running: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="oncewire-node", daemon=True)
        self._thread.start()
        self.call(self._start())

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there and return what it returns."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def soon(self, function: Callable[[str], None], argument: str) -> None:
        """Call a function there."""
        self._loop.call_soon_threadsafe(function, argument)

    def stop(self) -> None:
        """End the node and the thread."""
        self.call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    async def _start(self) -> None:
        self._running = asyncio.ensure_future(self.node.run())
        while not self.node.started.count and not self._running.done():
            await self.node.started.wait(0, 1.0)
        if self._running.done():
            self._running.result()

    async def _stop(self) -> None:
        assert self._running is not None
        self._running.cancel()
        await asyncio.wait([self._running])
        await asyncio.get_running_loop().shutdown_default_executor()
