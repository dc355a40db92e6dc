"""The settings of a bridge node as tables: TOML key, allowed values, default, meaning."""

from __future__ import annotations

import socket
from collections.abc import Mapping

from bridges.doors.settings import (
    CERTIFICATES,
    CERTIFICATES_ALLOWED,
    HOST,
    PORT,
    PORT_ALLOWED,
    of_http,
    of_routers,
    of_tls,
)
from bridges.node.group_commit_core import GROUP_COUNT, GROUP_S
from bridges.node.model import CREDIT, INFLIGHT, MAX_JOURNAL_BYTES, MAX_OUTBOX_BYTES, NAME_PATTERN, TIMEOUT_S
from bridges.node.retention import EXPIRE_UNREAD_S
from bridges.node.shard_core import MAX_SHARDS, Shard, ShardBy, parse_shard
from oncewire.client.isolation import Isolation
from oncewire.settings.parsers import KIB, TIB, number, one_of, optional_path, path, size, text, whole_number, yes_or_no
from oncewire.settings.schema import REQUIRED, Setting, by_key


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


_LONG = number(0, 10 * 365 * 86_400)
_LONG_ALLOWED = "seconds, up to ten years; 0 = never"


def _receiving(table: str) -> tuple[Setting, ...]:
    """Of a subscription; the table [defaults] holds defaults for all of them."""
    return (
        Setting(
            f"{table}.credit",
            whole_number(1, 100_000),
            CREDIT,
            "1 to 100000 messages",
            "Messages that may arrive ahead of the journal.",
        ),
        Setting(
            f"{table}.group_ms",
            number(0, 10_000),
            GROUP_S * 1000,
            "0 to 10000 milliseconds",
            "How long the first message of a group waits for others before it is written.",
        ),
        Setting(
            f"{table}.group_count",
            whole_number(1, 100_000),
            GROUP_COUNT,
            "1 to 100000 messages",
            "A group of this many is written without waiting for more.",
        ),
        Setting(
            f"{table}.max_journal_bytes",
            size(64 * KIB, 1024 * TIB),
            MAX_JOURNAL_BYTES,
            "64 KiB to 1024 TiB",
            "A journal with more accepts no messages until it is trimmed: publishers wait.",
        ),
        Setting(
            f"{table}.retention_s",
            number(0, 10 * 365 * 86_400),
            0.0,
            "seconds, up to ten years",
            "How long messages are kept after the pipeline has processed them, for replay and history.",
        ),
        Setting(
            f"{table}.drop_unread_s",
            _LONG,
            0.0,
            _LONG_ALLOWED,
            "Messages that no pipeline has processed for so long are deleted, with all before them; a query that comes "
            "later fails there (`failOnDataLoss`). For topics whose publishers must not wait for a pipeline.",
        ),
        Setting(
            f"{table}.timeout_s",
            whole_number(1, 30 * 86_400),
            TIMEOUT_S,
            "1 to 2592000 seconds",
            "How long the network keeps the subscription while this node is disconnected. Publishers wait meanwhile.",
        ),
    )


_OF_SUBSCRIPTION = (
    Setting(
        "subscription.name",
        text(NAME_PATTERN.pattern),
        REQUIRED,
        "up to 100 of A-Z a-z 0-9 _ . -",
        "Its name in pipelines (option `subscription`).",
    ),
    Setting(
        "subscription.topics", _topics, REQUIRED, "a list of topics or patterns", "Topics received into its journal."
    ),
    Setting(
        "subscription.container_id",
        text(r"\S{0,200}"),
        "",
        "up to 200 characters without spaces, or empty",
        "Its identity in the network; empty = the node's name, a dot, and the subscription's name. A shard is added.",
    ),
    Setting(
        "subscription.shard",
        _shard,
        None,
        f"NUMBER/COUNT, as 0/2 and 1/2; up to {MAX_SHARDS} shards; or empty",
        "This node's shard of a subscription that several nodes share. Never change it.",
    ),
    Setting(
        "subscription.shard_by",
        one_of(*(by.value for by in ShardBy)),
        ShardBy.KEY.value,
        "key or topic (only with shard)",
        "key = all nodes receive the same topics, and each keeps the messages whose key falls to its shard; "
        "topic = each node has different topics. Never change it.",
    ),
    Setting(
        "subscription.isolation_level",
        one_of("", *(level.value for level in Isolation)),
        "",
        "read_uncommitted, read_committed, or empty",
        "read_committed = messages of transactions are journaled when these commit, and never if they are rolled back. "
        "Empty = as the journal has it, read_uncommitted if it is new. A journal keeps its level.",
    ),
    *_receiving("subscription"),
    Setting(
        "subscription.expire_unread_s",
        _LONG,
        0.0,
        _LONG_ALLOWED,
        "After so long without a request of a query the subscription ends; not taken from `[defaults]`.",
    ),
)
SUBSCRIPTION: Mapping[str, Setting] = {each.name: each for each in _OF_SUBSCRIPTION}
"""Of one subscription, by their names in its table."""

_OF_NODE = (
    Setting(
        "name",
        text(r"[A-Za-z0-9_.-]{1,64}"),
        socket.gethostname(),
        "1 to 64 of A-Z a-z 0-9 _ . -",
        "Part of its subscriptions' identities: never change it. Default: this machine's name.",
    ),
    Setting(
        "folder", path, REQUIRED, "a folder on a local disk", "For journals and outboxes: all durable state is here."
    ),
    *of_routers(),
    Setting(
        "secret_file",
        optional_path,
        None,
        "a file with at least 16 bytes, or empty",
        "The secret that clients must have. Empty = FOLDER/secret, which is created if it does not exist.",
    ),
    Setting(
        "expire_unread_s",
        _LONG,
        float(EXPIRE_UNREAD_S),
        _LONG_ALLOWED,
        "A subscription that a query made by itself, and that is not in this file, ends after so long without a "
        "request of a query: the network deletes it, its journal stays. Time while the node is stopped does not count.",
    ),
    *of_http(7073),
    Setting("listen.host", HOST, "127.0.0.1", "an address or host name, or empty = no TCP", "Where pipelines connect."),
    Setting("listen.port", PORT, 7072, PORT_ALLOWED, "Where pipelines connect."),
    Setting(
        "listen.unix", optional_path, None, "a path, or empty", "A socket for pipelines of this user on this machine."
    ),
    Setting(
        "listen.tls",
        yes_or_no,
        False,
        "true or false",
        "Pipelines connect to listen.host with TLS only, by tls://HOST:PORT; needs tls.cert_file.",
    ),
    *of_tls("listen.tls and http.tls"),
    Setting(
        "tls.client_certificates",
        CERTIFICATES,
        "none",
        CERTIFICATES_ALLOWED,
        "Certificates of pipelines, checked with tls.ca_file. optional = one that is shown must be valid.",
    ),
    Setting(
        "outbox.max_bytes",
        size(64 * KIB, 1024 * TIB),
        MAX_OUTBOX_BYTES,
        "64 KiB to 1024 TiB",
        "Of each sink: decided rows that wait to be published; the same amount again may be staged.",
    ),
    Setting(
        "outbox.inflight",
        whole_number(1, 1024),
        INFLIGHT,
        "1 to 1024 messages",
        "Rows of a topic that may wait for their outcome.",
    ),
    Setting(
        "log.level",
        one_of("debug", "info", "warning", "error"),
        "info",
        "debug, info, warning or error",
        "What is logged.",
    ),
    *_receiving("defaults"),
)
NODE: Mapping[str, Setting] = by_key(_OF_NODE)
"""All others, by their keys."""
