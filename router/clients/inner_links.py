"""What a link to the anonymous terminus has for each address: a publisher of a topic, or a link to a service (X-1)."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from delivery_records.model import effects
from delivery_records.model.inputs import Input, LinkDetach, PublisherTransfer
from oncewire.wire import (
    AmqpError,
    Attach,
    DeliveryReceived,
    DeliveryState,
    DispositionReceived,
    Fields,
    LimitError,
    LinkDetached,
    LinkFlow,
    ReceiverLink,
    SessionEndpoint,
    StateError,
)
from router.clients.link_owner import LinkOwner
from router.clients.link_refusal import LinkRefusal
from router.routed.half import Half

NAME_SEPARATOR = "\x1f"
"""Between the name of the link and the address, in the name of an inner link; no client's link has it."""


class Outer(Protocol):
    """The client's link to the anonymous terminus; `AnonymousLink` is it."""

    connection: LinkOwner
    link: ReceiverLink

    def carry_out(self, inner: InnerPublisher, effect: Any) -> None:
        """Carry out an effect for an inner publisher.

        Raises:
            StateError: the link is detached.
            LimitError: the client's frames are too small.
        """

    def on_credit(self, inner: Inner) -> None:
        """More of its deliveries may be sent."""

    def on_outcome(self, inner: Inner, delivery_ids: list[int], state: DeliveryState | None, settled: bool) -> None:
        """Deliveries have an outcome.

        Raises:
            StateError: the link is detached.
            LimitError: the client's frames are too small.
        """

    def end_unless_allowed(self, inner: InnerPublisher, refusal: LinkRefusal) -> bool:
        """The rules do not allow this address any more. False: the client's link has ended with it."""
        ...

    def on_ended(self, inner: Inner, effect: effects.DetachLink) -> None:
        """An inner link was refused, or has ended."""


class Inner:
    """For one address."""

    __slots__ = ("address", "held", "limit", "link", "open", "outer", "sent")

    def __init__(self, outer: Outer, address: str) -> None:
        """Nothing is granted yet."""
        self.outer = outer
        self.link = outer.link
        """The client's, which it shares with the others."""
        self.address = address
        self.held: deque[DeliveryReceived] = deque()
        """What waits for credit."""
        self.limit = 0
        """Deliveries that are allowed in all."""
        self.sent = 0
        self.open = 0
        """Deliveries that are not settled, those held included."""

    @property
    def name(self) -> str:
        """The link's, and the address."""
        return self.link.name + NAME_SEPARATOR + self.address

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is lost when it is closed."""
        return not self.open and not self.held

    def pass_on(self, event: DeliveryReceived, inputs: list[Input]) -> None:
        """A message goes on to the record core, or to a service."""
        raise NotImplementedError

    def close_at_rest(self, inputs: list[Input]) -> None:
        """Another address needs its place."""
        raise NotImplementedError


class InnerPublisher(Inner):
    """The publisher of a topic (see `records_driver.ClientLink`)."""

    __slots__ = ("is_ending", "number")

    def __init__(self, outer: Outer, address: str, number: Callable[[InnerPublisher], int]) -> None:
        """See `Inner`; `number` gives the link its number."""
        super().__init__(outer, address)
        self.is_ending = False
        """The record core knows that nothing more comes."""
        self.number = number(self)

    def pass_on(self, event: DeliveryReceived, inputs: list[Input]) -> None:
        """See `Inner`."""
        self.sent += 1
        inputs.append(
            PublisherTransfer(
                self.number,
                event.delivery_id,
                event.tag,
                event.payload,
                event.settled,
                receiver_settles=event.receiver_settles,
            )
        )

    def close_at_rest(self, inputs: list[Input]) -> None:
        """See `Inner`."""
        inputs.append(LinkDetach(self.number, True))

    def fail(self) -> None:
        """See records_driver.ClientLink."""
        self.outer.connection.fail()

    def carry_out(self, effect: Any) -> None:
        """Carry out an effect (see records_driver.ClientLink)."""
        outer = self.outer
        try:
            outer.carry_out(self, effect)
        except StateError:
            return  # detached in the same read
        except LimitError as error:
            outer.connection.close("amqp:frame-size-too-small", str(error))
        outer.connection.mark_dirty()


class InnerRoute(Inner):
    """A link to a service (see `routed.half.Inlet`): what the near half of a routed link takes for a client's."""

    __slots__ = ("context", "remote_attach")

    def __init__(self, outer: Outer, address: str, attach: Attach) -> None:
        """See `Inner`; `attach` is what the service gets."""
        super().__init__(outer, address)
        self.remote_attach: Attach | None = attach
        self.context: object = None

    @property
    def session(self) -> SessionEndpoint:
        """The client's."""
        return self.link.session

    @property
    def moved(self) -> int:
        """Deliveries that went on, and credit that was given back."""
        return self.sent

    @property
    def half(self) -> Half:
        """The near half of the routed link."""
        assert isinstance(self.context, Half)
        return self.context

    def reply(self, **_terms: Any) -> None:
        """The service has answered; its credit comes behind."""

    def grant(
        self, link_credit: int, *, drain: bool = False, echo: bool = False, properties: Fields | None = None
    ) -> None:
        """R-5: the service's credit."""
        self.limit = self.sent + link_credit
        self.outer.on_credit(self)
        if drain and self.sent < self.limit:  # nothing waits: it gets its credit back
            left = self.limit - self.sent
            self.sent = self.limit
            self.half.on_flow(LinkFlow(self.link, None, None, None, True, False, None, left))

    def dispose(self, delivery_ids: list[int], state: DeliveryState | None, settled: bool) -> None:
        """R-6: the service's outcomes."""
        self.outer.on_outcome(self, delivery_ids, state, settled)

    def detach(self, closed: bool, error: AmqpError | None = None) -> None:
        """R-7: the service has refused or ended the link, or is gone; or it has answered our close."""
        condition = "" if error is None else str(error.condition)
        description = "" if error is None else error.description or ""
        self.outer.on_ended(self, effects.DetachLink(0, closed, condition, description))
        with contextlib.suppress(StateError):  # nobody else answers the service
            self.half.on_detached(LinkDetached(self.link, closed, None, False))

    def pass_on(self, event: DeliveryReceived, inputs: list[Input]) -> None:
        """See `Inner`."""
        self.sent += 1
        self.half.on_delivery(event)

    def close_at_rest(self, inputs: list[Input]) -> None:
        """See `Inner`."""
        self.close()

    def settle(self, ids: list[int], tags: list[bytes]) -> None:
        """The client has settled deliveries."""
        self.half.on_disposition(DispositionReceived(self.link, ids, tags, None, True))

    def close(self) -> None:
        """End the link to the service."""
        with contextlib.suppress(StateError):
            self.half.on_detached(LinkDetached(self.link, True, None, True))

    def lose(self) -> None:
        """The client's link is lost: the service keeps what it has, for its own time."""
        self.half.on_lost("the link to the anonymous terminus has ended")
