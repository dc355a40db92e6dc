"""The options of Spark's connector for Kafka, each beside ours: the same, of another name, or none, with the reason.

docs/spark-kafka.md is made from this table, and an error about one of these options has its words.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from bridges.node.errors import BadRequest

logger = logging.getLogger("oncewire.spark")


class Fit(Enum):
    """What becomes of an option of Kafka's connector."""

    SAME = "same"
    OTHER = "other name"
    NONE = "does not apply"


def _as_it_is(value: str) -> str:
    return value


def _topics_assigned(value: str) -> str:
    """Kafka's {"TOPIC": [0], ...} as a list of journals, which have one partition each."""
    try:
        found = json.loads(value)
        if not all(partitions == [0] for partitions in found.values()):
            raise ValueError
    except (ValueError, AttributeError):
        raise BadRequest(
            f"assign = {value!r} cannot be used",
            "a journal has one partition, 0",
            'give {"JOURNAL": [0], ...}, or `journal`',
        ) from None
    return ",".join(found)


@dataclass(frozen=True, slots=True)
class KafkaOption:
    """One option of Kafka's connector.

    Attributes:
        name: there; with * at its end: all that begin so.
        side: which side has it there: source, sink or both.
        fit: what becomes of it.
        words: what is the same and what differs; of NONE, why, and what to do.
        ours: the other name.
        convert: its value as ours.
    """

    name: str
    side: str
    fit: Fit
    words: str
    ours: str = ""
    convert: Callable[[str], str] = _as_it_is


_SAME, _OTHER, _NONE = Fit.SAME, Fit.OTHER, Fit.NONE
_RETRIED = "requests to edge and node are repeated for a minute"
_TLS = "name PEM files with edge.tls.* or bridge.tls.*"

KAFKA: tuple[KafkaOption, ...] = (
    KafkaOption(
        "kafka.bootstrap.servers",
        "both",
        _NONE,
        "there are no brokers: name the edge of a journal with `edge`, the bridge node of a subscription or a sink "
        "with `bridge`",
    ),
    KafkaOption(
        "subscribe",
        "source",
        _SAME,
        "topics of a `subscription`, which has what is published from its beginning on. What a topic of Kafka is, a "
        "log that is read from any place, is a journal: `journal`",
    ),
    KafkaOption(
        "subscribePattern",
        "source",
        _SAME,
        "the network's wildcards, `*` one word and `#` any rest, which the routers match. A regular expression for "
        "names of journals, as Kafka's for names of topics, is `journalPattern`",
    ),
    KafkaOption("assign", "source", _OTHER, "a journal has one partition, 0", "journal", _topics_assigned),
    KafkaOption(
        "startingOffsets",
        "source",
        _SAME,
        "also in Kafka's form, where a topic is a journal (or a subscription) with the partition 0. Of journals the "
        "default is Kafka's; a subscription starts at `earliest`",
    ),
    KafkaOption("endingOffsets", "source", _SAME, "also in Kafka's form"),
    KafkaOption("startingTimestamp", "source", _SAME, "of journals: by the time when a message was stored"),
    KafkaOption("startingOffsetsByTimestamp", "source", _SAME, "of journals, as above"),
    KafkaOption("startingOffsetsByTimestampStrategy", "source", _SAME, "of journals"),
    KafkaOption("endingTimestamp", "source", _SAME, "of journals, as above"),
    KafkaOption("endingOffsetsByTimestamp", "source", _SAME, "of journals, as above"),
    KafkaOption("failOnDataLoss", "source", _SAME, "also when a journal was deleted, made again or restored"),
    KafkaOption("minPartitions", "source", _SAME, "ranges of positions are cut"),
    KafkaOption("maxRecordsPerPartition", "source", _SAME, "messages of a task"),
    KafkaOption("maxOffsetsPerTrigger", "source", _SAME, "beside it `maxBytesPerTrigger`"),
    KafkaOption("minOffsetsPerTrigger", "source", _SAME, "the same"),
    KafkaOption("maxTriggerDelay", "source", _SAME, "the same, with a unit: `15m`"),
    KafkaOption("includeHeaders", "source", _SAME, "application properties, in Kafka's form"),
    KafkaOption(
        "kafka.group.id", "source", _OTHER, "the name of a subscription; readers of journals need none", "subscription"
    ),
    KafkaOption(
        "groupIdPrefix",
        "source",
        _NONE,
        "a query of journals has no group; a subscription has a whole name: `subscription`",
    ),
    KafkaOption("kafkaConsumer.pollTimeoutMs", "source", _NONE, _RETRIED),
    KafkaOption("fetchOffset.numRetries", "source", _NONE, _RETRIED),
    KafkaOption("fetchOffset.retryIntervalMs", "source", _NONE, _RETRIED),
    KafkaOption("topic", "sink", _SAME, "goes before the column `topic`"),
    KafkaOption(
        "kafka.acks", "sink", _NONE, "a batch counts when every subscription has accepted it: see `commitMode`"
    ),
    KafkaOption("kafka.enable.idempotence", "sink", _NONE, "the sink is exactly-once: see `deliveryGuarantee`"),
    KafkaOption("kafka.transactional.id", "sink", _NONE, "see `atomicBatches` and `sinkId`"),
    KafkaOption("kafka.security.protocol", "both", _NONE, "write https:// into `edge` or tls:// into `bridge` for TLS"),
    KafkaOption("kafka.ssl.*", "both", _NONE, _TLS),
    KafkaOption("kafka.sasl.*", "both", _NONE, "log in with edge.user or edge.tokenFile, or bridge.secretFile"),
    KafkaOption("kafka.*", "both", _NONE, "there is no Kafka client below; docs/spark-reference.md has our options"),
)
"""All options of the connector that comes with Spark 4.3, in the order of its documentation."""


def find(name: str) -> KafkaOption | None:
    """The row of an option, by its name in any case."""
    lower = name.lower()
    for each in KAFKA:
        known = each.name.lower()
        if known == lower or (known.endswith("*") and lower.startswith(known[:-1])):
            return each
    return None


def translated(texts: dict[str, str]) -> dict[str, str]:
    """Options by their names in lower case, with those of Kafka that have another name here under that.

    Raises:
        BadRequest: an option of Kafka does not apply, or is given beside ours.
    """
    found = {}
    for name, value in texts.items():
        row = find(name)
        if row is None or row.fit is Fit.SAME:
            found[name] = value
            continue
        if row.fit is Fit.NONE:
            raise BadRequest(f"the option {row.name} of Kafka cannot be used", row.words, "leave it out")
        if row.ours.lower() in texts:
            raise BadRequest(
                f"the option {row.name} of Kafka cannot be used", f"{row.ours} is given, too", "leave it out"
            )
        logger.warning("the option %s is taken for %s: %s", row.name, row.ours, row.words)
        found[row.ours.lower()] = row.convert(value)
    return found
