"""Logging in over HTTP by the command line: `--user` and its password from the environment or a prompt, or a token."""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Callable
from typing import Any

import click

from oncewire.cli import variables
from oncewire.cli.contexts import password_in
from oncewire.cli.errors import CliError
from oncewire.cli.tls import tls_options
from oncewire.cli.token import has_token_option, token_of_command, token_option
from oncewire.cli.where import DEFAULT_HTTP, PRECEDENCE, context_in_use, context_option, http_address
from topology.inspector.ask_cli import Authorization, Bearer

_META = "oncewire.password_file"


def network_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--url` and `--context`; it asks `url_of` what they came to."""
    precedence = PRECEDENCE.format(variable=variables.HTTP_URL, default=DEFAULT_HTTP)
    return click.option(
        "--url",
        default=None,
        envvar=variables.HTTP_URL,
        metavar="URL",
        help=f"The HTTP address of a router; with a login, http://USER:PASSWORD@HOST:PORT. [{precedence}]",
    )(context_option(command))


def url_of(given: str | None) -> str:
    """The HTTP address that a command with `network_options` asks.

    Raises:
        CliError: there is no such context.
    """
    return http_address(given).urls[0]


def login_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options `--user`, `--password-file` and `--token-file`, and those of TLS."""
    for option in (
        click.option(
            "--password-file",
            type=click.Path(exists=True, dir_okay=False),
            metavar="FILE",
            expose_value=False,
            callback=_keep,
            help=f"The password of --user. [{variables.PASSWORD}; else it is asked for]",
        ),
        click.option("--user", default=None, metavar="NAME", help="Log in as this user of the router."),
    ):
        command = option(command)
    return tls_options(token_option(command))


def _keep(context: click.Context, _option: click.Parameter, value: str | None) -> None:
    context.meta[_META] = value


def _password_given() -> str | None:
    """What --password-file or the variable has; None = neither is there.

    Raises:
        CliError: the file cannot be read.
    """
    running = click.get_current_context(silent=True)
    file: str | None = None if running is None else running.meta.get(_META)
    return os.environ.get(variables.PASSWORD) if file is None else password_in(file)


def authorization_of(user: str | None) -> Authorization | None:
    """What logs in: `user` (RFC 7617), or the token of the command that runs (RFC 6750); None without either.

    Without options it is what the context has, if the command works on one; so ask for the address first.

    Raises:
        CliError: there is no password and nobody to ask for it, or there are a user and a token.
    """
    token = token_of_command() if user is None or has_token_option() else None
    password = _password_given()
    context = context_in_use()
    if user is None and token is None and context is not None and context.user:
        user = context.user
        password = context.password() if password is None else password
    if user is None:
        return None if token is None else Bearer(token)
    if token is not None:
        why = f"--user names a user, and --token-file or {variables.TOKEN_FILE} a token"
        raise CliError("it is not clear who logs in", why, "leave one of them out")
    if password is None:
        if not sys.stdin.isatty():
            raise CliError(
                f"cannot log in as {user}",
                "no password is given, and there is no terminal to ask for it",
                f"give --password-file FILE, or set {variables.PASSWORD}",
            )
        password = str(click.prompt(f"Password of {user}", hide_input=True, err=True))
    if ":" in user:
        raise CliError(f"cannot log in as {user}", "a user's name has no colon", "give the name alone")
    try:
        header = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
        return lambda: header
    except UnicodeEncodeError:
        raise CliError("cannot log in", "user or password is no UTF-8 text", "check your terminal's encoding") from None
