"""Reads the node's TOML file and reports its errors."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bridges.doors.settings import check_listener, check_logins, tables_of, tls_files
from bridges.doors.tls import NO_FILES, TlsFiles, ask_for_tls
from bridges.doors.tokens import DoorTokens
from bridges.node.client import read_secret
from bridges.node.errors import NodeError
from bridges.node.model import NodeSettings, Subscription
from bridges.node.settings import NODE, SUBSCRIPTION
from bridges.node.shard_core import ShardBy
from oncewire.cli.errors import CliError
from oncewire.client.isolation import Isolation
from oncewire.settings.loading import Schema, read_toml
from oncewire.settings.printing import explained

_COMMAND = "`oncewire bridge node --print-config`"
_NODE = Schema(NODE, _COMMAND, is_file_only=True)
_SUBSCRIPTION = Schema(SUBSCRIPTION, _COMMAND, is_file_only=True)


@dataclass(frozen=True, slots=True)
class DaemonSettings:
    """A node, and where it listens.

    Attributes:
        node: the node itself.
        values: by the keys of `bridges.node.settings.NODE`.
        tls: the files of both listeners.
        tokens: operators log in with these; None = not so. Without them and users they need no login.
    """

    node: NodeSettings
    values: Mapping[str, Any]
    tls: TlsFiles
    tokens: DoorTokens | None


def load(file: str) -> DaemonSettings:
    """Read a file.

    Raises:
        CliError: something in it cannot be used.
    """
    content = read_toml(file)
    listed = tables_of("subscription", content.pop("subscription", []), file)
    values = _NODE.read(content, file).values
    defaults = {key.removeprefix("defaults."): values[key] for key in values if key.startswith("defaults.")}
    subscriptions = tuple(_subscription(item, values["name"], defaults, file) for item in listed)
    _check_together(subscriptions, values, file)
    tokens = _check_doors(values, file)
    tls = tls_files(values)
    serves_tls = values["listen.tls"] or values["http.tls"]
    return DaemonSettings(
        node=NodeSettings(
            name=values["name"],
            folder=values["folder"],
            routers=values["routers"],
            subscriptions=subscriptions,
            defaults=replace(_receiving("", "", (), defaults), expire_unread_s=values["expire_unread_s"]),
            max_outbox_bytes=values["outbox.max_bytes"],
            inflight=values["outbox.inflight"],
            tls=NO_FILES if serves_tls and not ask_for_tls(values["routers"]) else tls,
            token_file=values["token_file"],
        ),
        values=values,
        tls=tls,
        tokens=tokens,
    )


def _subscription(table: dict[str, Any], node: str, defaults: Mapping[str, Any], file: str) -> Subscription:
    given = _SUBSCRIPTION.read({"subscription": table}, file).values
    settings = {key: given[key] if key in table else value for key, value in defaults.items()}
    name, shard = given["name"], given["shard"]
    if shard is not None:
        shard = replace(shard, by=ShardBy(given["shard_by"]))
    identity = given["container_id"] or f"{node}.{name}"
    if shard is not None:  # nodes that only differ in it must not be one subscriber: each would get a part of each part
        identity = f"{identity}#{shard}"
    level = given["isolation_level"]
    isolation = Isolation(level) if level else None
    return replace(
        _receiving(name, identity, given["topics"], settings),
        shard=shard,
        isolation=isolation,
        expire_unread_s=given["expire_unread_s"],
    )


def _receiving(name: str, container_id: str, topics: tuple[str, ...], settings: Mapping[str, Any]) -> Subscription:
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
        drop_unread_s=settings["drop_unread_s"],
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


def _check_doors(values: Mapping[str, Any], file: str) -> DoorTokens | None:
    """Listeners with TLS have a certificate, checks an authority, and no login crosses the network in clear.

    Returns the tokens that operators may log in with.
    """

    def refuse(setting: str, why: str, fix: str) -> CliError:
        return CliError(f"{setting} in {file} cannot be used", why, fix)

    check_listener("listen.tls", "tls.client_certificates", values, refuse)
    check_listener("http.tls", "http.client_certificates", values, refuse)
    return check_logins(values, refuse)


def open_secret(settings: DaemonSettings) -> tuple[bytes, Path]:
    """The node's secret and where it is; one is made in the folder where none was given.

    Raises:
        CliError: it cannot be read, is too short, or cannot be made.
    """
    path: Path | None = settings.values["secret_file"]
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
    lines = explained(NODE.values())
    lines += ["# One such table for each subscription that is received from the start.", "# [[subscription]]", ""]
    return "\n".join(lines + explained(SUBSCRIPTION.values(), "subscription"))
