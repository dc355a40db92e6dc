"""What the reports of all experiments share: tables of numbers, and the verdict in one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table


def table_of(first: str, *others: str) -> Table:
    """An empty table: names on the left, numbers to the right."""
    table = Table(box=SIMPLE_HEAD)
    # Names are long; they give way to the numbers.
    table.add_column(first, overflow="fold")
    for heading in others:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def flag(count: int) -> str:
    """A number that should be 0."""
    return str(count) if not count else f"[bold red]{count}[/bold red]"


def milliseconds(seconds: float) -> str:
    """A time in milliseconds, with its unit."""
    return f"{seconds * 1000:.0f} ms"


def outcome(passed: bool) -> str:
    """The verdict as one word."""
    return "passed" if passed else "[bold red]FAILED[/bold red]"


def print_verdict(console: Console, who: str, seconds: float, reasons: Sequence[str], shown: str) -> None:
    """Print that `who` passed with what that has `shown`, or the reasons why it failed."""
    if not reasons:
        console.print(f"{who}passed in {seconds:.1f} s: {shown}", style="green", soft_wrap=True)
        return
    console.print(f"{who}FAILED after {seconds:.1f} s:", style="bold red")
    for reason in reasons:
        console.print(f"  {reason}", style="red", markup=False, soft_wrap=True)
