"""The package etcd3 is optional, old, and loaded with care: where it cannot be used, the error says what to do."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec

import pytest

from oncewire.cli.errors import CliError
from router.incarnations.store_setup import store_factory
from router.settings.config import RouterConfig
from tests.support.stores import watch_events
from topology.etcd.etcd3_rpc import Etcd3Missing, load_packages
from topology.etcd.server import EtcdServer
from topology.etcd.store import ABSENT

AFTER_PROTOBUF = """
import google.protobuf.descriptor_pool
from topology.etcd.etcd3_rpc import Etcd3Missing, load_packages
try:
    load_packages()
except Etcd3Missing as error:
    print(error)
"""
ENVIRONMENT = """
import os
from topology.etcd.etcd3_rpc import load_packages
before = dict(os.environ)
load_packages()
print(dict(os.environ) == before)
"""


@pytest.fixture
def no_etcd3(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    find_spec = importlib.util.find_spec

    def without(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name == "etcd3" else find_spec(name, package)

    load_packages.cache_clear()
    monkeypatch.setattr(importlib.util, "find_spec", without)
    yield
    load_packages.cache_clear()


def said_by(program: str) -> str:
    """Run in a process that has loaded nothing yet."""
    environment = {k: v for k, v in os.environ.items() if k != "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_without_the_extra_the_store_is_refused_with_the_command_that_gets_it(no_etcd3: None) -> None:
    with pytest.raises(CliError) as refused:
        store_factory(RouterConfig(store="etcd3"))
    assert "pip install 'oncewire[etcd3]'" in refused.value.why
    with pytest.raises(Etcd3Missing):
        load_packages()


def test_a_protobuf_that_was_loaded_before_in_a_form_etcd3_cannot_use_is_named() -> None:
    said = said_by(AFTER_PROTOBUF)
    assert "something else in this process has loaded protobuf before" in said
    assert "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=python" in said


def test_loading_it_leaves_the_environment_of_programs_we_start_as_it_was() -> None:
    assert said_by(ENVIRONMENT) == "True\n"


def test_the_gateway_store_loads_none_of_it() -> None:
    program = "import sys, router.node; print([m for m in sys.modules if m.startswith(('etcd3', 'grpc', 'google'))])"
    assert said_by(program) == "[]\n"


async def test_the_setting_store_chooses_it(etcd: EtcdServer) -> None:
    store = store_factory(RouterConfig(store="etcd3", etcd_endpoints=tuple(etcd.urls)))()
    assert type(store).__name__ == "Etcd3Store"
    key = "/setting/a"
    found = await store.get(key)
    if found is not None:
        assert (await store.compare_and_delete(key, found.mod_revision)).succeeded
    put = await store.compare_and_put(key, b"1", ABSENT)
    assert len(await watch_events(store, key, put.revision, 1)) == 1
    await store.close()


def test_clients_in_threads_with_loops_of_their_own_do_not_disturb_each_other(etcd: EtcdServer) -> None:
    """As a router does: one for itself, one for its keep-alives."""

    async def work() -> int:
        store = store_factory(RouterConfig(store="etcd3", etcd_endpoints=tuple(etcd.urls)))()
        lease = await store.grant_lease(60)
        for _ in range(20):
            await store.keep_alive(lease)
        await store.revoke(lease)
        await store.close()
        return lease

    async def both() -> list[int]:
        return list(await asyncio.gather(work(), asyncio.to_thread(asyncio.run, work()), work()))

    assert len(set(asyncio.run(both()))) == 3
