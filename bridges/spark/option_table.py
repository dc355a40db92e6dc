"""The options of the format `amqp` as one table: name, side, allowed values, meaning.

The reference in docs/spark-reference.md is generated from it. Names are Kafka's where Kafka has the same thing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from bridges.node.group_commit_core import GROUP_COUNT, GROUP_S
from bridges.node.outbox import MAX_OUTBOX_BYTES, SINK_PATTERN
from bridges.node.publisher import INFLIGHT
from bridges.node.receiver import CREDIT, MAX_JOURNAL_BYTES, TIMEOUT_S
from bridges.node.storage import NAME_PATTERN
from bridges.spark import option_values as values
from bridges.spark.option_values import EMBEDDED, MAX_NUMBER, CommitMode, Guarantee
from oncewire.client.transactions.sequencer import Isolation
from oncewire.settings.parsers import Parser, size, text, whole_number
from oncewire.settings.schema import Setting


class Side(Enum):
    """Which side reads an option."""

    BOTH = "both"
    SOURCE = "source"
    SINK = "sink"


@dataclass(frozen=True, slots=True)
class Option(Setting):
    """One option; its default is a text, empty = none. Upper and lower case of its name do not matter.

    Attributes:
        side: which side reads it.
        is_embedded_only: a separate bridge node has it in its own configuration, so it is refused here.
    """

    side: Side = Side.BOTH
    is_embedded_only: bool = False


def _option(
    name: str, side: Side, default: str, parse: Parser, allowed: str, meaning: str, is_embedded_only: bool = False
) -> Option:
    is_secret = "secret" in name or "password" in name or name == "amqp.urls"  # URLs may have a user and password
    return Option(name, parse, default, allowed, meaning, is_secret, side=side, is_embedded_only=is_embedded_only)


_BOTH, _SOURCE, _SINK = Side.BOTH, Side.SOURCE, Side.SINK
_NUMBER = whole_number(1, MAX_NUMBER)
_BYTES = size(1, MAX_NUMBER)
_TEXT = text(r"(?s)\S(.*\S)?")

OPTIONS: tuple[Option, ...] = (
    _option(
        "bridge",
        _BOTH,
        EMBEDDED,
        values.addresses,
        "`embedded`, `tcp://HOST:PORT`, `tls://HOST:PORT` or `unix:///PATH`; for a source also a comma list of nodes",
        "The bridge node. `embedded` = inside Spark's own processes, for one machine: nothing is received while no "
        "query runs. With several nodes that share a subscription, list all of them in the order of their shards.",
    ),
    _option(
        "bridge.folder",
        _BOTH,
        "",
        _TEXT,
        "a folder on a local disk",
        "Where an embedded node keeps journals and outboxes. Needed for `embedded`.",
        True,
    ),
    _option(
        "bridge.name",
        _BOTH,
        "",
        text(r"[A-Za-z0-9_.-]{1,64}"),
        "1 to 64 of A-Z a-z 0-9 _ . -",
        "Name of an embedded node, part of its subscriptions' identities: never change it. "
        "Default: this machine's name.",
        True,
    ),
    _option(
        "bridge.secret",
        _BOTH,
        "",
        _TEXT,
        "at least 16 characters",
        "The node's secret. It, or `bridge.secretFile`, is needed for a node that is not embedded.",
    ),
    _option(
        "bridge.secretFile",
        _BOTH,
        "",
        _TEXT,
        "a path",
        "File with the node's secret, at the same path on the driver and every executor.",
    ),
    _option(
        "bridge.tls.ca",
        _BOTH,
        "",
        _TEXT,
        "a PEM file",
        "Certificate authorities for nodes at `tls://`. Default: those of the machine.",
    ),
    _option("bridge.tls.certificate", _BOTH, "", _TEXT, "a PEM file", "Client certificate for nodes. Default: none."),
    _option(
        "bridge.tls.key",
        _BOTH,
        "",
        _TEXT,
        "a PEM file without passphrase",
        "The certificate's key. Default: in the certificate's file.",
    ),
    _option(
        "bridge.tls.checkHostname",
        _BOTH,
        "true",
        values.yes_or_no,
        "`true` or `false` (only with `bridge.tls.ca`)",
        "A node's certificate must be for the host of its address.",
    ),
    _option(
        "amqp.urls",
        _BOTH,
        "",
        values.routers,
        "a comma list of `amqp(s)://HOST[:PORT]` or `ws(s)://HOST[:PORT][/PATH]`",
        "Routers, tried in turn. Needed for `embedded`.",
        True,
    ),
    _option("amqp.sasl.username", _BOTH, "", _TEXT, "text", "User name for routers whose URL has none.", True),
    _option("amqp.sasl.password", _BOTH, "", text(r"(?s).+"), "text", "The user's password.", True),
    _option(
        "amqp.tls.ca",
        _BOTH,
        "",
        _TEXT,
        "a PEM file",
        "Certificate authorities for routers whose URL is `amqps` or `wss`. Default: those of the machine.",
        True,
    ),
    _option(
        "amqp.tls.certificate", _BOTH, "", _TEXT, "a PEM file", "Client certificate for routers. Default: none.", True
    ),
    _option(
        "amqp.tls.key",
        _BOTH,
        "",
        _TEXT,
        "a PEM file without passphrase",
        "The certificate's key. Default: in the certificate's file.",
        True,
    ),
    _option(
        "amqp.tls.checkHostname",
        _BOTH,
        "true",
        values.yes_or_no,
        "`true` or `false` (only with `amqp.tls.ca`)",
        "A router's certificate must be for the host of its URL.",
        True,
    ),
    _option(
        "deliveryGuarantee",
        _BOTH,
        "exactly-once",
        values.one_of(Guarantee),
        "`exactly-once`, `at-least-once` or `at-most-once`",
        "The delivery guarantee of each message.",
    ),
    _option("subscribe", _SOURCE, "", values.topics, "a comma list of topics", "Topics to receive."),
    _option(
        "subscribePattern",
        _SOURCE,
        "",
        values.patterns,
        "a comma list of patterns: `*` one word, `#` any rest",
        "Topics to receive, instead of `subscribe`. The network's own wildcards, not a regular expression.",
    ),
    _option(
        "subscription",
        _SOURCE,
        "",
        text(NAME_PATTERN.pattern),
        "up to 100 of A-Z a-z 0-9 _ . -",
        "Durable name of the subscription. One streaming query for each name.",
    ),
    _option(
        "startingOffsets",
        _SOURCE,
        "earliest",
        values.place,
        '`earliest`, `latest` or `{"SUBSCRIPTION": POSITION}`',
        "Where the first batch starts. `earliest` is the oldest message in the journal. Decided once for a "
        "subscription; a checkpoint takes precedence. With several nodes positions have an entry for each, "
        '`{"SUBSCRIPTION#0": POSITION, ...}`.',
    ),
    _option(
        "endingOffsets",
        _SOURCE,
        "latest",
        values.place,
        '`latest` or `{"SUBSCRIPTION": POSITION}`',
        "Where a batch read ends. Not for streams.",
    ),
    _option(
        "failOnDataLoss",
        _SOURCE,
        "true",
        values.yes_or_no,
        "`true` or `false`",
        "Fail when messages that the checkpoint expects are no longer in the journal, or it is another journal, or "
        "when messages are missing because the network had deleted the subscription; `false` = log it and continue "
        "with what is left.",
    ),
    _option(
        "isolationLevel",
        _SOURCE,
        "",
        values.one_of(Isolation),
        "`read_uncommitted` or `read_committed`",
        "`read_committed` = messages of a transaction come when it has committed, together, and never if it is rolled "
        "back. Default: as the subscription has it, `read_uncommitted` if it is new; it cannot be changed later. "
        "Not for batch reads.",
    ),
    _option("maxOffsetsPerTrigger", _SOURCE, "", _NUMBER, "messages", "A batch has this many at most."),
    _option(
        "maxBytesPerTrigger",
        _SOURCE,
        "",
        _BYTES,
        "bytes, also `64m`",
        "A batch has about this many at most; a larger message is a batch of its own.",
    ),
    _option("minOffsetsPerTrigger", _SOURCE, "", _NUMBER, "messages", "A batch waits until this many have arrived."),
    _option(
        "maxTriggerDelay",
        _SOURCE,
        "15m",
        values.duration,
        "a time such as `30s` or `15m`",
        "How long `minOffsetsPerTrigger` may delay a batch.",
    ),
    _option(
        "minPartitions",
        _SOURCE,
        "",
        whole_number(1, 10_000),
        "1 to 10000",
        "A batch is split into at least this many tasks, if it has as many messages.",
    ),
    _option(
        "includeHeaders",
        _SOURCE,
        "false",
        values.yes_or_no,
        "`true` or `false`",
        "Add the column `headers`: application properties in Kafka's form.",
    ),
    _option(
        "includeMetadata",
        _SOURCE,
        "true",
        values.yes_or_no,
        "`true` or `false`",
        "Add the columns from `message_id` on. Without them reading is faster.",
    ),
    _option(
        "retentionMs",
        _SOURCE,
        "",
        values.milliseconds,
        "milliseconds",
        "How long messages are kept in the journal after the query has processed them.",
        True,
    ),
    _option(
        "minBatchesToRetain",
        _SOURCE,
        "2",
        whole_number(0, 1000),
        "0 to 1000 batches",
        "Finished batches that are kept in the journal, so that a query can be set back by hand.",
    ),
    _option(
        "groupCommitMs",
        _SOURCE,
        f"{GROUP_S * 1000:g}",
        whole_number(0, 10_000),
        "0 to 10000 milliseconds",
        "How long the first message of a group waits for others before it is written.",
        True,
    ),
    _option(
        "groupCommitMax",
        _SOURCE,
        str(GROUP_COUNT),
        whole_number(1, 100_000),
        "1 to 100000 messages",
        "A group of this many is written without waiting for more.",
        True,
    ),
    _option(
        "credit",
        _SOURCE,
        str(CREDIT),
        whole_number(1, 100_000),
        "1 to 100000 messages",
        "Messages that may arrive ahead of the journal.",
        True,
    ),
    _option(
        "maxJournalBytes",
        _SOURCE,
        str(MAX_JOURNAL_BYTES),
        _BYTES,
        "bytes, also `8g`",
        "A journal with more accepts no messages until batches are finished: publishers wait.",
        True,
    ),
    _option(
        "subscriptionTimeout",
        _SOURCE,
        f"{TIMEOUT_S}s",
        values.duration,
        "a time such as `24h`, from `1s`",
        "How long the network keeps the subscription while the node is disconnected. Publishers wait meanwhile.",
        True,
    ),
    _option("topic", _SINK, "", values.topic, "a topic", "Topic of all rows; overrides the column `topic`."),
    _option(
        "errorTopic", _SINK, "", values.topic, "a topic", "Topic of a processor's handled errors, in the same batch."
    ),
    _option(
        "sinkId",
        _SINK,
        "",
        text(SINK_PATTERN.pattern),
        "up to 100 of A-Z a-z 0-9 _ . -",
        "Name of the publisher, as subscribers see it. Default: the query's id. Needed for batch writes.",
    ),
    _option(
        "batchId",
        _SINK,
        "",
        whole_number(0, MAX_NUMBER),
        "a whole number",
        "Number of a batch write within its sink: the same number again changes nothing. Not for streams.",
    ),
    _option(
        "commitMode",
        _SINK,
        "published",
        values.one_of(CommitMode),
        "`published` or `staged`",
        "When a batch counts as written: when every subscription has accepted it, or when it is durable at the node.",
    ),
    _option(
        "publishTimeout",
        _SINK,
        "",
        values.duration,
        "a time such as `10m`",
        "How long a batch may wait for subscribers before the query fails (it resumes when it is started again). "
        "Default: no limit.",
    ),
    _option(
        "stageTimeout",
        _SINK,
        "10m",
        values.duration,
        "a time such as `10m`",
        "How long a task waits while the outbox is full before it fails.",
    ),
    _option(
        "require",
        _SINK,
        "0",
        whole_number(0, 0xFFFFFFFF),
        "a number of subscriptions",
        "Subscriptions that a topic must have: else its rows wait, and the batch with them, until it has as many. "
        "With 0 rows to a topic without a subscription count as published. Holds for `errorTopic`, too.",
    ),
    _option(
        "inflight",
        _SINK,
        str(INFLIGHT),
        whole_number(1, 1024),
        "1 to 1024 messages",
        "Rows of a topic that may wait for their outcome.",
        True,
    ),
    _option(
        "maxOutboxBytes",
        _SINK,
        str(MAX_OUTBOX_BYTES),
        _BYTES,
        "bytes, also `1g`",
        "Decided rows that wait to be published; the same amount again may be staged.",
        True,
    ),
    _option(
        "atomicBatches",
        _SINK,
        "false",
        values.yes_or_no,
        "`true` or `false`",
        "Mark each batch as one transaction: readers of committed messages get all of it or nothing.",
    ),
    _option(
        "takeover",
        _SINK,
        "false",
        values.yes_or_no,
        "`true` or `false`",
        "Replace another query as the sink's query: for a new checkpoint with an old `sinkId`.",
    ),
)
"""All options."""


def options_of(side: Side) -> Iterator[Option]:
    """The options that a side reads."""
    return (option for option in OPTIONS if option.side in {side, Side.BOTH})
