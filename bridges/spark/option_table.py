"""The options of the formats as one table: name, side, allowed values, meaning.

The reference in docs/spark-reference.md is generated from it. Names are Kafka's where Kafka has the same thing.
"""

from __future__ import annotations

from collections.abc import Iterator

from bridges.node.group_commit_core import GROUP_COUNT, GROUP_S
from bridges.node.model import (
    CREDIT,
    INFLIGHT,
    MAX_JOURNAL_BYTES,
    MAX_OUTBOX_BYTES,
    NAME_PATTERN,
    SINK_PATTERN,
    TIMEOUT_S,
)
from bridges.spark import option_values as values
from bridges.spark.option_kinds import Option, Side, option
from bridges.spark.option_values import EMBEDDED, MAX_NUMBER, CommitMode, Guarantee
from bridges.spark.source_option_table import OF_JOURNALS, OF_SOURCES
from oncewire.client.isolation import Isolation
from oncewire.settings.parsers import size, text, time_span

_BOTH, _SOURCE, _SINK = Side.BOTH, Side.SOURCE, Side.SINK
_BYTES = size(1, MAX_NUMBER)
_TEXT = text(r"(?s)\S(.*\S)?")

OPTIONS: tuple[Option, ...] = (
    option(
        "bridge",
        _BOTH,
        EMBEDDED,
        values.addresses,
        "`embedded`, `tcp://HOST:PORT`, `tls://HOST:PORT` or `unix:///PATH`; for a source also a comma list of nodes",
        "The bridge node. `embedded` = inside Spark's own processes, for one machine: nothing is received while no "
        "query runs. With several nodes that share a subscription, list all of them in the order of their shards.",
    ),
    option(
        "bridge.folder",
        _BOTH,
        "",
        _TEXT,
        "a folder on a local disk",
        "Where an embedded node keeps journals and outboxes. Needed for `embedded`.",
        True,
    ),
    option(
        "bridge.name",
        _BOTH,
        "",
        text(r"[A-Za-z0-9_.-]{1,64}"),
        "1 to 64 of A-Z a-z 0-9 _ . -",
        "Name of an embedded node, part of its subscriptions' identities: never change it. "
        "Default: this machine's name.",
        True,
    ),
    option(
        "bridge.secret",
        _BOTH,
        "",
        _TEXT,
        "at least 16 characters",
        "The node's secret. It, or `bridge.secretFile`, is needed for a node that is not embedded.",
    ),
    option(
        "bridge.secretFile",
        _BOTH,
        "",
        _TEXT,
        "a path",
        "File with the node's secret, at the same path on the driver and every executor.",
    ),
    option(
        "bridge.tls.ca",
        _BOTH,
        "",
        _TEXT,
        "a PEM file",
        "Certificate authorities for nodes at `tls://`. Default: those of the machine.",
    ),
    option("bridge.tls.certificate", _BOTH, "", _TEXT, "a PEM file", "Client certificate for nodes. Default: none."),
    option(
        "bridge.tls.key",
        _BOTH,
        "",
        _TEXT,
        "a PEM file without passphrase",
        "The certificate's key. Default: in the certificate's file.",
    ),
    option(
        "bridge.tls.checkHostname",
        _BOTH,
        "true",
        values.yes_or_no,
        "`true` or `false` (only with `bridge.tls.ca`)",
        "A node's certificate must be for the host of its address.",
    ),
    option(
        "amqp.urls",
        _BOTH,
        "",
        values.routers,
        "a comma list of `amqp(s)://HOST[:PORT]` or `ws(s)://HOST[:PORT][/PATH]`",
        "Routers, tried in turn. Needed for `embedded`.",
        True,
    ),
    option("amqp.sasl.username", _BOTH, "", _TEXT, "text", "User name for routers whose URL has none.", True),
    option("amqp.sasl.password", _BOTH, "", text(r"(?s).+"), "text", "The user's password.", True),
    option(
        "amqp.tls.ca",
        _BOTH,
        "",
        _TEXT,
        "a PEM file",
        "Certificate authorities for routers whose URL is `amqps` or `wss`. Default: those of the machine.",
        True,
    ),
    option(
        "amqp.tls.certificate", _BOTH, "", _TEXT, "a PEM file", "Client certificate for routers. Default: none.", True
    ),
    option(
        "amqp.tls.key",
        _BOTH,
        "",
        _TEXT,
        "a PEM file without passphrase",
        "The certificate's key. Default: in the certificate's file.",
        True,
    ),
    option(
        "amqp.tls.checkHostname",
        _BOTH,
        "true",
        values.yes_or_no,
        "`true` or `false` (only with `amqp.tls.ca`)",
        "A router's certificate must be for the host of its URL.",
        True,
    ),
    option(
        "deliveryGuarantee",
        _BOTH,
        "exactly-once",
        values.one_of(Guarantee),
        "`exactly-once`, `at-least-once` or `at-most-once`",
        "The delivery guarantee of each message.",
    ),
    option("subscribe", _SOURCE, "", values.topics, "a comma list of topics", "Topics to receive."),
    option(
        "subscribePattern",
        _SOURCE,
        "",
        values.patterns,
        "a comma list of patterns: `*` one word, `#` any rest",
        "Topics to receive, instead of `subscribe`. The network's own wildcards, not a regular expression.",
    ),
    option(
        "subscription",
        _SOURCE,
        "",
        text(NAME_PATTERN.pattern),
        "up to 100 of A-Z a-z 0-9 _ . -",
        "Durable name of the subscription. One streaming query for each name.",
    ),
    option(
        "isolationLevel",
        _SOURCE,
        "",
        values.one_of(Isolation),
        "`read_uncommitted` or `read_committed`",
        "`read_committed` = messages of a transaction come when it has committed, together, and never if it is rolled "
        "back. Default: as the subscription has it, `read_uncommitted` if it is new; it cannot be changed later. "
        "Not for batch reads.",
    ),
    option(
        "retentionMs",
        _SOURCE,
        "",
        values.milliseconds,
        "milliseconds",
        "How long messages are kept in the journal after the query has processed them.",
        True,
    ),
    option(
        "minBatchesToRetain",
        _SOURCE,
        "2",
        values.count(0, 1000),
        "0 to 1000 batches",
        "Finished batches that are kept in the journal, so that a query can be set back by hand.",
    ),
    option(
        "groupCommitMs",
        _SOURCE,
        f"{GROUP_S * 1000:g}",
        values.count(0, 10_000),
        "0 to 10000 milliseconds",
        "How long the first message of a group waits for others before it is written.",
        True,
    ),
    option(
        "groupCommitMax",
        _SOURCE,
        str(GROUP_COUNT),
        values.count(1, 100_000),
        "1 to 100000 messages",
        "A group of this many is written without waiting for more.",
        True,
    ),
    option(
        "credit",
        _SOURCE,
        str(CREDIT),
        values.count(1, 100_000),
        "1 to 100000 messages",
        "Messages that may arrive ahead of the journal.",
        True,
    ),
    option(
        "maxJournalBytes",
        _SOURCE,
        str(MAX_JOURNAL_BYTES),
        _BYTES,
        "bytes, also `8g`",
        "A journal with more accepts no messages until batches are finished: publishers wait.",
        True,
    ),
    option(
        "subscriptionTimeout",
        _SOURCE,
        f"{TIMEOUT_S}s",
        time_span,
        "a time such as `24h`, from `1s`",
        "How long the network keeps the subscription while the node is disconnected. Publishers wait meanwhile.",
        True,
    ),
    *OF_SOURCES,
    *OF_JOURNALS,
    option("topic", _SINK, "", values.topic, "a topic", "Topic of all rows; overrides the column `topic`."),
    option(
        "errorTopic", _SINK, "", values.topic, "a topic", "Topic of a processor's handled errors, in the same batch."
    ),
    option(
        "sinkId",
        _SINK,
        "",
        text(SINK_PATTERN.pattern),
        "up to 100 of A-Z a-z 0-9 _ . -",
        "Name of the publisher, as subscribers see it. Default: the query's id. Batch writes need none: without it "
        "each is a new write ([O-13](bridge.md#from-a-query-to-the-network)). "
        "`batchId`, `queryId` and `takeover` need one.",
    ),
    option(
        "batchId",
        _SINK,
        "",
        values.count(0, MAX_NUMBER),
        "a whole number",
        "Number of a batch write within its sink: the same number again changes nothing. Not for streams.",
    ),
    option(
        "queryId",
        _SINK,
        "",
        text(SINK_PATTERN.pattern),
        "up to 100 of A-Z a-z 0-9 _ . -",
        "Of a batch write: the query whose batches these are. Another query is refused, unless it has `takeover`. "
        "`publish_batches` sets it. Not for streams.",
    ),
    option(
        "commitMode",
        _SINK,
        "published",
        values.one_of(CommitMode),
        "`published` or `staged`",
        "When a batch counts as written: when every subscription has accepted it, or when it is durable at the node.",
    ),
    option(
        "publishTimeout",
        _SINK,
        "",
        time_span,
        "a time such as `10m`",
        "How long a batch may wait for subscribers before the query fails (it resumes when it is started again). "
        "Default: no limit.",
    ),
    option(
        "stageTimeout",
        _SINK,
        "10m",
        time_span,
        "a time such as `10m`",
        "How long a task waits while the outbox is full before it fails.",
    ),
    option(
        "require",
        _SINK,
        "0",
        values.count(0, 0xFFFFFFFF),
        "a number of subscriptions",
        "Subscriptions that a topic must have: else its rows wait, and the batch with them, until it has as many. "
        "With 0 rows to a topic without a subscription count as published. Holds for `errorTopic`, too.",
    ),
    option(
        "inflight",
        _SINK,
        str(INFLIGHT),
        values.count(1, 1024),
        "1 to 1024 messages",
        "Rows of a topic that may wait for their outcome.",
        True,
    ),
    option(
        "maxOutboxBytes",
        _SINK,
        str(MAX_OUTBOX_BYTES),
        _BYTES,
        "bytes, also `1g`",
        "Decided rows that wait to be published; the same amount again may be staged.",
        True,
    ),
    option(
        "atomicBatches",
        _SINK,
        "false",
        values.yes_or_no,
        "`true` or `false`",
        "Mark each batch as one transaction: readers of committed messages get all of it or nothing.",
    ),
    option(
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
