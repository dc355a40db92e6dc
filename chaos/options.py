"""Options that several commands have, and how their errors are put."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import click
from rich.console import Console

from oncewire.cli.errors import CliError

FAILED = 1
"""Exit code of a command that ran and whose verdict is no."""
MAX_SEED = 2**53
"""Where JSON readers stop telling whole numbers apart."""
MAX_ROUTERS = 16
"""Each is a process: more of them show nothing new on one machine."""
_Option: TypeAlias = Callable[[Any], Any]


class DetailedError(CliError):
    """What an operation needs cannot be used; also raised outside of commands, where one line has to say it all."""

    def __str__(self) -> str:
        return f"{self.what}: {self.why}; {self.fix}"


def as_json(said: str = "End with one line of JSON on stdout.") -> _Option:
    """The option --json."""
    return click.option("--json", "as_json", is_flag=True, help=said)


def keep(said: str) -> _Option:
    """The option --keep, with a folder."""
    return click.option("--keep", type=click.Path(path_type=Path), default=None, help=said)


def number(name: str, least: int, default: int, said: str, most: int | None = None) -> _Option:
    """An option with a whole number that is shown as its default."""
    return click.option(name, type=click.IntRange(least, most), default=default, show_default=True, help=said)


def limit(name: str, said: str) -> _Option:
    """An option with a time or other amount above 0, without a default."""
    return click.option(name, type=click.FloatRange(min=0, min_open=True), help=said)


def ledger(default: str, said: str) -> _Option:
    """The option --state, with the ledger of a long run."""
    kind = click.Path(path_type=Path)
    return click.option("--state", type=kind, default=Path(default), show_default=True, callback=_ledger_of, help=said)


def _ledger_of(ctx: click.Context, option: click.Parameter, path: Path) -> Path:
    if path.suffix != ".jsonl":
        raise CliError(f"{path} is no ledger", "its name does not end in .jsonl", "give --state another file")
    return path


def end_record(ctx: click.Context, console: Console, said: str, counts: Mapping[str, Any], *, as_json: bool) -> None:
    """Print where a record of runs stands, and exit with its verdict."""
    console.print(said, style="green" if counts["passed"] else "bold red", soft_wrap=True)
    if counts["kept"] is not None:
        console.print(f"what failed is kept in {counts['kept']}", style="bold red", soft_wrap=True)
    if as_json:
        click.echo(json.dumps(counts))
    ctx.exit(0 if counts["passed"] else FAILED)
