"""How far a command is that takes more than two seconds: a bar on a terminal, nothing elsewhere.

It is drawn on the standard error, so that the standard output is for results.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

AFTER_S = 2.0
"""Whoever waits for less needs no bar."""
REDRAW_S = 0.1


@contextmanager
def progress_of(what: str, total: int | None, *, is_wanted: bool = True) -> Iterator[Callable[[int], None]]:
    """Show how much of a total is done, while the block runs; what it yields is called with the sum.

    Args:
        what: is counted.
        total: how many there are; None = nobody knows.
        is_wanted: False = show nothing.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    if not is_wanted or not console.is_terminal:
        yield lambda _done: None
        return
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        auto_refresh=False,
    )
    task = bar.add_task(what, total=total)
    is_shown = False
    next_at = time.monotonic() + AFTER_S

    def show(done: int) -> None:
        nonlocal is_shown, next_at
        now = time.monotonic()
        if now < next_at:  # called for each message
            return
        next_at = now + REDRAW_S
        if not is_shown:
            is_shown = True
            bar.start()
        bar.update(task, completed=done)
        bar.refresh()

    try:
        yield show
    finally:
        if is_shown:
            bar.stop()


@contextmanager
def waiting_for(what: str) -> Iterator[None]:
    """Show on a terminal that something takes its time, while the block runs."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(what):
        yield
