"""Settings of an operators' door, and what must fit together in them; the bridge node and the edge have the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bridges.doors.tls import TlsFiles
from bridges.doors.tokens import OF_TOKENS, DoorTokens, tokens_of
from oncewire.cli.errors import CliError
from oncewire.client import ClientError, connect
from oncewire.settings.parsers import one_of, optional_path, text, whole_number, yes_or_no
from oncewire.settings.schema import REQUIRED, Setting
from oncewire.transport.hosts import is_loopback

HOST = text(r"\S*")
PORT = whole_number(0, 65535)
PORT_ALLOWED = "0 to 65535; 0 = any free port"
CERTIFICATES = one_of("none", "optional", "required")
CERTIFICATES_ALLOWED = "none, optional or required"
Refuse = Callable[[str, str, str], Exception]
"""Makes the error of a setting, of why and what to do."""


def routers(value: object) -> tuple[str, ...]:
    """A list of URLs of routers; in a text they are separated by commas."""
    items = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
    if not isinstance(items, list) or not items or not all(isinstance(item, str) for item in items):
        raise ValueError
    try:
        unused = connect(items)  # reads the addresses, connects to nothing
    except ClientError as error:
        raise ValueError from error
    del unused
    return tuple(items)


def of_routers(table: str = "") -> tuple[Setting, ...]:
    """How the process connects to its routers."""
    dotted = f"{table}." if table else ""
    return (
        Setting(
            f"{dotted}routers",
            routers,
            REQUIRED,
            'a list of URLs such as "amqp://router-1:5672"',
            "Tried in turn.",
            secret=True,
        ),
        Setting(
            f"{dotted}token_file",
            optional_path,
            None,
            "a file, or empty = none",
            "Log in at routers with the token in this file, in place of a user in the URL; it is read before each "
            "login.",
        ),
    )


def of_http(port: int, users_file: str = "users_file") -> tuple[Setting, ...]:
    """Where operators connect, and who may; `users_file` is the key of the setting with their users."""
    return (
        Setting(
            users_file,
            optional_path,
            None,
            "a file of `oncewire users`, or empty = no login",
            "Operators over HTTP log in as its users, but for /healthz and /readyz. It is read again when it changes.",
        ),
        *OF_TOKENS,
        Setting(
            "http.host",
            HOST,
            "127.0.0.1",
            "an address or host name, or empty = no HTTP",
            "Address of /healthz, /readyz and /metrics.",
        ),
        Setting("http.port", PORT, port, PORT_ALLOWED, "Address of /healthz, /readyz and /metrics."),
        Setting(
            "http.tls", yes_or_no, False, "true or false", "Operators connect with https only; needs tls.cert_file."
        ),
        Setting(
            "http.client_certificates",
            CERTIFICATES,
            "none",
            CERTIFICATES_ALLOWED,
            "Certificates of operators, checked with tls.ca_file. optional = one that is shown must be valid.",
        ),
    )


def of_tls(serves: str) -> tuple[Setting, ...]:
    """Whom the process trusts, and who it is.

    Args:
        serves: for people: the settings that need its certificate.
    """
    return (
        Setting(
            "tls.ca_file",
            optional_path,
            None,
            "a PEM file, or empty = the authorities of this machine",
            "Certificate authorities for routers whose URL is amqps or wss, and of clients' certificates.",
        ),
        Setting(
            "tls.cert_file",
            optional_path,
            None,
            "a PEM file, or empty = none",
            f"The certificate of this process, for {serves}, and for routers whose URL is amqps or wss.",
        ),
        Setting(
            "tls.key_file",
            optional_path,
            None,
            "a PEM file without passphrase, or empty = it is in tls.cert_file",
            "Its key.",
        ),
        Setting(
            "tls.check_hostname",
            yes_or_no,
            True,
            "true or false (only with tls.ca_file)",
            "A router's certificate must be for the host of its URL.",
        ),
    )


def tls_files(values: Mapping[str, Any]) -> TlsFiles:
    """The files of `of_tls`, of values by the settings' keys."""
    return TlsFiles(*(values[f"tls.{name}"] for name in ("ca_file", "cert_file", "key_file", "check_hostname")))


def tables_of(table: str, listed: object, file: str) -> list[dict[str, Any]]:
    """What a file has under `[[table]]`.

    Raises:
        CliError: it is something else.
    """
    if isinstance(listed, list) and all(isinstance(item, dict) for item in listed):
        return listed
    raise CliError(
        f"{table} in {file} cannot be used", "it is no list of tables", f"write [[{table}]] above its settings"
    )


def check_listener(door: str, certificates: str, values: Mapping[str, Any], refuse: Refuse) -> None:
    """A listener with TLS has a certificate, and one that asks for certificates has an authority for them.

    Args:
        door: the setting that switches its TLS on.
        certificates: the setting about certificates of its clients.
        values: by the settings' keys.
        refuse: makes the error.

    Raises:
        CliError: it is not so.
    """
    if values[door] and values["tls.cert_file"] is None:
        raise refuse(door, "tls.cert_file is empty", "set tls.cert_file and tls.key_file for this process")
    if values[certificates] == "none":
        return
    if not values[door]:
        raise refuse(certificates, "without TLS nobody shows a certificate", f"set {door} = true, or leave it none")
    if values["tls.ca_file"] is None:
        raise refuse(certificates, "no authority is named", "set tls.ca_file to the one that signs these certificates")


def check_logins(values: Mapping[str, Any], refuse: Refuse, users_file: str = "users_file") -> DoorTokens | None:
    """No login crosses the network in clear; returns the tokens that operators may log in with.

    Args:
        values: by the settings' keys.
        refuse: makes the error.
        users_file: the key of the setting with their users.

    Raises:
        CliError: it would.
    """
    if values["tls.key_file"] is not None and values["tls.cert_file"] is None:
        raise refuse("tls.key_file", "there is no certificate to it", "set tls.cert_file, too")
    tokens = tokens_of(values, refuse)
    keys = "jwt.jwks_url" if values["jwt.jwks_url"] else "jwt.jwks_file"
    for setting, is_used, what in (
        (users_file, values[users_file] is not None, "passwords"),
        (keys, tokens is not None, "tokens"),
    ):
        if not is_used:
            continue
        if not values["http.host"]:
            raise refuse(setting, "nobody logs in: http.host is empty", f"set http.host, or leave {setting} out")
        if not values["http.tls"] and not is_loopback(values["http.host"]):
            raise refuse(
                setting,
                f"{what} would go in clear to http.host = {values['http.host']!r}",
                "set http.tls, or let http.host be an address of this machine alone",
            )
    return tokens
