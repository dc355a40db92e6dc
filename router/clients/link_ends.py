"""Ends of a connection's links: by a detach, with their AMQP session, or with the connection (rule A-9, A-9a).

What was read goes on. A client that waits for our answer to its detach, end or close gets outcomes first: the record
core answers each publisher's end when that is so, and the last of them answers for its session or the connection.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from delivery_records.model.inputs import Input, LinkDetach, LinkLost, LossCause
from oncewire.wire import Link, LinkDetached, LocalProtocolError, SessionEnded
from router.clients import attach_kinds
from router.clients.anonymous_link import AnonymousLink
from router.clients.attach_kinds import AttachClient
from router.clients.inner_links import InnerPublisher
from router.clients.local_node import NodeLink, NodeLinks
from router.clients.places import Places
from router.clients.publisher_link import PublisherLink
from router.clients.subscriber_link import SubscriberLink
from router.routed.half import Half

ClientLink: TypeAlias = PublisherLink | SubscriberLink | InnerPublisher
"""Whose effects the record core names by a number."""


class EndingClient(AttachClient, Protocol):
    """The connection."""

    links: dict[int, ClientLink]
    """Those that it has now, by number."""
    nodes: NodeLinks
    places: Places

    def forget(self, shell: ClientLink) -> None:
        """A link is over."""


@dataclass(slots=True)
class _End:
    """An end of the client that is not answered yet."""

    answer: Callable[[], None]
    left: int
    """Links with deliveries that have no outcome."""


class LinkEnds:
    """The ends of one connection's links."""

    __slots__ = ("_client", "_held")

    def __init__(self, client: EndingClient) -> None:
        """Nothing ends."""
        self._client = client
        self._held: dict[Link, _End] = {}

    def on_detached(self, event: LinkDetached, inputs: list[Input]) -> None:
        """A link was detached by its client, or by the engine."""
        client, shell = self._client, event.link.context
        if not isinstance(shell, PublisherLink | SubscriberLink):
            attach_kinds.on_other_detached(client, client.nodes, event, inputs)
        elif shell.number in client.links:
            self._end_receivers(shell, inputs)
            if event.needs_answer:
                inputs.append(LinkDetach(shell.number, event.closed))
            else:  # a detach with an error suspends, whatever it says of closing
                client.forget(shell)
                inputs.append(LinkLost(shell.number, LossCause.DETACH))

    def on_session_ended(self, event: SessionEnded, inputs: list[Input]) -> None:
        """An AMQP session has ended, or is ended by its client."""
        client, waiting = self._client, []
        for link in event.session.links:
            shell = link.context
            if isinstance(shell, NodeLink):
                client.nodes.forget(shell)
            elif isinstance(shell, Half):
                shell.on_lost("the AMQP session of the other end has ended; attach again")
            elif isinstance(shell, AnonymousLink):
                if shell.leave(LossCause.SESSION_END, inputs, answers=event.needs_answer, closed=False):
                    waiting.append(link)
            elif isinstance(shell, PublisherLink | SubscriberLink) and shell.number in client.links:
                self._end_receivers(shell, inputs)
                if self._end(shell, LossCause.SESSION_END, inputs, answers=event.needs_answer):
                    waiting.append(link)
        inputs += client.places.end_session(event.session)
        if event.needs_answer:
            self._hold(waiting, event.session.end)

    def end_all(self, inputs: list[Input], *, answers: bool) -> None:
        """The connection has ended; or its client closes it and waits for our answer (A-9a)."""
        client, waiting = self._client, []
        self._held.clear()
        if client.anonymous is not None:
            waiting += client.anonymous.leave_all(inputs, answers=answers)
        for shell in list(client.links.values()):
            # An inner publisher ends with the link to the anonymous terminus.
            if not isinstance(shell, InnerPublisher) and self._end(
                shell, LossCause.CONNECTION_LOSS, inputs, answers=answers
            ):
                waiting.append(shell.link)
        client.routed.lose("the connection of the other end has ended; attach again")
        inputs += client.places.end_connection()
        if answers:
            self._hold(waiting, client.engine.close)

    def _end(
        self, shell: PublisherLink | SubscriberLink, cause: LossCause, inputs: list[Input], *, answers: bool
    ) -> bool:
        """A link ends with something larger; whether the record core has to answer."""
        if answers and isinstance(shell, PublisherLink):
            inputs.append(LinkDetach(shell.number, False, cause))
            return True
        self._client.forget(shell)
        inputs.append(LinkLost(shell.number, cause))
        return False

    def _end_receivers(self, shell: PublisherLink | SubscriberLink, inputs: list[Input]) -> None:
        """X-2: those of an address that was made for this link."""
        if shell.made is not None and isinstance(shell, PublisherLink):
            receivers = [found for found in self._client.links.values() if isinstance(found, SubscriberLink)]
            attach_kinds.end_receivers(self._client, receivers, shell.made, inputs)

    # --- answers ------------------------------------------------------------------------------------------------------

    def release(self, link: Link) -> bool:
        """All that was read on this link has an outcome. False: no end of session or connection waits for that."""
        end = self._held.pop(link, None)
        if end is None:
            return False
        end.left -= 1
        if not end.left:
            self._answer(end)
        return True

    def _hold(self, links: Sequence[Link], answer: Callable[[], None]) -> None:
        """Call `answer` when all these links were released."""
        end = _End(answer, len(links))
        for link in links:
            self._held[link] = end
        if not links:
            self._answer(end)

    def _answer(self, end: _End) -> None:
        with contextlib.suppress(LocalProtocolError):  # the session or the connection is gone
            end.answer()
        self._client.mark_dirty()
