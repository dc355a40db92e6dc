"""Builds the packages of a release: build_packages.py TREE FOLDER [--only NAME] [--compiled].

The tree is one project, and a checkout is installed as one. What is released are several packages, each with a part of
the folders: `[tool.oncewire.packages]` of pyproject.toml lists them. Each gets a source package, laid out here with a
pyproject.toml of its own, and a wheel built from that.

Two builds of one tree have the same bytes, wherever, whenever and by whom they are made with one version of Python and
setuptools: everybody can check that a package was built from its source. What differs by itself is set: times
(SOURCE_DATE_EPOCH, else the time of the commit, else 1980), owners, modes, order. With --compiled a wheel that can have
compiled modules has them, for this Python and machine; mypyc is needed. The Python that runs this needs setuptools.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path
from typing import Any

EARLIEST = 315532800
"""1980: a zip file knows no earlier time."""
BUILD = "import sys; from setuptools import build_meta; getattr(build_meta, sys.argv[1])(sys.argv[2])"
DOCUMENTS = ("README.md", "LICENSE")
ANY_SYSTEM = "Operating System :: OS Independent"
WARNINGS = "warning: Oncewire"
"""How those of setup.py begin."""
LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.so", "*.pyc")


def epoch_of(tree: Path) -> int:
    """The time that all files get."""
    if "SOURCE_DATE_EPOCH" in os.environ:
        return int(os.environ["SOURCE_DATE_EPOCH"])
    try:
        git = ["git", "-c", "safe.directory=*", "-C", str(tree), "log", "-1", "--format=%ct"]  # whoever owns the tree
        return int(subprocess.run(git, capture_output=True, text=True, check=True).stdout)
    except (OSError, ValueError, subprocess.CalledProcessError):
        return EARLIEST


# --- a tree for each package ------------------------------------------------------------------------------------------


def name_in(requirement: str) -> str:
    """The package that a requirement names."""
    return re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]


def declared_as(whole: dict[str, Any], name: str) -> dict[str, Any]:
    """The pyproject.toml of one package, made of the tree's."""
    ours = whole["tool"]["oncewire"]
    part = ours["packages"][name]
    project = {**whole["project"], "name": name, "description": part["description"]}
    siblings = [f"{each}=={project['version']}" for each in part.get("with", [])]
    named = set(part["dependencies"])
    project["dependencies"] = [each for each in project["dependencies"] if name_in(each) in named] + siblings
    extras = project.pop("optional-dependencies")
    if rest := part.get("rest"):
        beside = [f"{rest}=={project['version']}"]
        alone, dropped = ours["client-extras"], ours["checkout-extras"]
        project["optional-dependencies"] = {
            extra: needed if extra in alone else beside + needed
            for extra, needed in extras.items()
            if extra not in dropped
        }
    if not part["compiled"]:
        others = [each for each in project["classifiers"] if not each.startswith("Operating System")]
        project["classifiers"] = sorted([*others, ANY_SYSTEM])

    def of_its_folders(points: dict[str, str]) -> dict[str, str]:
        return {each: value for each, value in points.items() if re.split(r"[.:]", value)[0] in part["folders"]}

    groups = {group: of_its_folders(points) for group, points in project.pop("entry-points").items()}
    project["entry-points"] = {group: points for group, points in groups.items() if points}
    project["scripts"] = of_its_folders(project["scripts"])
    packages = {"find": {"include": [f"{folder}*" for folder in part["folders"]]}}
    data = whole["tool"]["setuptools"]["package-data"]
    kept = {key: files for key, files in data.items() if key == "*" or key.partition(".")[0] in part["folders"]}
    tools: dict[str, Any] = {"setuptools": {"packages": packages, "package-data": kept}}
    if part["compiled"]:
        tools["cibuildwheel"] = whole["tool"]["cibuildwheel"]
    return {"build-system": whole["build-system"], "project": project, "tool": tools}


def as_toml(table: dict[str, Any], path: tuple[str, ...] = ()) -> str:
    """Text of a table whose values are strings, lists of them, and tables."""
    values = [f"{json.dumps(key)} = {json.dumps(value)}" for key, value in table.items() if not isinstance(value, dict)]
    head = [f"[{'.'.join(map(json.dumps, path))}]"] if path and values else []
    below = [as_toml(value, (*path, key)) for key, value in table.items() if isinstance(value, dict)]
    return "\n".join([*head, *values, "", *below])


def lay_out(tree: Path, name: str, folder: Path) -> None:
    """Write the tree of one package."""
    whole = tomllib.loads((tree / "pyproject.toml").read_text(encoding="utf-8"))
    packages = whole["tool"]["oncewire"]["packages"]
    part = packages[name]
    for document in DOCUMENTS:
        shutil.copy(tree / document, folder)
    for each in part["folders"]:
        shutil.copytree(tree / each, folder / each, ignore=LEFT_OUT)
    if part["compiled"]:
        # What is compiled together is translated together, so that sources of the sibling are there. They are in the
        # source package alone: the sibling's wheel has them.
        beside = [each for sibling in part["with"] for each in packages[sibling]["folders"]]
        for each in beside:
            shutil.copytree(tree / each, folder / each, ignore=LEFT_OUT)
        shutil.copy(tree / "setup.py", folder)
        (folder / "MANIFEST.in").write_text("".join(f"graft {each}\n" for each in beside), encoding="utf-8")
    (folder / "pyproject.toml").write_text(as_toml(declared_as(whole, name)), encoding="utf-8")


# --- building ---------------------------------------------------------------------------------------------------------


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


def built(what: str, tree: Path, folder: Path, epoch: int, *, is_compiled: bool = False) -> Path:
    """One package of setuptools, in a process of its own: setuptools works in the current folder."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "PYTHONHASHSEED": "0", "LC_ALL": "C", "TZ": "UTC"}
    # The map of the inspector lies in the tree, or is left out: nothing is fetched here.
    environment |= {"ONCEWIRE_COMPILED": "1" if is_compiled else "", "ONCEWIRE_MAP": "0"}
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
    sys.stderr.writelines(line for line in done.stderr.splitlines(keepends=True) if line.startswith(WARNINGS))
    (made,) = set(folder.iterdir()) - before
    return made


def build(tree: Path, name: str, folder: Path, epoch: int, *, is_compiled: bool) -> None:
    """Both packages of one part of the tree."""
    with tempfile.TemporaryDirectory() as temporary:
        made, laid_out = Path(temporary) / "made", Path(temporary) / "tree"
        made.mkdir()
        laid_out.mkdir()
        lay_out(tree, name, laid_out)
        source = built("sdist", laid_out, made, epoch)
        normalise(source, epoch)
        with tarfile.open(source) as packed:
            packed.extractall(temporary, filter="data")
        unpacked = Path(temporary) / source.name.removesuffix(".tar.gz")
        wheel = built("wheel", unpacked, made, epoch, is_compiled=is_compiled)
        for package in (source, wheel):
            (folder / package.name).write_bytes(package.read_bytes())


def main() -> None:
    """Build all, or one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("tree", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", metavar="NAME")
    parser.add_argument("--compiled", action="store_true")
    given = parser.parse_args()
    tree, folder = given.tree.resolve(), given.folder.resolve()
    epoch = epoch_of(tree)
    packages = tomllib.loads((tree / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["oncewire"]["packages"]
    for name in [given.only] if given.only else packages:
        build(tree, name, folder, epoch, is_compiled=given.compiled and packages[name]["compiled"])


if __name__ == "__main__":
    main()
