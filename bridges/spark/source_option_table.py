"""The options of sources: those of any, and those of journals at an edge; a part of the table in option_table.py."""

from __future__ import annotations

from bridges.spark import option_values as values
from bridges.spark.option_kinds import Option, Reads, of_source
from bridges.spark.option_values import MAX_NUMBER
from oncewire.settings.parsers import size, text, time_span

_EITHER, _JOURNAL = Reads.EITHER, Reads.JOURNAL
_NUMBER = values.count(1, MAX_NUMBER)
_MESSAGES = "a number of messages, from 1"
_FILE = text(r"(?s)\S(.*\S)?")
_TIME = "milliseconds since 1970, or a time such as `2026-01-31T12:00:00Z`"
_TIMES = '`{"JOURNAL": TIME, ...}` or Kafka\'s `{"JOURNAL": {"0": TIME}, ...}`, of all journals'

OF_SOURCES: tuple[Option, ...] = (
    of_source(
        "startingOffsets",
        _EITHER,
        "",
        values.place,
        '`earliest`, `latest`, `{"NAME": POSITION}` or Kafka\'s `{"NAME": {"0": OFFSET}}`',
        "Where the first batch starts: behind a position, with an offset of Kafka's form, at the oldest message "
        "(`earliest`) or behind the newest (`latest`). A checkpoint takes precedence. Default of a subscription: "
        "`earliest`, for it has what was published since it is there, and nobody has read that; it is decided once for "
        "a subscription. Default of journals, as of Kafka: `latest` for streams, `earliest` for batch reads. NAME is "
        "the subscription, or SUBSCRIPTION#0, SUBSCRIPTION#1 of several nodes; or the journal, and all are named.",
    ),
    of_source(
        "endingOffsets",
        _EITHER,
        "latest",
        values.place,
        '`latest`, `{"NAME": POSITION}` or Kafka\'s `{"NAME": {"0": OFFSET}}`',
        "Where a batch read ends: with a position, or in front of an offset of Kafka's form. Not for streams.",
    ),
    of_source(
        "failOnDataLoss",
        _EITHER,
        "true",
        values.yes_or_no,
        "`true` or `false`",
        "Fail when messages that the checkpoint expects are no longer in the journal, or it is another journal, or "
        "when messages are missing because the network had deleted the subscription; `false` = log it and continue "
        "with what is left.",
    ),
    of_source("maxOffsetsPerTrigger", _EITHER, "", _NUMBER, _MESSAGES, "A batch has this many at most."),
    of_source(
        "maxBytesPerTrigger",
        _EITHER,
        "",
        size(1, MAX_NUMBER),
        "bytes, also `64m`",
        "A batch has about this many at most; a larger message is a batch of its own. Of journals it is estimated by "
        "the average of their messages.",
    ),
    of_source("minOffsetsPerTrigger", _EITHER, "", _NUMBER, _MESSAGES, "A batch waits until this many have arrived."),
    of_source(
        "maxTriggerDelay",
        _EITHER,
        "15m",
        time_span,
        "a time such as `30s` or `15m`",
        "How long `minOffsetsPerTrigger` may delay a batch.",
    ),
    of_source(
        "minPartitions",
        _EITHER,
        "",
        values.count(1, 10_000),
        "1 to 10000",
        "A batch is split into at least this many tasks, if it has as many messages.",
    ),
    of_source(
        "maxRecordsPerPartition",
        _EITHER,
        "",
        _NUMBER,
        _MESSAGES,
        "A task has this many at most. Default: 50000, and no more than 256 tasks for it.",
    ),
    of_source(
        "includeHeaders",
        _EITHER,
        "false",
        values.yes_or_no,
        "`true` or `false`",
        "Add the column `headers`: application properties in Kafka's form.",
    ),
    of_source(
        "includeMetadata",
        _EITHER,
        "true",
        values.yes_or_no,
        "`true` or `false`",
        "Add the columns from `message_id` on. Without them reading is faster.",
    ),
)

OF_JOURNALS: tuple[Option, ...] = (
    of_source(
        "journal",
        _JOURNAL,
        "",
        values.journals,
        "a comma list of journals",
        "Read these journals of an edge, in place of a subscription: from any place, by any number of queries.",
    ),
    of_source(
        "journalPattern",
        _JOURNAL,
        "",
        values.regular_expression,
        "a regular expression",
        "Read all journals whose whole name it matches, in place of `journal`. A stream also reads those that are made "
        "later, from their first message on; it looks for them every 30 s.",
    ),
    of_source(
        "edge",
        _JOURNAL,
        "",
        values.edges,
        "a comma list of `http(s)://HOST:PORT`",
        "The edge, by the address of its HTTP. With several over one store they are tried in turn.",
    ),
    of_source(
        "edge.user",
        _JOURNAL,
        "",
        text(r"[^\s:]+"),
        "a name",
        "Who logs in at the edge, with the password of `edge.passwordFile`. Default: nobody.",
    ),
    of_source(
        "edge.passwordFile",
        _JOURNAL,
        "",
        _FILE,
        "a path",
        "File with the password, on the driver and every executor. Default: ONCEWIRE_PASSWORD of their environment.",
    ),
    of_source(
        "edge.tokenFile",
        _JOURNAL,
        "",
        _FILE,
        "a path",
        "File with a JSON Web Token, in place of a user; it is read before each request. Default, without a user: the "
        "file that ONCEWIRE_TOKEN_FILE of the environment names, if it does.",
    ),
    of_source(
        "edge.tls.ca",
        _JOURNAL,
        "",
        _FILE,
        "a PEM file",
        "Certificate authorities for edges at `https://`. Default: those of the machine.",
    ),
    of_source(
        "edge.tls.certificate", _JOURNAL, "", _FILE, "a PEM file", "Client certificate for edges. Default: none."
    ),
    of_source(
        "edge.tls.key",
        _JOURNAL,
        "",
        _FILE,
        "a PEM file without passphrase",
        "The certificate's key. Default: in the certificate's file.",
    ),
    of_source(
        "edge.tls.checkHostname",
        _JOURNAL,
        "true",
        values.yes_or_no,
        "`true` or `false` (only with `edge.tls.ca`)",
        "An edge's certificate must be for the host of its address.",
    ),
    of_source(
        "startingTimestamp",
        _JOURNAL,
        "",
        values.time_us,
        _TIME,
        "Start with the first message that was stored then or later. Goes before `startingOffsetsByTimestamp`, and "
        "that before `startingOffsets`.",
    ),
    of_source(
        "startingOffsetsByTimestamp", _JOURNAL, "", values.times_us, _TIMES, "As `startingTimestamp`, for each journal."
    ),
    of_source(
        "startingOffsetsByTimestampStrategy",
        _JOURNAL,
        "error",
        values.one_of(values.TooLate),
        "`error` or `latest`",
        "Where to start when nothing was stored at the time or later: fail, or behind the newest message.",
    ),
    of_source(
        "endingTimestamp",
        _JOURNAL,
        "",
        values.time_us,
        _TIME,
        "A batch read ends in front of the first message that was stored then or later. Goes before "
        "`endingOffsetsByTimestamp`, and that before `endingOffsets`. Not for streams.",
    ),
    of_source(
        "endingOffsetsByTimestamp",
        _JOURNAL,
        "",
        values.times_us,
        _TIMES,
        "As `endingTimestamp`, for each journal. Not for streams.",
    ),
)
