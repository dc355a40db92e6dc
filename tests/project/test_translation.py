"""What mypyc makes of the sources: nowhere does it take an attribute for None that a call may have set meanwhile."""

from __future__ import annotations

import linecache
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("oncewire", "topology", "delivery_records", "router")
TRANSLATE = """
import contextlib, importlib.util, sys
sys.argv = ["setup.py"]
spec = importlib.util.spec_from_file_location("settings", "setup.py")
settings = importlib.util.module_from_spec(spec)
with contextlib.suppress(SystemExit):  # behind its functions it wants a command
    spec.loader.exec_module(settings)
settings.translated()
"""
TAKEN_FOR_NONE = re.compile(r'CPy_TypeError\("None", .*\n(?:.*\n){0,5}?.*CPy_AddTraceback\("([^"]+)", "[^"]+", (\d+)')
"""A value that must be None and is not: behind a call of Python, or of an attribute whose type mypy has narrowed."""
ASKS = re.compile(r"\b(if|elif|while|assert)\b| is (not )?None")


@pytest.mark.slow
@pytest.mark.needs("compiled")
def test_no_condition_takes_an_attribute_for_none_that_a_call_may_have_set(tmp_path: Path) -> None:
    """Such a condition is a TypeError in the compiled build alone (docs/reference/compiled-build.md)."""
    for name in ("setup.py", *PACKAGES):
        (tmp_path / name).symlink_to(ROOT / name)
    done = subprocess.run([sys.executable, "-c", TRANSLATE], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    texts = [file.read_text() for file in (tmp_path / "build").rglob("*.c")]
    places = {(file, int(line)) for text in texts for file, line in TAKEN_FOR_NONE.findall(text)}
    assert places, "mypyc writes this check in another way now"
    lines = {place: linecache.getline(str(ROOT / place[0]), place[1]).partition("#")[0] for place in places}
    assert [place for place, line in lines.items() if ASKS.search(line)] == []
