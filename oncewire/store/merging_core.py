"""Jobs that wait together may cost less as one: the seam for a feature that knows which. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from oncewire.store.store import Job


@dataclass(frozen=True, slots=True)
class Merged:
    """One job for the jobs at these places; with counts its result is a list, of which each gets so many in turn."""

    job: Job
    places: tuple[int, ...]
    counts: tuple[int, ...] = ()

    def spread(self, result: Any, results: list[Any]) -> None:
        """Note each job's part of the result at its place: those who came first are served first."""
        if not self.counts:
            for place in self.places:
                results[place] = result
            return
        start = 0
        for place, count in zip(self.places, self.counts, strict=True):
            results[place] = result[start : start + count]
            start += count


Merge: TypeAlias = Callable[[Sequence[Job]], list[Merged]]
"""Returns fewer jobs with the same results: some cost less together."""


def unmerged(jobs: Sequence[Job]) -> list[Merged]:
    """Return each job for itself."""
    return [Merged(job, (place,)) for place, job in enumerate(jobs)]
