"""Items of a queue as AMQP messages, and addresses of queues."""

from __future__ import annotations

from bridges.workqueue.items import DEFAULT_PRIORITY, Handle, NewItem, Taken
from oncewire.store.errors import InvalidRequest
from oncewire.store.rules_core import check_name, check_seconds
from oncewire.wire import DecodeError, Header, Message, Symbol, decode_message, encode_message, vocabulary
from oncewire.wire.json_values import body_octets

PREFIX = "queue://"
_HANDLE_BYTES = 8
_FIX = "see AMQP access in docs/workqueue.md"


def queue_of(address: str | None) -> str:
    """The name in ``queue://NAME``.

    Raises:
        InvalidRequest: it is no such address.
    """
    if address is None or not address.startswith(PREFIX):
        raise InvalidRequest(f"{address!r} is no queue", f"an address here is {PREFIX}NAME", _FIX)
    name = address.removeprefix(PREFIX)
    check_name("queue", name)
    return name


def item_of(encoded: bytes) -> NewItem:
    """The item that a message asks to be pushed.

    The payload is the body: of data sections as it is, a text in UTF-8, any other value as JSON; there is one for each.

    Raises:
        InvalidRequest: it is no message, or something in it cannot be.
    """
    try:
        message = decode_message(encoded)
    except DecodeError as error:
        raise InvalidRequest("the message was not pushed", f"it cannot be decoded: {error}", _FIX) from error
    delay = _milliseconds(message, vocabulary.DELIVERY_DELAY)
    when = _milliseconds(message, vocabulary.DELIVERY_TIME)
    if delay is not None and when is not None:
        raise InvalidRequest("the message was not pushed", "it has a delivery delay and a time", "give one of them")
    check_seconds("a delay", delay or 0.0)
    key = message.annotations.get(vocabulary.QUEUE_KEY)
    if key is not None and not isinstance(key, str):
        raise InvalidRequest("the message was not pushed", f"{vocabulary.QUEUE_KEY} is no string", _FIX)
    if key is not None:
        check_name("key", str(key))
    priority = DEFAULT_PRIORITY if message.header is None else message.header.priority
    return NewItem(body_octets(message.body), delay or 0.0, when, int(priority), None if key is None else str(key))


def _milliseconds(message: Message, name: str) -> float | None:
    value = message.annotations.get(Symbol(name))
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidRequest("the message was not pushed", f"{name} is no number of milliseconds", _FIX)
    return int(value) / 1000


def message_of(item: Taken) -> bytes:
    """The message that brings an item to a worker."""
    annotations: dict[Symbol, object] = {}
    if item.key is not None:
        annotations[vocabulary.QUEUE_KEY] = item.key
    return encode_message(
        Message(
            item.payload,
            header=Header(durable=True, priority=item.priority, delivery_count=item.retries),
            delivery_annotations={vocabulary.QUEUE_HANDLE: str(item.handle)},
            annotations=annotations,
        )
    )


def tag_of(handle: Handle) -> bytes:
    """The delivery-tag of a reserved item: its handle in 16 bytes."""
    return handle.item.to_bytes(_HANDLE_BYTES, "big") + handle.reservation.to_bytes(_HANDLE_BYTES, "big")


def handle_of(tag: bytes) -> Handle | None:
    """The handle in a delivery-tag; None = it is no tag of ours."""
    if len(tag) != 2 * _HANDLE_BYTES:
        return None
    return Handle(int.from_bytes(tag[:_HANDLE_BYTES], "big"), int.from_bytes(tag[_HANDLE_BYTES:], "big"))
