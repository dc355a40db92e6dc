"""Runs the parts of an edge side by side: one that fails is started again, the others do not notice."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from bridges.doors.errors import BridgeError
from bridges.edge.events import EdgeEvent, EdgeLog
from bridges.edge.kinds import KINDS
from bridges.edge.part import Ground, Part, PartEnded, PartSettings, Row
from bridges.edge.restart_core import AWAITED_S, LONGEST_S, Failures, Rate
from oncewire.cli.errors import CliError
from oncewire.client import ClientError
from oncewire.client.put_off import ended
from oncewire.store.errors import EdgeError, StoreUnreachable

TICK_S = 1.0
"""How often it is looked how far the parts are, and who owns them."""
LASTS = 3
"""Looks: what is over before, as a begin or a router that is changed, is not worth a line of the log."""
STORE_S = 5.0
"""How long operators wait for numbers of the store."""
KNOWN = (EdgeError, BridgeError, ClientError, CliError, OSError)
"""What a part may fail with when what it needs is not there; all else is a fault of ours."""
Key = tuple[str, str]


@dataclass(slots=True)
class Running:
    """One part, over all its starts.

    Attributes:
        settings: its table.
        part: as it was made last; None = it cannot be made.
        failed: why it does not run; empty = it runs.
        has_ended: it is not started again.
        failures: so far.
        rate: of what it does.
        said: whether it is the owner, and its tenures, as the log has them; None = the log has not said.
        troubled: looks at it, one after the other, that found it troubled.
    """

    settings: PartSettings
    part: Part | None = None
    failed: str = "it starts"
    has_ended: bool = False
    failures: Failures = field(default_factory=Failures)
    rate: Rate = field(default_factory=Rate)
    said: tuple[bool, int] | None = None
    troubled: int = 0
    task: asyncio.Task[None] | None = None

    @property
    def state(self) -> str:
        """In one word, or two."""
        if self.failed or self.part is None:
            return "ended" if self.has_ended else "failed"
        return "owner" if self.part.is_owner else "stands by"

    @property
    def trouble(self) -> str:
        """Why it neither does its work nor stands by; empty = it does."""
        return self.failed if self.failed or self.part is None else self.part.trouble


@dataclass(frozen=True, slots=True)
class Shown:
    """A part as operators see it."""

    kind: str
    name: str
    state: str
    trouble: str
    restarts: int
    done: int | None
    rate: float | None
    row: Row


class Supervisor:
    """The parts of one edge."""

    def __init__(self, log: EdgeLog) -> None:
        """Run nothing yet."""
        self._log = log
        self._running: dict[Key, Running] = {}
        self._looking: asyncio.Task[None] | None = None

    @property
    def parts(self) -> tuple[Running, ...]:
        """In the order of the settings."""
        return tuple(self._running.values())

    async def apply(self, ground: Ground, wanted: Iterable[PartSettings]) -> dict[str, list[str]]:
        """Run these parts from now on, and no others; those whose settings have not changed go on.

        Returns the names of those that were added, changed and removed.
        """
        new = {each.key: each for each in wanted}
        removed = [key for key in self._running if key not in new]
        changed = [key for key in new if key in self._running and self._running[key].settings != new[key]]
        added = [key for key in new if key not in self._running]
        async with AsyncExitStack() as doors:  # who has come in by one stays while a part that needs it is changed
            for door in ground.doors.values():
                if door.is_open:
                    _ = await doors.enter_async_context(door.held())
            await self._end([*removed, *changed])
            for key in removed:
                self._log.event(EdgeEvent.PART_REMOVED, kind=key[0], part=key[1])
            for key in (*changed, *added):
                self._running[key] = self._start(ground, new[key])
            await asyncio.sleep(0)  # the new parts take the first step, to the door
        self._running = {key: self._running[key] for key in new}
        if self._looking is None:
            self._looking = asyncio.create_task(self._look())
        names = {"added": added, "changed": changed, "removed": removed}
        return {what: [f"{kind} {name}" for kind, name in keys] for what, keys in names.items()}

    async def stop(self) -> None:
        """End all parts; each gives back what it owns."""
        await self._end(list(self._running))
        if self._looking is not None:
            self._looking.cancel()
            await ended(self._looking)

    async def _end(self, keys: list[Key]) -> None:
        ending = [self._running[key] for key in keys]
        tasks = [running.task for running in ending if running.task is not None]
        for running in ending:
            running.failed = "it ends"  # that it owns nothing any more is not worth a line of the log
        for task in tasks:
            task.cancel()
        await ended(*tasks)

    def _start(self, ground: Ground, settings: PartSettings) -> Running:
        running = Running(settings)
        running.task = asyncio.create_task(self._keep(ground, running))
        return running

    async def _keep(self, ground: Ground, running: Running) -> None:
        """Run one part for as long as it is wanted."""
        loop = asyncio.get_running_loop()
        settings = running.settings
        names = {"kind": settings.kind, "part": settings.name}
        while True:
            began, longest_s = loop.time(), LONGEST_S
            fault: Exception | None = None
            try:
                running.part = KINDS[settings.kind].make(ground, settings.name, settings.values)
                running.failed, running.said = "", None  # whoever took over meanwhile has said so
                self._log.event(EdgeEvent.PART_STARTED, **names)
                await running.part.run()
                why = "it has ended by itself"
            except PartEnded as error:
                running.failed, running.has_ended = str(error), True
                self._log.event(EdgeEvent.PART_ENDED, **names, why=str(error))
                return
            except KNOWN as error:
                why = str(error)
                if isinstance(error, StoreUnreachable):
                    longest_s = AWAITED_S
            except Exception as error:  # noqa: BLE001  # a fault of one part does not end the others
                why, fault = f"{type(error).__name__}: {error}", error
            delay = running.failures.next_delay(loop.time() - began, random.random(), longest_s)
            running.failed = why
            self._log.event(EdgeEvent.PART_FAILED, **names, why=why, again_in_s=round(delay, 2))
            if fault is not None:
                self._log.fault(fault, **names)
            await asyncio.sleep(delay)

    async def _look(self) -> None:
        """Count what parts do, and log who owns them and what troubles them."""
        while True:
            for running in self.parts:
                if running.part is not None and not running.failed:
                    self._look_at(running, running.part)
            await asyncio.sleep(TICK_S)

    def _look_at(self, running: Running, part: Part) -> None:
        names = {"kind": running.settings.kind, "part": part.name}
        if part.done is not None:
            running.rate.note(asyncio.get_running_loop().time(), part.done)
        trouble = part.trouble
        if trouble:
            running.troubled += 1
            if running.troubled == LASTS:
                self._log.event(EdgeEvent.PART_TROUBLED, **names, why=trouble)
        else:
            if running.troubled >= LASTS:
                self._log.event(EdgeEvent.PART_WELL, **names)
            running.troubled = 0
        now = (part.is_owner, part.tenures)  # between two looks another one may have owned it
        if not trouble and now != running.said and KINDS[running.settings.kind].has_owner:
            running.said = now
            self._log.event(EdgeEvent.PART_OWNED if part.is_owner else EdgeEvent.PART_STANDS_BY, **names)

    async def shown(self) -> list[Shown]:
        """All parts as operators see them; numbers that the store does not give are left out."""
        return list(await asyncio.gather(*map(_shown, self.parts)))


async def _shown(running: Running) -> Shown:
    part, settings = running.part, running.settings
    row, trouble, done = Row(), running.trouble, None
    if part is not None:
        done = part.done
        try:
            async with asyncio.timeout(STORE_S):
                row = await part.rows()
        except TimeoutError:
            trouble = trouble or f"the store has not answered for {STORE_S:g} s"
        except EdgeError as error:
            trouble = trouble or str(error)
    counted = None if done is None else running.rate.per_second()
    rate = counted if row.rate is None else row.rate
    return Shown(settings.kind, settings.name, running.state, trouble, running.failures.count, done, rate, row)
