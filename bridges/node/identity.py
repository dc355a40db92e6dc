"""Who produced a message, as annotations: written by the publisher of an outbox, read by the receiver of a journal."""

from __future__ import annotations

from bridges.node.arrow_bodies import HASH_KEY
from bridges.node.producers_core import MAX_PRODUCER_BYTES, Identity
from oncewire.client.transactions.sequence_header import Flag, user_of
from oncewire.wire import DecodeError, ULong, encode, read_annotations, splice_annotations
from oncewire.wire.vocabulary import BATCH, BATCH_END, FLOOR, PRODUCER, SEQUENCE, TRANSACTION

_SEQUENCE_KEY = encode(SEQUENCE)
_FLOOR_KEY = encode(FLOOR)
_BATCH_KEY = encode(BATCH)
_BATCH_END_PAIR = encode(BATCH_END) + encode(True)
_TRANSACTION_KEY = encode(TRANSACTION)
_CONTINUE_PAIR = _TRANSACTION_KEY + encode(Flag.CONTINUE.value)
_MARK = PRODUCER.encode()
_MAX_NUMBER = (1 << 64) - 1


def producer_pair(producer: str) -> bytes:
    """The annotation that names the producer, for `common_pairs`."""
    return encode(PRODUCER) + encode(producer)


def common_pairs(producer: bytes, floor: int, batch: int) -> bytes:
    """What the identities of several rows of a batch have in common, for `annotate`.

    Args:
        producer: what `producer_pair` made.
        floor: the lowest number of this producer that is not settled.
        batch: which batch of the producer they belong to.
    """
    return producer + _FLOOR_KEY + encode(ULong(floor)) + _BATCH_KEY + encode(ULong(batch))


def annotate(payload: bytes, common: bytes, sequence: int, *, is_batch_end: bool, begins: int = 0) -> bytes:
    """The message with its identity; annotations of the application are kept, `x-opt-topic-delivery-hash`, too.

    Together they are a header that sequencers understand (`oncewire.client.transactions.sequence_header`).

    Args:
        payload: an encoded message.
        common: what `common_pairs` made.
        sequence: the message's number.
        is_batch_end: it is the batch's last one.
        begins: number of the first message of the transaction that the batch is; 0 = each message stands alone.
    """
    pairs = common + _SEQUENCE_KEY + encode(ULong(sequence))
    count = 4
    if is_batch_end:
        pairs += _BATCH_END_PAIR
        count += 1
    if begins:
        pairs += _transaction_pair(begins) if is_batch_end else _CONTINUE_PAIR
        count += 1
    return splice_annotations(payload, pairs, count, (HASH_KEY,))


def _transaction_pair(begins: int) -> bytes:
    return _TRANSACTION_KEY + encode(f"{Flag.LAST.value} {begins}")


def identity_of(payload: bytes) -> Identity | None:
    """The producer of a message and its user (J-13); None if it names none, or not in the form above."""
    if _MARK not in payload:  # the usual case of other publishers: nothing is decoded
        return None
    try:
        annotations = read_annotations(payload)
    except DecodeError:
        return None
    producer = annotations.get(PRODUCER)
    sequence = annotations.get(SEQUENCE)
    floor = annotations.get(FLOOR, 0)
    if not isinstance(producer, str) or not 0 < len(producer.encode()) <= MAX_PRODUCER_BYTES:
        return None
    if not _is_number(sequence) or not _is_number(floor):
        return None
    assert isinstance(sequence, int)
    assert isinstance(floor, int)
    return Identity(str(producer), int(sequence), int(floor), user_of(annotations))


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_NUMBER
