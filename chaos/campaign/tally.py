"""What many seeds did together, in Jepsen's words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, is_dataclass

from chaos.simulator.schedule import Result

FINDINGS = ("lost", "duplicated", "reordered", "unexpected", "stuck")
"""The checker's words. A run ends at its first violation, so each counts runs."""
_FOLDERS = re.compile(r"(?<!\w)/(?:[^\s/:]+/)+(?=[^\s/:]+\.py\b)")
MAX_FAILING = 1000
"""Failing seeds that are kept one by one: with more of them the first thousand are enough to start from."""


@dataclass(frozen=True, slots=True)
class Failing:
    """A seed whose run broke a guarantee."""

    seed: int
    found_as: str
    violation: str
    setting: str
    """Every knob that was drawn: `name=value`, separated by blanks."""

    @property
    def replay(self) -> str:
        """The one command that shows this run again, line by line."""
        return f"oncewire chaos simulate --first-seed {self.seed} --seeds 1 --story"

    def as_json(self) -> dict[str, object]:
        """Return the row of the JSON line."""
        return {
            "seed": self.seed,
            "found_as": self.found_as,
            "violation": self.violation,
            "setting": self.setting,
            "replay": self.replay,
        }


@dataclass(slots=True)
class Tally:
    """Sums over seeds."""

    seeds: int = 0
    attempted: int = 0
    acknowledged: int = 0
    deliveries: int = 0
    steps: int = 0
    virtual_s: float = 0.0
    cpu_s: float = 0.0
    """CPU seconds the runs took, judging included, starting of processes not."""
    memory_mb: int = 0
    """Peak of one worker process, in MiB."""
    faults: Counter[str] = field(default_factory=Counter)
    coverage: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    """By the words of FINDINGS."""
    failing: list[Failing] = field(default_factory=list)
    """In the order of seeds, the first MAX_FAILING."""

    def add(self, result: Result) -> None:
        """Count one run."""
        self.seeds += 1
        self.attempted += result.attempted
        self.acknowledged += result.accepted
        self.deliveries += result.deliveries
        self.steps += result.steps
        self.virtual_s += result.virtual_s
        self.faults.update({name.removeprefix("!"): count for name, count in result.faults.items()})
        self.coverage.update(result.coverage)
        if result.violation is not None:
            word = result.found_as or "unexpected"
            self.found[word] += 1
            self._keep([Failing(result.seed, word, result.violation, knobs(result.setting))])

    def merge(self, other: Tally) -> None:
        """Count what another tally counted."""
        self.seeds += other.seeds
        self.attempted += other.attempted
        self.acknowledged += other.acknowledged
        self.deliveries += other.deliveries
        self.steps += other.steps
        self.virtual_s += other.virtual_s
        self.cpu_s += other.cpu_s
        self.memory_mb = max(self.memory_mb, other.memory_mb)
        self.faults.update(other.faults)
        self.coverage.update(other.coverage)
        self.found.update(other.found)
        self._keep(other.failing)

    def _keep(self, failing: Iterable[Failing]) -> None:
        self.failing = sorted([*self.failing, *failing], key=lambda each: each.seed)[:MAX_FAILING]

    @property
    def is_clean(self) -> bool:
        """True when no run broke a guarantee."""
        return not self.found.total()

    @property
    def never_met(self) -> list[str]:
        """Situations that these seeds were to meet and did not: `run_seeds` counts them as 0."""
        return sorted(name for name, count in self.coverage.items() if not count)

    @property
    def simulated_hours(self) -> float:
        """Virtual time of all worlds together."""
        return self.virtual_s / 3600

    @property
    def deliveries_per_cpu_s(self) -> float:
        """Checked deliveries per second of CPU."""
        return self.deliveries / self.cpu_s if self.cpu_s else 0.0


def sum_up(tallies: Iterable[Tally]) -> Tally:
    """One tally of all."""
    total = Tally()
    for each in tallies:
        total.merge(each)
    return total


def knobs(setting: object) -> str:
    """Every field of a setting, those of its parts included, as `name=value` separated by blanks."""
    assert is_dataclass(setting)
    parts = []
    for each in fields(setting):
        value = getattr(setting, each.name)
        if is_dataclass(value):
            parts.append(knobs(value))
        else:
            shown = ("yes" if value else "no") if isinstance(value, bool) else value
            parts.append(f"{each.name}={shown}")
    return " ".join(parts)


def without_folders(violation: str) -> str:
    """A violation as it is written down for others: files by their names, not where they lie on this machine."""
    return _FOLDERS.sub("", violation)
