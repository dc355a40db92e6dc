"""`--token-file`: the token that a command logs in with, read again before each connection or request."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from oncewire.cli import variables
from oncewire.cli.where import context_in_use
from oncewire.transport.hosts import is_loopback

_META = "oncewire.token_file"


def token_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--token-file`; it asks `token_of_command` what it came to."""
    return click.option(
        "--token-file",
        type=click.Path(exists=True, dir_okay=False),
        envvar=variables.TOKEN_FILE,
        metavar="FILE",
        help="Log in with the token in this file; it is read again before each login.",
        expose_value=False,
        callback=_keep,
    )(command)


def _keep(context: click.Context, _option: click.Parameter, value: str | None) -> None:
    context.meta[_META] = None if value is None else Path(value)


def token_of_command() -> Callable[[], str] | None:
    """What the command that runs logs in with, by option or by its context; None = neither has a token."""
    running = click.get_current_context(silent=True)
    file: Path | None = None if running is None else running.meta.get(_META)
    context = context_in_use()
    if file is None and context is not None and context.token_file:
        file = Path(context.token_file)
    return None if file is None else token_in(file)


def has_token_option() -> bool:
    """Whether the command that runs was given a token by option or variable."""
    running = click.get_current_context(silent=True)
    return running is not None and running.meta.get(_META) is not None


def token_in(file: Path) -> Callable[[], str]:
    """What reads the token of a file each time; errors are those of `Path.read_text`."""
    return lambda: file.read_text(encoding="ascii").strip()


def others_can_read(url: str) -> bool:
    """Whether what is sent to this HTTP address can be read on the way."""
    parts = urlsplit(url)
    return parts.scheme != "https" and not is_loopback(parts.hostname or "")
