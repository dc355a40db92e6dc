"""Which links are members of a shared subscription, in the words of AMQP's JMS mapping (SH-1)."""

from __future__ import annotations

from delivery_records.model.inputs import Share
from oncewire.wire import SenderLink, Symbol, TerminusDurability, vocabulary
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


def names_of(link_name: str) -> tuple[str, ...]:
    """The shared subscriptions that a link's name may stand for where it does not say so: durable ones first."""
    name = link_name.partition(SUFFIX)[0]
    return (name, name + VOLATILE) if name else ()


def granted(share: Share | None, *, grouped: bool) -> tuple[Symbol, ...]:
    """Capabilities of the reply's source: of which kind the subscription is, and that groups come in order (SH-6)."""
    if share is None:
        return (vocabulary.GROUP_ORDER,) if grouped else ()
    kind = (vocabulary.SHARED, vocabulary.GLOBAL) if share.is_global else (vocabulary.SHARED,)
    return (*kind, vocabulary.GROUP_ORDER) if grouped else kind
