"""The settings of a bridge node as one table: TOML key, allowed values, default, meaning."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from bridges.node.group_commit_core import GROUP_COUNT, GROUP_S
from bridges.node.outbox import MAX_OUTBOX_BYTES
from bridges.node.publisher import INFLIGHT
from bridges.node.receiver import CREDIT, MAX_JOURNAL_BYTES, TIMEOUT_S
from bridges.node.shard_core import MAX_SHARDS, Shard, ShardBy, parse_shard
from bridges.node.storage import NAME_PATTERN
from oncewire.cli.errors import CliError
from oncewire.client import ClientError, connect

KIB = 1024
_UNITS = {"": 1, "kib": KIB, "mib": KIB**2, "gib": KIB**3, "tib": KIB**4}
REQUIRED = object()
"""In place of a default."""

Parser: TypeAlias = Callable[[object], Any]
"""Turns a TOML value into the setting's value; raises ValueError or TypeError when it cannot."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting.

    Attributes:
        parse: checks and converts.
        default: or REQUIRED.
        allowed: for people: what may be set, with its unit.
        reason: for people: what it is for.
        secret: never printed.
    """

    parse: Parser
    default: object
    allowed: str
    reason: str
    secret: bool = False


def _text(pattern: str) -> Parser:
    compiled = re.compile(pattern)

    def parse(value: object) -> str:
        if not isinstance(value, str) or not compiled.fullmatch(value):
            raise ValueError
        return value

    return parse


def _whole_number(low: int, high: int) -> Parser:
    def parse(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError
        return value

    return parse


def _seconds(low: float, high: float) -> Parser:
    def parse(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise ValueError
        return float(value)

    return parse


def _size(low: int, high: int) -> Parser:
    def parse(value: object) -> int:
        if isinstance(value, str):
            match = re.fullmatch(r"(\d+)\s*([KMGT]iB)?", value.strip(), re.IGNORECASE)
            if match is None:
                raise ValueError
            value = int(match[1]) * _UNITS[(match[2] or "").lower()]
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError
        return value

    return parse


def _path(value: object) -> Path:
    if not isinstance(value, str) or not value:
        raise ValueError
    return Path(value).expanduser()


def _optional_path(value: object) -> Path | None:
    return None if value == "" else _path(value)


def _routers(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
        raise ValueError
    try:
        unused = connect(value)  # reads the addresses, connects to nothing
    except ClientError as error:
        raise ValueError from error
    del unused
    return tuple(value)


def _topics(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or len(set(map(str, value))) < len(value):
        raise ValueError
    for item in value:
        if not isinstance(item, str) or not 0 < len(item.encode()) <= 255 or "|" in item:
            raise ValueError
    return tuple(value)


def _shard(value: object) -> Shard | None:
    if not isinstance(value, str):
        raise TypeError
    return parse_shard(value) if value else None


def _yes_or_no(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _one_of(*choices: str) -> Parser:
    def parse(value: object) -> str:
        if value not in choices:
            raise ValueError
        return str(value)

    return parse


_HOST = _text(r"\S*")
_PORT = _whole_number(0, 65535)
_PORT_ALLOWED = "0 to 65535; 0 = any free port"

RECEIVING: Mapping[str, Setting] = {
    "credit": Setting(
        _whole_number(1, 100_000), CREDIT, "1 to 100000 messages",
        "Messages that may arrive ahead of the journal.",
    ),
    "group_ms": Setting(
        _seconds(0, 10_000), GROUP_S * 1000, "0 to 10000 milliseconds",
        "How long the first message of a group waits for others before it is written.",
    ),
    "group_count": Setting(
        _whole_number(1, 100_000), GROUP_COUNT, "1 to 100000 messages",
        "A group of this many is written without waiting for more.",
    ),
    "max_journal_bytes": Setting(
        _size(64 * KIB, KIB**5), MAX_JOURNAL_BYTES, "64 KiB to 1024 TiB",
        "A journal with more accepts no messages until it is trimmed: publishers wait.",
    ),
    "retention_s": Setting(
        _seconds(0, 10 * 365 * 86_400), 0.0, "seconds, up to ten years",
        "How long messages are kept after the pipeline has processed them, for replay and history.",
    ),
    "timeout_s": Setting(
        _whole_number(1, 30 * 86_400), TIMEOUT_S, "1 to 2592000 seconds",
        "How long the network keeps the subscription while this node is disconnected. Publishers wait meanwhile.",
    ),
}  # fmt: skip
"""Of a subscription; the table [defaults] holds defaults for all of them."""

SUBSCRIPTION: Mapping[str, Setting] = {
    "name": Setting(
        _text(NAME_PATTERN.pattern), REQUIRED, "up to 100 of A-Z a-z 0-9 _ . -",
        "Its name in pipelines (option `subscription`).",
    ),
    "topics": Setting(_topics, REQUIRED, "a list of topics or patterns", "Topics received into its journal."),
    "container_id": Setting(
        _text(r"\S{0,200}"), "", "up to 200 characters without spaces, or empty",
        "Its identity in the network; empty = the node's name, a dot, and the subscription's name. A shard is added.",
    ),
    "shard": Setting(
        _shard, None, f"NUMBER/COUNT, as 0/2 and 1/2; up to {MAX_SHARDS} shards; or empty",
        "This node's shard of a subscription that several nodes share. Never change it.",
    ),
    "shard_by": Setting(
        _one_of(*(by.value for by in ShardBy)), ShardBy.KEY.value, "key or topic (only with shard)",
        "key = all nodes receive the same topics, and each keeps the messages whose key falls to its shard; "
        "topic = each node has different topics. Never change it.",
    ),
    **RECEIVING,
}  # fmt: skip

NODE: Mapping[str, Setting] = {
    "name": Setting(
        _text(r"[A-Za-z0-9_.-]{1,64}"), socket.gethostname(), "1 to 64 of A-Z a-z 0-9 _ . -",
        "Part of its subscriptions' identities: never change it. Default: this machine's name.",
    ),
    "folder": Setting(
        _path, REQUIRED, "a folder on a local disk", "For journals and outboxes: all durable state is here.",
    ),
    "routers": Setting(
        _routers, REQUIRED, 'a list of URLs such as "amqp://router-1:5672"', "Tried in turn.", secret=True,
    ),
    "secret_file": Setting(
        _optional_path, None, "a file with at least 16 bytes, or empty",
        "The secret that clients must have. Empty = FOLDER/secret, which is created if it does not exist.",
    ),
    "listen.host": Setting(
        _HOST, "127.0.0.1", "an address or host name, or empty = no TCP", "Where pipelines connect.",
    ),
    "listen.port": Setting(_PORT, 7072, _PORT_ALLOWED, "Where pipelines connect."),
    "listen.unix": Setting(
        _optional_path, None, "a path, or empty", "A socket for pipelines of this user on this machine.",
    ),
    "http.host": Setting(
        _HOST, "127.0.0.1", "an address or host name, or empty = no HTTP",
        "Address of /healthz, /readyz and /metrics.",
    ),
    "http.port": Setting(_PORT, 7073, _PORT_ALLOWED, "Address of /healthz, /readyz and /metrics."),
    "tls.ca_file": Setting(
        _optional_path, None, "a PEM file, or empty = the authorities of this machine",
        "Certificate authorities for routers whose URL is amqps.",
    ),
    "tls.cert_file": Setting(
        _optional_path, None, "a PEM file, or empty = none", "This node's client certificate for routers.",
    ),
    "tls.key_file": Setting(
        _optional_path, None, "a PEM file without passphrase, or empty = it is in tls.cert_file", "Its key.",
    ),
    "tls.check_hostname": Setting(
        _yes_or_no, True, "true or false (only with tls.ca_file)",
        "A router's certificate must be for the host of its URL.",
    ),
    "outbox.max_bytes": Setting(
        _size(64 * KIB, KIB**5), MAX_OUTBOX_BYTES, "64 KiB to 1024 TiB",
        "Of each sink: decided rows that wait to be published; the same amount again may be staged.",
    ),
    "outbox.inflight": Setting(
        _whole_number(1, 1024), INFLIGHT, "1 to 1024 messages", "Rows of a topic that may wait for their outcome.",
    ),
    "log.level": Setting(
        _one_of("debug", "info", "warning", "error"), "info", "debug, info, warning or error", "What is logged.",
    ),
    **{f"defaults.{name}": setting for name, setting in RECEIVING.items()},
}  # fmt: skip


def parse_setting(key: str, setting: Setting, value: object, file: str) -> Any:
    """Check and convert one value.

    Raises:
        CliError: it is not allowed.
    """
    try:
        return setting.parse(value)
    except (ValueError, TypeError):
        shown = "***" if setting.secret else repr(value)
        raise CliError(
            f"{key} = {shown} in {file} cannot be used",
            f"allowed: {setting.allowed}",
            f"set {key} to what is allowed; `oncewire bridge node --print-config` explains every setting",
        ) from None
