"""README's first program, typed in as the page prints it, shows what the page says it shows."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.docs.code_blocks import ROOT, Block, blocks_of
from tests.support.waiting import wait_until

RUN_S = 60.0
"""Far more than the program takes on a busy machine."""
BLOCKS = [block for block in blocks_of(ROOT / "README.md") if block.run_by == "tests/docs/test_readme.py"]


def sections() -> tuple[Block, Block, Block, Block]:
    """The network's command, the program, its command, and what it prints."""
    network, program, command, printed = BLOCKS
    assert [block.language for block in BLOCKS] == ["sh", "python", "sh", "text"]
    return network, program, command, printed


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where somebody works: `.venv` is the environment under test."""
    (tmp_path / ".venv").symlink_to(sys.prefix)
    return tmp_path


@contextmanager
def running_network(command: str, folder: Path) -> Iterator[None]:
    """The first terminal: the command runs until Ctrl-C, in a process group of its own."""
    process = subprocess.Popen(
        ["sh", "-c", command], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    described = folder / "network.json"
    try:
        wait_until(
            lambda: process.poll() is not None or (described.exists() and described.read_text().endswith("\n")),
            "the network is not ready",
        )
        assert process.poll() is None, process.stderr and process.stderr.read()
        yield
    finally:
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=RUN_S)  # until nobody has its end of the pipe, that is until all routers ended


@pytest.mark.timeout(240)
def test_the_first_program_shows_a_message_arriving(folder: Path) -> None:
    network, program, command, printed = sections()
    (folder / "first.py").write_text(program.text)
    with running_network(network.text, folder):
        for _ in range(2):  # somebody who runs it again sees the same
            done = subprocess.run(
                ["sh", "-c", command.text], cwd=folder, capture_output=True, text=True, timeout=RUN_S, check=False
            )
            assert (done.stdout, done.stderr, done.returncode) == (printed.text, "", 0)
