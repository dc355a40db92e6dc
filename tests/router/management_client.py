"""A client of `$management`, on our own engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from oncewire.wire import (
    BodyKind,
    DeliveryReceived,
    DispositionReceived,
    Message,
    Properties,
    ReceiverLink,
    SaslClient,
    SenderLink,
    Source,
    Target,
    decode_message,
    encode_message,
)
from tests.router.raw_client import RawClient

NODE = "$management"


@dataclass
class Answer:
    """One answer of the node."""

    status: int
    description: str
    body: Any
    correlation: object
    message: Message


class ManagementClient:
    """One connection with a sender to `$management` and a receiver of answers."""

    def __init__(self, client: RawClient, sender: SenderLink, receiver: ReceiverLink, reply_to: str) -> None:
        self.client = client
        self.sender = sender
        self.receiver = receiver
        self.reply_to = reply_to
        self._count = 0

    @classmethod
    async def connect(
        cls, port: int, user: str | None = None, password: str = "", *, own_address: str = "", **options: Any
    ) -> ManagementClient:
        """Attach both links; with `own_address` the receiver's source is the node, and the address its own."""
        sasl = None if user is None else SaslClient("PLAIN", user, password)
        client = await RawClient.connect(port, sasl=sasl, **options)
        source = Source(address=NODE) if own_address else Source(dynamic=True)
        target = Target(address=own_address) if own_address else Target()
        sender = client.session.attach_sender("requests", source=Source(), target=Target(address=NODE))
        receiver = client.session.attach_receiver("answers", source=source, target=target)
        client.flush()
        reply = await client.attached(receiver)
        await client.attached(sender)
        receiver.grant(100)
        client.flush()
        assert isinstance(reply.source, Source)
        return cls(client, sender, receiver, own_address or str(reply.source.address))

    async def ask(self, operation: str, body: object = None, **properties: object) -> Answer:
        """One request and its answer."""
        self._count += 1
        message_id = f"request-{self._count}"
        self.send(message_id, body, operation=operation, **properties)
        return await self.answer()

    def send(self, message_id: str | None, body: object = None, **properties: object) -> int:
        """Send a request; `correlation_id` and `reply_to` may be given as well."""
        correlation: Any = properties.pop("correlation_id", None)
        reply_to: Any = properties.pop("reply_to", self.reply_to)
        message = Message(
            {} if body is None else body,
            BodyKind.VALUE,
            properties=Properties(message_id=message_id, reply_to=reply_to, correlation_id=correlation),
            application_properties=dict(properties),
        )
        return self.send_bytes(encode_message(message))

    def send_bytes(self, payload: bytes) -> int:
        """Send a request as it is; its delivery-id."""
        self._count += 1
        found = self.sender.send(b"%d" % self._count, payload)
        self.client.flush()
        return found

    async def disposition(self, delivery_id: int) -> DispositionReceived:
        """What the node says of a request."""
        return await self.client.wait_for(
            DispositionReceived, lambda event: any(number == delivery_id for number, _ in event.deliveries)
        )

    async def answer(self) -> Answer:
        """The next answer."""
        event = await self.client.wait_for(DeliveryReceived, lambda found: found.link is self.receiver)
        assert event.settled
        message = decode_message(event.payload)
        reported = message.application_properties or {}
        assert message.properties is not None
        return Answer(
            int(str(reported["statusCode"])),
            str(reported["statusDescription"]),
            message.body,
            message.properties.correlation_id,
            message,
        )
