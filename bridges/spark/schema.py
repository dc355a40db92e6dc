"""Rows of the format `amqp`: their columns, and what becomes of an AMQP message on the way to a row and back.

    key            properties.group-id, else the annotation x-opt-partition-key; written to group-id, bytes that are no
                   UTF-8 to the annotation
    value          data as it is, a string as UTF-8, null as null, any other value as JSON; written as data, or as null.
                   `oncewire.wire.json_values` has a form for each value, and says what it loses
    topic          as subscribed to; behind a pattern properties.to where it matches. Written: where to publish
    partition      0
    offset         position in the journal
    timestamp      arrival in the journal; timestampType is 1 (the log's time)
    headers        application properties: bytes as they are, texts as UTF-8, others as JSON; written as binary
    message_id, subject, content_type, correlation_id, creation_time
                   the properties of these names
    producer, producer_seq
                   who numbered the message, and its number; else its publisher and null
    delivery_hash  the annotation x-opt-topic-delivery-hash
    application_properties
                   application properties: texts as they are, others as JSON; written as strings

The names up to `headers` are Kafka's. Spark is not needed here; pyarrow is, for batches.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any
from uuid import UUID

from bridges.node.arrow_bodies import arrow
from bridges.node.errors import BadRequest
from bridges.spark.fast_decoding import fast_row
from bridges.spark.option_values import is_pattern, is_topic_of, pattern_matcher
from oncewire.wire import (
    BodyKind,
    DecodeError,
    Message,
    Properties,
    Symbol,
    decode_message,
    encode_data_message,
    encode_message,
)
from oncewire.wire.json_values import as_text, body_octets
from oncewire.wire.vocabulary import DELIVERY_HASH, PARTITION_KEY, PRODUCER, PUBLISHER, SEQUENCE

UNDECODABLE = "application/x-undecodable-amqp"
"""`content_type` of a row whose message is malformed: its `value` is the message as it came."""
LOG_APPEND_TIME = 1
"""Kafka's timestampType for a time that the log gave, not the publisher."""
_MAX_SEQUENCE = (1 << 63) - 1

BASE_COLUMNS = (
    ("key", "binary"),
    ("value", "binary"),
    ("topic", "string"),
    ("partition", "int"),
    ("offset", "bigint"),
    ("timestamp", "timestamp"),
    ("timestampType", "int"),
)
HEADERS_COLUMN = ("headers", "array<struct<key:string,value:binary>>")
METADATA_COLUMNS = (
    ("message_id", "string"),
    ("producer", "string"),
    ("producer_seq", "bigint"),
    ("delivery_hash", "string"),
    ("subject", "string"),
    ("content_type", "string"),
    ("correlation_id", "string"),
    ("creation_time", "timestamp"),
    ("application_properties", "map<string,string>"),
)
JOURNAL_COLUMN = ("journal", "string")
"""The last column of a source of journals."""
READ_ONLY = frozenset({"partition", "offset", "timestamp", "timestampType", "producer", "producer_seq", "journal"})
"""Columns of the source that say nothing to the sink: rows may go from one to the other as they are."""


def columns(*, include_headers: bool, include_metadata: bool) -> tuple[tuple[str, str], ...]:
    """Names and types of the source's columns."""
    found = BASE_COLUMNS + ((HEADERS_COLUMN,) if include_headers else ())
    return found + (METADATA_COLUMNS if include_metadata else ())


def schema_ddl(found: Sequence[tuple[str, str]]) -> str:
    """A source's columns as Spark reads them; every column may be null, as Kafka's may."""
    return ", ".join(f"{name} {kind}" for name, kind in found)


@cache
def arrow_schema(*, include_headers: bool, include_metadata: bool) -> Any:
    """The same as Arrow has it: Spark wants it equal, not only castable."""
    types = arrow_types()
    found = columns(include_headers=include_headers, include_metadata=include_metadata)
    return arrow().schema([(name, types[kind]) for name, kind in found])


