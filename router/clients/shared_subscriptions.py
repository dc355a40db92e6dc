"""Which links are members of a shared subscription, in the words of AMQP's JMS mapping (SH-1)."""

from __future__ import annotations

from delivery_records.inputs import Share
from oncewire.wire import SenderLink, Source, Symbol, TerminusDurability, vocabulary
from router.clients.link_refusal import LinkRefusal

SUFFIX = "|"
"""What follows it in a link's name only keeps the members of one container apart: `orders|2` is one of `orders`."""
VOLATILE = ":volatile"
"""JMS has two name spaces: a subscription that is not durable is another one than a durable one of its name."""


def share_of(link: SenderLink) -> Share | None:
    """The shared subscription that a subscriber's attach asks for; None: it asks for one of its own.

    The source has the capability `shared`, `global` where members may have any container-id, and `topic-group-order`
    where messages of one group are to come in order (SH-6). Where the source is null, to look the subscription up, the
    attach itself desires them.

    Raises:
        LinkRefusal: the link's name names no subscription.
    """
    remote = link.remote_attach
    assert remote is not None
    source = remote.source
    asked = remote.desired_capabilities if source is None else source.capabilities
    if vocabulary.SHARED not in asked:
        return None
    name = link.name.partition(SUFFIX)[0]
    if not name:
        text = f"a shared subscription has the name of its links, up to {SUFFIX!r}: {link.name!r} has none"
        raise LinkRefusal("amqp:invalid-field", text)
    durable = source is None or source.durable != TerminusDurability.NONE
    return Share(name if durable else name + VOLATILE, vocabulary.GLOBAL in asked, vocabulary.GROUP_ORDER in asked)


def granted(source: Source | None, asked: tuple[Symbol, ...], *, grouped: bool) -> tuple[Symbol, ...]:
    """What of these capabilities the reply's source repeats, and that groups come in order if they do (SH-6)."""
    wanted = asked if source is None else source.capabilities
    repeated = tuple(each for each in (vocabulary.SHARED, vocabulary.GLOBAL) if each in wanted)
    return (*repeated, vocabulary.GROUP_ORDER) if grouped else repeated
