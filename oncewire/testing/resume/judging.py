"""The verdict of a scenario."""

from __future__ import annotations

from dataclasses import dataclass


class BrokenClaim(Exception):
    """The client did something else than the scenario's claim; the text states what."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Of one scenario.

    Attributes:
        role: publisher or subscriber.
        claim: the name of the scenario.
        broken: what the client did instead; empty = the claim holds.
    """

    role: str
    claim: str
    broken: str = ""

    def __str__(self) -> str:
        """One line."""
        return f"{'BROKEN' if self.broken else 'holds '}  {self.role}: {self.claim}" + (
            f": {self.broken}" if self.broken else ""
        )


def require(holds: bool, text: str) -> None:
    """Judge.

    Raises:
        BrokenClaim: it does not hold; `text` states what the client did.
    """
    if not holds:
        raise BrokenClaim(text)
