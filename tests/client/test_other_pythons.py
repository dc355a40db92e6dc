"""The client under each Python that pyproject.toml names and this machine has.

`make test-pythons` runs the tests of client, wire and delivery records under each of them.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest

import oncewire
from tests.router.processes import RouterProcess

ROOT = Path(__file__).resolve().parents[2]
CHILD = Path(__file__).with_name("other_python_child.py")
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
VERSION = re.compile(r"Programming Language :: Python :: (3\.\d+)")
NAMED = [found[1] for each in PROJECT["project"]["classifiers"] if (found := VERSION.fullmatch(each))]
SUM = 2 * sum(range(100))


def pythons() -> dict[str, str]:
    """Those of the machine: on PATH, or of pyenv; the one that runs the tests is among them."""
    found = {f"{sys.version_info.major}.{sys.version_info.minor}": sys.executable}
    versions = Path(pwd.getpwuid(os.getuid()).pw_dir) / ".pyenv/versions"
    for version in NAMED:
        candidates = [shutil.which(f"python{version}"), *sorted(map(str, versions.glob(f"{version}.*/bin/python")))]
        for program in candidates:
            if version not in found and program is not None and runs(program, version):
                found[version] = program
    return found


def runs(program: str, version: str) -> bool:
    """Whether it is that Python; a shim of pyenv may be none."""
    command = [program, "-c", "import sys, sqlite3, ssl; print('%d.%d' % sys.version_info[:2])"]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60).stdout.strip() == version


def exchange(program: str, url: str, folder: Path, packages: Path) -> subprocess.CompletedProcess[str]:
    """Runs the child."""
    environment = {**os.environ, "PYTHONPATH": str(packages), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONSAFEPATH": "1"}
    command = [program, str(CHILD), url, str(folder)]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=200, env=environment)


async def test_the_client_sends_and_receives_under_each_python_of_the_machine(
    router: RouterProcess, tmp_path: Path
) -> None:
    packages = tmp_path / "packages"
    packages.mkdir()
    for package in (oncewire, click):
        assert package.__file__ is not None
        (packages / package.__name__).symlink_to(Path(package.__file__).parent)
    found = pythons()
    assert set(found) & set(NAMED)
    for version, program in found.items():
        folder = tmp_path / version
        folder.mkdir()
        done = await asyncio.to_thread(exchange, program, router.url, folder, packages)
        assert done.stdout.split() == [version, str(SUM)], done.stderr


def test_each_place_that_names_the_versions_of_python_names_the_same() -> None:
    assert PROJECT["project"]["requires-python"] == f">={NAMED[0]}"
    assert PROJECT["tool"]["cibuildwheel"]["build"] == [f"cp{version.replace('.', '')}-*" for version in NAMED]
    text = ", ".join(NAMED[:-1]) + f" and {NAMED[-1]}"
    for page in ("constraints.txt", "docs/reference/dependencies.md"):
        assert f"Python {text}" in (ROOT / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("version", NAMED)
def test_make_test_pythons_runs_under_each_version(version: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert version in re.findall(r"^PYTHONS := (.*)$", makefile, re.MULTILINE)[0].split()
