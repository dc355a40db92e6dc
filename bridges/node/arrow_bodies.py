"""Rows as Arrow on their way between the node and others: ranges of a journal, staged parts of a batch.

pyarrow belongs to the extras `node` and `spark` and is imported when it is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

from bridges.node.errors import BadRequest, TooLarge
from bridges.node.model import Chunk
from oncewire.wire import DecodeError, splice_annotations
from oncewire.wire.vocabulary import DELIVERY_HASH

MAX_STAGED_ROWS = 1 << 20
"""Rows in one staged body; a task with more stages several."""
BARE_STARTS = frozenset({b"\x00\x53\x73", b"\x00\x53\x74", b"\x00\x53\x75", b"\x00\x53\x76", b"\x00\x53\x77"})
"""How a message begins that has neither header nor annotations (3.2)."""
HASH_KEY = DELIVERY_HASH.encode()


def arrow() -> ModuleType:
    """The module pyarrow.

    Raises:
        BadRequest: it is not installed.
    """
    try:
        import pyarrow as pa
    except ImportError:
        raise BadRequest(
            "rows cannot be encoded", "pyarrow is not installed", "install oncewire[node] or oncewire[spark]"
        ) from None
    found: ModuleType = pa
    return found


@cache
def range_schema() -> Any:
    """Columns of a range: position, topic (as it was subscribed to), arrived, payload (the encoded message)."""
    pa = arrow()
    return pa.schema(
        [
            pa.field("position", pa.int64(), nullable=False),
            pa.field("topic", pa.string(), nullable=False),
            pa.field("arrived", pa.timestamp("us", tz="UTC"), nullable=False),
            pa.field("payload", pa.binary(), nullable=False),
        ]
    )


@cache
def staged_schema() -> Any:
    """Columns of a staged body: topic, payload (the encoded message; its identity is added when it is published)."""
    pa = arrow()
    return pa.schema([pa.field("topic", pa.string(), nullable=False), pa.field("payload", pa.binary(), nullable=False)])


def range_batch(chunk: Chunk) -> Any:
    """A chunk of a journal as a record batch of `range_schema`."""
    pa = arrow()
    rows = len(chunk.payloads)
    schema = range_schema()
    names = sorted(set(chunk.topics))
    numbers = {name: number for number, name in enumerate(names)}
    topics = pa.array(names, pa.string()).take(pa.array([numbers[topic] for topic in chunk.topics], pa.int32()))
    columns = [
        pa.array(range(chunk.first, chunk.first + rows), pa.int64()),
        topics,
        pa.array(chunk.arrived, pa.int64()).cast(pa.timestamp("us", tz="UTC")),
        pa.array(chunk.payloads, pa.binary()),
    ]
    return pa.record_batch(columns, schema=schema)


def encode_batches(batches: list[Any], schema: Any) -> bytes:
    """Record batches as an Arrow IPC stream."""
    pa = arrow()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def decode_batches(body: bytes, schema: Any) -> Iterator[Any]:
    """The record batches of an Arrow IPC stream.

    Raises:
        BadRequest: it is none, or has other columns.
    """
    pa = arrow()
    try:
        with pa.ipc.open_stream(body) as reader:
            if not reader.schema.equals(schema):
                raise BadRequest(
                    "the rows cannot be used",
                    f"their columns are {_columns(reader.schema)}",
                    f"give exactly these: {_columns(schema)}",
                )
            for batch in reader:
                batch.validate(full=True)
                yield batch
    except (pa.ArrowInvalid, OSError, EOFError) as error:
        raise BadRequest("the rows cannot be read", f"Arrow reports: {error}", "send an Arrow IPC stream") from error


def _columns(schema: Any) -> str:
    return ", ".join(f"{field.name} {field.type}{'' if field.nullable else ' not null'}" for field in schema)


@dataclass(frozen=True, slots=True)
class StagedRows:
    """What a staged body holds: topic and payload of each row, in order."""

    topics: list[str]
    payloads: list[bytes]

    def of(self, topic: str) -> list[bytes]:
        """The payloads that go to one topic, in order."""
        if self.topics.count(topic) == len(self.topics):
            return self.payloads
        return [payload for name, payload in zip(self.topics, self.payloads, strict=True) if name == topic]


def encode_rows(topics: list[str], payloads: list[bytes]) -> bytes:
    """A staged body."""
    pa = arrow()
    schema = staged_schema()
    batch = pa.record_batch([pa.array(topics, pa.string()), pa.array(payloads, pa.binary())], schema=schema)
    return encode_batches([batch], schema)


def decode_rows(body: bytes) -> StagedRows:
    """Read a staged body.

    Raises:
        BadRequest: it is none.
    """
    topics: list[str] = []
    payloads: list[bytes] = []
    for batch in decode_batches(body, staged_schema()):
        topics += batch.column(0).to_pylist()
        payloads += batch.column(1).to_pylist()
    return StagedRows(topics, payloads)


def count_topics(body: bytes) -> dict[str, int]:
    """How many rows of a staged body go to which topic, after checking that each can be published.

    Raises:
        BadRequest: it is no staged body, has no rows, or one of them is no encoded message.
        TooLarge: it has too many rows.
    """
    rows = decode_rows(body)
    if not rows.payloads:
        raise BadRequest("an empty part was staged", "it has no rows", "stage nothing for a task without rows")
    if len(rows.payloads) > MAX_STAGED_ROWS:
        raise TooLarge(
            f"a part of {len(rows.payloads)} rows was staged", f"{MAX_STAGED_ROWS} are allowed", "stage several parts"
        )
    for payload in rows.payloads:
        if payload[:3] not in BARE_STARTS:
            _check_message(payload)
    counts: dict[str, int] = {}
    for topic in set(rows.topics):
        counts[topic] = rows.topics.count(topic)
    return counts


def _check_message(payload: bytes) -> None:
    """What cannot be annotated would stop the sink when it is published: refuse it while its task can still fail."""
    try:
        if not payload:
            raise DecodeError("it is empty")
        splice_annotations(payload, b"", 0, (HASH_KEY,))
    except DecodeError as error:
        raise BadRequest(
            "a row cannot be published", f"its payload is no AMQP message: {error}", "encode it with encode_message()"
        ) from error
