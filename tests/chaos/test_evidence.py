"""What has changed since each page of evidence was made: the commit is the one of its code, and nothing is left out."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import NoReturn

import pytest
from click.testing import CliRunner
from rich.console import Console

import chaos as chaos_package
from chaos.campaign.campaign import Plan, run_campaign
from chaos.campaign.version import code_version, mutants_version, processes_version
from chaos.cli import chaos
from chaos.evidence.changes import BY_HAND, Record, changes_since, records_in
from chaos.evidence.commits import Commit, in_words, note_commit, read_commits
from chaos.fuzz.fuzzing import Plan as FuzzingPlan
from chaos.fuzz.fuzzing import code_of
from chaos.fuzz.fuzzing import make_record as make_fuzzing_record
from chaos.fuzz.targets import GOALS
from chaos.mutants.catalogue import by_name
from chaos.record.record import Plan as RecordPlan
from chaos.record.record import make_record as make_record_of_faults
from tests.support.commits import a_commit_of

ROOT = Path(__file__).parents[2]
EVIDENCE = ROOT / "docs" / "evidence"
PLANTED = by_name("C11-sync-when-moved")


def sources_of(folder: Path) -> Callable[..., dict[str, bytes]]:
    """Reads the packages of a small project: those in the folder, or in a root."""

    def read(*, root: Path | None = None) -> dict[str, bytes]:
        top = root or folder
        return {str(path.relative_to(top)): path.read_bytes() for path in sorted((top / "package").glob("*.py"))}

    return read


def version_of(root: Path) -> str:
    return (root / "package" / "a.py").read_text().strip()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "package").mkdir()
    (tmp_path / "docs").mkdir()
    for name in ("a", "b", "c"):
        (tmp_path / "package" / f"{name}.py").write_text(f"{name}1\n")
    return tmp_path


def record_at(project: Path, commit: Commit | None, code: str = "a1") -> Record:
    return Record("page.md", commit, sources_of(project), code, version_of)


def test_the_version_of_mutants_changes_with_their_tables(tmp_path: Path) -> None:
    tables = tmp_path / "chaos" / "mutants" / "rules"
    tables.mkdir(parents=True)
    versions = [mutants_version(tmp_path)]
    for text in ("[one]\n", "[another]\n"):
        (tables / "room.toml").write_text(text)
        versions.append(mutants_version(tmp_path))
    assert len(set(versions)) == len(versions)


def test_the_commit_of_the_code_is_noted_once_and_named(project: Path) -> None:
    docs = project / "docs"
    name, date = a_commit_of(project)
    note_commit(docs, "a1", version_of)
    assert read_commits(docs) == {"a1": Commit(name, date)}
    assert in_words("a1", read_commits(docs)) == f"Code version `a1`, commit `{name}` of {date}"
    assert in_words("a2", read_commits(docs)) == "Code version `a2`, which no commit is known to have"
    a_commit_of(project, "the same code again")
    note_commit(docs, "a1", version_of)
    assert read_commits(docs) == {"a1": Commit(name, date)}


def test_code_that_was_not_committed_is_noted_at_no_commit(project: Path) -> None:
    docs = project / "docs"
    note_commit(docs, "a1", version_of)  # no repository
    a_commit_of(project)
    note_commit(docs, "a2", version_of)  # the working tree has it, the commit has not
    assert read_commits(docs) == {}


def test_new_changed_and_removed_files_are_listed_with_the_commits_that_did_it(project: Path) -> None:
    commit = Commit(*a_commit_of(project))
    [changes] = changes_since([record_at(project, commit)], project / "docs")
    assert (changes.total, changes.files, changes.subjects, changes.unknown) == (3, (), (), "")
    (project / "package" / "a.py").write_text("a2\n")
    (project / "package" / "b.py").unlink()
    a_commit_of(project, "Change a and remove b")
    (project / "package" / "d.py").write_text("d1\n")
    a_commit_of(project, "Add d")
    (project / "docs" / "page.md").write_text("words")
    a_commit_of(project, "Write a page")
    (project / "package" / "c.py").write_text("not committed\n")
    [changes] = changes_since([record_at(project, commit)], project / "docs")
    assert changes.files == tuple(f"package/{name}.py" for name in "abcd")
    assert changes.subjects == ("Add d", "Change a and remove b")
    assert changes.total == 3


def test_a_commit_whose_code_is_another_is_wrong_and_one_that_is_not_there_says_nothing(project: Path) -> None:
    commit = Commit(*a_commit_of(project))
    records = [
        record_at(project, commit, "a9"),
        record_at(project, Commit("0123456789ab", "2026-01-01")),
        record_at(project, None),
    ]
    wrong, absent, unknown = changes_since(records, project / "docs")
    assert (wrong.is_wrong, wrong.unknown) == (True, "the commit has the code a1")
    assert absent.unknown == "there is no git here, or its history has no commit 0123456789ab"
    assert not absent.is_wrong
    assert (unknown.is_wrong, unknown.unknown) == (False, "no commit is known to have this code")


def test_a_module_that_has_moved_since_is_not_taken_for_other_code(project: Path) -> None:
    record = record_at(project, Commit(*a_commit_of(project)), "a9")
    stayed, moved = changes_since(
        [replace(record, modules=("package.a",)), replace(record, modules=("package.model.a",))], project / "docs"
    )
    assert stayed.is_wrong
    assert (moved.is_wrong, moved.unknown) == (False, "the commit has no package.model.a: it has moved since")


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A repository whose last commit has the code as it is, and the commit's name."""
    folder = tmp_path_factory.mktemp("committed")
    packages = Path(chaos_package.__file__).parents[1]
    for name in ("chaos", "delivery_records", "oncewire", "topology", "router", "bridges"):
        shutil.copytree(packages / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    return folder, a_commit_of(folder)[0]


@pytest.mark.slow
def test_campaign_record_and_fuzzing_note_the_commit_they_run_on(committed: tuple[Path, str]) -> None:
    folder, name = committed
    run_campaign(Plan(folder / "simulation.jsonl", 2, None, 1, [PLANTED], seeds_each=60), Console(quiet=True))
    make_record_of_faults(RecordPlan(folder / "chaos.jsonl", 1, 1, seconds=-1.0), never)
    goal = {"router-messages": replace(GOALS["router-messages"], inputs=20, block=1)}
    make_fuzzing_record(FuzzingPlan(folder / "fuzz.jsonl", goal))
    versions = {code_version(), mutants_version(), processes_version(), code_of(goal["router-messages"])}
    assert {code: commit.name for code, commit in read_commits(folder).items()} == dict.fromkeys(versions, name)
    assert f"Code version `{code_version()}`, commit `{name}` of " in (folder / "simulation.md").read_text()
    assert f"Code version `{mutants_version()}`, commit `{name}` of " in (folder / "simulation.md").read_text()


def never(name: str, seed: int, folder: Path) -> NoReturn:
    raise AssertionError("no time is left to run anything")


# --- the evidence that is here ----------------------------------------------------------------------------------------


def test_every_page_of_evidence_names_a_commit() -> None:
    records = list(records_in(EVIDENCE))
    pages = {record.page.partition(",")[0] for record in records}
    assert pages == {"simulation.md", "chaos.md", "fuzz.md", "spark-kills.md", *BY_HAND}
    assert [record.page for record in records if record.commit is None] == []
    for record in records:
        text = (EVIDENCE / record.page.partition(",")[0]).read_text(encoding="utf-8")
        assert record.commit is not None
        assert record.commit.name in text
        assert record.commit.date in text
        assert record.page.endswith(".json") or "`oncewire chaos evidence` lists" in " ".join(text.split())


@pytest.mark.slow
def test_the_commits_that_the_pages_name_have_the_code_of_their_numbers() -> None:
    written = [record for record in records_in(EVIDENCE) if record.version is not None]
    assert len(written) > len(GOALS)
    assert [changes.record.page for changes in changes_since(written, EVIDENCE) if changes.is_wrong] == []


# --- the command ------------------------------------------------------------------------------------------------------


def lines_of(*arguments: str) -> tuple[int, list[str]]:
    done = CliRunner().invoke(chaos, ["evidence", *arguments])
    return done.exit_code, done.stdout.splitlines()


def test_code_that_is_newer_than_a_page_is_listed_and_is_no_failure(project: Path) -> None:
    name, date = a_commit_of(project)
    page = project / "docs" / "demo.md"
    page.write_text(f"It ran at commit `{name}`\nof {date}.")
    code, [head, files] = lines_of("--folder", str(page.parent))
    assert code == 0
    assert head.startswith(f"demo.md ran on commit {name} of {date}; changed since: ")
    assert re.fullmatch(r"  files: \d+ of \w+(, \d+ of \w+)+", files)
    code, [line] = lines_of("--folder", str(page.parent), "--json")
    assert code == 0
    assert "router/node.py" in json.loads(line)["changed"]


def test_the_command_fails_where_a_page_names_a_commit_with_other_code(project: Path) -> None:
    folder = project / "docs"
    (folder / "mutants.json").write_bytes((EVIDENCE / "mutants.json").read_bytes())
    table = json.loads((folder / "mutants.json").read_text())
    name, date = a_commit_of(project)
    (folder / "commits.json").write_text(json.dumps({table["catalogue"]: asdict(Commit(name, date))}))
    code, lines = lines_of("--folder", str(folder))
    assert code == 1
    assert "; WRONG: the commit has the code " in lines[0]
    code, [line] = lines_of("--folder", str(folder), "--json")
    found = json.loads(line)
    assert (code, found["page"], found["commit"], found["wrong"]) == (1, "simulation.md, mutants", name, True)
    last = CliRunner().invoke(chaos, ["evidence", "--folder", str(folder)]).stderr
    assert "is not the one that they ran on: simulation.md, mutants; record them again" in last
