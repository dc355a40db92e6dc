"""The options of the format `amqp`: one table of what there is, for whom, what is allowed and what it means.

The reference in docs/spark.md is made from it. Names are Kafka's where Kafka has the same thing. Spark is not needed
here.
"""

from __future__ import annotations

import difflib
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

from bridges.node.client import Node, RemoteNode, parse_address, read_secret
from bridges.node.embedded import EmbeddedNode
from bridges.node.errors import BadRequest
from bridges.node.group_commit_core import GROUP_COUNT, GROUP_S
from bridges.node.node import NodeSettings
from bridges.node.outbox import MAX_OUTBOX_BYTES, SINK_PATTERN
from bridges.node.publisher import INFLIGHT
from bridges.node.receiver import CREDIT, MAX_JOURNAL_BYTES, TIMEOUT_S, Subscription
from bridges.node.storage import NAME_PATTERN
from bridges.spark import option_values as values
from bridges.spark.option_values import CommitMode, Guarantee, NotAllowed, Parser, Place

EMBEDDED = "embedded"
AT_MOST_ONCE_RETENTION_S = 3600.0
"""What at-most-once hands out is done with before it is read: so long tasks have to read it."""


class Side(Enum):
    """Who understands an option."""

    BOTH = "both"
    SOURCE = "source"
    SINK = "sink"


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    Attributes:
        name: as in the documents; upper and lower case do not matter.
        side: who understands it.
        default: as text; empty = none.
        parse: turns the text into the value.
        allowed: for people: what may be given, with its unit.
        meaning: for people.
        is_embedded_only: with a bridge node elsewhere it is set there, so it is refused here.
    """

    name: str
    side: Side
    default: str
    parse: Parser
    allowed: str
    meaning: str
    is_embedded_only: bool = False


_BOTH, _SOURCE, _SINK = Side.BOTH, Side.SOURCE, Side.SINK
_NUMBER = values.whole_number(1)

OPTIONS: tuple[Option, ...] = (
    Option(
        "bridge", _BOTH, EMBEDDED, values.text(), "`embedded`, `tcp://HOST:PORT` or `unix:///PATH`",
        "The bridge node. `embedded` = inside Spark's own processes, for one machine: nothing is received while no "
        "query runs.",
    ),
    Option(
        "bridge.folder", _BOTH, "", values.text(), "a folder on a local disk",
        "Where an embedded node keeps journals and outboxes. Needed for `embedded`.", True,
    ),
    Option(
        "bridge.name", _BOTH, "", values.text(r"[A-Za-z0-9_.-]{1,64}"), "1 to 64 of A-Z a-z 0-9 _ . -",
        "Name of an embedded node, part of its subscriptions' identities: never change it. "
        "Default: this machine's name.", True,
    ),
    Option(
        "bridge.secret", _BOTH, "", values.text(), "at least 16 characters",
        "The node's secret. It, or `bridge.secretFile`, is needed for a node that is not embedded.",
    ),
    Option(
        "bridge.secretFile", _BOTH, "", values.text(), "a path",
        "File with the node's secret, at the same path on the driver and every executor.",
    ),
    Option(
        "amqp.urls", _BOTH, "", values.routers, "a comma list of `amqp://HOST[:PORT]` or `amqps://HOST[:PORT]`",
        "Routers, tried in turn. Needed for `embedded`.", True,
    ),
    Option("amqp.sasl.username", _BOTH, "", values.text(), "text", "User at routers whose URL names none.", True),
    Option("amqp.sasl.password", _BOTH, "", values.text(r".+"), "text", "The user's password.", True),
    Option(
        "deliveryGuarantee", _BOTH, "exactly-once", values.one_of(Guarantee),
        "`exactly-once`, `at-least-once` or `at-most-once`", "What is promised about each message.",
    ),
    Option("subscribe", _SOURCE, "", values.topics, "a comma list of topics", "What is received."),
    Option(
        "subscribePattern", _SOURCE, "", values.patterns, "a comma list of patterns: `*` one word, `#` any rest",
        "What is received; in place of `subscribe`. The network's own wildcards, not a regular expression.",
    ),
    Option(
        "subscription", _SOURCE, "", values.text(NAME_PATTERN.pattern), "up to 100 of A-Z a-z 0-9 _ . -",
        "Durable name of the subscription: the network keeps what it is owed. One streaming query for each name.",
    ),
    Option(
        "startingOffsets", _SOURCE, "earliest", values.place,
        '`earliest`, `latest` or `{"SUBSCRIPTION": POSITION}`',
        "Where the first batch starts. `earliest` is the oldest message in the journal. Decided once for a "
        "subscription; a checkpoint goes before it.",
    ),
    Option(
        "endingOffsets", _SOURCE, "latest", values.place, '`latest` or `{"SUBSCRIPTION": POSITION}`',
        "Where a batch read ends. Not for streams.",
    ),
    Option(
        "failOnDataLoss", _SOURCE, "true", values.yes_or_no, "`true` or `false`",
        "Fail when messages that the checkpoint expects are not in the journal any more, or it is another one; "
        "`false` = log it and go on with what is there.",
    ),
    Option("maxOffsetsPerTrigger", _SOURCE, "", _NUMBER, "messages", "A batch has this many at most."),
    Option(
        "maxBytesPerTrigger", _SOURCE, "", values.size, "bytes, also `64m`",
        "A batch has about this many at most; one larger message comes alone.",
    ),
    Option("minOffsetsPerTrigger", _SOURCE, "", _NUMBER, "messages", "A batch waits until there are so many."),
    Option(
        "maxTriggerDelay", _SOURCE, "15m", values.duration, "a time such as `30s` or `15m`",
        "How long `minOffsetsPerTrigger` may hold back a batch.",
    ),
    Option(
        "minPartitions", _SOURCE, "", values.whole_number(1, 10_000), "1 to 10000",
        "A batch is cut into at least so many tasks, if it has as many messages.",
    ),
    Option(
        "includeHeaders", _SOURCE, "false", values.yes_or_no, "`true` or `false`",
        "Add the column `headers`: application properties in the form that Kafka's have.",
    ),
    Option(
        "includeMetadata", _SOURCE, "true", values.yes_or_no, "`true` or `false`",
        "Add the columns from `message_id` on. Without them reading is quicker.",
    ),
    Option(
        "retentionMs", _SOURCE, "", values.milliseconds, "milliseconds",
        "How long messages are kept in the journal after the query is done with them.", True,
    ),
    Option(
        "minBatchesToRetain", _SOURCE, "2", values.whole_number(0, 1000), "0 to 1000 batches",
        "Finished batches that are kept in the journal, so that a query can be set back by hand.",
    ),
    Option(
        "groupCommitMs", _SOURCE, f"{GROUP_S * 1000:g}", values.whole_number(0, 10_000), "0 to 10000 milliseconds",
        "How long the first message of a group waits for others before it is written.", True,
    ),
    Option(
        "groupCommitMax", _SOURCE, str(GROUP_COUNT), values.whole_number(1, 100_000), "1 to 100000 messages",
        "A group of so many is written without waiting for more.", True,
    ),
    Option(
        "credit", _SOURCE, str(CREDIT), values.whole_number(1, 100_000), "1 to 100000 messages",
        "Messages that may come ahead of the journal.", True,
    ),
    Option(
        "maxJournalBytes", _SOURCE, str(MAX_JOURNAL_BYTES), values.size, "bytes, also `8g`",
        "A journal with more takes no messages until batches are done: publishers are held back.", True,
    ),
    Option(
        "subscriptionTimeout", _SOURCE, f"{TIMEOUT_S}s", values.duration, "a time such as `24h`, from `1s`",
        "How long the network keeps what it owes while the node is away. Publishers wait for it meanwhile.", True,
    ),
    Option("topic", _SINK, "", values.topic, "a topic", "Where all rows go; goes before the column `topic`."),
    Option(
        "errorTopic", _SINK, "", values.topic, "a topic", "Where a processor's handled errors go, in the same batch.",
    ),
    Option(
        "sinkId", _SINK, "", values.text(SINK_PATTERN.pattern), "up to 100 of A-Z a-z 0-9 _ . -",
        "Who publishes, as subscribers see it. Default: the query's id. Needed for batch writes.",
    ),
    Option(
        "batchId", _SINK, "", values.whole_number(0), "a whole number",
        "Number of a batch write within its sink: the same number again changes nothing. Not for streams.",
    ),
    Option(
        "commitMode", _SINK, "published", values.one_of(CommitMode), "`published` or `staged`",
        "When a batch counts as written: when every subscription has accepted it, or when it is durable at the node.",
    ),
    Option(
        "publishTimeout", _SINK, "", values.duration, "a time such as `10m`",
        "How long a batch may wait for subscribers before the query fails (it goes on where it was when it is started "
        "again). Default: no limit.",
    ),
    Option(
        "stageTimeout", _SINK, "10m", values.duration, "a time such as `10m`",
        "How long a task waits while the outbox is full before it fails.",
    ),
    Option(
        "inflight", _SINK, str(INFLIGHT), values.whole_number(1, 1024), "1 to 1024 messages",
        "Rows of a topic that may be without an outcome.", True,
    ),
    Option(
        "maxOutboxBytes", _SINK, str(MAX_OUTBOX_BYTES), values.size, "bytes, also `1g`",
        "Decided rows that wait to be published; and as much again may be staged.", True,
    ),
    Option(
        "atomicBatches", _SINK, "false", values.yes_or_no, "`true` or `false`",
        "Mark each batch as one transaction: readers of committed messages get all of it or nothing.",
    ),
    Option(
        "takeover", _SINK, "false", values.yes_or_no, "`true` or `false`",
        "Become the sink's query though another one was: for a new checkpoint with an old `sinkId`.",
    ),
)  # fmt: skip
"""Every option there is."""

_BY_NAME = {option.name.lower(): option for option in OPTIONS}
_SPARKS_OWN = frozenset({"checkpointlocation", "queryname", "path"})
"""Spark hands these on to the sink; `path` only where somebody gave one, which is refused below."""


@dataclass(frozen=True, slots=True)
class BridgeOptions:
    """Which node, and how to reach it.

    Attributes:
        address: EMBEDDED, or where the node listens.
        secret: of a node that is not embedded, as given; empty = see the file.
        secret_file: None = none was given.
        folder, name, routers: of an embedded node.
    """

    address: str
    secret: str
    secret_file: Path | None
    folder: Path
    name: str
    routers: tuple[str, ...]

    @property
    def is_embedded(self) -> bool:
        """Whether the node runs in Spark's own processes."""
        return self.address == EMBEDDED


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a reader works with; see OPTIONS for the meanings. Times are in seconds.

    Attributes:
        topics: topics or patterns; empty only for batch reads, which need none.
    """

    bridge: BridgeOptions
    guarantee: Guarantee
    subscription: str
    topics: tuple[str, ...]
    start: Place
    end: Place
    fail_on_data_loss: bool
    max_rows: int | None
    max_bytes: int | None
    min_rows: int | None
    max_trigger_delay_s: float
    min_partitions: int
    include_headers: bool
    include_metadata: bool
    min_batches_to_retain: int
    receiving: Subscription


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """What a writer works with; see OPTIONS for the meanings. Times are in seconds.

    Attributes:
        topic: None = the column `topic` says it.
        sink_id: None = the query's id.
        publish_timeout_s: None = no limit.
    """

    bridge: BridgeOptions
    guarantee: Guarantee
    topic: str | None
    error_topic: str | None
    sink_id: str | None
    batch_id: int | None
    commit_mode: CommitMode
    publish_timeout_s: float | None
    stage_timeout_s: float
    inflight: int
    max_outbox_bytes: int
    atomic_batches: bool
    takeover: bool


def source_options(given: Mapping[str, str], *, is_stream: bool = True) -> SourceOptions:
    """Read the options of a source.

    Args:
        given: from Spark.
        is_stream: False = of a batch read.

    Raises:
        BadRequest: an option is unknown, missing, cannot be used, or does not fit another.
    """
    found = _parse(given, Side.SOURCE)
    bridge = _bridge(found)
    if not found["subscription"]:
        raise _missing("subscription", "the network keeps what is owed under it")
    topics = _topics(found, is_stream=is_stream)
    start, end = found["startingOffsets"], found["endingOffsets"]
    for name, place in (("startingOffsets", start), ("endingOffsets", end)):
        if place.subscription not in {None, found["subscription"]}:
            raise _bad(name, f"it is of {place.subscription!r}", f"name subscription {found['subscription']!r}")
    if end.at == values.EARLIEST:
        raise _bad("endingOffsets", "nothing ends where it begins", "give latest, or a position")
    if is_stream and "endingoffsets" in _lowered(given):
        raise _bad("endingOffsets", "a stream has no end", "leave it out, or read with spark.read")
    least, most = found["minOffsetsPerTrigger"], found["maxOffsetsPerTrigger"]
    if least and most and least > most:
        raise _bad("minOffsetsPerTrigger", "it is more than maxOffsetsPerTrigger", "give a smaller number")
    retention_s = found["retentionMs"]
    guarantee = found["deliveryGuarantee"]
    if retention_s is None:
        retention_s = AT_MOST_ONCE_RETENTION_S if guarantee is Guarantee.AT_MOST_ONCE else 0.0
    return SourceOptions(
        bridge=bridge,
        guarantee=guarantee,
        subscription=found["subscription"],
        topics=topics,
        start=start,
        end=end,
        fail_on_data_loss=found["failOnDataLoss"],
        max_rows=found["maxOffsetsPerTrigger"],
        max_bytes=found["maxBytesPerTrigger"],
        min_rows=found["minOffsetsPerTrigger"],
        max_trigger_delay_s=found["maxTriggerDelay"],
        min_partitions=found["minPartitions"] or 1,
        include_headers=found["includeHeaders"],
        include_metadata=found["includeMetadata"],
        min_batches_to_retain=found["minBatchesToRetain"],
        receiving=Subscription(
            "", "", (),
            credit=found["credit"],
            group_s=found["groupCommitMs"] / 1000,
            group_count=found["groupCommitMax"],
            max_journal_bytes=found["maxJournalBytes"],
            retention_s=retention_s,
            timeout_s=max(1, round(found["subscriptionTimeout"])),
        ),
    )  # fmt: skip


def sink_options(given: Mapping[str, str], *, is_stream: bool = True) -> SinkOptions:
    """Read the options of a sink.

    Args:
        given: from Spark.
        is_stream: False = of a batch write.

    Raises:
        BadRequest: an option is unknown, missing, cannot be used, or does not fit another.
    """
    found = _parse(given, Side.SINK)
    if is_stream and found["batchId"] is not None:
        raise _bad("batchId", "a stream numbers its batches itself", "leave it out")
    if not is_stream and not found["sinkId"]:
        raise _missing("sinkId", "a batch write has no query that could give it one")
    return SinkOptions(
        bridge=_bridge(found),
        guarantee=found["deliveryGuarantee"],
        topic=found["topic"],
        error_topic=found["errorTopic"],
        sink_id=found["sinkId"],
        batch_id=found["batchId"],
        commit_mode=found["commitMode"],
        publish_timeout_s=found["publishTimeout"],
        stage_timeout_s=found["stageTimeout"],
        inflight=found["inflight"],
        max_outbox_bytes=found["maxOutboxBytes"],
        atomic_batches=found["atomicBatches"],
        takeover=found["takeover"],
    )


def open_node(options: SourceOptions | SinkOptions) -> Node:
    """The node of the options. Nothing is opened or started by this; close it when it is not needed any more.

    Raises:
        BadRequest: the secret cannot be read, or is too short.
    """
    bridge = options.bridge
    if not bridge.is_embedded:
        secret = bridge.secret.encode() if bridge.secret_file is None else read_secret(bridge.secret_file)
        return RemoteNode(bridge.address, secret)
    settings = NodeSettings(bridge.name, bridge.folder, bridge.routers, resumes=False)
    if isinstance(options, SourceOptions):
        return EmbeddedNode(replace(settings, defaults=options.receiving))
    return EmbeddedNode(
        replace(settings, inflight=options.inflight, max_outbox_bytes=options.max_outbox_bytes)
    )


def options_of(side: Side) -> Iterable[Option]:
    """The options that a side understands."""
    return (option for option in OPTIONS if option.side in {side, Side.BOTH})


# --- checking ---------------------------------------------------------------------------------------------------------


def _lowered(given: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in given.items()}


def _parse(given: Mapping[str, str], side: Side) -> dict[str, Any]:
    texts = _lowered(given)
    if texts.get("path"):
        raise _bad("path", "messages are not in files", "leave it out; `subscribe` and `topic` name topics")
    for name in texts:
        if name not in _SPARKS_OWN:
            _check_name(name, side)
    found: dict[str, Any] = {}
    for option in options_of(side):
        given_text = texts.get(option.name.lower())
        found[option.name] = _value(option, option.default if given_text is None else given_text.strip())
    is_embedded = found["bridge"] == EMBEDDED
    for option in options_of(side):
        if option.is_embedded_only and not is_embedded and option.name.lower() in texts:
            raise _bad(
                option.name,
                f"the bridge node at {found['bridge']} has settings of its own",
                "set it in that node's configuration (`oncewire bridge node --print-config`)",
            )
    return found


def _check_name(name: str, side: Side) -> None:
    option = _BY_NAME.get(name)
    if option is None:
        known = [other.name for other in options_of(side)]
        near = difflib.get_close_matches(name, [other.lower() for other in known], 1, 0.5)
        hint = f"did you mean {_BY_NAME[near[0]].name}?" if near else f"there are {', '.join(known)}"
        raise BadRequest(f"the option {name!r} cannot be used", f"the {side.value} has no such option", hint)
    if option.side not in {side, Side.BOTH}:
        raise _bad(option.name, f"it is an option of the {option.side.value}, not of the {side.value}", "leave it out")


def _value(option: Option, given: str) -> Any:
    if not given:
        return None
    try:
        return option.parse(given)
    except ValueError as error:
        shown = "***" if "secret" in option.name or "password" in option.name else repr(given)
        why = str(error) if isinstance(error, NotAllowed) else "it is not what is allowed"
        raise BadRequest(f"{option.name} = {shown} cannot be used", why, f"give {option.allowed}") from None


def _topics(found: Mapping[str, Any], *, is_stream: bool) -> tuple[str, ...]:
    topics, patterns = found["subscribe"], found["subscribePattern"]
    if topics and patterns:
        raise _bad("subscribePattern", "subscribe is given, too", "give one of the two")
    if is_stream and not topics and not patterns:
        raise _missing("subscribe", "or subscribePattern: there is nothing to read")
    return tuple(topics or patterns or ())


def _bridge(found: Mapping[str, Any]) -> BridgeOptions:
    address = found["bridge"]
    if address != EMBEDDED:
        parse_address(address)
        if bool(found["bridge.secret"]) == bool(found["bridge.secretFile"]):
            raise BadRequest(
                f"the bridge node at {address} cannot be used",
                "one of bridge.secret and bridge.secretFile is needed, and not both",
                "give the node's secret, or a file with it",
            )
    else:
        for needed in ("amqp.urls", "bridge.folder"):
            if not found[needed]:
                raise _missing(needed, "an embedded node needs it; or set `bridge` to the address of a node")
    secret_file = found["bridge.secretFile"]
    return BridgeOptions(
        address=address,
        secret=found["bridge.secret"] or "",
        secret_file=Path(secret_file) if secret_file else None,
        folder=Path(found["bridge.folder"] or "."),
        name=found["bridge.name"] or socket.gethostname(),
        routers=_with_user(found),
    )


def _with_user(found: Mapping[str, Any]) -> tuple[str, ...]:
    user, password = found["amqp.sasl.username"], found["amqp.sasl.password"]
    if bool(user) != bool(password):
        name = "amqp.sasl.password" if user else "amqp.sasl.username"
        raise _missing(name, "a user has a name and a password")
    routers: tuple[str, ...] = found["amqp.urls"] or ()
    if not user:
        return routers
    return tuple(_url_with_user(url, user, password) for url in routers)


def _url_with_user(url: str, user: str, password: str) -> str:
    parts = urlsplit(url if "://" in url else f"amqp://{url}")
    if parts.username is not None:
        return url
    return urlunsplit(parts._replace(netloc=f"{quote(user, safe='')}:{quote(password, safe='')}@{parts.netloc}"))


def _missing(name: str, why: str) -> BadRequest:
    return BadRequest(f"the option {name} is missing", why, f"set it: {_BY_NAME[name.lower()].allowed}")


def _bad(name: str, why: str, fix: str) -> BadRequest:
    return BadRequest(f"the option {name} cannot be used", why, fix)
