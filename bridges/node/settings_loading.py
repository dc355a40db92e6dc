"""Reads the node's TOML file and reports its errors."""

from __future__ import annotations

import difflib
import os
import secrets
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bridges.node.client import read_secret
from bridges.node.errors import NodeError
from bridges.node.node import NodeSettings
from bridges.node.receiver import Subscription
from bridges.node.settings import NODE, REQUIRED, SUBSCRIPTION, Setting, parse_setting
from bridges.node.shard_core import ShardBy
from bridges.node.tls import TlsFiles
from oncewire.cli.errors import CliError

_HELP = "`oncewire bridge node --print-config` prints every setting with what is allowed"


@dataclass(frozen=True, slots=True)
class DaemonSettings:
    """A node, and where it listens.

    Attributes:
        node: the node itself.
        secret_file: None = in the folder.
        host, port, unix: where pipelines connect; host empty or unix None = not there.
        http_host, http_port: for operators; host empty = not at all.
        log_level: what is logged.
    """

    node: NodeSettings
    secret_file: Path | None
    host: str
    port: int
    unix: Path | None
    http_host: str
    http_port: int
    log_level: str


def load(file: str) -> DaemonSettings:
    """Read a file.

    Raises:
        CliError: something in it cannot be used.
    """
    content = _read_toml(file)
    listed = content.pop("subscription", [])
    if not isinstance(listed, list) or not all(isinstance(item, dict) for item in listed):
        raise CliError(
            f"subscription in {file} cannot be used",
            "it is no list of tables",
            "write [[subscription]] above the settings of each",
        )
    values = _values(NODE, _flatten(content), "", file)
    defaults = {key.removeprefix("defaults."): values[key] for key in values if key.startswith("defaults.")}
    subscriptions = tuple(_subscription(item, values["name"], defaults, file) for item in listed)
    _check_together(subscriptions, values, file)
    return DaemonSettings(
        node=NodeSettings(
            name=values["name"],
            folder=values["folder"],
            routers=values["routers"],
            subscriptions=subscriptions,
            defaults=_receiving("", "", (), defaults),
            max_outbox_bytes=values["outbox.max_bytes"],
            inflight=values["outbox.inflight"],
            tls=TlsFiles(
                values["tls.ca_file"],
                values["tls.cert_file"],
                values["tls.key_file"],
                values["tls.check_hostname"],
            ),
        ),
        secret_file=values["secret_file"],
        host=values["listen.host"],
        port=values["listen.port"],
        unix=values["listen.unix"],
        http_host=values["http.host"],
        http_port=values["http.port"],
        log_level=values["log.level"],
    )


def _subscription(
    table: dict[str, Any], node: str, defaults: Mapping[str, Any], file: str
) -> Subscription:
    given = _values(SUBSCRIPTION, table, "subscription.", file)
    settings = {key: given[key] if key in table else value for key, value in defaults.items()}
    name, shard = given["name"], given["shard"]
    if shard is not None:
        shard = replace(shard, by=ShardBy(given["shard_by"]))
    identity = given["container_id"] or f"{node}.{name}"
    if shard is not None:  # nodes that only differ in it must not be one subscriber: each would get a part of each part
        identity = f"{identity}#{shard}"
    return replace(_receiving(name, identity, given["topics"], settings), shard=shard)


def _receiving(
    name: str, container_id: str, topics: tuple[str, ...], settings: Mapping[str, Any]
) -> Subscription:
    return Subscription(
        name=name,
        container_id=container_id,
        topics=topics,
        credit=settings["credit"],
        group_s=settings["group_ms"] / 1000,
        group_count=settings["group_count"],
        max_journal_bytes=settings["max_journal_bytes"],
        retention_s=settings["retention_s"],
        timeout_s=settings["timeout_s"],
    )


