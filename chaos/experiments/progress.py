"""The demo while it runs: progress bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from chaos.clients.client_process import ClientProcess

PLAIN_INTERVAL_S = 3.0
"""Between two lines of numbers where bars cannot be drawn."""


class DemoProgress:
    """Shows how far each client is, and says what is done to the network. Use as a context manager."""

    def __init__(self, console: Console) -> None:
        """Nothing is shown yet."""
        self._console = console
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._rows: list[tuple[ClientProcess, str, int]] = []
        self._next_line = 0.0

    def __enter__(self) -> Self:
        """Start drawing, where there is a terminal."""
        if self._console.is_terminal:
            self._bars = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[place]}"),
                TimeElapsedColumn(),
                console=self._console,
            )
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop drawing; the bars stay on the screen as they are."""
        if self._bars is not None:
            self._bars.stop()

    def follow(self, client: ClientProcess, counted: str, total: int) -> None:
        """Show this client with its number of `counted` events out of `total`."""
        self._rows.append((client, counted, total))
        if self._bars is not None:
            self._tasks[client.name] = self._bars.add_task(f"{client.name} {counted}", total=total, place="")

    def say(self, text: str) -> None:
        """Print one line above the bars."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def show(self) -> None:
        """Bring the bars up to date, or print a line of numbers every few seconds."""
        if self._bars is not None:
            for client, counted, _ in self._rows:
                task = self._tasks[client.name]
                self._bars.update(task, completed=client.counts[counted], place=_place_of(client))
            return
        now = time.monotonic()
        if now >= self._next_line and self._rows:
            self._next_line = now + PLAIN_INTERVAL_S
            parts = [f"{client.name} {client.counts[counted]}/{total}" for client, counted, total in self._rows]
            self.say("  " + ", ".join(parts))


def _place_of(client: ClientProcess) -> str:
    if client.is_attached:
        return f"at {client.router}"
    return "looking for a router" if client.router and not client.is_closed else ""