@cache
def journal_schema(*, include_headers: bool, include_metadata: bool) -> Any:
    """The same of a source of journals, whose rows name theirs."""
    found = arrow_schema(include_headers=include_headers, include_metadata=include_metadata)
    return found.append(arrow().field(JOURNAL_COLUMN[0], arrow().string()))


@cache
def arrow_types() -> dict[str, Any]:
    """Arrow's type for each of Spark's that occurs."""
    pa = arrow()
    return {
        "binary": pa.binary(),
        "string": pa.string(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        HEADERS_COLUMN[1]: pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        "map<string,string>": pa.map_(pa.string(), pa.string()),
    }


# --- messages to rows -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class MessageRow:
    """What one message says, in the columns' forms; see the module."""

    value: bytes | None
    key: bytes | None = None
    topic: str | None = None
    headers: list[tuple[str, bytes | None]] | None = None
    message_id: str | None = None
    producer: str | None = None
    producer_seq: int | None = None
    delivery_hash: str | None = None
    subject: str | None = None
    content_type: str | None = None
    correlation_id: str | None = None
    creation_time: int | None = None
    application_properties: list[tuple[str, str | None]] | None = None


class RowDecoder:
    """Turns batches of a journal into batches of rows.

    Args:
        include_headers, include_metadata: which columns there are.
    """

    def __init__(self, *, include_headers: bool, include_metadata: bool) -> None:
        self._include_headers = include_headers
        self._include_metadata = include_metadata
        self.schema = arrow_schema(include_headers=include_headers, include_metadata=include_metadata)

    def batch(self, batch: Any) -> Any:
        """Rows of a record batch of `arrow_bodies.range_schema`."""
        pa = arrow()
        rows: list[MessageRow] = []
        values: list[bytes | None] = []
        producers: list[str | None] = []
        numbers: list[int | None] = []
        slow: list[int] = []  # messages that have more than data
        for index, payload in enumerate(batch.column(3).to_pylist()):
            found = fast_row(payload, self._include_metadata)
            if found is None:
                row = message_row(payload)
                slow.append(index)
                rows.append(row)
                values.append(row.value)
                producers.append(row.producer)
                numbers.append(row.producer_seq)
            else:
                values.append(found[0])
                producers.append(found[1])
                numbers.append(found[2])
        count = len(values)
        spread = _Spread(rows, slow, count)
        arrays = [
            spread.column(pa.binary(), lambda row: row.key),
            pa.array(values, pa.binary()),
            _topics(batch.column(1), rows, slow),
            pa.repeat(pa.scalar(0, pa.int32()), count),
            batch.column(0),
            batch.column(2),
            pa.repeat(pa.scalar(LOG_APPEND_TIME, pa.int32()), count),
        ]
        if self._include_headers:
            arrays.append(spread.column(arrow_types()[HEADERS_COLUMN[1]], _header_dicts))
        if self._include_metadata:
            text, types = pa.string(), arrow_types()
            arrays += [
                spread.column(text, lambda row: row.message_id),
                pa.array(producers, text),
                pa.array(numbers, pa.int64()),
                spread.column(text, lambda row: row.delivery_hash),
                spread.column(text, lambda row: row.subject),
                spread.column(text, lambda row: row.content_type),
                spread.column(text, lambda row: row.correlation_id),
                spread.column(types["timestamp"], lambda row: row.creation_time),
                spread.column(types["map<string,string>"], lambda row: row.application_properties),
            ]
        return pa.record_batch(arrays, schema=self.schema)


@dataclass(frozen=True, slots=True)
class _Spread:
    """Columns that only some messages fill."""

    rows: Sequence[MessageRow]
    places: Sequence[int]
    count: int

    def column(self, kind: Any, take: Callable[[MessageRow], object]) -> Any:
        pa = arrow()
        if not self.rows:
            return pa.nulls(self.count, kind)
        if len(self.rows) == self.count:
            return pa.array([take(row) for row in self.rows], kind)
        found: list[object] = [None] * self.count
        for place, row in zip(self.places, self.rows, strict=True):
            found[place] = take(row)
        return pa.array(found, kind)


def _header_dicts(row: MessageRow) -> list[dict[str, object]] | None:
    return None if row.headers is None else [{"key": key, "value": value} for key, value in row.headers]


def _topics(subscribed: Any, rows: Sequence[MessageRow], places: Sequence[int]) -> Any:
    """The topics as subscribed to; behind a pattern what the message says, where that is one of its topics."""
    reported = [(place, row.topic) for place, row in zip(places, rows, strict=True) if row.topic is not None]
    if not reported:
        return subscribed
    found = subscribed.to_pylist()
    for place, topic in reported:
        if found[place] and is_pattern(found[place]) and _matches(found[place], topic):
            found[place] = topic
    return arrow().array(found, arrow().string())


def _matches(pattern: str, topic: str) -> bool:
    return is_topic_of(_matcher(pattern), topic)


_matcher = cache(pattern_matcher)


def message_row(payload: bytes) -> MessageRow:
    """What a message says; a malformed one gives a row with its bytes and `content_type` UNDECODABLE."""
    try:
        message = decode_message(payload)
    except DecodeError:
        # The message was accepted; a query that fails on it would fail for ever.
        return MessageRow(payload, content_type=UNDECODABLE)
    properties = message.properties or Properties()
    annotations = message.annotations
    producer, number = annotations.get(PRODUCER), annotations.get(SEQUENCE)
    is_numbered = isinstance(producer, str) and isinstance(number, int) and 0 <= number <= _MAX_SEQUENCE
    publisher = annotations.get(PUBLISHER)
    found_hash = annotations.get(DELIVERY_HASH)
    created = properties.creation_time
    entries = message.application_properties
    return MessageRow(
        value=None if message.body is None else body_octets(message.body),
        key=_octets(annotations.get(PARTITION_KEY)) if properties.group_id is None else properties.group_id.encode(),
        topic=properties.to,
        headers=[(name, _octets(item)) for name, item in entries.items()] if entries else None,
        message_id=_id_text(properties.message_id),
        producer=str(producer) if is_numbered else str(publisher) if isinstance(publisher, str) else None,
        producer_seq=int(number) if is_numbered and isinstance(number, int) else None,
        delivery_hash=str(found_hash) if isinstance(found_hash, str) else None,
        subject=properties.subject,
        content_type=None if properties.content_type is None else str(properties.content_type),
        correlation_id=_id_text(properties.correlation_id),
        creation_time=None if created is None or abs(created) > 1 << 52 else created * 1000,
        application_properties=[(name, _text(item)) for name, item in entries.items()] if entries else None,
    )


def _id_text(value: int | UUID | bytes | str | None) -> str | None:
    if value is None or isinstance(value, str):
        return None if value is None else str(value)
    return value.hex() if isinstance(value, bytes) else str(value)


def _octets(value: object) -> bytes | None:
    if type(value) is bytes:
        return value
    return None if value is None else as_text(value).encode()


def _text(value: object) -> str | None:
    return None if value is None else as_text(value)


# --- rows to messages -------------------------------------------------------------------------------------------------

_WRITABLE: dict[str, tuple[str, ...]] = {
    "value": ("binary", "string"),
    "key": ("binary", "string"),
    "topic": ("string",),
    "headers": (HEADERS_COLUMN[1],),
    "message_id": ("string",),
    "subject": ("string",),
    "content_type": ("string",),
    "correlation_id": ("string",),
    "creation_time": ("timestamp",),
    "delivery_hash": ("string",),
    "application_properties": ("map<string,string>",),
}
"""Columns that the sink understands, with their types."""


def check_columns(types: Sequence[tuple[str, str]], *, has_topic: bool) -> None:
    """Refuse rows that cannot be published.

    Args:
        types: name and Spark's simple type of each column.
        has_topic: the option `topic` is set, so no column is needed.

    Raises:
        BadRequest: a column is missing, unknown, or of another type.
    """
    names = [name for name, _ in types]
    if "value" not in names:
        raise BadRequest(
            "the rows cannot be published",
            f"they have no column `value`, only {', '.join(names)}",
            "select what is to be sent as `value`",
        )
    if "topic" not in names and not has_topic:
        raise BadRequest(
            "the rows cannot be published", "neither a column nor the option `topic` sets it", "add one of them"
        )
    for name, kind in types:
        allowed = _WRITABLE.get(name)
        if allowed is None and name not in READ_ONLY:
            near = difflib.get_close_matches(name, _WRITABLE, 1)
            raise BadRequest(
                f"the column {name!r} cannot be published",
                "a message has no such part",
                f"did you mean {near[0]}?" if near else "drop it, or make it part of `value`",
            )
        if allowed is not None and kind not in allowed:
            raise BadRequest(
                f"the column {name!r} cannot be published", f"it is {kind}", f"cast it to {' or '.join(allowed)}"
            )


def encode_rows_of(batch: Any, topic: str | None) -> tuple[list[str], list[bytes]]:
    """Topics and encoded messages of a record batch whose columns `check_columns` has passed.

    Args:
        batch: a record batch.
        topic: where all rows go; None = the column sets it.

    Raises:
        BadRequest: a row has no topic, or a header twice.
    """
    names = [name for name in batch.schema.names if name in _WRITABLE]
    cells = {name: batch.column(name).to_pylist() for name in names}
    values = [value.encode() if isinstance(value, str) else value for value in cells.pop("value")]
    given = cells.pop("topic", None)
    if topic is not None:
        topics = [topic] * len(values)
    else:
        assert given is not None
        topics = given
        if not all(topics):
            raise BadRequest(
                "a row cannot be published", "its topic is null or empty", "fill the column, or set the option `topic`"
            )
    used = [name for name, column in cells.items() if any(cell is not None for cell in column)]
    if not used and None not in values:
        return topics, [encode_data_message(value) for value in values]
    rows = zip(*(cells[name] for name in used), strict=True) if used else ((),) * len(values)
    return topics, [_encode(value, dict(zip(used, row, strict=True))) for value, row in zip(values, rows, strict=True)]


def _encode(value: bytes | None, cells: dict[str, Any]) -> bytes:
    key = cells.get("key")
    group, annotations = _encoded_key(key.encode() if isinstance(key, str) else key)
    if cells.get("delivery_hash") is not None:
        annotations[DELIVERY_HASH] = cells["delivery_hash"]
    created = cells.get("creation_time")
    properties = Properties(
        message_id=cells.get("message_id"),
        subject=cells.get("subject"),
        correlation_id=cells.get("correlation_id"),
        content_type=cells.get("content_type"),
        creation_time=None if created is None else _milliseconds(created),
        group_id=group,
    )
    return encode_message(
        Message(
            value,
            BodyKind.VALUE if value is None else BodyKind.DATA,
            properties=None if properties == _NO_PROPERTIES else properties,
            application_properties=_entries(cells.get("application_properties"), cells.get("headers")),
            annotations=annotations,
        )
    )


_NO_PROPERTIES = Properties()


def _encoded_key(key: bytes | None) -> tuple[str | None, dict[Symbol, object]]:
    """Group-id and annotations: what is text goes where every AMQP client can read it."""
    if key is None:
        return None, {}
    try:
        return key.decode(), {}
    except UnicodeDecodeError:
        return None, {PARTITION_KEY: key}


def _entries(
    reported: Sequence[tuple[str, str | None]] | None, headers: Sequence[dict[str, Any]] | None
) -> dict[str, object]:
    """Application properties of both columns; a header goes before a property of the same name."""
    found: dict[str, object] = dict(reported or ())
    seen: set[str] = set()
    for header in headers or ():
        name = header["key"]
        if name is None or name in seen:
            raise BadRequest(
                "a row cannot be published",
                "a header has no key" if name is None else f"it has the header {name!r} twice",
                "give each header a key of its own: AMQP's application properties are a map",
            )
        seen.add(name)
        found[name] = header["value"]
    return found


def _milliseconds(moment: datetime) -> int:
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return round(aware.timestamp() * 1000)
