"""The lines of the ledger: one for each experiment that was run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from chaos.evidence.ledger import Codec, Ledger, count_in, recorded
from chaos.evidence.ledger import read_ledger as read_rows
from chaos.experiments.results import COUNTS, ExperimentResult
from chaos.record import FAULTS


@dataclass(frozen=True, slots=True)
class FiredFault:
    """One fault, as it was fired."""

    kind: str
    target: str
    unsettled_then: int


@dataclass(frozen=True, slots=True)
class FiredRound:
    """Faults that were fired together, and what they cost; times are from the first fault on."""

    kind: str
    """`chaos.experiments.results.kind_of_round`"""
    place: str
    faults: Sequence[FiredFault]
    repaired_ms: int
    recovery_ms: int
    longest_wait_ms: int


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one experiment."""

    experiment: str
    seed: int
    code: str
    """`chaos.campaign.version.processes_version`"""
    python: str
    machine: str
    software: str
    published: int
    accepted: int
    lost: int
    duplicated: int
    reordered: int
    stuck: int
    unexpected: int
    redelivered: int
    repeated: int
    """Processed by a second member, flagged, where one has left; 0 in lines that do not say."""
    resumed_links: int
    fenced: int
    seconds: float
    rounds: Sequence[FiredRound]
    reasons: Sequence[str]
    """Why it did not pass; empty where it did."""

    @property
    def passed(self) -> bool:
        """Whether everything held that must hold."""
        return not self.reasons

    @property
    def faults(self) -> int:
        """How many faults were fired."""
        return sum(len(each.faults) for each in self.rounds)


def run_of(result: ExperimentResult, code: str, python: str, machine: str) -> Run:
    """The line of a result."""
    content = result.as_json()
    row = {**content, "code": code, "python": python, "machine": machine, "fenced": len(result.fenced)}
    return _run(row)


def _run(row: Mapping[str, Any]) -> Run:
    words: dict[str, Any] = {key: str(row[key]) for key in ("experiment", "code", "python", "machine", "software")}
    numbers: dict[str, Any] = {
        key: count_in(row, key)
        for key in ("seed", "published", "accepted", *COUNTS, "unexpected", "redelivered", "resumed_links", "fenced")
    }
    numbers["repeated"] = count_in(row, "repeated") if "repeated" in row else 0
    reasons = [str(reason) for reason in row["reasons"]]
    rounds = [_round(each) for each in row["rounds"]]
    return Run(**words, **numbers, seconds=float(row["seconds"]), rounds=rounds, reasons=reasons)


def _round(row: Mapping[str, Any]) -> FiredRound:
    faults = [
        FiredFault(str(each["kind"]), str(each["target"]), count_in(each, "unsettled_then")) for each in row["faults"]
    ]
    costs = (count_in(row, key) for key in ("repaired_ms", "recovery_ms", "longest_wait_ms"))
    return FiredRound(str(row["kind"]), str(row["place"]), faults, *costs)


RUNS: Codec[Run] = Codec("run of an experiment", asdict, _run)
"""What a line of this ledger is."""


def runs_ledger(path: Path) -> Ledger[Run]:
    """The ledger, to be continued."""
    return Ledger(path, RUNS)


def read_runs(path: Path) -> list[Run]:
    """The runs of a ledger; none where there is no file. Raises LedgerError."""
    return read_rows(path, RUNS)


def recorded_code(runs: Sequence[Run]) -> str:
    """The code version that a page is about: `recorded`, of those with enough faults."""
    codes = list(dict.fromkeys(run.code for run in reversed(runs)))[::-1]
    found = {code: runs_of(runs, code) for code in codes}
    return recorded(
        {
            code: (sum(run.faults for run in mine) >= FAULTS, all(run.passed for run in mine))
            for code, mine in found.items()
        }
    )


def runs_of(runs: Sequence[Run], code: str) -> list[Run]:
    """Those with this code: numbers of different code are never added up."""
    return [run for run in runs if run.code == code]
