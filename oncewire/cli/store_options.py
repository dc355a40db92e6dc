"""The options of commands that work on a store: where it is, and JSON in the place of lines for people."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

Command = Callable[..., Any]


def of_store(text: str, variable: str | None = None) -> Callable[[Command], Command]:
    """--store, which the environment may have in a variable, and --json."""

    def add(command: Command) -> Command:
        command = click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)
        return click.option("--store", "url", required=True, envvar=variable, metavar="URL", help=text)(command)

    return add
