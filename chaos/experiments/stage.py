"""What demos with a schedule of kills share: options, a folder, the stage with its processes, and the result."""

from __future__ import annotations

import asyncio
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, TypeVar

from chaos.experiments.child_process import ChildProcess
from chaos.experiments.kills import Kill, count_kills
from chaos.network.trial import TrialFailed
from oncewire.client import Client, ClientError, Publisher, connect
from router.commands.local_network import LocalNetwork, LocalNetworkError

SECONDS_PER_KILL = 3.0
"""The rows are published over this time for each kill, so that something is under way at each."""
RESTART_AFTER_S = 0.5
"""From SIGKILL to the start of the next process."""
SETTINGS = {"etcd.lease_ttl_s": "5"}
PATIENCE_S = 180.0
SECONDS_PER_MESSAGE = 0.02
"""How long each part of a run may take, on a slow machine."""
POLL_S = 0.05
CONNECT_S = 120.0
"""How long a router may take to answer, on a slow machine."""
NEARLY = 0.9
"""Of the rows up to an event: when these have come it happens, for some are always under way."""
Event = tuple[float, Callable[[], Awaitable[None]]]
"""What happens, and at which part of the rows."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StageOptions:
    """What to run."""

    messages: int
    kills: int
    routers: int
    seed: int
    keep: Path | None = None
    """Folder for stores and logs; None: a temporary one, which is removed."""

    @property
    def patience_s(self) -> float:
        """How long each part of the run may take."""
        return PATIENCE_S + self.messages * SECONDS_PER_MESSAGE


async def in_folder(keep: Path | None, prefix: str, work: Callable[[Path], Awaitable[T]]) -> T:
    """Work in the folder that is kept, or in one that is removed."""
    if keep is not None:
        return await work(keep.absolute())  # noqa: ASYNC240  (it reads no more than the current folder)
    with TemporaryDirectory(prefix=prefix) as folder:
        return await work(Path(folder))


@dataclass(frozen=True, slots=True)
class StageResult(ABC):
    """One run.

    Attributes:
        messages: rows that were to be published.
        accepted: of them, those that were accepted.
        kills: that were done.
        kills_planned: how many there should have been.
        seconds: from the start of the processes to the last one's end.
        problems: what kept the run from its end; empty when nothing did.
        kinds: of kills.
    """

    messages: int
    accepted: int
    kills: Sequence[Kill]
    kills_planned: int
    seconds: float
    problems: Sequence[str]
    kinds: Sequence[Enum]

    @abstractmethod
    def faults(self) -> list[str]:
        """What became of the rows that should not have: one line each."""

    @abstractmethod
    def figures(self) -> dict[str, object]:
        """What became of the rows, for the JSON line."""

    @property
    def passed(self) -> bool:
        """True when the rows became what they should, and every kill was done."""
        return not self.reasons()

    def reasons(self) -> list[str]:
        """Why the run did not pass: one line each."""
        reasons = [*self.problems, *self.faults()]
        if self.accepted != self.messages:
            reasons.append(f"only {self.accepted} of {self.messages} rows were accepted")
        if len(self.kills) < self.kills_planned:
            reasons.append(f"only {len(self.kills)} of {self.kills_planned} kills were done")
        return reasons

    def as_json(self) -> dict[str, object]:
        """The content of the JSON line."""
        return {
            "published": self.accepted,
            **self.figures(),
            "kills": count_kills(self.kinds, self.kills),
            "seconds": round(self.seconds, 1),
            "passed": self.passed,
        }


class Stage(ABC):
    """The processes of a run, and what happens to them.

    Args:
        options: of the run.
        network: that is running.
        folder: for stores and logs.
        bodies: what is published, in order.
        say: called with what happens, as it does.

    Attributes:
        processes: all but the routers.
        kills: that were done.
    """

    processes: Sequence[ChildProcess]
    extra_kills: ClassVar[int] = 0
    """Beside those of the options."""

    def __init__(
        self,
        options: StageOptions,
        network: LocalNetwork,
        folder: Path,
        bodies: Sequence[bytes],
        say: Callable[[str], None],
    ) -> None:
        self.kills: list[Kill] = []
        self._patience_s, self._planned = options.patience_s, options.kills
        self._network = network
        self._folder = folder
        self._bodies = bodies
        self._say = say
        self._chance = random.Random(options.seed)
        self._urls = [router.url for router in network.routers.values()]
        self._publishers: dict[str, Publisher] = {}
        self._may_send = 0
        self._start = 0.0

    @property
    def accepted(self) -> int:
        """Rows that the network has accepted."""
        return sum(publisher.statistics.accepted for publisher in self._publishers.values())

    @abstractmethod
    async def play(self) -> None:
        """Start everything, let each event happen at its part of the rows, and let all come to its end.

        Raises:
            TrialFailed, ClientError, LocalNetworkError: something did not happen that must.
        """

    @abstractmethod
    def topic_of(self, body: bytes) -> str:
        """Where a row is published."""

    @abstractmethod
    def come(self) -> int:
        """Rows that have come so far that an event which waits for them may happen."""

    @abstractmethod
    def standing(self) -> str:
        """How far everything is, for people."""

    def show(self) -> None:  # noqa: B027  (only some have something to show)
        """Called again and again while something is waited for."""

    async def play_to_the_end(self) -> list[str]:
        """Play, and end all processes; what kept it from its end."""
        problems: list[str] = []
        async with AsyncExitStack() as stack:
            for process in self.processes:
                stack.push_async_callback(process.kill)
            try:
                await self.play()
            except (TrialFailed, ClientError, LocalNetworkError) as failure:
                problems.append(str(failure))
        return problems

    def outcome(self, began: float, problems: Sequence[str]) -> dict[str, Any]:
        """What each result has, but for the kinds of kills."""
        return {
            "messages": len(self._bodies),
            "accepted": self.accepted,
            "kills": self.kills,
            "kills_planned": self._planned + self.extra_kills,
            "seconds": time.monotonic() - began,
            "problems": problems,
        }

    async def publish_under(self, events: Sequence[Event]) -> None:
        """Publish all rows, while each event happens at its part of them; errors as `play`."""
        self._start = time.monotonic()
        async with connect(self._urls, container_id="flights", timeout=CONNECT_S) as client:
            sending = asyncio.create_task(self._send(client))
            try:
                shares = [*(share for share, _ in events[1:]), 1.0]
                for (share, event), following in zip(events, shares, strict=True):
                    # The rows up to the following event are published while this one happens, and not more.
                    self._may_send = max(self._may_send, round(following * len(self._bodies)))
                    due = share * len(self._bodies) * NEARLY
                    await self.until(lambda: self.come() >= due, f"{share:.0%} of the rows have come", sending)  # noqa: B023
                    await event()
                await self.until(sending.done, "every row is accepted", sending)
                sending.result()
            finally:
                sending.cancel()
                await asyncio.wait([sending])

    async def _send(self, client: Client) -> None:
        """Publish the rows, spread over the kills, each by the publisher of its topic."""
        pace = SECONDS_PER_KILL * self._planned / len(self._bodies)
        begin = time.monotonic()
        for number, body in enumerate(self._bodies, 1):
            while number > self._may_send:  # noqa: ASYNC110  # the events are seconds apart
                await asyncio.sleep(POLL_S)
            topic = self.topic_of(body)
            if topic not in self._publishers:
                self._publishers[topic] = await client.publisher(topic, name=topic)
            _ = await self._publishers[topic].submit(body)
            ahead = number * pace - (time.monotonic() - begin)
            if ahead > 0:
                await asyncio.sleep(ahead)
        for publisher in self._publishers.values():
            await publisher.flush()

    async def until(self, condition: Callable[[], bool], what: str, sending: asyncio.Task[None] | None = None) -> None:
        """Wait for a condition, which is looked at in a thread, while all processes live.

        Raises:
            TrialFailed: a process ended by itself, or patience did.
        """
        ends_at = time.monotonic() + self._patience_s
        while not await asyncio.to_thread(condition):
            for process in self.processes:
                process.check()
            if sending is not None and sending.done():
                sending.result()
            if time.monotonic() > ends_at:
                raise TrialFailed(f"not within {self._patience_s:g} s: {what}")
            self.show()
            await asyncio.sleep(POLL_S)

    async def kill_router(self, kind: Enum) -> None:
        """SIGKILL one of the routers, and start it again."""
        name = self._chance.choice(list(self._network.routers))
        await self._network.kill(name)
        self.note(kind, f"router {name}")
        await asyncio.sleep(RESTART_AFTER_S)
        await self._network.restart(name)

    async def kill(self, kind: Enum, process: ChildProcess, *, comes_back: bool = True) -> None:
        """SIGKILL a process, and start it again if it comes back."""
        await process.kill()
        self.note(kind, process.name)
        if comes_back:
            await asyncio.sleep(RESTART_AFTER_S)
            await process.start()

    def note(self, kind: Enum, target: str, what: str = "") -> None:
        """Say and keep that a kill was done."""
        at_s = time.monotonic() - self._start
        self.kills.append(Kill(kind, target, at_s))
        self._say(f"{what or f'SIGKILL to {target}'} after {at_s:.1f} s; {self.standing()}")
