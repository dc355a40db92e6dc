"""What has changed since each page of evidence was made: its commit's sources beside the code as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Protocol

from chaos.campaign.mutants_table import read_table
from chaos.campaign.summary import read_blocks, recorded_code
from chaos.campaign.version import (
    EXPERIMENTS,
    Files,
    imported_files,
    mutants_files,
    mutants_version,
    package_files,
    place_of,
    process_files,
    processes_version,
    simulator_version,
)
from chaos.evidence.commits import Commit, read_commits, sources_at, subjects_since
from chaos.evidence.ledger import read_ledger
from chaos.experiments.spark_demo.record_rows import kills_files, kills_version, read_kills
from chaos.experiments.spark_demo.record_rows import recorded_code as recorded_kills
from chaos.fuzz.fuzzing import code_of, modules_of
from chaos.fuzz.ledger import BLOCKS
from chaos.fuzz.page import recorded_codes
from chaos.fuzz.targets import GOALS
from chaos.record.runs import read_runs
from chaos.record.runs import recorded_code as recorded_runs

NAMED = re.compile(r"commit `(?P<name>[0-9a-f]{7,40})`\s+of\s+(?P<date>\d{4}-\d\d-\d\d)")
"""How a page that is written by hand names its commit."""


class FilesOf(Protocol):
    """Finds the sources that a run executes."""

    def __call__(self, *, root: Path | None = None) -> Files:
        """Of the packages in a folder; None: of the installed ones."""


@dataclass(frozen=True, slots=True)
class Record:
    """Something of `docs/evidence` that was run once."""

    page: str
    """The file, and which part of it."""
    commit: Commit | None
    """None where no commit is known to have its code."""
    files: FilesOf
    code: str = ""
    """The code version that it names; empty where it names a commit alone."""
    version: Callable[[Path], str] | None = None
    modules: tuple[str, ...] = ()
    """Modules and packages that its version names. Where one has moved since, no version can be compared."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What is known of a record's code."""

    record: Record
    total: int = 0
    """Files that it executes today."""
    files: tuple[str, ...] = ()
    """Those that are not as they were; new and removed ones, too."""
    subjects: tuple[str, ...] = ()
    """Of the commits that changed them."""
    unknown: str = ""
    """Why nothing can be said."""
    is_wrong: bool = False
    """The commit has other code than the record says."""

    def as_json(self) -> dict[str, object]:
        """The line of JSON."""
        commit = self.record.commit
        return {
            "page": self.record.page,
            "code": self.record.code,
            "commit": None if commit is None else commit.name,
            "date": None if commit is None else commit.date,
            "files": self.total,
            "changed": list(self.files),
            "commits_since": list(self.subjects),
            "unknown": self.unknown,
            "wrong": self.is_wrong,
        }


def records_in(folder: Path) -> Iterator[Record]:
    """All that is evidence in this folder, with the code it ran on.

    Raises:
        LedgerError: a file cannot be read.
    """
    yield from _of_campaign(folder)
    commits = read_commits(folder)
    if runs := read_runs(folder / "chaos.jsonl"):
        code = recorded_runs(runs)
        yield Record("chaos.md", commits.get(code), process_files, code, processes_version, EXPERIMENTS)
    if kills := read_kills(folder / "spark-kills.jsonl"):
        code = recorded_kills(kills)
        yield Record("spark-kills.md", commits.get(code), kills_files, code, kills_version)
    for name, code in recorded_codes(read_ledger(folder / "fuzz.jsonl", BLOCKS), GOALS).items():
        if name in GOALS:
            modules = modules_of(GOALS[name])
            files, version = partial(package_files, *modules), partial(code_of, GOALS[name])
            yield Record(f"fuzz.md, {name}", commits.get(code), files, code, version, tuple(modules))
    yield from _written_by_hand(folder)


def _of_campaign(folder: Path) -> Iterator[Record]:
    commits = read_commits(folder)
    if blocks := read_blocks(folder / "simulation.jsonl"):
        code = recorded_code(blocks)
        yield Record("simulation.md, seeds", commits.get(code), imported_files, code, simulator_version)
    if code := read_table(folder / "mutants.json").catalogue:
        yield Record("simulation.md, mutants", commits.get(code), mutants_files, code, mutants_version)


def _written_by_hand(folder: Path) -> Iterator[Record]:
    for name, packages in BY_HAND.items():
        path = folder / name
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        if found := NAMED.search(text):
            yield Record(name, Commit(found["name"], found["date"]), partial(_processes_and, packages))
        elif name.endswith(".json") and text:
            document = json.loads(text)
            commit = Commit(document["commit"], document["date"]) if document["commit"] else None
            yield Record(name, commit, partial(_processes_and, packages))


BY_HAND: Mapping[str, tuple[str, ...]] = {
    "demo.md": (),
    "demo-spark.md": ("bridges",),
    "failover.md": (),
    "long-runs.json": ("bridges",),
}
"""Files that name the commit they ran on themselves, and what they ran besides routers, clients and experiments."""


def _processes_and(packages: tuple[str, ...], *, root: Path | None = None) -> Files:
    return {**process_files(root=root), **package_files(*packages, root=root)}


def changes_since(records: Iterable[Record], folder: Path) -> Iterator[Changes]:
    """Compare the code that each record ran on with the code as it is.

    Args:
        records: those of `records_in`, in order: neighbours of one commit cost no more than one of them.
        folder: in the repository that has the commits.
    """
    for commit, group in groupby(records, lambda record: record.commit):
        if commit is None:
            yield from (Changes(record, unknown="no commit is known to have this code") for record in group)
            continue
        with sources_at(folder, commit.name) as sources:
            yield from (_changes_of(record, commit.name, sources, folder) for record in group)


def _changes_of(record: Record, commit: str, sources: Path | None, folder: Path) -> Changes:
    if sources is None:
        return Changes(record, unknown=f"there is no git here, or its history has no commit {commit}")
    if moved := [name for name in record.modules if not place_of(name, sources).exists()]:
        return Changes(record, unknown=f"the commit has no {', '.join(moved)}: it has moved since")
    if record.version is not None and (there := record.version(sources)) != record.code:
        return Changes(record, unknown=f"the commit has the code {there}", is_wrong=True)
    then, now = record.files(root=sources), record.files()
    changed = sorted(path for path in then.keys() | now.keys() if then.get(path) != now.get(path))
    return Changes(record, len(now), tuple(changed), tuple(subjects_since(folder, commit, changed)))
