"""helm, and what the chart of `deploy/helm` renders to, for tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

CHART = Path(__file__).resolve().parents[2] / "deploy" / "helm" / "oncewire"
KUBERNETES = ("1.28", "1.37")
"""Versions that manifests are rendered for, and whose schemas they must satisfy."""


def find_helm() -> str | None:
    """The program on PATH, else the one that `make tools` has built, else None."""
    built = Path(sys.prefix) / "bin" / "helm"
    return shutil.which("helm") or (str(built) if os.access(built, os.X_OK) else None)


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs helm; it needs no cluster and reads none of the caller's files."""
    program = find_helm()
    assert program is not None
    environment = {"PATH": os.defpath, "HOME": "/nonexistent"}
    return subprocess.run(
        [program, *arguments], env=environment, capture_output=True, text=True, check=False, timeout=100
    )


def rendered(
    *values: str, files: tuple[Path, ...] = (), kubernetes: str = KUBERNETES[-1]
) -> dict[tuple[str, str], Any]:
    """The manifests of a release `test` in the namespace `mq`, by kind and name."""
    import yaml

    sets = [word for value in values for word in ("--set", value)]
    sets += [word for file in files for word in ("--values", str(file))]
    done = helm("template", "test", str(CHART), "--namespace", "mq", "--kube-version", f"{kubernetes}.0", *sets)
    assert done.returncode == 0, done.stderr
    found = [document for document in yaml.safe_load_all(done.stdout) if document is not None]
    return {(each["kind"], each["metadata"]["name"]): each for each in found}
