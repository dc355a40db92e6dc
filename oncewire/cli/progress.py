"""How far a command is that takes more than two seconds: a line on a terminal, nothing elsewhere.

It is drawn on the standard error, so that the standard output is for results.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

AFTER_S = 2.0
"""Whoever waits for less needs no line."""
REDRAW_S = 0.1
BAR_CELLS = 30


@contextmanager
def progress_of(what: str, total: int | None, *, is_wanted: bool = True) -> Iterator[Callable[[int], None]]:
    """Show how much of a total is done, while the block runs; what it yields is called with the sum.

    Args:
        what: is counted.
        total: how many there are; None = nobody knows.
        is_wanted: False = show nothing.
    """
    if not is_wanted or not sys.stderr.isatty():
        yield lambda _done: None
        return
    began_at = time.monotonic()
    next_at = began_at + AFTER_S
    shown = 0

    def show(done: int) -> None:
        nonlocal shown, next_at
        now = time.monotonic()
        if now < next_at:  # called for each message
            return
        next_at = now + REDRAW_S
        line = _line(what, done, total, now - began_at)
        _draw(line.ljust(shown))
        shown = len(line)

    try:
        yield show
    finally:
        if shown:
            _draw(" " * shown + "\r")


@contextmanager
def waiting_for(what: str) -> Iterator[None]:
    """Show on a terminal that something takes its time, while the block runs."""
    is_shown = sys.stderr.isatty()
    if is_shown:
        _draw(what)
    try:
        yield
    finally:
        if is_shown:
            _draw(" " * len(what) + "\r")


def _line(what: str, done: int, total: int | None, seconds: float) -> str:
    if total is None:
        return f"{what} {done:,}  {seconds:.0f} s"
    filled = BAR_CELLS * done // total
    left = f", {seconds * (total - done) / done:.0f} s left" if done else ""
    return f"{what} [{'#' * filled}{'.' * (BAR_CELLS - filled)}] {done:,}/{total:,}  {seconds:.0f} s{left}"


def _draw(line: str) -> None:
    sys.stderr.write(f"\r{line}")
    sys.stderr.flush()
