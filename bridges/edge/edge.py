"""One edge: its store, its parts, and changes of its settings while it runs."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict, replace
from typing import Any

from bridges.edge.events import EdgeEvent, EdgeLog
from bridges.edge.kinds import KINDS
from bridges.edge.part import Ground
from bridges.edge.settings import EDGE
from bridges.edge.settings_loading import EdgeSettings, Load, shown
from bridges.edge.supervisor import STORE_S, Shown, Supervisor
from bridges.store.topic_link import Tenure
from bridges.workqueue import QueueStore
from bridges.workqueue.contents import QueueContents
from oncewire.cli.errors import CliError
from oncewire.cli.log_output import set_level
from oncewire.settings.schema import Applies
from oncewire.store.errors import EdgeError, StoreBusy, StoreUnreachable

OPEN_AGAIN_S = 2.0
"""Between two tries to open a store on another machine."""
DRAIN_S = 20.0
"""How long the parts may take to give back what they own; a lease that is not given back runs out."""


class Edge:
    """Runs the parts of its settings.

    Args:
        settings: what it is, and what it runs.
        log: gets its events.
        load: reads the settings again.
    """

    def __init__(self, settings: EdgeSettings, log: EdgeLog, load: Load) -> None:
        """Open nothing yet."""
        self.settings = settings
        self.name: str = settings.values["edge.name"]
        self.is_draining = False
        self.log = log
        self._load = load
        self._held = AsyncExitStack()
        self._ground: Ground | None = None
        self._supervisor = Supervisor(log)
        self._reloading = asyncio.Lock()

    async def start(self) -> None:
        """Open the store, and start the parts. A server that does not answer is waited for.

        Raises:
            CliError: the store cannot be used.
        """
        async with self._reloading:
            store = await self._open()
            self._ground = Ground(
                edge=self.name,
                store=store,
                routers=self.settings.values["edge.routers"],
                login=self.settings.login(),
                tenure=Tenure(not self.settings.is_alone, self.settings.values["edge.lease"]),
            )
            await self._supervisor.apply(self._ground, self.settings.parts)

    async def _open(self) -> QueueStore:
        has_waited = False
        contents = QueueContents([feature for kind in KINDS.values() for feature in kind.features])
        while True:
            try:
                opened = QueueStore.open(self.settings.values["edge.store"], contents)
                store = await self._held.enter_async_context(opened)
            except EdgeError as error:
                if self.settings.is_alone or not isinstance(error, StoreUnreachable | StoreBusy):
                    raise CliError(error.what, error.why, error.fix) from None
                if not has_waited:
                    self.log.event(EdgeEvent.STORE_AWAITED, why=str(error))
                has_waited = True
                await asyncio.sleep(OPEN_AGAIN_S * random.uniform(0.5, 1.0))
            else:
                if has_waited:
                    self.log.event(EdgeEvent.STORE_BACK)
                return store

    async def stop(self) -> None:
        """End the parts, which give back what they own, then close the store."""
        self.is_draining = True
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                await self._supervisor.stop()
        await self._held.aclose()

    async def reload(self) -> dict[str, Any]:
        """Read the settings again; parts that are the same in them go on.

        Returns which parts were added, changed and removed, and which settings wait for a restart.

        Raises:
            CliError: they cannot be used; nothing has changed.
        """
        async with self._reloading:
            try:
                new = self._load()
                if self._ground is None or self.is_draining:
                    raise CliError("nothing was reloaded", "the edge starts or stops", "try again in a moment")
            except CliError as error:
                self.log.event(EdgeEvent.CONFIG_REFUSED, why=f"{error.what}: {error.why}", fix=error.fix)
                raise
            old = self.settings.values
            differ = [key for key in EDGE if new.values[key] != old[key]]
            waiting = [key for key in differ if EDGE[key].applies is Applies.RESTART]
            set_level(new.values["log.level"])
            done: dict[str, Any] = await self._supervisor.apply(self._ground, new.parts)
            kept = {key: old[key] for key in waiting}
            self.settings = replace(self.settings, values={**new.values, **kept}, parts=new.parts)
            done["settings"] = [key for key in differ if key not in waiting]
            done["needs_restart"] = waiting
            self.log.event(EdgeEvent.CONFIG_RELOADED, **done)
            return done

    async def waiting_for(self) -> list[str]:
        """What keeps it from being ready."""
        if self.is_draining:
            return ["it stops"]
        if self._ground is None:
            return ["the store"]
        found = [
            f"{running.settings.kind} {running.settings.name}: {running.trouble}"
            for running in self._supervisor.parts
            if running.trouble
        ]
        return ([] if await self._answers() else ["the store"]) + found

    async def _answers(self) -> bool:
        assert self._ground is not None
        try:
            async with asyncio.timeout(STORE_S):
                await self._ground.store.transact(lambda do: do.now)
        except (EdgeError, TimeoutError):
            return False
        return True

    @property
    def store(self) -> QueueStore:
        """What it remembers.

        Raises:
            StoreUnreachable: it is not open yet.
        """
        if self._ground is None or self.is_draining:
            raise StoreUnreachable("the store cannot be read", "the edge starts or stops", "try again in a moment")
        return self._ground.store

    async def parts(self) -> list[Shown]:
        """As operators see them."""
        return await self._supervisor.shown()

    async def state(self) -> dict[str, Any]:
        """For people and programs, as JSON."""
        waiting_for = await self.waiting_for()
        parts = await self.parts()
        return {
            **shown(self.settings),
            "ready": not waiting_for,
            "waiting_for": waiting_for,
            "parts": [_words(each) for each in parts],
        }


def _words(part: Shown) -> dict[str, Any]:
    words = asdict(part)
    row = words.pop("row")
    row.pop("rate")
    return {**words, **row.pop("gauges"), **row}
