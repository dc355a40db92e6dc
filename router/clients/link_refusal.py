"""Why an attach is refused before the record core hears of it (A-8)."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from delivery_records.model.topics import VHOST_SEPARATOR
from oncewire.filters.errors import FilterError
from oncewire.filters.filter_set import canonical_text, described
from oncewire.wire import (
    AmqpError,
    Attach,
    Described,
    LimitError,
    Link,
    ReceiverLink,
    Source,
    StateError,
    Symbol,
    Target,
    TerminusExpiryPolicy,
)
from router.amqp.addresses import plain
from router.clients.delivery_states import outcome_of

QUEUE = "queue"
RESERVED_PREFIX = "$"
EXPIRY_POLICIES = frozenset(
    {
        TerminusExpiryPolicy.LINK_DETACH,
        TerminusExpiryPolicy.SESSION_END,
        TerminusExpiryPolicy.CONNECTION_CLOSE,
        TerminusExpiryPolicy.NEVER,
    }
)
MAX_SHOWN = 100
"""Characters of a filter's name in an error; the text must fit the client's frames."""


class LinkRefusal(Exception):
    """The attach cannot be granted.

    Attributes:
        condition: the AMQP error condition the client hears.
        description: one sentence for its user.

    As a text it is what the log says: `why`, where operators are to know more than the client.
    """

    def __init__(self, condition: str, description: str, why: str = "") -> None:
        super().__init__(why or description)
        self.condition = condition
        self.description = description


def refuse_to_resume(attach: Attach) -> None:
    """A-3c: a link whose deliveries no router keeps: to the anonymous terminus, or to an address that ends with it.

    Raises:
        LinkRefusal: the client presents deliveries without an outcome, and would send them again.
    """
    if any(outcome_of(state) is None for state in (attach.unsettled or {}).values()):
        raise LinkRefusal(
            "oncewire:unsettled-unknown",
            "no unsettled deliveries are kept for such a link: attach without them;"
            " whether they were delivered is unknown",
        )


def address_of(link: Link) -> str | None:
    """What a client's link is to: the address of the source of its subscriber, or of the target of its publisher."""
    remote = link.remote_attach
    assert remote is not None
    end = remote.target if isinstance(link, ReceiverLink) else remote.source
    return None if not isinstance(end, Source | Target) or end.address is None else plain(end.address)


def refuse_unless_policy(policy: str) -> None:
    """Refuse a terminus expiry policy that AMQP does not know (3.5.6).

    Raises:
        LinkRefusal: it is none.
    """
    if policy not in EXPIRY_POLICIES:
        raise LinkRefusal("amqp:invalid-field", f"{policy} is no terminus expiry policy (3.5.6)")


def asked_filter(source: Source | None) -> str:
    """The canonical text of the filters that a source asks for (E-9); empty: none.

    Raises:
        LinkRefusal: one is not offered, or is wrong; it is named.
    """
    try:
        return "" if source is None else canonical_text(source.filter)
    except FilterError as error:
        raise LinkRefusal(error.condition, str(error)) from None


def applied_filter(asked: Source, text: str) -> dict[Symbol, object] | None:
    """The filters of an attach reply, which are all that are applied (3.5.3).

    A client that asked for them gets them as it wrote them, for it may compare; one that looks its subscription up gets
    them by their descriptors.
    """
    if not text:
        return None
    return asked.filter or described(text)


def refuse_filters(source: Source | None) -> None:
    """Refuse a source whose filters would not be applied (3.5.3): its client would get what it must not see.

    Raises:
        LinkRefusal: the source has a filter; the first one is named.
    """
    filters = {} if source is None or source.filter is None else source.filter
    for name, wanted in filters.items():
        kind = wanted.descriptor if isinstance(wanted, Described) else None
        shown = f"{name} ({_shown(kind)})" if kind is not None else str(name)
        raise LinkRefusal(
            "amqp:not-implemented",
            f"filter {shown[:MAX_SHOWN]} is not offered here. Attach without it"
            " (JMS: no message selector, no noLocal), and choose messages in the application",
        )


def _shown(descriptor: object) -> str:
    return f"0x{descriptor:016x}" if isinstance(descriptor, int) else str(descriptor)


def refuse_unless_publishable(attach: Attach) -> None:
    """Refuse a publisher's attach whose ends are none.

    Raises:
        LinkRefusal: it is for transactions, or its source or target is missing.
    """
    if isinstance(attach.target, Described):
        raise LinkRefusal("amqp:not-implemented", "transactions are not offered")
    if attach.source is None:  # 2.6.3: such an endpoint "MUST immediately" be detached
        raise LinkRefusal("amqp:invalid-field", "a publisher's attach needs a source; its fields may be empty")
    if attach.target is None:
        raise LinkRefusal("amqp:invalid-field", "a publisher's attach needs a target: the topic is its address")


def refuse_unless_topic(address: str | None, capabilities: Sequence[str]) -> None:
    """Refuse what is not a topic subscription or a topic.

    Raises:
        LinkRefusal: a queue or a reserved address was asked for.
    """
    if QUEUE in capabilities:
        raise LinkRefusal("amqp:not-implemented", "every address is a topic, but for work queues at queue://NAME")
    if address is not None and address.startswith(RESERVED_PREFIX):
        raise LinkRefusal("amqp:not-found", f"there is no node {address!r}; addresses with $ are reserved")
    if address is not None and VHOST_SEPARATOR in address:  # it would be a topic of another virtual host (A-2c)
        raise LinkRefusal("amqp:invalid-field", "a topic has no U+001F")


def lighten(link: Link) -> None:
    """Let go of what only the attach was for: the engine keeps it until the client detaches, and it may be large."""
    attach = link.remote_attach
    assert attach is not None
    attach.unsettled = attach.properties = None
    if link.context is None:  # refused
        attach.source = attach.target = None


def detach_link(link: Link, closed: bool, error: AmqpError | None) -> None:
    """Detach a link, answer a detach of the client, or refuse its attach."""
    with contextlib.suppress(StateError):  # the client was faster: link, session or connection are gone
        try:
            link.detach(closed, error)
        except LimitError:  # its frames are too small for the explanation
            link.detach(closed, None if error is None else AmqpError(error.condition))
