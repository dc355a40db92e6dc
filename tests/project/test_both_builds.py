"""Compiled cores and their sources do the same: bytes out, events and effects of recorded runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CHILD = Path(__file__).with_name("both_builds.py")


pytestmark = pytest.mark.cold  # what is imported, and from where, is what these tests are about


def run_child(*arguments: str) -> dict[str, object]:
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(
        [sys.executable, str(CHILD), *arguments], capture_output=True, text=True, check=False, env=environment
    )
    assert not done.returncode, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


@pytest.mark.slow
@pytest.mark.needs("compiled")
def test_recorded_runs_have_the_same_bytes_and_effects_in_both_builds() -> None:
    compiled, pure = run_child(), run_child("--sources")
    assert (compiled.pop("compiled"), pure.pop("compiled")) == (True, False)
    assert compiled == pure


def test_the_sources_can_run_in_either_build() -> None:
    code = (
        "from chaos.sources import prefer_sources\n"
        "prefer_sources()\n"
        "import delivery_records.records, oncewire.wire.connection, router.records_driver\n"
        "print(delivery_records.records.__file__, oncewire.wire.connection.__file__, router.records_driver.__file__)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert all(file.endswith(".py") for file in done.stdout.split()), done.stdout
