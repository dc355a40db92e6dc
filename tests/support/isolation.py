"""Pytest plugin: tests neither see nor disturb what their user, or another test run, runs on the same machine.

Home, state folder and ports are those of the process that runs the tests, and of the programs that it starts. Without
an address commands find the *refusing network*: an entry of a local network whose one router refuses connections. So
no test reaches a router at the default ports, whoever listens there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager

import pytest

from oncewire.cli import variables
from oncewire.cli.local_registry import registered
from router.settings.config_loading import SETTINGS
from tests.support.ports import PortBlock, claimed_block
from topology.etcd import server as etcd_server

OF_THE_USER = (*variables.PURPOSE, "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME")


@pytest.fixture(scope="session")
def ports_of_this_run() -> Iterator[PortBlock]:
    """The block of ports of this process."""
    with claimed_block() as block:
        yield block


@pytest.fixture(scope="session", autouse=True)
def isolated(ports_of_this_run: PortBlock, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing of the user is found, and nothing is left where a user would find it."""
    block = ports_of_this_run
    with pytest.MonkeyPatch.context() as patch:
        for variable in {*OF_THE_USER, *(setting.variable for setting in SETTINGS.values())} & set(os.environ):
            patch.delenv(variable)
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        own = block.range()
        patch.setattr(etcd_server, "port_range", lambda: own)
        patch.setenv(etcd_server.PORTS_VARIABLE, "{}-{}".format(*block.of_programs))
        with refusing_network(block):
            yield


def refusing_network(block: PortBlock) -> AbstractContextManager[None]:
    """What commands find that are started without an address."""
    return registered([f"amqp://{block.refusing}"], [f"http://{block.refusing}"])
