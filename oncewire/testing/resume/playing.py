"""Plays scenarios against a program, one after the other, each in a folder of its own."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import TypeAlias

from oncewire.testing.resume import publisher_scenarios, subscriber_scenarios
from oncewire.testing.resume.judging import BrokenClaim, Verdict
from oncewire.testing.resume.stage import Stage

PATIENCE_S = 15.0
"""For a client's next step: more than any client waits before it connects again."""
Scenario: TypeAlias = Callable[[Stage], Awaitable[None]]
SCENARIOS: Mapping[str, Mapping[str, Scenario]] = {
    "publisher": publisher_scenarios.SCENARIOS,
    "subscriber": subscriber_scenarios.SCENARIOS,
}
"""Role -> claim -> scenario."""


async def judged(role: str, claim: str, command: str, patience_s: float = PATIENCE_S) -> Verdict:
    """Play one scenario."""
    with tempfile.TemporaryDirectory(prefix="oncewire-resume-") as folder:
        try:
            async with Stage(role, command, Path(folder), patience_s) as stage:
                await SCENARIOS[role][claim](stage)
        except BrokenClaim as broken:
            return Verdict(role, claim, str(broken))
    return Verdict(role, claim)


async def play(
    role: str, command: str, claims: Collection[str] = (), patience_s: float = PATIENCE_S
) -> AsyncIterator[Verdict]:
    """The verdicts of all scenarios of a role, or of those whose claim has one of these texts in it.

    Args:
        role: publisher or subscriber.
        command: starts the client's program; ``URLS TOPIC COUNT FOLDER`` is added to it.
        claims: parts of claims; empty = all.
        patience_s: how long the program may take for its next step.
    """
    for claim in SCENARIOS[role]:
        if not claims or any(text in claim for text in claims):
            yield await judged(role, claim, command, patience_s)
