"""Logs which subscriptions hold publishers up, who owns them and what ends them: metrics may not name clients."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

from delivery_records import Records
from delivery_records.diagnostics.lateness import STUCK_S
from delivery_records.diagnostics.waits import Owing, Reason
from oncewire.transport.log_limit_core import LogLimit
from router.process.logs import EventLog, RouterEvent
from topology.inspector.owners_core import owner_of
from topology.inspector.topic_names_core import topic_facts

LOOK_S = STUCK_S
"""Between two looks."""
MOST = 8
"""Subscriptions that one look logs, and the first of each publisher: `oncewire inspect` has the others."""
LOOKS = 5_000
"""Cursors that one look may see: a twentieth of a second, were all of them in vain."""


class StuckNotice:
    """That of one incarnation, from its beginning to `stop`."""

    def __init__(self, records: Records, log: EventLog) -> None:
        """Look from now on."""
        self._core = records
        self._log = log
        self._limit = LogLimit()  # each subscription once a minute
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(LOOK_S, self._on_timer)

    def stop(self) -> None:
        """The incarnation is over."""
        self._timer.cancel()

    def _on_timer(self) -> None:
        self._timer = self._loop.call_later(LOOK_S, self._on_timer)
        self.look(time.monotonic())

    def look(self, now: float) -> None:
        """Log whom publishers wait for."""
        reported = 0
        for publisher, each in self._holders(now):
            if self._limit.take(each.subscription.key, now) is None:
                continue
            self._notify(publisher, each, now)
            reported += 1
            if reported == MOST:
                return

    def _holders(self, now: float) -> Iterator[tuple[str, Owing]]:
        """Who waits for whom for too long, the longest wait first."""
        figures = self._core.figures
        stuck = [(each.since, each.key, each.name) for each in figures.publishers() if each.since is not None]
        looks = LOOKS
        for since, key, name in sorted(stuck):
            if now - since <= STUCK_S or looks <= 0:
                return
            found = figures.wait(key)
            if found is None or found.reason is not Reason.SUBSCRIPTIONS:
                continue
            holders, looked = figures.owing(key, found.number, MOST, looks)
            looks -= looked
            for each in holders:
                yield name, each

    def _notify(self, publisher: str, each: Owing, now: float) -> None:
        record = each.subscription.record
        facts = topic_facts(record.topic)
        shared = self._core.view.subscriptions.get(record.member_of)
        owner = owner_of(each.subscription.name, str(facts["topic"]), "" if shared is None else shared.name)
        self._log.event(
            RouterEvent.DELIVERY_STUCK,
            subscription=each.subscription.name,
            **facts,
            owner=owner.kind,
            state=each.state.value,
            waits_s=round(now - each.since, 1),
            publisher=publisher,
            ends_with=owner.command,
        )
