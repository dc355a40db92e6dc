"""Local networks that run: `oncewire local` enters its own, and the other commands of the user find it.

One file for each, which its process keeps locked: the kernel lets go of the lock whatever ends the process, so a file
that can be locked is of a network that has ended.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

try:
    import fcntl
except ImportError:  # no local network runs on such a system, so none is found
    HAS_LOCKS = False
else:
    HAS_LOCKS = True

FOLDER_MODE = 0o700
FILE_MODE = 0o600


@dataclass(frozen=True, slots=True)
class RunningNetwork:
    """A local network: its process, the addresses of its routers and etcd, and the ids of its routers."""

    pid: int
    urls: tuple[str, ...]
    http: tuple[str, ...]
    etcd: tuple[str, ...]
    ids: tuple[str, ...] = ()


def registry_folder() -> Path:
    """`$XDG_STATE_HOME/oncewire/local`; `~/.local/state` where that is not set."""
    configured = os.environ.get("XDG_STATE_HOME", "")
    base = Path(configured) if configured.startswith("/") else Path.home() / ".local" / "state"
    return base / "oncewire" / "local"


@contextmanager
def registered(
    urls: Sequence[str], http: Sequence[str], etcd: Sequence[str] = (), ids: Sequence[str] = ()
) -> Iterator[None]:
    """Enter the network of this process while the block runs; where that fails, it runs and is not found."""
    handle: int | None = None
    path = registry_folder() / f"{os.getpid()}.json"
    with suppress(OSError):
        path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(handle, 0)
        document = {"urls": list(urls), "http": list(http), "etcd": list(etcd), "ids": list(ids)}
        os.pwrite(handle, json.dumps(document).encode(), 0)
    asked_to_start()  # of an earlier process with this id
    try:
        yield
    finally:
        asked_to_start()
        with suppress(OSError):
            path.unlink(missing_ok=True)
        if handle is not None:
            os.close(handle)


def ask_to_start(network: RunningNetwork, ids: Sequence[str]) -> None:
    """Ask the process of a local network to start these of its routers again.

    Raises:
        OSError: its folder cannot be written to.
    """
    path = _request_of(network.pid)
    unfinished = path.with_suffix(f".start-{os.getpid()}")
    unfinished.write_text(json.dumps(list(ids)), encoding="utf-8")
    unfinished.replace(path)


def asked_to_start() -> Sequence[str]:
    """The routers that this process was asked to start since the last look."""
    with suppress(OSError, ValueError):
        path = _request_of(os.getpid())
        text = path.read_text(encoding="utf-8")
        path.unlink()
        return tuple(map(str, json.loads(text)))
    return ()


def _request_of(pid: int) -> Path:
    return registry_folder() / f"{pid}.start"


def running_network() -> RunningNetwork | None:
    """The local network of this user that was started last; None = none runs."""
    found: list[tuple[float, RunningNetwork]] = []
    if not HAS_LOCKS:
        return None
    with suppress(OSError):
        for path in registry_folder().glob("*.json"):
            with suppress(OSError, ValueError, KeyError, TypeError):
                network = _read(path)
                if network is not None:
                    found.append((path.stat().st_mtime, network))
    return max(found, key=lambda each: each[0])[1] if found else None


def _read(path: Path) -> RunningNetwork | None:
    """What a file holds; None = its process has ended."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            # Shared: two commands that look at the same time must not take each other for the network.
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            document: Mapping[str, list[str]] = json.loads(os.pread(handle, 1 << 20, 0))
            urls, http, etcd, ids = (tuple(document.get(name, ())) for name in ("urls", "http", "etcd", "ids"))
            return RunningNetwork(int(path.stem), urls, http, etcd, ids)
        path.unlink(missing_ok=True)
        return None
    finally:
        os.close(handle)
