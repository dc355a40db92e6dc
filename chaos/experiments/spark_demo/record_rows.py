"""The ledger of the record of kills: one line for each run, and which code it ran on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from chaos.campaign.version import PROCESSES, Files, code_version, imported_files, package_files, packages_version
from chaos.evidence.ledger import Codec, count_in, read_ledger, recorded

_ENTRY = "chaos.experiments.spark_demo.run"
_PACKAGES = (*PROCESSES, "bridges")


@dataclass(frozen=True, slots=True)
class Strike:
    """One SIGKILL.

    Attributes:
        what: the kind of victim.
        during: what was under way.
        unsettled_then: deliveries, through a router or all of them.
    """

    what: str
    during: str
    unsettled_then: int


@dataclass(frozen=True, slots=True)
class Run:
    """One run.

    Attributes:
        code: `kills_version`.
        counts: of the late query.
        reasons: why it did not pass; empty where it did.
    """

    code: str
    python: str
    machine: str
    seed: int
    published: int
    lost: int
    duplicated: int
    torn: int
    batches: int
    driver_starts: int
    query_failures: int
    counts: int
    seconds: float
    strikes: Sequence[Strike]
    reasons: Sequence[str]

    @property
    def passed(self) -> bool:
        """Whether everything held that must hold."""
        return not self.reasons


def _strike(row: Mapping[str, Any]) -> Strike:
    return Strike(str(row["what"]), str(row["during"]), count_in(row, "unsettled_then"))


def _run(row: Mapping[str, Any]) -> Run:
    words: dict[str, Any] = {key: str(row[key]) for key in ("code", "python", "machine")}
    counts = ("seed", "published", "lost", "duplicated", "torn", "batches", "driver_starts", "query_failures", "counts")
    numbers: dict[str, Any] = {key: count_in(row, key) for key in counts}
    strikes = [_strike(each) for each in row["strikes"]]
    reasons = [str(reason) for reason in row["reasons"]]
    return Run(**words, **numbers, seconds=float(row["seconds"]), strikes=strikes, reasons=reasons)


RUNS: Codec[Run] = Codec("run of the demo", asdict, _run)
"""What a line of this ledger is."""


def read_kills(path: Path) -> list[Run]:
    """The runs of a ledger; none where there is no file. Raises LedgerError."""
    return read_ledger(path, RUNS)


def kills_version(root: Path | None = None) -> str:
    """A hash over all that a run executes, without Spark."""
    return packages_version(*_PACKAGES, seed=code_version(_ENTRY, root=root), root=root)


def kills_files(*, root: Path | None = None) -> Files:
    """The files that `kills_version` counts."""
    return {**package_files(*_PACKAGES, root=root), **imported_files(_ENTRY, root=root)}


def recorded_code(runs: Sequence[Run]) -> str:
    """The code version that a page is about: the last one without a finding."""
    codes = list(dict.fromkeys(run.code for run in reversed(runs)))[::-1]
    return recorded({code: (True, all(run.passed for run in runs if run.code == code)) for code in codes})
