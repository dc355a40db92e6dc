"""The page docs/how-to/test-your-service.md: its service and tests, run by pytest as a reader does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.docs.code_blocks import ROOT, blocks_of

LIMIT_S = 200.0


def test_the_pages_tests_pass_where_a_reader_saves_them(tmp_path: Path) -> None:
    blocks = [block.text for block in blocks_of(ROOT / "docs/how-to/test-your-service.md") if block.run_by]
    for name, text in zip(("ledger.py", "test_ledger.py", "test_others.py"), blocks, strict=True):
        (tmp_path / name).write_text(text)
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env=os.environ | {"PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout
