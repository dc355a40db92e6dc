"""Reports when files were replaced. Names are looked up each time, so that a link to another file counts, too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from pathlib import Path

_Stamp: TypeAlias = tuple[int, int, int, int] | None
"""Inode, size and times of one file; None = there is none."""


class FileWatch:
    """Some files that belong together, such as a certificate and its key."""

    def __init__(self, files: Sequence[Path]) -> None:
        """Count from now on: read the files after this, not before."""
        self._files = files
        self._seen = self._taken = self._stamps()

    def note(self) -> None:
        """The files are about to be read."""
        self._seen = self._taken = self._stamps()

    def differ(self) -> bool:
        """Whether the files are others than those that were taken last, also while somebody is still at it."""
        return self._stamps() != self._taken

    def look(self) -> bool:
        """Whether the files differ from those that were taken last, and stayed as they are since the last look.

        Somebody who replaces one file after the other is let finish. What is reported is taken: files that cannot be
        used are reported again when they have changed again.
        """
        stamps = self._stamps()
        is_at_rest, self._seen = stamps == self._seen, stamps
        if not is_at_rest or stamps == self._taken:
            return False
        self._taken = stamps
        return True

    def _stamps(self) -> list[_Stamp]:
        return [_stamp(file) for file in self._files]


def _stamp(file: Path) -> _Stamp:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
