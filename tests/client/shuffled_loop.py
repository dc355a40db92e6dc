"""An event loop whose every choice comes from a seed: virtual time, sockets and worker threads in memory.

Tasks that are ready run in an order drawn anew in each turn, and now and then one has to wait for the next turn. What a
worker thread does happens at a moment of its own, and the loop hears of it later. Connections are pairs of queues with
a delay. A run of one seed is always the same run.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

HELD_BACK = 0.2
"""Share of ready tasks that wait for the next turn."""
NETWORK_S = (0.0005, 0.002, 0.01)
"""Longest delay of a piece of data, one for each run."""
THREAD_S = (0.001, 0.004, 0.02)
"""Longest time until a worker begins a job, and until the loop hears that it is done, one for each run."""


class Stuck(AssertionError):
    """Every task waits for something that nothing is going to bring about."""


class InlineExecutor:
    """Stands for a ThreadPoolExecutor of one thread: jobs in order, each in one piece."""

    def __init__(self, max_workers: int = 1, thread_name_prefix: str = "") -> None:
        assert max_workers == 1
        self.jobs: deque[Callable[[], None]] = deque()
        self.is_shut_down = False

    def work(self) -> None:
        """Do the oldest job, unless `shutdown` has done it."""
        if self.jobs:
            self.jobs.popleft()()

    def shutdown(self, wait: bool = True) -> None:
        """As the real one: what was handed in is done first, nothing more is taken."""
        self.is_shut_down = True
        while self.jobs:
            self.work()


class Listener:
    """What `create_server` returns."""

    def __init__(self, loop: ShuffledLoop, factory: Callable[[], asyncio.Protocol], port: int) -> None:
        self.factory = factory
        self.port = port
        self.sockets = [self]
        self._loop = loop

    def getsockname(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    def close(self) -> None:
        self._loop.listeners.pop(self.port, None)


class MemoryTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(self, loop: ShuffledLoop, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self.peer: MemoryTransport | None = None
        self._loop = loop
        self._protocol = protocol
        self._under_way: deque[bytes | None] = deque()  # None = end of the stream
        self._last_due = 0.0
        self._closing = False
        self._is_lost = False

    def write(self, data: Any) -> None:
        if not self._closing:
            self._send(bytes(data))

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._send(None)
            self._loop.call_soon(self._lose)

    def abort(self) -> None:
        if not self._is_lost:
            self._closing = True
            for _ in range(self._loop.random.randint(0, len(self._under_way))):
                self._under_way.pop()  # any suffix of what was under way is lost
            self._send(None)
            self._loop.call_soon(self._lose)

    def is_closing(self) -> bool:
        return self._closing

    def _send(self, data: bytes | None) -> None:
        self._under_way.append(data)
        self._last_due = max(self._last_due, self._loop.time() + self._loop.network_delay())
        self._loop.call_at(self._last_due, self._arrive)

    def _arrive(self) -> None:
        peer = self.peer
        if peer is None or not self._under_way:
            return
        data = self._under_way.popleft()
        if peer._closing:
            return
        if data is not None:
            peer._protocol.data_received(data)
        else:
            peer._protocol.eof_received()
            peer.close()

    def _lose(self) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._closing = True
            self._protocol.connection_lost(None)


class ShuffledLoop(asyncio.BaseEventLoop):
    """See the module. Attributes: `random` (shared with the world around it), `trouble` (exceptions nobody took)."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = random.Random(seed)
        self.listeners: dict[int, Listener] = {}
        self.trouble: list[str] = []
        self._executor = InlineExecutor()
        self._network_s = self.random.choice(NETWORK_S)
        self._thread_s = self.random.choice(THREAD_S)
        self._now = 0.0
        self._held: list[Any] = []
        self._serials: dict[object, int] = {}
        self._next_port = 5000
        self._selector = self  # BaseEventLoop asks it once in each turn
        self.set_task_factory(self._make_task)
        self.set_exception_handler(self._note)

    def network_delay(self) -> float:
        return self.random.uniform(0, self._network_s)

    def thread_delay(self) -> float:
        return self.random.uniform(0, self._thread_s)

    def _note(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.trouble.append(f"{context['message']}: {error!r}")

    def _make_task(self, loop: Any, coro: Any, **options: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, **options)
        self._serials[task] = len(self._serials)
        return task

    # --- turns --------------------------------------------------------------------------------------------------------

    def time(self) -> float:
        return self._now

    def select(self, timeout: float | None) -> list[Any]:
        """Shuffle what is ready; with nothing ready let time pass."""
        ready = self._ready  # type: ignore[attr-defined]  # BaseEventLoop's queue of handles, as it has been since 3.4
        steps = [*self._held, *(handle for handle in ready if self._is_step(handle))]
        if steps:
            steps.sort(key=lambda handle: self._serials[handle._callback.__self__])  # sets have no order of their own
            others = [handle for handle in ready if not self._is_step(handle)]
            self.random.shuffle(steps)
            held = int(len(steps) * HELD_BACK + self.random.random()) if len(steps) > 1 or others else 0
            self._held, steps = steps[:held], steps[held:]
            ready.clear()
            ready.extend(others)
            for step in steps:
                ready.insert(self.random.randint(0, len(ready)), step)
        elif not ready:
            if timeout is None:
                raise Stuck("every task waits, and nothing is going to happen")
            self._now += timeout
        return []

    @staticmethod
    def _is_step(handle: Any) -> bool:
        return isinstance(getattr(handle._callback, "__self__", None), asyncio.Task)

    def _process_events(self, event_list: object) -> None:
        """There are no sockets."""

    def _write_to_self(self) -> None:
        """There are no threads."""

    # --- threads and sockets ------------------------------------------------------------------------------------------

    def run_in_executor(self, *args: Any) -> Any:  # type: ignore[override]  # the real one is generic over what it gives
        executor, func, *arguments = args
        executor = executor or self._executor
        assert isinstance(executor, InlineExecutor)
        if executor.is_shut_down:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: asyncio.Future[Any] = self.create_future()

        def hear(result: object, error: Exception | None) -> None:
            if future.cancelled():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        def job() -> None:
            try:
                found = (func(*arguments), None)
            except Exception as error:  # noqa: BLE001  # the future's, as with a real executor
                self.call_later(self.thread_delay(), hear, None, error)
            else:
                self.call_later(self.thread_delay(), hear, *found)

        executor.jobs.append(job)
        self.call_later(self.thread_delay(), executor.work)
        return future

    async def create_server(self, *args: Any, **_: Any) -> Any:
        factory, _host, port = args
        if not port:
            self._next_port += 1
            port = self._next_port
        self.listeners[port] = listener = Listener(self, factory, port)
        return listener

    async def create_connection(self, *args: Any, **_: Any) -> Any:
        factory, _host, port = args
        await asyncio.sleep(self.network_delay())
        listener = self.listeners.get(port)
        if listener is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "connection refused")
        protocol, remote = factory(), listener.factory()
        near, far = MemoryTransport(self, protocol), MemoryTransport(self, remote)
        near.peer, far.peer = far, near
        protocol.connection_made(near)
        remote.connection_made(far)
        return near, protocol


def run_shuffled(main: Callable[[ShuffledLoop], Coroutine[Any, Any, T]], seed: int) -> T:
    """Run `main(loop)` on a loop of this seed; what nobody took of exceptions fails it."""
    loop = ShuffledLoop(seed)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        result = runner.run(main(loop))
    assert not loop.trouble, loop.trouble
    return result
