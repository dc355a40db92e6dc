"""The whole shop on this machine, without Docker: etcd, routers, the edge and four services, each a process.

    python examples/shop/local_shop.py

It prints where the shop is, and runs until Ctrl-C. What it keeps is in a temporary folder, or in --data FOLDER.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from router.commands.local_network import LocalNetwork
from topology.etcd.server import free_port

HERE = Path(__file__).resolve().parent
ROUTERS = 3
START_S = 120.0
"""How long a service may take to answer, on a slow machine."""
STOP_S = 30.0
POLL_S = 0.1
T = TypeVar("T")
ENDS_WITH_US = ("setpriv", "--pdeathsig", "KILL") if shutil.which("setpriv") else ()
"""No service outlives this program, if it is killed; routers look after that themselves."""
ONCEWIRE = (sys.executable, "-P", "-c", "from oncewire.cli.main import main; main()")


class Shop:
    """The processes of the shop. Use ``async with``.

    Args:
        folder: databases and logs.
        ports: of web service and dashboard; None = any free ones.

    Attributes:
        url: of the web service.
        dashboard_url: of the dashboard.
        network: etcd and the routers.
    """

    def __init__(self, folder: Path, ports: tuple[int, int] | None = None) -> None:
        web, dashboard = map(str, ports or (free_port(), free_port()))
        self.url, self.dashboard_url = f"http://127.0.0.1:{web}", f"http://127.0.0.1:{dashboard}"
        self.network = LocalNetwork(ROUTERS, settings={"etcd.lease_ttl_s": "5"}, log_folder=folder)
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        urls = [router.url for router in self.network.routers.values()]
        self._environment = {**os.environ, "ROUTERS": " ".join(urls), "SHOP_DATA": str(folder)}
        uvicorn = (sys.executable, "-m", "uvicorn", "--log-level", "warning", "--port")
        edge = (*ONCEWIRE, "edge", "serve", f"--config={HERE / 'edge.toml'}", "--http-host=127.0.0.1", "--http-port=0")
        self._commands = {
            "edge": (
                *edge,
                "--http-port=0",
                f"--edge-store=sqlite:///{folder}/mails.db",
                f"--edge-routers={','.join(urls)}",
            ),
            "web": (*uvicorn, web, "web:app"),
            "payment": (sys.executable, "payment.py"),
            "mail": (sys.executable, "mail.py"),
            "dashboard": (*uvicorn, dashboard, "dashboard:app"),
        }

    @property
    def names(self) -> list[str]:
        """Of all that can be killed."""
        return [*self._commands, *self.network.routers]

    async def __aenter__(self) -> Shop:
        try:
            await self.network.start()
            for name in self._commands:
                self._start(name)
            await asyncio.gather(*(asyncio.to_thread(self._answers, url) for url in (self.url, self.dashboard_url)))
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """End the services in good order, then the network."""
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            try:
                await asyncio.to_thread(process.wait, STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
        await self.network.stop()

    async def kill(self, name: str) -> None:
        """SIGKILL a service, the edge or a router."""
        if name in self.network.routers:
            await self.network.kill(name)
        else:
            self._processes[name].kill()
            await asyncio.to_thread(self._processes[name].wait)

    async def start_again(self, name: str) -> None:
        """After `kill`."""
        if name in self.network.routers:
            await self.network.restart(name)
        else:
            self._start(name)

    def ended(self) -> list[str]:
        """Services that ended by themselves, with the end of their logs."""
        gone = [(name, process) for name, process in self._processes.items() if process.poll() is not None]
        return [
            f"{name} ended with {process.returncode}: {self._log(name).read_text()[-2000:]}" for name, process in gone
        ]

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _start(self, name: str) -> None:
        with self._log(name).open("ab") as log:
            # In a session of its own: Ctrl-C is for this program, which then ends its processes in good order.
            self._processes[name] = subprocess.Popen(
                (*ENDS_WITH_US, *self._commands[name]),
                cwd=HERE,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _answers(self, url: str) -> None:
        """Wait until a web service answers, whatever it says."""
        for _ in range(int(START_S / POLL_S)):
            try:
                urllib.request.urlopen(url, timeout=5).close()
            except urllib.error.HTTPError:
                return
            except OSError:
                if gone := self.ended():
                    raise RuntimeError("\n".join(gone)) from None
                time.sleep(POLL_S)
            else:
                return
        raise RuntimeError(f"{url} does not answer")


async def until_interrupted(work: Coroutine[Any, Any, T]) -> T:
    """Do the work; SIGTERM and Ctrl-C cancel it, so that all processes end in good order.

    Raises:
        CancelledError: that was done.
    """
    task = asyncio.ensure_future(work)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    return await task


async def serve(folder: Path, port: int) -> None:
    """Run the shop and say where it is."""
    async with Shop(folder, ports=(port, port + 1)) as shop:
        print(f"orders: {shop.url}/orders\ndashboard: {shop.dashboard_url}\ndata and logs: {folder}", flush=True)
        await asyncio.Event().wait()


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8000, help="of the web service; the dashboard has the next one")
    parser.add_argument("--data", type=Path, help="folder of databases and logs")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="oncewire-shop-") as temporary, suppress(asyncio.CancelledError):
        folder = arguments.data or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        asyncio.run(until_interrupted(serve(folder.absolute(), arguments.port)))


if __name__ == "__main__":
    main()
