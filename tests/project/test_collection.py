"""All tests are collected where nothing optional is there: what a test needs beyond that is in its marker `needs`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.requirements import TOOLS

ROOT = Path(__file__).resolve().parents[2]
COLLECT_S = 200.0


@pytest.mark.slow
@pytest.mark.timeout(2 * COLLECT_S)
def test_every_test_file_is_imported_without_an_optional_package_or_program(tmp_path: Path) -> None:
    environment = {"PATH": "", "HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    command = [sys.executable, "-m", "pytest", "-p", "tests.support.only_test_packages", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "--collect-only", "-q", "-m", ""],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=COLLECT_S,
        check=False,
    )
    errors = [line for line in done.stdout.splitlines() if line.startswith(("ERROR", "E  "))]
    assert errors == []
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def test_ci_begins_with_the_commands_of_readme_in_an_environment_of_their_own() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    commands = [line.strip().removeprefix("run_tests ") for line in script.splitlines()]
    bare = [command.partition('.ci/bare "$bare" ')[2] for command in commands if ".ci/bare " in command]
    printed = [line.partition("#")[0].strip() for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines()]
    beside = ".ci/beside.py "
    assert bare == ["make demo", f"{beside}make test"]
    assert commands[-1] == "make test-all"
    pure = commands.index(f'.ci/bare "$bare" {beside}make test')
    assert commands.index("make compiled") > pure
    assert {command.removeprefix(beside) for command in bare} <= set(printed)
    first = min(number for number, command in enumerate(commands) if ".ci/bare " in command)
    assert not [command for command in commands[:first] if command.startswith("make ")]
    assert str(TOOLS.name) not in (ROOT / ".ci" / "bare").read_text(encoding="utf-8")
    packages = next(line for line in printed if line.startswith("sudo apt-get install -y "))
    assert f"README_PACKAGES=({packages.removeprefix('sudo apt-get install -y ')})" in commands
