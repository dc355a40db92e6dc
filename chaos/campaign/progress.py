"""How far a long run is: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

PLAIN_INTERVAL_S = 30.0
"""Between two lines where no bar can be drawn."""


class RunProgress:
    """Shows how much of one known total is done. Use as a context manager."""

    def __init__(self, console: Console, what: str, total: int) -> None:
        """Nothing is shown yet.

        Args:
            console: where to.
            what: is counted.
            total: how many there are.
        """
        self._console, self._what, self._total = console, what, total
        self._bar: Progress | None = None
        self._next_line = time.monotonic() + PLAIN_INTERVAL_S

    def __enter__(self) -> Self:
        """Start drawing, where there is a terminal."""
        if self._console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[note]}"),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=self._console,
                transient=True,
            )
            self._bar.add_task(self._what, total=self._total, note="")
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()

    def show(self, done: int, note: str = "") -> None:
        """So much is done by now."""
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=done, note=note)
        elif (now := time.monotonic()) >= self._next_line:
            self._next_line = now + PLAIN_INTERVAL_S
            self._console.print(f"{self._what} {done:,}/{self._total:,} {note}".rstrip(), markup=False, highlight=False)

    def show_seeds(self, done: int, failing: int) -> None:
        """As show, for seeds."""
        self.show(done, f"{failing} failing" if failing else "")
