"""Bodies by a codec: what is sent is read as it was, and what cannot be read is one error that says what to do."""

from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Self
from uuid import UUID

import pytest

from oncewire.client import (
    BodyNotDecoded,
    Client,
    Message,
    Properties,
    Requester,
    RequestRefused,
    Responder,
    UsageError,
    connect,
    sync,
)
from oncewire.client.codec import codec_of, decoded, encoded
from oncewire.client.json_codec import JsonCodec
from oncewire.testing import AmqpNetwork
from oncewire.wire import BodyKind

DEADLINE_S = 60.0


class State(Enum):
    NEW = "new"
    PAID = "paid"


@dataclass
class Line:
    item: str
    price: Decimal
    tags: tuple[str, ...] = ()


@dataclass
class Order:
    number: int
    lines: list[Line]
    state: State = State.NEW
    note: str | None = None
    placed: datetime | None = None
    due: date | None = None
    key: UUID | None = None
    weight: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    place: tuple[int, str] = (0, "")
    extra: Any = None


ORDER = Order(
    7,
    [Line("tea", Decimal("1.50"), ("hot", "green")), Line("jam", Decimal(2))],
    State.PAID,
    "grüß",
    datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    date(2026, 1, 3),
    UUID(int=5),
    2.5,
    {"a": 1},
    (3, "x"),
    [1, {"b": None}],
)


class Model:
    """As pydantic's models are used."""

    def __init__(self, number: int) -> None:
        self.number = number

    def model_dump_json(self) -> str:
        return json.dumps({"number": self.number})

    @classmethod
    def model_validate_json(cls, data: bytes) -> Self:
        found = json.loads(data)
        if not isinstance(found.get("number"), int):
            raise ValueError("number: should be an integer")
        return cls(found["number"])


class Doubled:
    """A codec of an application."""

    content_type = "text/x-doubled"

    def encode(self, value: object) -> bytes:
        return str(value).encode() * 2

    def decode(self, body: bytes) -> object:
        if len(body) % 2:
            raise ValueError("it has an odd number of bytes")
        return body[: len(body) // 2].decode()


def body_in(text: str | bytes, content_type: str | None = None) -> Message:
    kind = BodyKind.DATA if isinstance(text, bytes) else BodyKind.VALUE
    return Message(text, kind, properties=Properties(content_type=content_type))


def test_a_dataclass_is_read_as_it_was_sent_with_all_types_that_fields_may_have() -> None:
    codec = JsonCodec(Order)
    assert codec.decode(codec.encode(ORDER)) == ORDER
    assert codec.decode(codec.encode(Order(1, []))) == Order(1, [])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "Expecting property name"),
        ("[]", r"the body is \[\], and is to be Order"),
        ('{"number": 1}', r"Order\.lines is missing"),
        ('{"number": "1", "lines": []}', r'Order\.number is "1", and is to be int'),
        ('{"number": true, "lines": []}', r"Order\.number is true, and is to be int"),
        ('{"number": 1, "lines": [{"item": "x", "price": "y"}]}', r'Line\.price is "y", and is to be Decimal'),
        ('{"number": 1, "lines": 3}', r"Order\.lines is 3, and is to be list"),
        ('{"number": 1, "lines": [], "state": "lost"}', "'lost' is not a valid State"),
        ('{"number": 1, "lines": [], "note": 5}', r"Order\.note is 5, and is to be str or null"),
        ('{"number": 1, "lines": [], "place": [1]}', r"Order\.place has 1 values, and is to have 2"),
        ('{"number": 1, "lines": [], "counts": {"a": "b"}}', r"Order\.counts\['a'\] is \"b\", and is to be int"),
    ],
)
def test_a_body_that_is_no_order_is_one_error_that_says_where_and_what_to_do(text: str, why: str) -> None:
    with pytest.raises(BodyNotDecoded, match=why) as caught:
        decoded(JsonCodec(Order), body_in(text))
    assert "reject the message" in caught.value.fix


def test_fields_that_the_reader_does_not_know_are_passed_over() -> None:
    assert JsonCodec(Line).decode(b'{"item": "x", "price": "1", "new": 2}') == Line("x", Decimal(1))


def test_any_json_is_read_by_its_plain_type() -> None:
    dicts = codec_of(dict)
    assert dicts is not None
    value = {"a": [1, None]}
    assert decoded(dicts, body_in(dicts.encode(value), "application/json; charset=utf-8")) == value
    with pytest.raises(BodyNotDecoded, match="is to be dict"):
        decoded(dicts, body_in("[1]"))


def test_what_has_no_form_in_json_is_refused_when_it_is_sent() -> None:
    for value, why in ((object(), "a object has no form in JSON"), ({"a": float("nan")}, "not JSON compliant")):
        with pytest.raises(UsageError, match=why):
            encoded(JsonCodec(), value, None)


