"""Opens the inner link of an address for a link to the anonymous terminus (rule X-1)."""

from __future__ import annotations

from delivery_records.model.inputs import Input, PublisherAttach
from delivery_records.model.topics import TopicError, check_topic
from oncewire.wire import (
    INVALID_FIELD,
    NOT_ALLOWED,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    Attach,
    DecodeError,
    DeliveryReceived,
    ReceiverSettleMode,
    Source,
    Target,
    TerminusExpiryPolicy,
)
from router.amqp.addresses import plain, to_of
from router.clients.anonymous_owner import AnonymousOwner
from router.clients.inner_links import NAME_SEPARATOR, Inner, InnerPublisher, InnerRoute, Outer
from router.clients.link_refusal import LinkRefusal, refuse_unless_topic


def destination_of(event: DeliveryReceived) -> str:
    """Where a message goes.

    Raises:
        LinkRefusal: nowhere.
    """
    if event.resume:
        raise LinkRefusal(NOT_ALLOWED, "resend without resume: a link to the anonymous terminus keeps no map")
    if event.message_format:
        text = "only messages of format 0 name an address: attach a link to the topic for others"
        raise LinkRefusal(NOT_IMPLEMENTED, text)
    try:
        to = to_of(event.payload)
    except DecodeError as error:
        raise LinkRefusal("amqp:decode-error", str(error)) from None
    if to is None:
        text = "the message has no address: set the field to of its properties, or attach a link to the topic"
        raise LinkRefusal(PRECONDITION_FAILED, text)
    return plain(to)


class InnerOpening:
    """Opens publishers of topics and links to services."""

    __slots__ = ("_outer", "_owner", "_place")

    def __init__(self, outer: Outer, owner: AnonymousOwner) -> None:
        """For one link of a client."""
        self._outer = outer
        self._owner = owner
        self._place = outer.connection.place_of(outer.link)

    def refuse_unless_allowed(self, address: str) -> None:
        """Refuse an address that no message may go to.

        Raises:
            LinkRefusal: it is neither a topic nor of a service, or the rules of operators do not allow it.
        """
        connection = self._outer.connection
        if not self._owner.is_of_service(address):
            refuse_unless_topic(address, ())
            try:
                check_topic(connection.policy.inside(address))
            except TopicError as error:
                raise LinkRefusal(INVALID_FIELD, f"{error}: it stands in the field to of the message") from None
        connection.refuse_unless_allowed(self._outer.link, address)

    def open(self, address: str, settles_first: bool, inputs: list[Input]) -> Inner:
        """A new inner link, on its way to being attached.

        Raises:
            LinkRefusal: a limit or a quota does not allow it, or there is no such service.
        """
        if self._owner.is_of_service(address):
            return self._route(address, settles_first)
        return self._publisher(address, settles_first, inputs)

    def _publisher(self, address: str, settles_first: bool, inputs: list[Input]) -> InnerPublisher:
        connection = self._outer.connection
        inner = InnerPublisher(self._outer, address, connection.driver.add_link)
        attach = PublisherAttach(
            link=inner.number,
            container_id=connection.container_id,
            link_name=inner.name,
            topic=connection.policy.inside(address),
            unsettled=None,
            settles_first=settles_first,
            timeout_s=0.0,
            peer=connection.peer,
            expiry_policy=str(TerminusExpiryPolicy.LINK_DETACH),
            place=self._place,
            owner=connection.policy.owner,
        )
        try:
            inputs.append(self._owner.admit(inner, attach))
        except LinkRefusal:
            self._owner.forget_inner(inner)
            raise
        return inner

    def _route(self, address: str, settles_first: bool) -> InnerRoute:
        mode = ReceiverSettleMode.FIRST if settles_first else ReceiverSettleMode.SECOND
        name = self._outer.link.name + NAME_SEPARATOR + address
        attach = Attach(name, 0, False, rcv_settle_mode=mode, source=Source(), target=Target(address=address))
        route = InnerRoute(self._outer, address, attach)
        self._owner.open_route(route)
        return route
