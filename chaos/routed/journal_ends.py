"""Journals at a simulated bridge: the shipped links of `bridges.journal` and `bridges.store`, run in steps."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from bridges.store.amqp_errors import error_of
from chaos.routed import steps
from chaos.routed.bridges import SimBridge
from chaos.routed.journal_store import JournalStore
from chaos.routed.judge import SERVED
from oncewire.client.service import ServiceLink
from oncewire.store.errors import EdgeError, InvalidRequest
from oncewire.wire import DeliveryReceived, DispositionReceived, Event, LinkDetached, vocabulary

LOST_NOTICES = 0.3
"""Share of the notices of other processes that do not come (W-13)."""


class SimEdge:
    """A bridge's part of the store, in the places of `AddressService` and `OpenStore`."""

    def __init__(self, bridge: SimBridge, shared: JournalStore, skew: float) -> None:
        self.store = self
        self.waiters: dict[str, dict[steps.Event, None]] = {}
        """In order: a seed says everything, and the order of a set is another one in each process."""
        self._bridge = bridge
        self._shared = shared
        self._skew = skew
        shared.listeners[bridge.name] = self._on_notice
        bridge.ends["journal://"] = self.end_of

    def end_of(self, bridge: SimBridge, link: Any) -> JournalEnd:
        """The journal's end of a link."""
        return JournalEnd(self, bridge, link)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """See `AddressService`."""
        steps.run(self, work)

    def transact(self, job: Callable[[Any], Any]) -> steps.Waiting:
        """See `OpenStore`."""

        def begin(_edge: Any, resume: steps.Resume) -> None:
            def then(result: Any) -> None:
                if isinstance(result, EdgeError):
                    resume(error=result)
                else:
                    resume(result)

            self._bridge.do(lambda: self._shared.transact(job, self._skew), then)

        return steps.Waiting(begin)

    async def listen(self) -> None:
        """See `OpenStore`; here nothing is needed for it."""

    @contextmanager
    def waiting(self, name: str) -> Iterator[steps.Event]:
        """See `OpenStore`."""
        event = steps.Event()
        self.waiters.setdefault(name, {})[event] = None
        try:
            yield event
        finally:
            self.waiters[name].pop(event, None)
            if not self.waiters[name]:
                del self.waiters[name]

    def _on_notice(self, names: frozenset[str]) -> None:
        if names & self.waiters.keys() and self._bridge.chance() >= LOST_NOTICES:
            self._bridge.results.append((names, self._wake))

    def _wake(self, names: frozenset[str]) -> None:
        for name in sorted(names & self.waiters.keys()):
            for event in list(self.waiters.get(name, ())):
                event.set()

    def put_off(self, key: object, resume: Callable[[], None]) -> None:
        """See `steps.Later`."""
        self._bridge.waiting[key] = resume

    def forget(self, key: object) -> None:
        """See `steps.Later`."""
        self._bridge.waiting.pop(key, None)


class WatchedLink(ServiceLink):
    """A link whose reply says who has answered (R-3)."""

    def __init__(self, link: Any, name: str, on_closed: Callable[[], None]) -> None:
        super().__init__(link, lambda: None)
        self._served_by = name
        self._on_closed = on_closed

    def reply(self, **terms: Any) -> None:
        """See ServiceLink."""
        super().reply(**terms | {"properties": {**terms.get("properties", {}), SERVED: self._served_by}})

    def detach(self, closed: bool, error: Any = None) -> None:
        """See ServiceLink."""
        if closed and error is None:
            self._on_closed()
        super().detach(closed, error)


class JournalEnd:
    """A link of a client of a journal."""

    def __init__(self, edge: SimEdge, bridge: SimBridge, link: Any) -> None:
        self.link = WatchedLink(link, bridge.name, self._closed)
        self._bridge = bridge
        properties = link.remote_attach.properties or {}
        bridge.judge.on_origin(
            f"{properties.get(vocabulary.ROUTER_CONTAINER)}|{properties.get(vocabulary.ROUTER_LINK)}", link.name
        )
        try:
            self.served = bridge.code.address.journal_link(edge, self.link)
        except InvalidRequest as error:
            self.served = None
            self.link.refuse(error_of(error))
            return
        edge.start(self.served.open())

    @property
    def has_cursor(self) -> bool:
        """Whether it is a reader's with a cursor."""
        source: Any = self.link.attach.source
        return self.link.is_sending and bool(source.durable)

    def on_event(self, event: Event) -> None:
        """Something came."""
        if self.served is None:
            return
        if isinstance(event, DeliveryReceived):
            self.served.on_delivery(event)
        elif isinstance(event, DispositionReceived):
            self.served.on_disposition(event)
        else:
            self.served.on_flow(event)

    def end(self, event: LinkDetached | None) -> bool:
        """The link is over."""
        if self.served is None:
            return False
        if self.served.on_detached(event):
            return True
        if event is not None and event.closed and event.needs_answer:
            self._closed()
        return False

    def _closed(self) -> None:
        """The client's close is answered."""
        if self.has_cursor:
            judge: Any = self._bridge.judge
            judge.on_close_answered(self._bridge.code.reader_link.reader_of(self.link), self.served.generation)
