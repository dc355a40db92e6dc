"""Notices between the processes that use one SQLite file: SQLite has none, and waiters do not poll (W-13).

Each process that waits has a named pipe in the folder FILE-waiters. Whoever changes what others wait for, such as the
items of a queue, writes its name, a line each, into every pipe there. A pipe without a reader belongs to a process that
crashed, and is deleted.
"""

from __future__ import annotations

import errno
import os
import secrets
from contextlib import suppress
from pathlib import Path

READ_BYTES = 1 << 16
"""The capacity of a pipe on Linux."""
ATOMIC_BYTES = 4096
"""Linux's PIPE_BUF: one write of so many bytes is never mixed with another."""
HIDDEN = "."
"""Begins the names of pipes that are being made."""
EVERYTHING = frozenset({"*"})
"""What a reader that could not follow gets: anything may have changed."""


class Notices:
    """The pipes of one store.

    Args:
        path: the store's file.
    """

    def __init__(self, path: Path) -> None:
        self._folder = path.with_name(path.name + "-waiters")
        self._pipe: Path | None = None
        self._descriptor = -1

    def open(self) -> int:
        """Begin to receive; returns the descriptor to be watched.

        Raises:
            OSError: no pipe can be made there.
        """
        if self._descriptor >= 0:
            return self._descriptor
        if not hasattr(os, "mkfifo"):
            raise OSError("this system has no named pipes")
        self._folder.mkdir(mode=0o700, exist_ok=True)
        pipe = self._folder / f"{os.getpid()}-{secrets.token_hex(4)}"
        # Under a name that senders pass over until it has a reader: one without would be deleted.
        new = pipe.with_name(HIDDEN + pipe.name)
        os.mkfifo(new, 0o600)
        # Read and write: without a writer of its own a reader would see the end of the file again and again.
        self._descriptor = os.open(new, os.O_RDWR | os.O_NONBLOCK)
        self._pipe = new.rename(pipe)
        return self._descriptor

    def send(self, names: frozenset[str]) -> None:
        """Notify everybody else who waits; losing a notice costs time and no item."""
        if not names:
            return
        text = "".join(f"{name}\n" for name in sorted(names)).encode()
        if len(text) > ATOMIC_BYTES:
            text = b"*\n"
        with suppress(OSError):
            for pipe in self._folder.iterdir():
                if pipe != self._pipe and not pipe.name.startswith(HIDDEN):
                    self._send(pipe, text)

    @staticmethod
    def _send(pipe: Path, text: bytes) -> None:
        try:
            descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nobody reads it
                with suppress(OSError):
                    pipe.unlink()
            return
        try:
            with suppress(OSError):  # full: its reader has enough notices to look
                os.write(descriptor, text)
        finally:
            os.close(descriptor)

    def read(self) -> frozenset[str]:
        """Return the names that others announced."""
        try:
            text = os.read(self._descriptor, READ_BYTES)
        except BlockingIOError:
            return frozenset()
        names = frozenset(text.decode(errors="replace").splitlines())
        # A full pipe may have lost notices.
        return EVERYTHING if len(text) == READ_BYTES else names

    def close(self) -> None:
        """Receive no longer."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        if self._pipe is not None:
            with suppress(OSError):
                self._pipe.unlink()
            with suppress(OSError):
                self._folder.rmdir()
            self._pipe = None
