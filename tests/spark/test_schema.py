"""Rows: their columns, and messages on the way to rows and back."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridges.node.arrow_bodies import count_topics, encode_rows, range_batch
from bridges.node.errors import BadRequest
from bridges.node.identity import producer_pair
from bridges.node.model import Chunk
from bridges.spark.fast_decoding import fast_row
from bridges.spark.schema import (
    UNDECODABLE,
    RowDecoder,
    arrow_schema,
    check_columns,
    columns,
    encode_rows_of,
    message_row,
    schema_ddl,
)
from oncewire.wire import (
    BodyKind,
    Header,
    Message,
    Properties,
    Symbol,
    ULong,
    decode_message,
    encode,
    encode_data_message,
    encode_message,
    splice_annotations,
    topic_annotations,
)
from oncewire.wire.json_values import body_octets
from oncewire.wire.vocabulary import PARTITION_KEY, PRODUCER, SEQUENCE
from tests.support.amqp_values import VALUES, map_of

KEPT = (b"x-opt-topic-producer", b"x-opt-topic-seq", b"x-opt-topic-delivery-hash")


def routed(payload: bytes, publisher: str = "shop/link", tag: bytes = b"\1\2") -> bytes:
    """A message as it leaves a router."""
    pairs, count = topic_annotations(publisher, tag, 3)
    return splice_annotations(payload, pairs, count, KEPT)


def rows_of(payloads: list[bytes], topic: str = "orders", **include: bool) -> list[dict[str, Any]]:
    chosen = {"include_headers": True, "include_metadata": True, **include}
    batch = range_batch(Chunk(11, [topic] * len(payloads), [1_700_000_000_000_000] * len(payloads), payloads))
    found = RowDecoder(**chosen).batch(batch)
    found.validate(full=True)
    assert found.schema.equals(arrow_schema(**chosen))
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


@pytest.mark.parametrize("include_headers", [False, True])
@pytest.mark.parametrize("include_metadata", [False, True])
def test_the_arrow_schema_is_the_one_that_spark_wants(include_headers: bool, include_metadata: bool) -> None:
    include = {"include_headers": include_headers, "include_metadata": include_metadata}
    names = [name for name, _ in columns(**include)]
    assert names[:7] == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert ("headers" in names, "message_id" in names) == (include_headers, include_metadata)
    assert arrow_schema(**include).names == names
    assert schema_ddl(columns(**include)).startswith(
        "key binary, value binary, topic string, partition int, offset bigint"
    )


def test_a_plain_message_becomes_a_row_with_kafkas_names() -> None:
    (row,) = rows_of([routed(encode_data_message(b"v"))], include_headers=False, include_metadata=False)
    assert row == {
        "key": None,
        "value": b"v",
        "topic": "orders",
        "partition": 0,
        "offset": 11,
        "timestamp": datetime.fromtimestamp(1_700_000_000, UTC),
        "timestampType": 1,
    }


def test_properties_annotations_and_application_properties_become_columns() -> None:
    message = Message(
        b"v",
        properties=Properties(
            message_id="m1",
            subject="s",
            correlation_id=7,
            content_type="text/plain",
            creation_time=1_700_000_000_123,
            group_id="k",
        ),
        application_properties={"text": "t", "number": 5, "bytes": b"\xff", "flag": True, "none": None},
        annotations={Symbol("x-opt-topic-delivery-hash"): "ab" * 32, PRODUCER: "sink@1", SEQUENCE: ULong(9)},
    )
    (row,) = rows_of([routed(encode_message(message))])
    assert row["key"] == b"k"
    assert (row["message_id"], row["subject"], row["correlation_id"], row["content_type"]) == (
        "m1",
        "s",
        "7",
        "text/plain",
    )
    assert row["creation_time"] == datetime.fromtimestamp(1_700_000_000.123, UTC)
    assert (row["producer"], row["producer_seq"], row["delivery_hash"]) == ("sink@1", 9, "ab" * 32)
    assert row["headers"] == [
        {"key": "text", "value": b"t"},
        {"key": "number", "value": b"5"},
        {"key": "bytes", "value": b"\xff"},
        {"key": "flag", "value": b"true"},
        {"key": "none", "value": None},
    ]
    assert dict(row["application_properties"]) == {
        "text": "t",
        "number": "5",
        "bytes": "\\xff",
        "flag": "true",
        "none": None,
    }


def test_a_message_without_a_number_names_its_publisher() -> None:
    (row,) = rows_of([routed(encode_data_message(b"v"))])
    assert (row["producer"], row["producer_seq"]) == ("shop/link", None)


def test_bodies_that_are_no_bytes_become_bytes() -> None:
    def value(body: object, kind: BodyKind = BodyKind.VALUE) -> bytes | None:
        return message_row(encode_message(Message(body, kind))).value

    assert value("é") == "é".encode()
    assert value(None) is None
    assert value(b"\xff") == b"\xff"
    assert value(5) == b"5"
    assert value({"a": [1, b"x"]}) == b'{"a":[1,"x"]}'
    assert value([1, "x"], BodyKind.SEQUENCE) == b'[1,"x"]'


@pytest.mark.parametrize(
    ("identifier", "text"),
    [("m", "m"), (7, "7"), (b"\xff\0", "ff00"), (UUID(int=1), "00000000-0000-0000-0000-000000000001")],
)
def test_every_kind_of_message_id_becomes_text(identifier: Any, text: str) -> None:
    assert message_row(encode_message(Message(b"", properties=Properties(message_id=identifier)))).message_id == text


@settings(deadline=None)
@given(VALUES)
def test_every_amqp_value_becomes_a_row_as_body_as_property_and_as_key(value: object) -> None:
    """The query would fail on it for ever otherwise: it is in the journal, and accepted."""
    bodies = (value, map_of([(value, value)]), map_of([(1, value), ("1", value), (True, value)]))
    messages = [
        Message(body, BodyKind.VALUE, application_properties={"p": body}, annotations={PARTITION_KEY: body})
        for body in bodies
    ]
    rows = rows_of([routed(encode_message(message)) for message in messages])
    assert [row["value"] for row in rows] == [None if each is None else body_octets(each) for each in bodies]
    assert all(row["content_type"] is None for row in rows)


def test_a_message_without_a_body_becomes_a_row() -> None:
    (row,) = rows_of([routed(b"\0Ss" + encode(["m1"]))])
    assert (row["value"], row["message_id"], row["content_type"]) == (None, "m1", None)


def test_a_message_that_cannot_be_decoded_becomes_a_row_that_says_so() -> None:
    """The query would fail on it for ever otherwise: it is in the journal, and accepted."""
    good = encode_data_message(b"v")
    bad = good + b"\0Sw"
    rows = rows_of([good, bad, good])
    assert [row["content_type"] for row in rows] == [None, UNDECODABLE, None]
    assert [row["value"] for row in rows] == [b"v", bad, b"v"]


def test_behind_a_pattern_the_message_may_say_its_topic_but_not_a_foreign_one() -> None:
    def to(topic: str) -> bytes:
        return encode_message(Message(b"v", properties=Properties(to=topic)))

    rows = rows_of([to("orders.eu"), to("billing"), encode_data_message(b"v")], "orders.*")
    assert [row["topic"] for row in rows] == ["orders.eu", "orders.*", "orders.*"]
    assert rows_of([to("elsewhere")], "orders")[0]["topic"] == "orders"


def test_keys_of_any_bytes_go_to_a_message_and_back() -> None:
    batch = pa.record_batch({"value": [b"v"] * 4, "key": pa.array([b"text", b"\xff\0", b"", None], pa.binary())})
    _, payloads = encode_rows_of(batch, "t")
    assert [row["key"] for row in rows_of(payloads)] == [b"text", b"\xff\0", b"", None]
    assert decode_message(payloads[0]).properties == Properties(group_id="text")


# --- the quick way and the long way -----------------------------------------------------------------------------------

_ANNOTATIONS = st.dictionaries(
    st.sampled_from(
        [
            PRODUCER,
            SEQUENCE,
            Symbol("x-opt-topic-publisher"),
            Symbol("x-opt-topic-tag"),
            Symbol("x-opt-mine"),
            Symbol("x-opt-partition-key"),
            Symbol("x-opt-topic-delivery-hash"),
            Symbol("x" * 300),
        ]
    ),
    st.one_of(
        st.text(max_size=5),
        st.binary(max_size=5),
        st.integers(0, 300).map(ULong),
        st.none(),
        st.booleans(),
        st.integers(1 << 60, (1 << 64) - 1).map(ULong),
        st.uuids(),
        st.lists(st.integers(0, 5), max_size=2),
        st.just("x-opt-topic-producer"),
        st.just(producer_pair("forged")),
        st.just("long" * 100),
    ),
    max_size=6,
)


@given(
    body=st.one_of(st.binary(max_size=10), st.just(bytes(300))),
    annotations=_ANNOTATIONS,
    header=st.one_of(st.none(), st.just(Header()), st.just(Header(durable=True, ttl=5))),
    properties=st.one_of(st.none(), st.just(Properties(group_id="g"))),
    wants_producer=st.booleans(),
)
def test_the_quick_way_finds_what_the_long_way_finds(
    body: bytes,
    annotations: dict[Symbol, object],
    header: Header | None,
    properties: Properties | None,
    wants_producer: bool,
) -> None:
    payload = encode_message(Message(body, annotations=annotations, header=header, properties=properties))
    quick = fast_row(payload, wants_producer)
    row = message_row(payload)
    if quick is not None:
        assert quick == (row.value, *((row.producer, row.producer_seq) if wants_producer else (None, None)))
        assert row.key is None
        assert row.headers is None
        assert not wants_producer or row.delivery_hash is None


@given(st.binary(max_size=40), st.integers(0, 1 << 30), st.booleans())
def test_the_quick_way_leaves_damaged_messages_to_the_long_way(noise: bytes, seed: int, wants: bool) -> None:
    source = random.Random(seed)
    payload = bytearray(routed(encode_data_message(b"value")))
    for octet in noise:
        payload[source.randrange(len(payload))] = octet
    quick = fast_row(bytes(payload), wants)
    if quick is not None:
        row = message_row(bytes(payload))
        # What the long way refuses may pass here only where it is the annotations that nobody asked for.
        assert row.value == quick[0] or row.content_type == UNDECODABLE
    assert fast_row(bytes(payload)[: source.randrange(len(payload))], wants) is None


def test_the_usual_message_takes_the_quick_way() -> None:
    assert fast_row(routed(encode_data_message(b"v")), True) == (b"v", "shop/link", None)
    assert fast_row(routed(encode_data_message(bytes(300))), True) == (bytes(300), "shop/link", None)
    assert fast_row(routed(encode_message(Message(b"v", header=Header(durable=True)))), True) == (
        b"v",
        "shop/link",
        None,
    )


# --- rows to messages -------------------------------------------------------------------------------------------------


def test_rows_of_the_source_can_be_published_as_they_are() -> None:
    first = rows_of(
        [
            routed(
                encode_message(
                    Message(
                        b"v",
                        properties=Properties(message_id="m", subject="s", creation_time=5, group_id="k"),
                        application_properties={"a": "b", "raw": b"\xff"},
                    )
                )
            ),
            routed(encode_message(Message(None, BodyKind.VALUE))),
        ]
    )
    schema = arrow_schema(include_headers=True, include_metadata=True)
    check_columns(columns(include_headers=True, include_metadata=True), has_topic=False)
    topics, payloads = encode_rows_of(pa.RecordBatch.from_pylist(first, schema), None)
    assert topics == ["orders", "orders"]
    assert count_topics(encode_rows(topics, payloads)) == {"orders": 2}
    second = rows_of(payloads)
    for before, after in zip(first, second, strict=True):
        for name in ("key", "value", "message_id", "subject", "creation_time", "headers", "application_properties"):
            assert (
                sorted(before[name], key=str) == sorted(after[name], key=str)
                if isinstance(before[name], list)
                else before[name] == after[name]
            )


def test_the_option_goes_before_the_column_and_a_row_without_a_topic_is_refused() -> None:
    batch = pa.record_batch({"value": [b"1", b"2"], "topic": ["a", None]})
    assert encode_rows_of(batch, "t")[0] == ["t", "t"]
    with pytest.raises(BadRequest, match="its topic is null or empty"):
        encode_rows_of(batch, None)


def test_texts_are_published_as_utf8_and_plain_values_as_plain_data() -> None:
    _, payloads = encode_rows_of(pa.record_batch({"value": ["é", "b"]}), "t")
    assert payloads == [encode_data_message("é".encode()), encode_data_message(b"b")]


def test_a_header_that_is_there_twice_is_refused() -> None:
    kind = arrow_schema(include_headers=True, include_metadata=False).field("headers").type
    for headers, why in (
        ([{"key": "a", "value": b"1"}, {"key": "a", "value": b"2"}], "twice"),
        ([{"key": None, "value": b"1"}], "has no key"),
    ):
        batch = pa.record_batch({"value": [b"v"], "headers": pa.array([headers], kind)})
        with pytest.raises(BadRequest, match=why):
            encode_rows_of(batch, "t")


@pytest.mark.parametrize(
    ("types", "has_topic", "what"),
    [
        ([("topic", "string")], False, "no column `value`"),
        ([("value", "binary")], False, "neither a column nor the option"),
        ([("value", "int")], True, "cast it to binary or string"),
        ([("value", "binary"), ("header", "string")], True, "did you mean headers"),
        ([("value", "binary"), ("amount", "int")], True, "drop it, or make it part"),
        ([("value", "binary"), ("topic", "binary")], False, "cast it to string"),
    ],
)
def test_columns_that_cannot_be_published_are_refused(types: list[tuple[str, str]], has_topic: bool, what: str) -> None:
    with pytest.raises(BadRequest) as caught:
        check_columns(types, has_topic=has_topic)
    assert what in str(caught.value)


@pytest.mark.needs("spark")
@pytest.mark.parametrize("include_headers", [False, True])
@pytest.mark.parametrize("include_metadata", [False, True])
def test_spark_itself_makes_the_same_arrow_schema(include_headers: bool, include_metadata: bool) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import (
        ArrayType,
        BinaryType,
        DataType,
        IntegerType,
        LongType,
        MapType,
        StringType,
        StructField,
        StructType,
        TimestampType,
    )

    known: dict[str, DataType] = {
        "binary": BinaryType(),
        "string": StringType(),
        "int": IntegerType(),
        "bigint": LongType(),
        "timestamp": TimestampType(),
        "map<string,string>": MapType(StringType(), StringType()),
        "array<struct<key:string,value:binary>>": ArrayType(
            StructType([StructField("key", StringType()), StructField("value", BinaryType())])
        ),
    }
    include = {"include_headers": include_headers, "include_metadata": include_metadata}
    fields = [StructField(name, known[kind]) for name, kind in columns(**include)]
    assert to_arrow_schema(StructType(fields), timezone="UTC").equals(arrow_schema(**include))
    for field, (_, kind) in zip(fields, columns(**include), strict=True):
        assert field.dataType.simpleString() == kind
