"""README's first program, typed in as the page prints it, shows what the page says it shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.code_blocks import ROOT, Block, blocks_of
from tests.support.terminal import on_terminal
from topology.etcd.server import free_port

RUN_S = 60.0
"""Far more than the program takes on a busy machine."""
BLOCKS = [block for block in blocks_of(ROOT / "README.md") if block.run_by == "tests/docs/test_readme.py"]
DEFAULT_PORTS = ("5672", "8672")


def sections() -> tuple[Block, Block, Block, Block, Block]:
    """The network's command, what it prints, the program, its command, and what that prints."""
    network, shown, program, command, printed = BLOCKS
    assert [block.language for block in BLOCKS] == ["sh", "text", "python", "sh", "text"]
    return network, shown, program, command, printed


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where somebody works: `.venv` is the environment under test."""
    (tmp_path / ".venv").symlink_to(sys.prefix)
    return tmp_path


def of_this_run(text: str) -> str:
    """What changes from run to run, as the page writes it; columns are as wide as what stands in them."""
    text = re.sub(r"(http://127.0.0.1:867\d) +\d+", r"\1  PID", text)
    text = re.sub(r"(etcd  http://127.0.0.1:)\d+  \S+, ", r"\1PORT  VERSION, ", text)
    return re.sub(r" {2,}", "  ", text)


@pytest.mark.timeout(240)
def test_the_first_program_shows_a_message_arriving(folder: Path) -> None:
    network, shown, program, command, printed = sections()
    # The page's ports may be taken here: the network gets others, and the page's are read for them.
    amqp, http = free_port(), free_port()
    assert network.text == ".venv/bin/oncewire local\n"
    arguments = ("local", "--port", str(amqp), "--http-port", str(http))
    # As on the page: not on PATH, so that what it prints for typing must have the path, too.
    typed, path = network.text.split()[0], {"PATH": os.defpath}
    with on_terminal("", *arguments, program=typed, folder=folder, environment=path) as local:
        text = local.wait_for("Ctrl-C stops it.")
        urls = re.findall(r"amqp://127.0.0.1:(\d+)", text)
        pages = re.findall(r"r\d +amqp://127.0.0.1:\d+ +http://127.0.0.1:(\d+)", text)
        source = program.text
        for number, (url, page) in enumerate(zip(urls, pages, strict=True)):
            as_on_page, as_on_page_http = (str(int(port) + number) for port in DEFAULT_PORTS)
            text = text.replace(f"amqp://127.0.0.1:{url}", f"amqp://127.0.0.1:{as_on_page}")
            text = text.replace(f"http://127.0.0.1:{page}", f"http://127.0.0.1:{as_on_page_http}")
            source = source.replace(f"127.0.0.1:{as_on_page}", f"127.0.0.1:{url}")
        begins = text.index("router  ")
        assert [line.rstrip() for line in of_this_run(text[begins:]).splitlines()] == (
            of_this_run(shown.text).splitlines()
        )
        (folder / "first.py").write_text(source)
        for _ in range(2):  # somebody who runs it again sees the same
            done = subprocess.run(
                ["sh", "-c", command.text], cwd=folder, capture_output=True, text=True, timeout=RUN_S, check=False
            )
            assert (done.stdout, done.stderr, done.returncode) == (printed.text, "", 0)
        assert local.end() == 0
