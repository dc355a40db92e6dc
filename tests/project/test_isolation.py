"""Tests have ports, home and networks of their own, whatever else runs on the machine."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from oncewire.cli.contexts import contexts_file
from oncewire.cli.local_registry import registry_folder
from tests.support.ports import BLOCKS, PortBlock, claimed_block
from tests.support.terminal import ONCEWIRE
from topology.etcd.server import PORTS_VARIABLE, free_port

END_S = 60.0
CHILD_PATH = os.pathsep.join([*sys.path, str(Path(__file__).parents[2])])
CLAIM = """
import sys
from tests.support.ports import claimed_block
with claimed_block(list(map(int, sys.argv[1:]))) as block:
    print(block.claimed, flush=True)
    sys.stdin.read()
"""
TAKE = "from topology.etcd.server import free_port; print(*(free_port() for _ in range(100)))"


@contextmanager
def other_run(*begins: int) -> Iterator[tuple[subprocess.Popen[str], PortBlock]]:
    """A process that claims one of these blocks, as another test run does."""
    process = subprocess.Popen(
        [sys.executable, "-c", CLAIM, *map(str, begins)],
        env={**os.environ, "PYTHONPATH": CHILD_PATH},
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        yield process, PortBlock(int(process.stdout.readline()))
    finally:
        process.kill()
        process.communicate()


def ports_of(block: PortBlock) -> set[int]:
    parts = [range(first, last + 1) for first, last in (block.own, block.of_programs)]
    return {block.claimed}.union(*parts)


def test_no_port_is_in_two_claimed_blocks_also_of_different_processes(ports_of_this_run: PortBlock) -> None:
    with claimed_block() as here, other_run(*BLOCKS) as (_, there):
        blocks = [ports_of(block) for block in (ports_of_this_run, here, there)]
    assert len(set().union(*blocks)) == sum(map(len, blocks)) == 3 * BLOCKS.step


def test_the_parts_of_a_block_do_not_overlap() -> None:
    assert len(ports_of(PortBlock(BLOCKS[0]))) == BLOCKS.step
    assert max(ports_of(PortBlock(BLOCKS[-1]))) < BLOCKS.stop


@pytest.mark.slow
def test_a_block_is_free_again_when_its_process_was_killed() -> None:
    begin = free_port()
    with other_run(begin) as (process, _):
        with pytest.raises(RuntimeError, match="too many test runs"), claimed_block([begin]):
            pass
        process.kill()
        process.wait(END_S)
        with claimed_block([begin]) as block:
            assert block == PortBlock(begin)


@pytest.mark.slow
def test_a_program_that_a_test_starts_takes_ports_of_the_block_but_none_of_the_tests_own(
    ports_of_this_run: PortBlock,
) -> None:
    done = subprocess.run([sys.executable, "-P", "-c", TAKE], capture_output=True, text=True, check=True, timeout=END_S)
    first, last = ports_of_this_run.of_programs
    taken = sorted(map(int, done.stdout.split()))
    assert first <= taken[0] < taken[-1] <= last
    assert os.environ[PORTS_VARIABLE] == f"{first}-{last}"
    first, last = ports_of_this_run.own
    assert first <= free_port() <= last


def test_home_contexts_and_local_networks_are_none_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.getbasetemp()
    for path in (Path.home(), contexts_file(), registry_folder()):
        assert path.is_relative_to(folder)
    assert Path.home() != Path(pwd.getpwuid(os.getuid()).pw_dir)
    assert list(registry_folder().iterdir()) == [registry_folder() / f"{os.getpid()}.json"]


@pytest.mark.parametrize("arguments", [("pub", "orders", "two coffees"), ("inspect", "routers")])
def test_a_command_without_an_address_reaches_no_router_of_the_user(
    arguments: tuple[str, ...], ports_of_this_run: PortBlock
) -> None:
    commands = "pub=oncewire.client.cli:pub,inspect=topology.cli:inspect"
    done = subprocess.run(
        [sys.executable, "-P", "-c", ONCEWIRE, commands, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=END_S,
    )
    assert done.returncode == 2
    assert f"{ports_of_this_run.refusing} (the local network of process {os.getpid()})" in done.stderr
