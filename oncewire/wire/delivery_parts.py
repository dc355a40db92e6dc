"""A large delivery while it comes in: events with its parts, none of which the engine keeps (2.6.14).

They come on links whose owner has set ``ReceiverLink.stream_above``. First ``DeliveryBegun``, then one
``DeliveryPart`` for each transfer with a payload, last ``DeliveryEnded`` or ``DeliveryAborted``; neither of those two
comes when the link, its session or the connection ends in between.
"""

from __future__ import annotations

from dataclasses import dataclass

from oncewire.wire.link import Link


@dataclass(frozen=True, slots=True)
class DeliveryBegun:
    """So much of an unsettled delivery has come that the rest is passed on as it comes.

    It is in the table of unsettled deliveries from here on, so its outcome may be stated at once.

    Attributes:
        link: the receiver link.
        delivery_id: names the delivery on this session until it is settled.
        tag: up to 32 bytes, may be empty (2.8.7).
        payload: what has come of the encoded message.
        resume: the sender means a delivery that both ends held before this attach (2.6.13).
        message_format: 0 for an AMQP message.
        receiver_settles: see ``DeliveryReceived``; a later transfer does not change it.
    """

    link: Link
    delivery_id: int
    tag: bytes
    payload: bytes
    resume: bool
    message_format: int
    receiver_settles: bool


@dataclass(frozen=True, slots=True)
class DeliveryPart:
    """More of the delivery that has begun on this link: the payload of one transfer."""

    link: Link
    delivery_id: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class DeliveryEnded:
    """The last transfer of the delivery that has begun on this link.

    Attributes:
        link: the receiver link.
        delivery_id: as in ``DeliveryBegun``.
        payload: the rest of the message, may be empty.
        settled: the sender has settled it, by this transfer or one since it began: it must not be disposed of.
    """

    link: Link
    delivery_id: int
    payload: bytes
    settled: bool


@dataclass(frozen=True, slots=True)
class DeliveryAborted:
    """The sender gave up the delivery that has begun on this link. It counts as settled: drop all of it."""

    link: Link
    delivery_id: int