def _check_together(subscriptions: tuple[Subscription, ...], values: Mapping[str, Any], file: str) -> None:
    """Refuse settings that are right one by one and wrong together."""
    for what, found in (
        ("name", [subscription.name for subscription in subscriptions]),
        ("container_id", [subscription.container_id for subscription in subscriptions]),
    ):
        twice = sorted({item for item in found if found.count(item) > 1})
        if twice:
            raise CliError(
                f"subscription.{what} = {twice[0]!r} in {file} cannot be used",
                "two subscriptions have it",
                f"give each subscription a {what} of its own",
            )
    if not values["listen.host"] and values["listen.unix"] is None:
        raise CliError(
            f"the node of {file} would be of no use",
            "no pipeline could connect to it: listen.host and listen.unix are both empty",
            "set one of them",
        )


def open_secret(settings: DaemonSettings) -> tuple[bytes, Path]:
    """The node's secret and where it is; one is made in the folder where none was given.

    Raises:
        CliError: it cannot be read, is too short, or cannot be made.
    """
    path = settings.secret_file
    try:
        if path is None:
            path = settings.node.folder / "secret"
            if not path.exists():
                handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with os.fdopen(handle, "w") as stream:
                    stream.write(secrets.token_hex(32) + "\n")
        return read_secret(path), path
    except NodeError as error:
        raise CliError(error.what, error.why, error.fix) from None
    except OSError as error:
        raise CliError(
            f"the secret file {path} cannot be made", error.strerror or str(error), "set secret_file to another path"
        ) from None


def explain() -> str:
    """Every setting as a TOML file with a comment for each; all of them switched off."""
    lines: list[str] = []
    table = ""
    for key, setting in NODE.items():
        prefix, _, name = key.rpartition(".")
        if prefix != table:
            table = prefix
            lines += [f"[{prefix}]", ""]
        lines += _explained(name, setting)
    lines += ["# One such table for each subscription that is received from the start.", "# [[subscription]]", ""]
    for name, setting in SUBSCRIPTION.items():
        lines += _explained(name, setting)
    return "\n".join(lines)


def _explained(name: str, setting: Setting) -> list[str]:
    required = setting.default is REQUIRED
    return [
        f"# {setting.reason}",
        f"# allowed: {setting.allowed}" + ("; must be set" if required else ""),
        f"# {name} = {'...' if required else _toml(setting.default)}",
        "",
    ]


def _toml(value: object) -> str:
    if value is None:
        return '""'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"{value:g}" if isinstance(value, float) else str(value)
    return f'"{value}"'


# --- reading ----------------------------------------------------------------------------------------------------------


def _read_toml(file: str) -> dict[str, Any]:
    try:
        with Path(file).open("rb") as stream:
            return tomllib.load(stream)
    except OSError as error:
        raise CliError(
            f"the configuration file {file} cannot be read",
            error.strerror or str(error),
            "give the path of a TOML file",
        ) from None
    except UnicodeDecodeError as error:
        raise CliError(
            f"the configuration file {file} is not TOML",
            f"octet {error.start + 1} is not UTF-8 text",
            "give the path of a TOML file; save it as UTF-8",
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise CliError(f"the configuration file {file} is not TOML", str(error), "fix that line") from None


def _flatten(table: Mapping[str, Any], prefix: str = "") -> dict[str, object]:
    flat: dict[str, object] = {}
    for name, value in table.items():
        key = prefix + name
        if isinstance(value, dict):
            flat.update(_flatten(value, key + "."))
        else:
            flat[key] = value
    return flat


def _values(known: Mapping[str, Setting], given: Mapping[str, object], prefix: str, file: str) -> dict[str, Any]:
    for key in given:
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
            raise CliError(
                f"unknown setting {prefix}{key} in {file}",
                "there is no such setting",
                f"did you mean {prefix}{close[0]}? {_HELP}" if close else _HELP,
            )
    values: dict[str, Any] = {}
    for key, setting in known.items():
        if key in given:
            values[key] = parse_setting(prefix + key, setting, given[key], file)
        elif setting.default is REQUIRED:
            raise CliError(
                f"{prefix}{key} is missing in {file}",
                f"it is needed: {setting.reason[0].lower()}{setting.reason[1:]}",
                f"set it to {setting.allowed}",
            )
        else:
            values[key] = setting.default
    return values