def test_models_like_those_of_pydantic_are_written_and_checked_by_themselves() -> None:
    codec = codec_of(Model)
    assert codec is not None
    body, properties = encoded(codec, Model(4), None)
    assert (body, properties.content_type) == (b'{"number": 4}', "application/json")
    found = decoded(codec, body_in(body))
    assert isinstance(found, Model)
    assert found.number == 4
    with pytest.raises(BodyNotDecoded, match="should be an integer"):
        decoded(codec, body_in("{}"))


@pytest.mark.needs("fastapi")
def test_models_of_pydantic_are_written_and_checked() -> None:
    pydantic: Any = importlib.import_module("pydantic")
    Paid = pydantic.create_model("Paid", number=(int, ...), at=(datetime, ...))  # noqa: N806  (a class)
    codec = codec_of(Paid)
    assert codec is not None
    paid = Paid(number=3, at=datetime(2026, 1, 1, tzinfo=UTC))
    assert codec.decode(codec.encode(paid)) == paid
    assert json.loads(JsonCodec().encode({"of": paid}))["of"]["number"] == 3
    with pytest.raises(BodyNotDecoded, match="at\n  Field required"):
        decoded(codec, body_in('{"number": 1}'))


def test_another_content_type_is_not_read_and_the_callers_own_is_kept() -> None:
    codec = Doubled()
    _, properties = encoded(codec, "x", Properties(content_type="text/own", subject="s"))
    assert properties == Properties(content_type="text/own", subject="s")
    with pytest.raises(BodyNotDecoded, match="its content-type is text/own"):
        decoded(codec, body_in(b"xx", "text/own"))
    with pytest.raises(BodyNotDecoded, match="odd number"):
        decoded(codec, body_in(b"xxx"))
    with pytest.raises(BodyNotDecoded, match="its body is a list"):
        decoded(codec, Message([1], BodyKind.VALUE))


@pytest.mark.parametrize("wrong", ["json", 5])
def test_what_is_no_codec_is_refused(wrong: Any) -> None:
    with pytest.raises(UsageError, match="a codec has content_type, encode and decode"):
        codec_of(wrong)


# --- over a router ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def network() -> Iterator[AmqpNetwork]:
    with AmqpNetwork(1) as found:
        yield found


@pytest.fixture
async def client(network: AmqpNetwork) -> AsyncIterator[Client]:
    async with connect(network.urls) as found:
        yield found


async def test_a_publisher_with_a_codec_and_a_subscriber_with_one_pass_values(client: Client) -> None:
    subscriber = await client.subscriber("orders", codec=Order)
    publisher = await client.publisher("orders", codec=Order)
    _ = await publisher.submit_many([ORDER, Order(2, [])])
    for expected in (ORDER, Order(2, [])):
        delivery = await subscriber.receive(DEADLINE_S)
        assert delivery.value == expected
        assert delivery.message.properties is not None
        assert delivery.message.properties.content_type == "application/json"
        await delivery.accept()
    plain = await client.publisher("orders")
    _ = await plain.submit(b"\xff")
    delivery = await subscriber.receive(DEADLINE_S)
    with pytest.raises(BodyNotDecoded):
        _ = delivery.value
    assert delivery.body == b"\xff"
    await delivery.reject("no order")
    await publisher.flush(DEADLINE_S)


async def test_without_a_codec_the_value_is_the_body_and_a_message_is_sent_as_it_is(client: Client) -> None:
    subscriber = await client.subscriber("plain")
    publisher = await client.publisher("plain", codec=dict)
    sending = asyncio.create_task(publisher.send(Message("own", BodyKind.VALUE), timeout=DEADLINE_S))
    delivery = await subscriber.receive(DEADLINE_S)
    assert delivery.value == delivery.body == "own"
    await delivery.accept()
    await sending
    with pytest.raises(UsageError, match="a set cannot be sent as application/json"):
        await publisher.send({1})


async def test_requests_and_answers_are_values(client: Client) -> None:
    async with (
        Responder(client, "double", codec=Doubled()) as requests,
        Requester(client, codec=Doubled()) as requester,
    ):

        async def serve() -> None:
            async for request in requests:
                if request.value == "no":
                    await request.refuse("not this one")
                else:
                    await request.answer(f"{request.value}!")

        serving = asyncio.create_task(serve())
        assert (await requester.request("double", "yes", timeout=DEADLINE_S)).value == "yes!"
        with pytest.raises(RequestRefused, match="not this one"):
            await requester.request("double", "no", timeout=DEADLINE_S)
        serving.cancel()


def test_programs_without_an_event_loop_have_codecs_too(network: AmqpNetwork) -> None:
    with sync.connect(network.urls) as client:
        subscriber = client.subscriber("sync", codec=Order)
        publisher = client.publisher("sync", codec=Order)
        sending = publisher.submit(ORDER)
        delivery = subscriber.receive(DEADLINE_S)
        assert delivery.value == ORDER
        delivery.accept()
        assert sending.result(DEADLINE_S).is_accepted
