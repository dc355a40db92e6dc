"""Journals of an edge: each table makes or changes one and subscribes it; ``journal://`` is served for the store."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from bridges.edge.of_queues import named
from bridges.edge.of_topics import COPIES
from bridges.edge.part import Ground, Kind, Part, PartEnded, Row
from bridges.journal import cursors, log
from bridges.journal.address import ADDRESSES
from bridges.journal.contents import JOURNALS
from bridges.journal.model import MAX_BYTES, JournalSettings, JournalState, KeyOf, WhenFull
from bridges.journal.subscription import TIMEOUT_S, JournalSubscription
from oncewire.client import ClientError
from oncewire.settings.parsers import duration, one_of, size, whole_number, yes_or_no
from oncewire.settings.schema import REQUIRED, Setting
from oncewire.store.errors import EdgeError, StoreError, TakenOver
from oncewire.store.rules_core import MAX_DELAY_S, check_name, check_topic
from oncewire.store.store import Transaction

MAINTAIN_S = 1.0
"""How often retention is looked at: it forgets with this grain."""
LARGEST = 1 << 50
"""Bytes of a journal: more is a mistake in the unit."""
MOST_TOPICS = 64
"""Subscriptions of one journal, each with a lease to renew; patterns reach further."""


class JournalPart(Part):
    """One journal with its subscriptions."""

    def __init__(self, ground: Ground, name: str, values: Mapping[str, Any]) -> None:
        """Change nothing yet."""
        super().__init__(name)
        self._store = ground.store
        self._door = ground.door("journal", ADDRESSES)
        self._is_made = False
        key = values["compact_by"]
        self._settings = JournalSettings(
            values["keep"],
            values["max_messages"],
            values["max_bytes"],
            WhenFull(values["when_full"]),
            None if key is None else KeyOf(key),
        )
        self._links = [
            JournalSubscription(
                ground.store,
                name,
                topic,
                ground.routers,
                timeout=round(values["timeout"]),
                drops_copies=values["drop_copies"],
                tenure=ground.tenure,
                edge=ground.edge,
                **ground.login,
            )
            for topic in values["topics"]
        ]

    @property
    def trouble(self) -> str:
        """See Part."""
        if not self._is_made:
            return "it is not made yet"
        of_links = next((link.trouble for link in self._links if link.trouble), "")
        is_late = any(link.is_owner and not link.subscribed.is_set() for link in self._links)
        return self._door.trouble or of_links or ("it is not subscribed yet" if is_late else "")

    @property
    def is_owner(self) -> bool:
        """See Part; a journal without topics is nobody's: each edge appends what clients send."""
        return not self._links or any(link.is_owner for link in self._links)

    @property
    def tenures(self) -> int:
        """See Part."""
        return sum(link.tenures for link in self._links)

    @property
    def done(self) -> int:
        """See Part."""
        return sum(link.done for link in self._links)

    async def run(self) -> None:
        """Make the journal, or change it, subscribe it, and keep the door for all journals open."""
        async with self._door.held() as door:
            await self._store.transact(lambda do: log.configure(do, self.name, self._settings))
            self._is_made = True
            try:
                async with asyncio.TaskGroup() as group:
                    for link in self._links:
                        group.create_task(link.run())
                    group.create_task(self._maintain())
                    group.create_task(_until_failed(door))
            except* TakenOver as errors:
                why = str(errors.exceptions[0])
                raise PartEnded(f"{why}; take it out of the settings, or change them to subscribe again") from errors
            except* (ClientError, EdgeError) as errors:  # of the door, or of all of them at once
                raise errors.exceptions[0] from None

    async def _maintain(self) -> None:
        """J-24, J-27: what is not kept goes in portions, between which others have turns."""
        while True:
            more = False
            with suppress(StoreError):  # the next look finds the same
                more = await self._store.transact(lambda do: log.maintain(do, self.name))
                more = await self._store.transact(log.clear_remains) or more
            await asyncio.sleep(0 if more else MAINTAIN_S)

    async def rows(self) -> Row:
        """Numbers of the store: every edge that serves it shows the same."""
        found, oldest_s, lows = await self._store.transact(self._look)
        return Row(
            depth=found.kept,
            oldest_s=oldest_s,
            gauges={
                "bytes": found.kept_bytes,
                "max_bytes": found.settings.max_bytes,
                "full": any(link.is_full for link in self._links),
                "readers": len(lows),
                "reader_lag": max((found.last - low for low in lows), default=0),
                "late_readers": sum(low < found.trimmed for low in lows),
            },
        )

    def _look(self, do: Transaction) -> tuple[JournalState, float | None, list[int]]:
        found = log.state(do, self.name)
        return found, log.oldest_s(do, found), [each.low for each in cursors.cursors(do, found).values()]


async def _until_failed(door: asyncio.Task[None]) -> None:
    await asyncio.wait([door])
    door.result()


def journal_name(value: object) -> str:
    """The name of a journal."""
    if not isinstance(value, str):
        raise TypeError
    check_name("journal", value)
    return value


def topics(value: object) -> tuple[str, ...]:
    """A list of different topics or patterns."""
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise TypeError
    for each in value:
        check_topic(each)
    if len(set(value)) < len(value) or len(value) > MOST_TOPICS:
        raise ValueError
    return tuple(value)


JOURNAL = Kind(
    "journal",
    named(
        (
            Setting(
                "journal.name",
                journal_name,
                REQUIRED,
                "up to 128 printable characters",
                "AMQP clients find it at `journal://NAME`. It is made if there is none.",
            ),
            Setting(
                "journal.topics",
                topics,
                (),
                f"a list of up to {MOST_TOPICS} topics or patterns that do not overlap",
                "Each message of them is stored once for each that matches. Empty: clients append.",
            ),
            Setting(
                "journal.keep",
                duration(0, MAX_DELAY_S),
                0.0,
                "a time such as 7d, 0 = no limit",
                "Older messages are trimmed.",
            ),
            Setting(
                "journal.max_messages",
                whole_number(0, 1 << 40),
                0,
                "a number, 0 = no limit",
                "More messages are trimmed.",
            ),
            Setting("journal.max_bytes", size(1, LARGEST), MAX_BYTES, "bytes, such as 8GiB", "What it takes at most."),
            Setting(
                "journal.when_full",
                one_of(*WhenFull),
                WhenFull.REFUSE.value,
                "refuse or drop",
                "At `max_bytes`: `refuse`, and publishers wait, or `drop` the oldest messages.",
            ),
            Setting(
                "journal.compact_by",
                one_of(*KeyOf),
                None,
                "subject or group-id; empty = keep all",
                "Keep the last message of each subject, or group-id.",
            ),
            Setting("journal.drop_copies", yes_or_no, False, "true or false", COPIES),
            Setting(
                "journal.timeout",
                duration(1, 0xFFFFFFFF),
                float(TIMEOUT_S),
                "a time such as 24h",
                "How long the network keeps the subscription while no edge runs it. Publishers wait meanwhile.",
            ),
        )
    ),
    lambda values: str(values["name"]),
    JournalPart,
    features=(JOURNALS,),
)
