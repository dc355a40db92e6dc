"""Experiments on journals: what `oncewire chaos run` runs with edges in the place of Toxiproxy's network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from chaos.experiments.command import run_network
from chaos.experiments.journal_demo.report import JournalResult, Loss, print_result
from chaos.experiments.journal_demo.run import JournalOptions, run_journal_demo
from oncewire.cli.errors import CliError

ROUTERS = 2
MESSAGES_PER_KILL = 400
ROUNDS = 2
"""Each kind of fault happens so often."""


@dataclass(frozen=True, slots=True)
class JournalExperiment:
    """One experiment.

    Attributes:
        name: of it.
        summary: what it does, in a sentence.
        kinds: of faults.
        is_takeover: of the owner of the journal.
    """

    name: str
    summary: str
    kinds: Sequence[str]
    is_takeover: bool = False


_ALL = (
    JournalExperiment(
        "journal",
        "Topics are kept in a journal, one reader is away, one comes late, one reads twice; all are killed.",
        ("SIGKILL to a router", "SIGKILL to an edge", "SIGKILL to a reader"),
    ),
    JournalExperiment(
        "journal-takeover",
        "Two edges over one PostgreSQL database (--store): the owner of the journal loses it, and comes back.",
        [each.value for each in Loss],
        is_takeover=True,
    ),
)
JOURNALS: Mapping[str, JournalExperiment] = {each.name: each for each in _ALL}


@dataclass(frozen=True, slots=True)
class JournalRun:
    """One run of one experiment."""

    name: str
    seed: int
    result: JournalResult
    timeline: Sequence[str]

    @property
    def passed(self) -> bool:
        """Whether everything that must hold held."""
        return self.result.passed

    def timeline_text(self) -> str:
        """One line for each thing that happened."""
        return "".join(f"{line}\n" for line in self.timeline)

    def as_json(self) -> dict[str, object]:
        """The line of one run."""
        said = {"reasons": self.result.reasons(), "timeline": list(self.timeline)}
        return {"experiment": self.name, "seed": self.seed, **self.result.as_json(), **said}


def run_journals(name: str, seed: int, store: str | None, folder: Path, console: Console) -> JournalRun:
    """Run one experiment in an empty folder.

    Raises:
        CliError: the store, the data or the network cannot be used.
        click.Abort: it was broken off.
    """
    from oncewire.store.errors import EdgeError

    experiment = JOURNALS[name]
    if experiment.is_takeover and store is None:
        raise CliError(
            f"the experiment {name} has no database",
            "it runs two edges over one PostgreSQL database, and --store names none",
            "give --store postgresql://USER@HOST/DATABASE, of which it deletes what it has added",
        )
    kills = ROUNDS * len(experiment.kinds)
    options = JournalOptions(
        kills * MESSAGES_PER_KILL,
        kills,
        ROUTERS,
        seed,
        store=store if experiment.is_takeover else None,
        keep=folder,
        is_takeover=experiment.is_takeover,
    )
    timeline: list[str] = []

    def say(text: str) -> None:
        timeline.append(text)
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    try:
        result = run_network(lambda: run_journal_demo(options, say), None, "experiment")
    except EdgeError as error:
        raise CliError(error.what, error.why, error.fix) from None
    print_result(console, result)
    return JournalRun(name, seed, result, timeline)
