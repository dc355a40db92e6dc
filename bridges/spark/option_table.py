"""The options of the format `amqp` as one table: name, side, allowed values, meaning.

The reference in docs/spark.md is generated from it. Names are Kafka's where Kafka has the same thing.
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
from bridges.spark.option_values import EMBEDDED, CommitMode, Guarantee, Parser


class Side(Enum):
    """Which side reads an option."""

    BOTH = "both"
    SOURCE = "source"
    SINK = "sink"


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    Attributes:
        name: as in the documents; case does not matter.
        side: which side reads it.
        default: as text; empty = none.
        parse: turns the text into the value.
        allowed: for people: the allowed values, with their unit.
        meaning: for people.
        is_embedded_only: a separate bridge node has it in its own configuration, so it is refused here.
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
        "bridge", _BOTH, EMBEDDED, values.addresses,
        "`embedded`, `tcp://HOST:PORT` or `unix:///PATH`; for a source also a comma list of nodes",
        "The bridge node. `embedded` = inside Spark's own processes, for one machine: nothing is received while no "
        "query runs. With several nodes that share a subscription, list all of them in the order of their shards.",
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
    Option("amqp.sasl.username", _BOTH, "", values.text(), "text", "User name for routers whose URL has none.", True),
    Option("amqp.sasl.password", _BOTH, "", values.text(r".+"), "text", "The user's password.", True),
    Option(
        "amqp.tls.ca", _BOTH, "", values.text(), "a PEM file",
        "Certificate authorities for routers whose URL is `amqps`. Default: those of the machine.",
        True,
    ),
    Option(
        "amqp.tls.certificate", _BOTH, "", values.text(), "a PEM file",
        "Client certificate for routers. Default: none.", True,
    ),
    Option(
        "amqp.tls.key", _BOTH, "", values.text(), "a PEM file without passphrase",
        "The certificate's key. Default: in the certificate's file.", True,
    ),
    Option(
        "amqp.tls.checkHostname", _BOTH, "true", values.yes_or_no, "`true` or `false` (only with `amqp.tls.ca`)",
        "A router's certificate must be for the host of its URL.", True,
    ),
    Option(
        "deliveryGuarantee", _BOTH, "exactly-once", values.one_of(Guarantee),
        "`exactly-once`, `at-least-once` or `at-most-once`", "The delivery guarantee of each message.",
    ),
    Option("subscribe", _SOURCE, "", values.topics, "a comma list of topics", "Topics to receive."),
    Option(
        "subscribePattern", _SOURCE, "", values.patterns, "a comma list of patterns: `*` one word, `#` any rest",
        "Topics to receive, instead of `subscribe`. The network's own wildcards, not a regular expression.",
    ),
    Option(
        "subscription", _SOURCE, "", values.text(NAME_PATTERN.pattern), "up to 100 of A-Z a-z 0-9 _ . -",
        "Durable name of the subscription. One streaming query for each name.",
    ),
    Option(
        "startingOffsets", _SOURCE, "earliest", values.place,
        '`earliest`, `latest` or `{"SUBSCRIPTION": POSITION}`',
        "Where the first batch starts. `earliest` is the oldest message in the journal. Decided once for a "
        "subscription; a checkpoint takes precedence. With several nodes positions have an entry for each, "
        '`{"SUBSCRIPTION#0": POSITION, ...}`.',
    ),
    Option(
        "endingOffsets", _SOURCE, "latest", values.place, '`latest` or `{"SUBSCRIPTION": POSITION}`',
        "Where a batch read ends. Not for streams.",
    ),
    Option(
        "failOnDataLoss", _SOURCE, "true", values.yes_or_no, "`true` or `false`",
        "Fail when messages that the checkpoint expects are no longer in the journal, or it is another journal, or "
        "when messages are missing because the network had deleted the subscription; `false` = log it and continue "
        "with what is left.",
    ),
    Option("maxOffsetsPerTrigger", _SOURCE, "", _NUMBER, "messages", "A batch has this many at most."),
    Option(
        "maxBytesPerTrigger", _SOURCE, "", values.size, "bytes, also `64m`",
        "A batch has about this many at most; a larger message is a batch of its own.",
    ),
    Option("minOffsetsPerTrigger", _SOURCE, "", _NUMBER, "messages", "A batch waits until this many have arrived."),
    Option(
        "maxTriggerDelay", _SOURCE, "15m", values.duration, "a time such as `30s` or `15m`",
        "How long `minOffsetsPerTrigger` may delay a batch.",
    ),
    Option(
        "minPartitions", _SOURCE, "", values.whole_number(1, 10_000), "1 to 10000",
        "A batch is split into at least this many tasks, if it has as many messages.",
    ),
    Option(
        "includeHeaders", _SOURCE, "false", values.yes_or_no, "`true` or `false`",
        "Add the column `headers`: application properties in Kafka's form.",
    ),
    Option(
        "includeMetadata", _SOURCE, "true", values.yes_or_no, "`true` or `false`",
        "Add the columns from `message_id` on. Without them reading is faster.",
    ),
    Option(
        "retentionMs", _SOURCE, "", values.milliseconds, "milliseconds",
        "How long messages are kept in the journal after the query has processed them.", True,
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
        "A group of this many is written without waiting for more.", True,
    ),
    Option(
        "credit", _SOURCE, str(CREDIT), values.whole_number(1, 100_000), "1 to 100000 messages",
        "Messages that may arrive ahead of the journal.", True,
    ),
    Option(
        "maxJournalBytes", _SOURCE, str(MAX_JOURNAL_BYTES), values.size, "bytes, also `8g`",
        "A journal with more accepts no messages until batches are finished: publishers wait.", True,
    ),
    Option(
        "subscriptionTimeout", _SOURCE, f"{TIMEOUT_S}s", values.duration, "a time such as `24h`, from `1s`",
        "How long the network keeps the subscription while the node is disconnected. Publishers wait meanwhile.", True,
    ),
    Option("topic", _SINK, "", values.topic, "a topic", "Topic of all rows; takes precedence over the column `topic`."),
    Option(
        "errorTopic", _SINK, "", values.topic, "a topic", "Topic of a processor's handled errors, in the same batch.",
    ),
    Option(
        "sinkId", _SINK, "", values.text(SINK_PATTERN.pattern), "up to 100 of A-Z a-z 0-9 _ . -",
        "Name of the publisher, as subscribers see it. Default: the query's id. Needed for batch writes.",
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
        "How long a batch may wait for subscribers before the query fails (it resumes when it is started again). "
        "Default: no limit.",
    ),
    Option(
        "stageTimeout", _SINK, "10m", values.duration, "a time such as `10m`",
        "How long a task waits while the outbox is full before it fails.",
    ),
    Option(
        "inflight", _SINK, str(INFLIGHT), values.whole_number(1, 1024), "1 to 1024 messages",
        "Rows of a topic that may wait for their outcome.", True,
    ),
    Option(
        "maxOutboxBytes", _SINK, str(MAX_OUTBOX_BYTES), values.size, "bytes, also `1g`",
        "Decided rows that wait to be published; the same amount again may be staged.", True,
    ),
    Option(
        "atomicBatches", _SINK, "false", values.yes_or_no, "`true` or `false`",
        "Mark each batch as one transaction: readers of committed messages get all of it or nothing.",
    ),
    Option(
        "takeover", _SINK, "false", values.yes_or_no, "`true` or `false`",
        "Replace another query as the sink's query: for a new checkpoint with an old `sinkId`.",
    ),
)  # fmt: skip
"""All options."""


def options_of(side: Side) -> Iterator[Option]:
    """The options that a side reads."""
    return (option for option in OPTIONS if option.side in {side, Side.BOTH})
