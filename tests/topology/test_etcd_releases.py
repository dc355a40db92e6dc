"""The stores and the demo on the newest of each release of etcd that is supported: `make tools` builds the servers."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.support.etcd_releases import RELEASES, etcd_of, program_of
from tests.support.stores import ETCD_STORES, EtcdPlace, StorePlace
from tests.topology import test_store_conformance
from topology.etcd_server import EtcdServer, server_version

END_S = 100.0
pytestmark = [pytest.mark.slow, pytest.mark.needs("etcd-releases")]


@pytest.fixture(scope="module", params=list(RELEASES))
def server(request: pytest.FixtureRequest) -> Iterator[EtcdServer]:
    """One etcd of each release; whoever kills it starts it again."""
    started = EtcdServer(etcd_of(request.param))
    asyncio.run(started.start())
    yield started
    asyncio.run(started.stop())


@pytest.fixture(params=list(ETCD_STORES))
async def place(request: pytest.FixtureRequest, server: EtcdServer) -> AsyncIterator[StorePlace]:
    """A store over it. The tests of the conformance suite ask for this."""
    made = EtcdPlace(server, ETCD_STORES[request.param])
    yield made
    await made.end()


globals().update({name: test for name, test in vars(test_store_conformance).items() if name.startswith("test_")})


async def test_the_server_under_test_is_the_version_that_the_script_names(server: EtcdServer) -> None:
    assert await server_version(server.urls[0]) == server.binary.version


@pytest.mark.parametrize("release", list(RELEASES))
def test_the_demo_passes(release: str, tmp_path: Path) -> None:
    (tmp_path / "etcd").symlink_to(program_of(release))
    done = subprocess.run(
        [sys.executable, "-P", "-m", "oncewire", "demo", "--json", "--messages", "6000", "--seed", "3"],
        env={**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True, text=True, timeout=END_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"etcd {RELEASES[release]} " in done.stderr
    result = json.loads(done.stdout)
    assert (result["published"], result["accepted"]) == (6000, 6000)
    assert (result["lost"], result["duplicated"], result["reordered"]) == (0, 0, 0)
