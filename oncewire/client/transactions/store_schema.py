"""The tables of a store, and the intents in one of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from oncewire.client.errors import UsageError
from oncewire.client.transactions.sequence_header import SequenceHeader
from oncewire.store.migrations import Feature
from oncewire.wire import Message, WireError, encode, encode_message, splice_annotations

CONSUMERS = Feature(
    "consumers",
    (
        (
            """CREATE TABLE oncewire_store_sources (
                store TEXT NOT NULL, source TEXT NOT NULL, position BIGINT NOT NULL, PRIMARY KEY (store, source))""",
            """CREATE TABLE oncewire_store_sequences (
                store TEXT NOT NULL, source TEXT NOT NULL, owner TEXT NOT NULL, producer TEXT NOT NULL,
                born_ms BIGINT NOT NULL, state TEXT NOT NULL, PRIMARY KEY (store, source, owner, producer, born_ms))""",
            """CREATE TABLE oncewire_store_horizons (
                store TEXT NOT NULL, source TEXT NOT NULL, owner TEXT NOT NULL, horizon_ms BIGINT NOT NULL,
                PRIMARY KEY (store, source, owner))""",
            """CREATE TABLE oncewire_store_refused (
                store TEXT NOT NULL, position BIGINT NOT NULL, source TEXT NOT NULL, owner TEXT NOT NULL,
                why TEXT NOT NULL, payload /*bytes*/ NOT NULL, retry BIGINT NOT NULL DEFAULT 0,
                PRIMARY KEY (store, position))""",
            """CREATE TABLE oncewire_store_outputs (
                store TEXT NOT NULL, topic TEXT NOT NULL, producer TEXT NOT NULL, born_ms BIGINT NOT NULL,
                begins BIGINT NOT NULL, PRIMARY KEY (store, producer, born_ms))""",
            """CREATE TABLE oncewire_store_inputs (
                store TEXT NOT NULL, position BIGINT NOT NULL, source TEXT NOT NULL,
                received_at DOUBLE PRECISION NOT NULL, payload /*bytes*/ NOT NULL, PRIMARY KEY (store, position))""",
            """CREATE TABLE oncewire_store_links (
                store TEXT NOT NULL, link TEXT NOT NULL, incarnation BIGINT NOT NULL, PRIMARY KEY (store, link))""",
            """CREATE TABLE oncewire_store_journal_positions (
                store TEXT NOT NULL, journal TEXT NOT NULL, incarnation BIGINT NOT NULL, position BIGINT NOT NULL,
                PRIMARY KEY (store, journal))""",
            """CREATE TABLE oncewire_store_deliveries (
                store TEXT NOT NULL, link TEXT NOT NULL, tag /*bytes*/ NOT NULL, place BIGINT NOT NULL, outcome TEXT,
                PRIMARY KEY (store, link, tag))""",
            """CREATE TABLE oncewire_store_publishers (
                store TEXT NOT NULL, topic TEXT NOT NULL, link TEXT NOT NULL, exposed_before BIGINT NOT NULL,
                session BIGINT NOT NULL, PRIMARY KEY (store, topic))""",
            """CREATE TABLE oncewire_store_released (
                store TEXT NOT NULL, number BIGINT NOT NULL, PRIMARY KEY (store, number))""",
            """CREATE TABLE oncewire_store_intents (
                store TEXT NOT NULL, number BIGINT NOT NULL, topic TEXT NOT NULL, producer TEXT NOT NULL,
                born_ms BIGINT NOT NULL, sequence BIGINT NOT NULL, flag TEXT NOT NULL, begins BIGINT NOT NULL,
                floor BIGINT NOT NULL, payload /*bytes*/, PRIMARY KEY (store, number))""",
        ),
    ),
    former="oncewire_store_fences",
)
"""The tables of consumers, beside those of any store: the fence is an owner's epoch there."""


@dataclass(slots=True)
class OutputMap:
    """Of the publisher of one topic what its unsettled map has beside the intents (ST-7); see ``PublisherState``.

    Attributes:
        topic: where to.
        link: its name, the same in all owners of the store.
        exposed_before: intents with smaller numbers may have reached a socket.
        session: the last session the network stated.
    """

    topic: str
    link: str
    exposed_before: int = 0
    session: int = 0


@dataclass(frozen=True, slots=True)
class Intent:
    """An ack or rollback that must reach its topic because the store has decided it.

    Attributes:
        number: its place among the store's intents; publish them in this order. No other one ever has it.
        topic: where to.
        header: what it says.
        payload: the encoded message with this header; empty for an ack or a rollback.
    """

    number: int
    topic: str
    header: SequenceHeader
    payload: bytes = b""

    def message(self) -> Message:
        """Return the ack or rollback as a message to publish."""
        return Message(b"", annotations=self.header.annotations())

    def encode(self) -> bytes:
        """Return what is to be published, encoded; a publisher takes an intent as it is."""
        return self.payload or encode_message(self.message())


def encode_with_header(topic: str, message: Message | bytes, header: SequenceHeader) -> bytes:
    """Return a message of the application, encoded with its sequence header.

    Raises:
        UsageError: a value in it has no AMQP type.
    """
    if isinstance(message, bytes):
        stated = header.annotations()
        pairs = b"".join(encode(key) + encode(value) for key, value in stated.items())
        return splice_annotations(message, pairs, len(stated))
    try:
        return encode_message(replace(message, annotations={**message.annotations, **header.annotations()}))
    except WireError as error:
        raise UsageError(
            f"a message to {topic!r} cannot be published", str(error), "give values that AMQP has a type for"
        ) from error
