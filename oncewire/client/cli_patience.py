"""`oncewire pub --timeout`: when it waits no longer for outcomes, and what it says about messages without one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from oncewire.client.outcomes import counted, ending
from oncewire.client.publisher import Publisher

LOOK_S = 0.25
"""Between two looks at the oldest message."""
ASKED = 16
"""Messages whose subscriptions are asked for: each is a question to the router."""


@asynccontextmanager
async def patience(publisher: Publisher, seconds: float | None) -> AsyncIterator[None]:
    """Wait in this block as long as messages get outcomes; None = without limit.

    Raises:
        TimeoutError: one message was the oldest without an outcome for so long.
    """
    async with asyncio.timeout(None) as limit:
        watching = None
        if seconds is not None:
            watching = asyncio.create_task(_watch(publisher, seconds, limit))
        try:
            yield
        finally:
            if watching is not None:
                watching.cancel()
                await asyncio.wait([watching])


async def _watch(publisher: Publisher, seconds: float, limit: asyncio.Timeout) -> None:
    clock = asyncio.get_running_loop().time
    seen, since = None, clock()
    while True:
        oldest, now = publisher.oldest, clock()
        if oldest is not seen:
            seen, since = oldest, now
        elif oldest is not None and now - since >= seconds:
            limit.reschedule(now)
            return
        await asyncio.sleep(min(LOOK_S, seconds))


@dataclass(frozen=True, slots=True)
class Unanswered:
    """Messages without an outcome.

    Attributes:
        count: how many.
        earlier: of these, messages that an earlier run has sent.
        ranges: the others, by their place in this run: (first, last), from 1.
        owed_by: container-id/link-name of subscriptions that have not processed one of the first of them, and how many.
        why: in words, where the router could not name any.
    """

    count: int
    earlier: int
    ranges: tuple[tuple[int, int], ...]
    owed_by: dict[str, int]
    why: str

    def report(self) -> dict[str, object]:
        """For JSON."""
        return {
            "unanswered": self.count,
            "unanswered_earlier": self.earlier,
            "unanswered_messages": [list(each) for each in self.ranges],
            "owed_by": self.owed_by,
        }

    def lines(self, seconds: float, resume: str) -> list[str]:
        """For people: what has no outcome, who owes it, what to do.

        Args:
            seconds: how long it was waited for.
            resume: what resumes these messages; empty = nothing does.
        """
        places = [f"{first}" if first == last else f"{first} to {last}" for first, last in self.ranges]
        which = [f"of this run: {', '.join(places)}"] * bool(places)
        which += [f"of an earlier run: {self.earlier}"] * bool(self.earlier)
        lines = [f"waited {seconds:g} s: {counted(self.count, 'message')} without an outcome ({'; '.join(which)})"]
        if self.owed_by:
            owed = ", ".join(f"{name} ({count})" for name, count in self.owed_by.items())
            first = next(iter(self.owed_by))
            lines.append(f"not processed by, of the first {min(self.count, ASKED)}: {owed}")
            lines.append(f"see why: `oncewire inspect waits --network`; {ending(first)}")
        else:
            lines.append(f"why: {self.why}")
        lines.append(
            resume
            or "subscriptions may still process them, and sent again they are new messages; "
            "with --name and --journal a later run resumes them"
        )
        return lines


async def unanswered(publisher: Publisher, begins_at: int) -> Unanswered:
    """What has no outcome, and who owes it.

    Args:
        publisher: still open.
        begins_at: number of the first message of this run.
    """
    pending = publisher._unanswered
    places = [sending.number - begins_at + 1 for sending in pending if sending.number >= begins_at]
    asked = await asyncio.gather(*(publisher._owed(sending) for sending in pending[:ASKED]))
    owed_by: dict[str, int] = {}
    for found in asked:
        for name in found.subscriptions:
            owed_by[name] = owed_by.get(name, 0) + 1
    why = asked[0].why if asked else ""
    return Unanswered(len(pending), len(pending) - len(places), _ranges(places), owed_by, why)


def _ranges(places: list[int]) -> tuple[tuple[int, int], ...]:
    found: list[tuple[int, int]] = []
    for place in places:
        if found and found[-1][1] == place - 1:
            found[-1] = found[-1][0], place
        else:
            found.append((place, place))
    return tuple(found)
