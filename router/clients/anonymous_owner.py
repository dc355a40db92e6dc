"""What a link to the anonymous terminus needs of those who have all of a connection (rule X-1)."""

from __future__ import annotations

from typing import Protocol

from delivery_records.model.inputs import PublisherAttach
from oncewire.wire import ReceiverLink
from router.clients.inner_links import InnerPublisher, InnerRoute
from router.clients.link_refusal import LinkRefusal


class AnonymousOwner(Protocol):
    """Those who have all such links of a connection; `AnonymousLinks` is it."""

    def admit(self, inner: InnerPublisher, attach: PublisherAttach) -> PublisherAttach:
        """Count an inner publisher as a link of the connection, which suspends it when it ends (A-9).

        Raises:
            LinkRefusal: a limit or a quota does not allow it.
        """
        ...

    def is_of_service(self, address: str) -> bool:
        """Whether it is never a topic (R-1)."""
        ...

    def open_route(self, route: InnerRoute) -> None:
        """Forward an attach to a service.

        Raises:
            LinkRefusal: there is none, or a quota does not allow it.
        """

    def forget_inner(self, inner: InnerPublisher) -> None:
        """It has ended."""

    def forget(self, link: ReceiverLink) -> None:
        """The link is detached."""

    def log_refused(self, link: ReceiverLink, refusal: LinkRefusal) -> None:
        """A message was refused; one that came settled has no other trace."""

    def log_unfinished(self, link: ReceiverLink, released: int, modified: int, dropped: int) -> None:
        """The client has ended the link, and messages of it had no outcome in time."""
