"""Ports of a test run: each process of it claims a block, which no other run on the machine takes ports of.

The claim is a socket bound to the block's first port: it needs no file and no permission, works between users, and
the kernel ends it with the process. Nobody listens there, so connections to it are refused.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from topology.etcd.server import PortRange, free_port

LOOPBACK = "127.0.0.1"
BLOCKS = range(10_000, 20_000, 500)
"""Where they begin: below the ports that `oncewire local` and the demos of a user take."""
FOR_PROGRAMS = 150
"""Of each block, for programs that tests start and that look for ports themselves."""


@dataclass(frozen=True, slots=True)
class PortBlock:
    """The ports of one process that runs tests, from `claimed` on."""

    claimed: int

    @property
    def own(self) -> tuple[int, int]:
        """First and last port for the process itself."""
        return self.claimed + 1, self.claimed + BLOCKS.step - FOR_PROGRAMS - 1

    @property
    def of_programs(self) -> tuple[int, int]:
        """First and last port for programs that it starts."""
        return self.own[1] + 1, self.own[1] + FOR_PROGRAMS

    @property
    def refusing(self) -> str:
        """An address at which nobody listens as long as the block is claimed."""
        return f"{LOOPBACK}:{self.claimed}"

    def range(self) -> PortRange:
        """Gives the ports of the process itself."""
        return PortRange(*self.own)


@contextmanager
def claimed_block(begins: Sequence[int] = BLOCKS) -> Iterator[PortBlock]:
    """A block that nobody has, while the context lasts."""
    for first in begins:
        # Without SO_REUSEADDR nobody else can bind the port, whatever options they set.
        with socket.socket() as claim:
            try:
                claim.bind((LOOPBACK, first))
            except OSError:
                continue
            yield PortBlock(first)
            return
    raise RuntimeError(f"all {len(begins)} blocks of ports are in use: too many test runs on this machine")


@pytest.fixture
def unused_tcp_port() -> int:
    """In the place of pytest-asyncio's, which any process on the machine may be given for an outgoing connection."""
    return free_port()
