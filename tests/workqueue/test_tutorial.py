"""The code blocks of docs/workqueue.md, typed in as the page prints them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.docs.code_blocks import ROOT, blocks_of

PAGE = ROOT / "docs" / "workqueue.md"
SHELL, FIRST, PRINTED, SECOND = (
    block.text for block in blocks_of(PAGE) if block.run_by == "tests/workqueue/test_tutorial.py"
)


def run_program(program: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stderr, done.returncode) == ("", 0)
    return done.stdout


def test_the_first_program_prints_what_the_page_says(tmp_path: Path) -> None:
    assert run_program(FIRST, tmp_path) == PRINTED


def test_the_transaction_of_the_page_works(tmp_path: Path) -> None:
    assert run_program(SECOND, tmp_path) == "paid: [(17,)]\n"


def test_the_shell_session_of_the_page_works(tmp_path: Path) -> None:
    program = tmp_path / "oncewire"
    program.write_text(
        f"#!/bin/sh\nshift\nexec {sys.executable} -c 'from bridges.workqueue.cli import queue; queue()' \"$@\"\n"
    )
    program.chmod(0o755)
    done = subprocess.run(
        ["sh", "-e", "-c", SHELL],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )
    assert (done.stderr, done.returncode) == ("", 0)
    lines = done.stdout.splitlines()
    assert len(lines) == 6
    assert lines[0] == '{"id": 1, "queue": "mails", "is_new": true}'
    assert lines[2].startswith("id: 1.1 ")
    assert "result: sent" in lines[4]
    assert "waiting: 1" in lines[5]
