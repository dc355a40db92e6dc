"""What an experiment came to: verdict, faults with what they cost, a timeline, and the numbers over many."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from chaos.checker import PublisherHistory, SubscriberHistory, Verdict
from chaos.events import Attached, Disconnected, Incarnation, Opened, Resumed
from chaos.experiments.plans import UNSETTLED_AT_FAULT, Experiment
from chaos.faults import FaultCost

SEVERAL = "several at once"
"""Kind under which rounds of more than one fault are counted."""
COUNTS = ("lost", "duplicated", "reordered", "stuck")
"""What must be zero."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happened."""

    t: float
    """On the clock of the journals, or from the beginning of the load."""
    text: str


class Timeline:
    """Steps in the order of their times, from the beginning of the load."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """`say` is told each step as it happens."""
        self._tell = say
        self._start = time.monotonic()
        self._steps: list[Step] = []

    def begin(self) -> None:
        """The load begins now."""
        self._start = time.monotonic()

    def say(self, text: str) -> None:
        """Something happens now."""
        now = time.monotonic()
        self._steps.append(Step(now, text))
        self._tell(f"{now - self._start:7.2f} s  {text}")

    def add(self, steps: Iterable[Step]) -> None:
        """Add what is known from the journals only."""
        self._steps += steps

    @property
    def steps(self) -> list[Step]:
        """All steps, with times from the beginning of the load."""
        return [
            Step(round(step.t - self._start, 3), step.text)
            for step in sorted(self._steps, key=lambda step: step.t)
        ]


def client_steps(histories: Sequence[PublisherHistory | SubscriberHistory]) -> list[Step]:
    """When each client began, lost its link and was attached again, by its own journal."""
    steps = []
    for history in histories:
        for event in history.events:
            match event:
                case Opened():
                    text = f"begins, pid {event.pid}"
                case Attached():
                    text = f"is attached at {event.router}"
                case Resumed():
                    text = f"is attached again at {event.router} with {event.unsettled} deliveries unsettled"
                case Disconnected():
                    text = f"has lost its link: {event.reason}"
                case Incarnation():
                    text = f"is incarnation {event.number}"
                case _:
                    continue
            steps.append(Step(event.t, f"{history.name} {text}"))
    return steps


@dataclass(frozen=True, slots=True)
class ExperimentResult:
    """One run of one experiment."""

    experiment: Experiment
    seed: int
    verdict: Verdict
    rounds: Sequence[Sequence[FaultCost]]
    """With the longest time any subscription waited for the next message of a publisher, until the next round."""
    fenced: Sequence[str]
    """Routers that gave up an incarnation while their process lived on, once for each time."""
    timeline: Sequence[Step]
    problems: Sequence[str]
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether everything that must hold held."""
        return not self.reasons()

    def reasons(self) -> list[str]:
        """Why it did not pass: one line each."""
        expectation = self.experiment.expectation
        reasons = [*self.problems, *self.verdict.findings()]
        if len(self.faults) != self.experiment.faults:
            reasons.append(f"{len(self.faults)} of {self.experiment.faults} faults fired")
        reasons += [
            f"{cost.fault.kind} at {cost.fault.target} met only {cost.fault.unsettled} unsettled deliveries"
            for cost in self.faults
            if cost.fault.unsettled < UNSETTLED_AT_FAULT
        ]
        if any(each.incarnations > 1 for each in self.verdict.subscribers):
            reasons.append("a subscription expired")
        if expectation.resumes and not self.resumed_links:
            reasons.append("no link was resumed, so nothing was proven")
        if expectation.fences is True and not self.fenced:
            reasons.append("no router gave up its incarnation, and at least one had to")
        if expectation.fences is False and self.fenced:
            reasons.append(f"routers gave up their incarnations without need: {', '.join(self.fenced)}")
        return reasons

    @property
    def faults(self) -> list[FaultCost]:
        """All faults, in the order in which they were fired."""
        return [cost for costs in self.rounds for cost in costs]

    @property
    def resumed_links(self) -> int:
        """How many times a link was attached again with its state kept."""
        return self.verdict.total("resumed")

    def as_json(self) -> dict[str, object]:
        """The line of one experiment."""
        total = self.verdict.total
        return {
            "experiment": self.experiment.name,
            "seed": self.seed,
            "passed": self.passed,
            "published": total("published"),
            "accepted": total("accepted"),
            **{count: total(count) for count in (*COUNTS, "unexpected", "redelivered")},
            "resumed_links": self.resumed_links,
            "fenced": list(self.fenced),
            "faults": [
                {
                    "kind": cost.fault.kind,
                    "target": cost.fault.target,
                    "unsettled_then": cost.fault.unsettled,
                    "recovery_ms": round(cost.gap_s * 1000),
                }
                for cost in self.faults
            ],
            "timeline": [[step.t, step.text] for step in self.timeline],
            "reasons": self.reasons(),
            "seconds": round(self.seconds, 1),
        }


def summary_of(results: Sequence[ExperimentResult]) -> dict[str, object]:
    """The last line: over all experiments."""
    return {
        "experiments": len(results),
        "faults": sum(len(result.faults) for result in results),
        **{count: sum(result.verdict.total(count) for result in results) for count in COUNTS},
        "recovery_ms": {kind: percentiles(times) for kind, times in sorted(recoveries(results).items())},
        "passed": all(result.passed for result in results),
    }


def recoveries(results: Sequence[ExperimentResult]) -> dict[str, list[float]]:
    """Recovery times in seconds by kind of fault; what a round of several cost is nobody's alone."""
    times: dict[str, list[float]] = {}
    for result in results:
        for costs in result.rounds:
            kind = costs[0].fault.kind if len(costs) == 1 else SEVERAL
            if costs:
                times.setdefault(kind, []).append(max(cost.gap_s for cost in costs))
    return times


def percentiles(times: Sequence[float]) -> dict[str, int]:
    """The median, the 95th percentile and the largest, in milliseconds; each is one of the values (nearest rank)."""
    ordered = sorted(times)

    def rank(part: float) -> int:
        return round(ordered[max(0, math.ceil(part * len(ordered)) - 1)] * 1000)

    return {"p50": rank(0.5), "p95": rank(0.95), "max": rank(1.0)}
