"""Options of commands that connect to routers with TLS: whom to trust, who to be."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from oncewire.cli import variables
from oncewire.cli.errors import CliError
from oncewire.cli.where import context_in_use
from oncewire.transport.tls import TlsFiles, TlsFilesError, fault_of, rotating_client_context

_META = "oncewire.tls"
_FILE = click.Path(exists=True, dir_okay=False)


def tls_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--ca-file`, `--cert-file` and `--key-file`; it asks `tls_of_command` what they came to."""
    for name, variable, what in (
        ("--key-file", variables.KEY_FILE, "Key of --cert-file, without passphrase. [in that file]"),
        ("--cert-file", variables.CERT_FILE, "Certificate to show to routers (PEM)."),
        ("--ca-file", variables.CA_FILE, "Authority of the routers' certificates (PEM). [those of this machine]"),
    ):
        command = click.option(
            name,
            type=_FILE,
            envvar=variable,
            metavar="FILE",
            help=f"With TLS: {what}",
            expose_value=False,
            callback=_keep,
        )(command)
    return command


def _keep(context: click.Context, option: click.Parameter, value: str | None) -> None:
    context.meta[f"{_META}.{option.name}"] = None if value is None else Path(value)


def tls_of_command() -> ssl.SSLContext | None:
    """What the command that runs connects with, also when the files are replaced; None = Python's default.

    What no option gives is that of the context, if the command works on one.

    Raises:
        CliError: a file cannot be used.
    """
    running = click.get_current_context(silent=True)
    if running is None:
        return None
    ca, certificate, key = (running.meta.get(f"{_META}.{name}") for name in ("ca_file", "cert_file", "key_file"))
    context = context_in_use()
    if context is not None:
        ca = ca or _path(context.ca_file)
        if certificate is None and key is None:  # a key belongs to its certificate
            certificate, key = _path(context.cert_file), _path(context.key_file)
    if key is not None and certificate is None:
        raise CliError("the key cannot be used", "there is no certificate to it", "add --cert-file FILE")
    if ca is None and certificate is None:
        return None
    try:
        return rotating_client_context(TlsFiles(ca, certificate, key), alpn=None)
    except TlsFilesError as error:
        raise CliError(
            "the TLS files cannot be used",
            str(error),
            "check --ca-file, --cert-file and --key-file: PEM files, a key that fits and has no passphrase",
        ) from None


def _path(name: str) -> Path | None:
    return Path(name) if name else None


def tls_fault(error: Exception) -> str:
    """Why there is no connection with TLS, in plain words."""
    return f"TLS: {fault_of(error) if isinstance(error, ssl.SSLError) else error}"
