"""Logging in over HTTP from the command line: `--user`, and its password from the environment or a prompt."""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Callable
from typing import Any

import click

from oncewire.cli.errors import CliError
from oncewire.cli.tls import tls_options

PASSWORD_VARIABLE = "ONCEWIRE_PASSWORD"  # noqa: S105  (the name of a variable)


def login_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the option `--user`, and those of TLS."""
    return click.option(
        "--user", default=None, metavar="NAME",
        help=f"Log in as this user of the router; its password is read from {PASSWORD_VARIABLE}, or asked for.",
    )(tls_options(command))  # fmt: skip


def authorization_of(user: str | None) -> str | None:
    """The header that logs `user` in (RFC 7617); None without a user.

    Raises:
        CliError: there is no password and nobody to ask for it.
    """
    if user is None:
        return None
    password = os.environ.get(PASSWORD_VARIABLE)
    if password is None:
        if not sys.stdin.isatty():
            raise CliError(
                f"cannot log in as {user}", "no password is given, and there is no terminal to ask for it",
                f"set {PASSWORD_VARIABLE}",
            )  # fmt: skip
        password = str(click.prompt(f"Password of {user}", hide_input=True, err=True))
    if ":" in user:
        raise CliError(f"cannot log in as {user}", "a user's name has no colon", "give the name alone")
    try:
        return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
    except UnicodeEncodeError:
        raise CliError("cannot log in", "user or password is no UTF-8 text", "check your terminal's encoding") from None
