"""The release before this tree: which commit it is, and its packages, built from the repository's history."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from io import BytesIO
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
NAMED_IN = PROJECT / "deploy" / "previous-release"
"""Names the commit while there is no tag to find it by."""


def _git(*arguments: str) -> bytes | None:
    """What git answers; None where there is no git, no repository, or no such thing in it."""
    try:
        git = ["git", "-c", "safe.directory=*", "-C", str(PROJECT)]  # whoever owns the checkout
        done = subprocess.run([*git, *arguments], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout


def previous_release() -> str:
    """The newest tag before this commit, else the commit that `deploy/previous-release` names."""
    tag = _git("describe", "--tags", "--abbrev=0", "HEAD^")
    if tag is not None:
        return tag.decode().strip()
    lines = NAMED_IN.read_text(encoding="utf-8").splitlines()
    (commit,) = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    return commit


def is_in_history() -> bool:
    """Tells whether this checkout has the files of the previous release."""
    return _git("cat-file", "-e", f"{previous_release()}^{{tree}}") is not None


def install_previous_release(folder: Path) -> Path:
    """Builds the wheel of the previous release and unpacks it; returns the folder to put on PYTHONPATH.

    Nothing is downloaded: what it builds and runs with are the packages of the running Python.
    """
    archive = _git("archive", "--format=tar", previous_release())
    assert archive is not None, "ask `is_in_history` first"
    source, wheels, unpacked = folder / "source", folder / "wheels", folder / "unpacked"
    with tarfile.open(fileobj=BytesIO(archive)) as files:
        files.extractall(source, filter="data")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-index"]
    command += ["--no-deps", "--no-build-isolation", "--wheel-dir", str(wheels), str(source)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, f"{built.stdout}\n{built.stderr}"
    (wheel,) = wheels.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(unpacked)
    return unpacked
