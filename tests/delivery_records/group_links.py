"""Members that ask for the order of groups, and publishers of groups."""

from __future__ import annotations

from delivery_records.model import inputs
from delivery_records.model.message_format import MessageFormat
from tests.delivery_records.harness import Net
from tests.delivery_records.links import PublisherLink, SubscriberLink
from tests.delivery_records.nodes import Node

SHARE = inputs.Share("work", is_global=True, by_group=True)


def read_group(message: bytes, message_format: int) -> bytes | None:
    name, colon, _ = message.partition(b":")
    return name if colon else None


def network(routers: int = 1) -> Net:
    return Net(routers, message_format=MessageFormat(read_group=read_group))


def member(net: Net, node: Node, name: str, share: inputs.Share = SHARE, **more: object) -> SubscriberLink:
    return net.subscriber(node, name, share=share, **more)  # type: ignore[arg-type]  # passed on as it is


def send(publisher: PublisherLink, *tags: bytes) -> None:
    for tag in tags:
        publisher.send(tag)


def of_group(link: SubscriberLink, group: bytes) -> list[bytes]:
    return [tag for tag in link.deliveries if tag.startswith(group)]
