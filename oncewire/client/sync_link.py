"""What publishers and subscribers of programs without an event loop have in common: a block that ends the link."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from oncewire.client.loop_thread import LoopThread

if TYPE_CHECKING:
    from oncewire import client as asynchronous
    from oncewire.client.events import LinkStatistics
    from oncewire.client.guarantee import Guarantee


class SyncLink:
    """One link; `link` is what it stands for in the event loop.

    Attributes:
        topic: where its messages go, or come from.
        name: of the link.
        statistics: counts since it was opened.
    """

    def __init__(
        self, thread: LoopThread, link: asynchronous.Publisher | asynchronous.SettledPublisher | asynchronous.Subscriber
    ) -> None:
        self._thread = thread
        self._attached = link
        self.topic = link.topic
        self.name = link.name
        self.statistics: LinkStatistics = link.statistics

    @property
    def guarantee(self) -> Guarantee:
        """What it promises at the peer where it was attached last."""
        return self._attached.guarantee

    def close(self) -> None:
        """End the link in good order."""
        raise NotImplementedError

    def suspend(self) -> None:
        """Leave; what the network keeps of the link stays."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        (self.close if kind is None else self.suspend)()
