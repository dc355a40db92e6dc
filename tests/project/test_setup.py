"""The compiled build is optional: where it cannot be made the installation is pure Python, and one line says so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CODE = """
import setuptools
from setuptools import Extension
import sys
setup = setuptools.setup
setuptools.setup = lambda **arguments: found.update(arguments)
found = {{}}
sys.path.insert(0, {root!r})
import setup as ours
ours.translated = lambda: [Extension("oncewire.first", ["first.c"]), Extension("oncewire.second", [{second!r}])]
sys.argv = ["setup.py", "-q", "build_ext"]
setup(name="trial", cmdclass=found["cmdclass"], ext_modules=found["ext_modules"])
"""
GOOD = "#include <Python.h>\nPyMODINIT_FUNC PyInit_first(void) { return 0; }\n"


def build(folder: Path, second: str) -> subprocess.CompletedProcess[str]:
    """Build two extensions in `folder`, the first of which can be compiled."""
    (folder / "first.c").write_text(GOOD)
    (folder / "broken.c").write_text("this is no C\n")
    (folder / "second.c").write_text(GOOD.replace("first", "second"))
    return subprocess.run(
        [sys.executable, "-c", CODE.format(root=str(ROOT), second=second)],
        capture_output=True, text=True, cwd=folder, check=False, env={**os.environ, "ONCEWIRE_COMPILED": "1"},
    )  # fmt: skip


@pytest.mark.needs("compiler")
def test_one_module_that_cannot_be_compiled_leaves_all_out_with_one_warning(tmp_path: Path) -> None:
    done = build(tmp_path, "broken.c")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("warning: Oncewire is installed without its compiled modules") == 1
    assert not list(tmp_path.rglob("*.so"))


@pytest.mark.needs("compiler")
def test_modules_that_can_be_compiled_are_built(tmp_path: Path) -> None:
    done = build(tmp_path, "second.c")
    assert done.returncode == 0, done.stderr
    assert {file.name.partition(".")[0] for file in tmp_path.rglob("*.so")} == {"first", "second"}
    assert "warning" not in done.stderr
