"""What an experiment came to: verdict, faults with what they cost, a timeline, and the numbers over many."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from chaos.checker import PublisherHistory, SubscriberHistory, Verdict
from chaos.clients.events import Attached, Disconnected, Incarnation, Opened, Resumed
from chaos.experiments.catalogue import MIXED
from chaos.experiments.plans import UNSETTLED_AT_FAULT, Experiment, Place
from chaos.network.faults import Fault
from chaos.network.recovery import RoundCost

ANYWHERE = "at random"
"""Instead of a place, in `random`."""
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
        """`say` is called with each step as it happens."""
        self._notify = say
        self._start = time.monotonic()
        self._steps: list[Step] = []

    def begin(self) -> None:
        """The load begins now."""
        self._start = time.monotonic()

    def say(self, text: str) -> None:
        """Something happens now."""
        now = time.monotonic()
        self._steps.append(Step(now, text))
        self._notify(f"{now - self._start:7.2f} s  {text}")

    def add(self, steps: Iterable[Step]) -> None:
        """Add what is known from the journals only."""
        self._steps += steps

    @property
    def steps(self) -> list[Step]:
        """All steps, with times from the beginning of the load."""
        return [
            Step(round(step.t - self._start, 3), step.text) for step in sorted(self._steps, key=lambda step: step.t)
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
    rounds: Sequence[RoundCost]
    fenced: Sequence[str]
    """Routers that gave up an incarnation while their process lived on, once for each time."""
    timeline: Sequence[Step]
    problems: Sequence[str]
    seconds: float
    software: str
    """Versions of what the routers and clients ran with."""

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
            f"{fault.kind} at {fault.target} met only {fault.unsettled} unsettled deliveries"
            for fault in self.faults
            if fault.unsettled < UNSETTLED_AT_FAULT
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

    def timeline_text(self) -> str:
        """One line for each thing that happened."""
        return "".join(f"{step.t:9.3f}  {step.text}\n" for step in self.timeline)

    @property
    def faults(self) -> list[Fault]:
        """All faults, in the order in which they were fired."""
        return [fault for cost in self.rounds for fault in cost.faults]

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
            **{count: total(count) for count in (*COUNTS, "unexpected", "redelivered", "repeated")},
            "resumed_links": self.resumed_links,
            "fenced": list(self.fenced),
            "rounds": [
                {
                    "kind": kind_of_round(self.experiment.name, [fault.kind for fault in cost.faults]),
                    "place": _place_of(self.experiment, number),
                    "faults": [
                        {"kind": fault.kind, "target": fault.target, "unsettled_then": fault.unsettled}
                        for fault in cost.faults
                    ],
                    "repaired_ms": round(cost.repaired_s * 1000),
                    "recovery_ms": round(cost.recovery_s * 1000),
                    "longest_wait_ms": round(cost.wait_s * 1000),
                }
                for number, cost in enumerate(self.rounds)
            ],
            "software": self.software,
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
    """Recovery times in seconds of all rounds, by their kind."""
    times: dict[str, list[float]] = {}
    for result in results:
        for cost in result.rounds:
            kind = kind_of_round(result.experiment.name, [fault.kind for fault in cost.faults])
            times.setdefault(kind, []).append(cost.recovery_s)
    return times


def _place_of(experiment: Experiment, number: int) -> str:
    """What a round takes hold of."""
    if experiment.name == MIXED:
        return ANYWHERE
    places = {place for fault in experiment.rounds[number] for place in fault.places}
    return next(place.value for place in Place if place in places)


def kind_of_round(experiment: str, kinds: Sequence[str]) -> str:
    """Under which name a round is counted: what several faults at once cost is none of them's alone.

    In the experiment `random` they also last for other times than elsewhere.
    """
    if experiment == MIXED:
        return f"random, {len(kinds)} at once"
    counted = Counter(kinds)
    return " + ".join(kind if count == 1 else f"{count} x {kind}" for kind, count in counted.items())


def percentiles(times: Sequence[float]) -> dict[str, int]:
    """The median, the 95th percentile and the largest, in milliseconds; each is one of the values (nearest rank)."""
    ordered = sorted(times)

    def rank(part: float) -> int:
        return round(ordered[max(0, math.ceil(part * len(ordered)) - 1)] * 1000)

    return {"p50": rank(0.5), "p95": rank(0.95), "max": rank(1.0)}
