"""Links whose messages name their addresses, or that have one which a router made, for the tests of X-1 and X-2."""

from __future__ import annotations

from oncewire.wire import (
    ACCEPTED,
    DispositionReceived,
    Message,
    Properties,
    SenderLink,
    Source,
    Symbol,
    Target,
    encode_message,
)
from tests.router.processes import RouterProcess
from tests.router.raw_client import RawClient, RawSubscriber


async def anonymous(client: RawClient, name: str = "relay", **options: object) -> SenderLink:
    """A sender without an address, with credit."""
    link = client.session.attach_sender(name, source=Source(), target=Target(), **options)  # type: ignore[arg-type]
    client.flush()
    reply = await client.attached(link)
    assert isinstance(reply.target, Target)
    assert reply.target.address is None
    return link


async def credited(client: RawClient, link: SenderLink) -> None:
    while not link.credit:
        await client.news()


def to(address: str | None, body: bytes = b"x", **fields: object) -> bytes:
    return encode_message(Message(body, properties=Properties(to=address, **fields)))  # type: ignore[arg-type]


async def publishers(router: RouterProcess) -> list[str]:
    return [row["name"] for row in (await router.state())["publishers"]]


async def subscriptions(router: RouterProcess) -> list[str]:
    return [row["name"] for row in (await router.state())["subscriptions"]]


async def outcome(client: RawClient, link: SenderLink, tag: bytes) -> DispositionReceived:
    return await client.wait_for(
        DispositionReceived, lambda event: event.link is link and any(found == tag for _, found in event.deliveries)
    )


async def send(client: RawClient, link: SenderLink, tag: bytes, message: bytes, settled: bool = False) -> None:
    await credited(client, link)
    link.send(tag, message, settled=settled)
    client.flush()


def taken(client: RawClient) -> set[bytes]:
    """What was accepted of this client's by now."""
    events = [event for event in client.heard if isinstance(event, DispositionReceived) and event.state == ACCEPTED]
    return {tag for event in events for tag in event.tags}


class Made(RawSubscriber):
    """A receiver with a dynamic source."""

    @property
    def address(self) -> str:
        assert self.reply.source is not None
        assert self.reply.source.address is not None
        return self.reply.source.address


async def made(client: RawClient, name: str = "replies", credit: int = 100) -> Made:
    link = client.session.attach_receiver(
        name, source=Source(dynamic=True, durable=2, expiry_policy=Symbol("never")), target=Target()
    )
    client.flush()
    found = Made(client, link, await client.attached(link))
    link.grant(credit)
    client.flush()
    return found
