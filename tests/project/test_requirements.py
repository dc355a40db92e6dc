"""The mechanism that says which tests did not run: shown on small test runs of its own."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support import requirements

PROJECT = Path(__file__).resolve().parents[2]
TESTS = PROJECT / "tests"

TWO_TESTS = """
import pytest

def test_plain():
    pass

@pytest.mark.needs("node", "compiler")
@pytest.mark.parametrize("size", [1, 2])
def test_peer(size):
    raise SystemError("the body ran")

@pytest.mark.needs("node")
def test_node():
    raise SystemError("the body ran")
"""


def run_pytest(
    folder: Path, tests: str, *options: str, require: str = "", path: str = ""
) -> subprocess.CompletedProcess[str]:
    """Runs a test file of its own with the plugin; an empty `path` makes every program missing."""
    (folder / "test_sample.py").write_text(tests, encoding="utf-8")
    environment = {
        "PATH": path,
        "HOME": str(folder),
        "PYTHONPATH": str(TESTS / "support"),
        requirements.REQUIRE_VARIABLE: require,
    }
    command = [sys.executable, "-m", "pytest", "test_sample.py", "--rootdir", str(folder)]
    command += ["-p", "requirements", "-p", "no:cacheprovider", "--strict-markers", *options]
    command += ["-o", "markers=needs: parts\nslow: long\ncampaign: longer"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.slow
def test_each_missing_part_has_one_line_at_the_end_with_the_number_of_tests_and_the_command(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, TWO_TESTS)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert "not run: 3 tests" in lines[-4]
    assert lines[-3:-1] == [
        "not run: 3 tests for lack of Node.js; get it by: sudo apt-get install -y nodejs npm",
        "not run: 2 tests for lack of a C compiler; get it by: sudo apt-get install -y gcc python3-dev",
    ]
    assert "1 passed, 3 skipped" in lines[-1]


@pytest.mark.slow
def test_the_default_selection_ends_with_one_line_for_the_tests_that_take_long(tmp_path: Path) -> None:
    tests = "import pytest\ndef test_short(): pass\n@pytest.mark.slow\ndef test_long(): raise SystemError('ran')\n"
    tests += "@pytest.mark.slow\n@pytest.mark.campaign\ndef test_longer(): raise SystemError('ran')\n"
    done = run_pytest(tmp_path, tests, "-m", requirements.DEFAULT_SELECTION)
    assert done.returncode == 0
    assert done.stdout.splitlines()[-2] == "not run: 1 tests that take long; run them by: make test-all"
    assert "the tests that take long" not in run_pytest(tmp_path, tests, "-k", "short").stdout
    project = tomllib.loads((TESTS.parent / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["tool"]["pytest"]["ini_options"]["addopts"][-2:] == ["-m", requirements.DEFAULT_SELECTION]


@pytest.mark.slow
def test_two_processes_that_share_the_tests_end_with_the_same_lines(tmp_path: Path) -> None:
    tests = TWO_TESTS + "\n@pytest.mark.slow\ndef test_long(): raise SystemError('ran')\n"
    selection = ("-m", requirements.DEFAULT_SELECTION)
    alone, shared = (run_pytest(tmp_path, tests, *selection, *options) for options in ((), ("-n", "2")))
    assert [line for line in shared.stdout.splitlines() if line.startswith("not run: ")] == [
        line for line in alone.stdout.splitlines() if line.startswith("not run: ")
    ]
    assert "not run: 1 tests that take long" in shared.stdout


@pytest.mark.slow
def test_a_missing_part_is_a_failure_where_everything_is_required(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, TWO_TESTS, require="all")
    assert done.returncode == 1
    assert "Node.js is missing, get it by sudo apt-get install -y nodejs npm" in done.stdout
    assert "1 passed, 3 error" in done.stdout.splitlines()[-1]
    assert "not run: " not in done.stdout


@pytest.mark.slow
def test_a_test_whose_parts_are_there_runs(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("node", "cc"):
        (programs / name).symlink_to(sys.executable)
    done = run_pytest(tmp_path, TWO_TESTS, path=str(programs))
    assert done.returncode == 1
    assert "the body ran" in done.stdout
    assert "not run: " not in done.stdout


@pytest.mark.slow
def test_a_misspelled_part_stops_the_run_and_names_those_that_exist(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, "import pytest\n@pytest.mark.needs('nod')\ndef test_it(): pass\n")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "needs('nod'): no such part" in done.stderr
    assert "node" in done.stderr.partition("knows ")[2]


@pytest.mark.slow
def test_a_wrong_setting_stops_the_run(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, TWO_TESTS, require="some")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "ONCEWIRE_REQUIRE=some: only `all` is allowed, or leave it unset" in done.stderr


def test_detection_looks_at_the_machine_as_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert requirements.python_module("pytest")()
    assert not requirements.python_module("a_module_that_is_not_there")()
    assert requirements.program("node")() == (shutil.which("node") is not None)
    monkeypatch.setattr(requirements, "TOOLS", tmp_path)
    assert not requirements.tool_file("bin/server")()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "server").touch()
    assert requirements.tool_file("bin/server")()


def test_every_part_names_one_command() -> None:
    for part in requirements.PARTS.values():
        assert part.command
        assert "\n" not in part.command
        assert " && " not in part.command


def skips_by_itself(source: str) -> list[int]:
    """Returns the lines where a test file skips in another way than by the marker `needs`."""
    own_ways = {"skip", "skipif", "importorskip", "skipTest"}
    if "skip" not in source:
        return []  # most files, and reading one as a tree takes long
    tree = ast.parse(source)
    return [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr in own_ways]


def test_no_test_skips_itself_except_by_what_it_needs() -> None:
    files = [file for file in sorted(TESTS.rglob("*.py")) if file.name != "requirements.py"]
    assert {str(file): lines for file in files if (lines := skips_by_itself(file.read_text(encoding="utf-8")))} == {}


@pytest.mark.parametrize("way", ["pytest.skip('no')", "pytest.importorskip('x')", "pytest.mark.skipif(True)"])
def test_a_test_that_skips_itself_is_found(way: str) -> None:
    assert skips_by_itself(f"import pytest\n{way}\n") == [2]
