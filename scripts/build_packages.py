"""Builds the source package and the pure wheel of a tree: build_packages.py TREE FOLDER.

Two builds of one tree have the same bytes, wherever, whenever and by whom they are made with one version of Python and
setuptools: everybody can check that a package was built from its source.

What differs by itself is set: times (SOURCE_DATE_EPOCH, else the time of the commit, else 1980), owners, modes, order.
The wheel is built from the source package. The Python that runs this needs setuptools, and no network.
"""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

EARLIEST = 315532800
"""1980: a zip file knows no earlier time."""
BUILD = "import sys; from setuptools import build_meta; getattr(build_meta, sys.argv[1])(sys.argv[2])"


def epoch_of(tree: Path) -> int:
    """The time that all files get."""
    if "SOURCE_DATE_EPOCH" in os.environ:
        return int(os.environ["SOURCE_DATE_EPOCH"])
    try:
        git = ["git", "-c", "safe.directory=*", "-C", str(tree), "log", "-1", "--format=%ct"]  # whoever owns the tree
        return int(subprocess.run(git, capture_output=True, text=True, check=True).stdout)
    except (OSError, ValueError, subprocess.CalledProcessError):
        return EARLIEST


def normalise(archive: Path, epoch: int) -> None:
    """Write a .tar.gz anew, with everything set that says where and when it was made."""
    with tarfile.open(archive) as packed:
        # A folder is made for its files.
        files = sorted((entry for entry in packed.getmembers() if entry.isfile()), key=lambda entry: entry.name)
        bodies = {entry.name: body.read() for entry in files if (body := packed.extractfile(entry))}
    with (
        archive.open("wb") as written,
        gzip.GzipFile(filename="", mode="wb", fileobj=written, mtime=epoch) as compressed,
        tarfile.open(mode="w", fileobj=compressed, format=tarfile.PAX_FORMAT) as packed,
    ):
        for file in files:
            entry = tarfile.TarInfo(file.name)
            entry.size, entry.mtime = len(bodies[file.name]), epoch
            entry.mode = 0o755 if file.mode & 0o100 else 0o644
            packed.addfile(entry, io.BytesIO(bodies[file.name]))


def built(what: str, tree: Path, folder: Path, epoch: int) -> Path:
    """One package of setuptools, in a process of its own: setuptools works in the current folder."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "PYTHONHASHSEED": "0", "LC_ALL": "C", "TZ": "UTC"}
    environment.pop("ONCEWIRE_COMPILED", None)
    before = set(folder.iterdir())
    done = subprocess.run(
        [sys.executable, "-c", BUILD, f"build_{what}", str(folder)],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        umask=0o022,
    )
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}")
    (made,) = set(folder.iterdir()) - before
    return made


def main() -> None:
    """Build both."""
    tree, folder = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    epoch = epoch_of(tree)
    with tempfile.TemporaryDirectory() as temporary:
        made = Path(temporary) / "made"
        made.mkdir()
        source = built("sdist", tree, made, epoch)
        normalise(source, epoch)
        with tarfile.open(source) as packed:
            packed.extractall(temporary, filter="data")
        wheel = built("wheel", Path(temporary) / source.name.removesuffix(".tar.gz"), made, epoch)
        for package in (source, wheel):
            (folder / package.name).write_bytes(package.read_bytes())


if __name__ == "__main__":
    main()
