"""The compiled build is optional: where it cannot be made the installation is pure Python, and one line says so."""

from __future__ import annotations

import os
import shutil
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
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
        env={**os.environ, "ONCEWIRE_COMPILED": "1"},
    )


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


@pytest.mark.parametrize("is_reachable", [True, False])
def test_an_installation_by_pip_has_the_map_or_one_warning(tmp_path: Path, *, is_reachable: bool) -> None:
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    ignored = shutil.ignore_patterns("vendor", "__pycache__", "*.so")
    shutil.copytree(ROOT / "topology", tmp_path / "topology", ignore=ignored)
    (tmp_path / "scripts").mkdir()
    fetched = 'mkdir -p "$1"; echo map > "$1/cytoscape.esm.min.mjs"; echo 1 > "$1/version.txt"'
    (tmp_path / "scripts/fetch_map_library.sh").write_text(fetched if is_reachable else "exit 1")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ONCEWIRE_")}
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", "build_py", "--build-lib=out"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    built = tmp_path / "out/topology/inspector/page/files"
    assert (built / "index.html").exists()
    assert (built / "vendor/cytoscape.esm.min.mjs").exists() is is_reachable
    assert done.stderr.count("will have no map") == (not is_reachable)
