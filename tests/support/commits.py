"""Repositories of their own, for tests about commits."""

from __future__ import annotations

import subprocess
from pathlib import Path

WHO = ("-c", "user.name=a test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false")


def git(folder: Path, *arguments: str) -> str:
    """Carry out a command of git there."""
    command = ["git", *WHO, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


def a_commit_of(folder: Path, subject: str = "all of it") -> tuple[str, str]:
    """Commit all that is in the folder, as a repository of its own; name and date of the commit."""
    if not (folder / ".git").exists():
        git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", subject)
    name, date = git(folder, "log", "-1", "--abbrev=12", "--format=%h %cs").split()
    return name, date
