"""Which commit holds a version of the code: `commits.json` beside the ledgers, so that pages can name it.

A hash of the code says that two runs had the same code; a commit says which, and what has changed since.
"""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from chaos.evidence.ledger import LedgerError, replace_file

NAME_LENGTH = 12
"""Digits of a commit's name, as many as of a code version."""


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit of this project."""

    name: str
    date: str

    def __str__(self) -> str:
        """As pages name it; `chaos.evidence.changes.NAMED` finds it there."""
        return f"commit `{self.name}` of {self.date}"


Commits = Mapping[str, Commit]
"""By code version."""


def read_commits(folder: Path) -> Commits:
    """The commits that are known of the ledgers in this folder.

    Raises:
        LedgerError: the file cannot be read.
    """
    path = _file(folder)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {code: Commit(str(each["name"]), str(each["date"])) for code, each in found.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        why = f"{type(error).__name__}: {error}"
        raise LedgerError(f"{path} cannot be read", why, "restore it from the repository") from None


def note_commit(folder: Path, code: str, version: Callable[[Path], str]) -> None:
    """Write down that this code is that of the last commit; nothing where it is not, or where there is no git.

    Args:
        folder: of the ledger.
        code: the version of the code as it is.
        version: works out the version of sources in a folder.

    Raises:
        LedgerError: the file cannot be read or written.
    """
    known = read_commits(folder)
    commit = None if code in known else _last_commit(folder)
    if commit is None:
        return
    with sources_at(folder, commit.name) as sources:
        if sources is None or version(sources) != code:
            return
    rows = {each: asdict(known[each]) for each in known} | {code: asdict(commit)}
    replace_file(_file(folder), json.dumps(rows, indent=1) + "\n")


def in_words(code: str, commits: Commits) -> str:
    """Code version and commit, as a page names them."""
    return f"Code version `{code}`, {commits.get(code, 'which no commit is known to have')}"


@contextmanager
def sources_at(folder: Path, commit: str) -> Iterator[Path | None]:
    """Sources and data of a commit of the repository that this folder is in; None where that has no such commit."""
    top = _git(folder, "rev-parse", "--show-toplevel")
    sought = (".", ":(exclude)tests", ":(exclude)docs")
    archive = None if top is None else _git(Path(top.decode().strip()), "archive", "--format=tar", commit, *sought)
    if archive is None:
        yield None
        return
    with TemporaryDirectory(prefix="oncewire-sources-") as sources, tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(sources, filter="data")
        yield Path(sources)


def subjects_since(folder: Path, commit: str, files: Iterable[str]) -> list[str]:
    """What the commits that changed these files since then say, the newest first."""
    said = _git(folder, "log", "--format=%x00%s", "--name-only", "--no-renames", f"{commit}..HEAD")
    wanted, found = set(files), []
    for each in (said or b"").decode().split("\0")[1:]:
        subject, *changed = each.split("\n")
        if not wanted.isdisjoint(changed):
            found.append(subject)
    return found


def _last_commit(folder: Path) -> Commit | None:
    said = _git(folder, "log", "-1", f"--abbrev={NAME_LENGTH}", "--format=%h %cs")
    return None if said is None else Commit(*said.decode().split())


def _git(folder: Path, *arguments: str) -> bytes | None:
    """What git answers; None where it is not installed, or refuses."""
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, check=False)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


def _file(folder: Path) -> Path:
    return folder / "commits.json"
