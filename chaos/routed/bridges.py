"""A simulated bridge: the shipped cores of its links over engines, and jobs that the shared store carries out later."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from bridges.workqueue.errors import QueueError
from bridges.workqueue.items import Rollback
from chaos.routed.code import Code
from chaos.routed.judge import SERVED, Judge
from chaos.routed.pipes import End, engine
from oncewire.store.errors import StoreUnreachable
from oncewire.wire import (
    Connection,
    DeliveryReceived,
    DispositionReceived,
    Event,
    LinkAttached,
    LinkDetached,
    LinkFlow,
    LocalProtocolError,
    ReceiverLink,
    ReceiverSettleMode,
    Role,
    SessionEnded,
    StateError,
    vocabulary,
)

LOST_RESULTS = 0.06
"""Share of the jobs whose connection to the store breaks."""
Job = tuple[Callable[[], Any], Callable[[Any], None]]


class SimBridge:
    """One bridge process. `jobs` wait for the store, `results` for the bridge."""

    def __init__(
        self, code: Code, name: str, store: Any, judge: Judge, chance: Callable[[], float], *, is_slow: bool
    ) -> None:
        self.is_slow = is_slow
        self.chance = chance
        self.code = code
        self.name = name
        self.store = store
        self.judge = judge
        self.jobs: deque[Job] = deque()
        self.results: deque[tuple[Any, Callable[[Any], None]]] = deque()
        self.waiting: dict[object, Callable[[], None]] = {}
        self.links: dict[object, BridgeEnd] = {}
        self.ends: dict[str, Callable[[SimBridge, Any], BridgeEnd]] = {"queue://": _queue_end}

    def connect(self) -> End:
        """The bridge's end of a connection to a router."""
        connection = engine(
            Role.CLIENT,
            self.name,
            channel_max=1023,
            desired_capabilities=[vocabulary.SERVICE],
            properties={vocabulary.SERVES: list(self.ends)},
        )
        return End(connection, self._on_event, lambda: self._lose(connection))

    def do(self, job: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """Have the store do something; jobs are done in order, as by the bridge's own thread."""
        self.jobs.append((job, then))

    def run_job(self) -> None:
        """The store carries out the oldest job."""
        job, then = self.jobs.popleft()
        result: Any = StoreUnreachable("the store cannot be used", "the connection broke", "do it again")
        is_lost = self.chance() < LOST_RESULTS
        if not is_lost or self.chance() < 0.5:  # one that is lost may have been carried out, or not
            try:
                found = job()
                result = result if is_lost else found
            except QueueError as error:
                result = error
        self.results.append((result, then))

    def take_result(self) -> None:
        """The bridge learns of a job that was carried out."""
        result, then = self.results.popleft()
        then(result)

    def wake(self, number: int) -> None:
        """A notice of the store, or the time that somebody waits for, such as that an item is due."""
        self.waiting.pop(list(self.waiting)[number % len(self.waiting)])()

    def _on_event(self, event: Event) -> None:
        if isinstance(event, SessionEnded):
            for link in event.session.links:
                self._end(link)
        elif isinstance(event, LinkAttached):
            self.links[event.link] = self.ends[_prefix_of(event.link)](self, event.link)
        elif isinstance(event, LinkDetached):
            self.judge.on_detached(event)
            if not self._end(event.link, event) and event.needs_answer:
                with suppress(StateError):
                    event.link.detach(True)
        elif isinstance(event, LinkFlow | DeliveryReceived | DispositionReceived) and event.link in self.links:
            self.links[event.link].on_event(event)

    def _lose(self, connection: Connection) -> None:
        for link in [each for each in self.links if each.session in connection.sessions]:  # type: ignore[attr-defined]
            self._end(link)

    def _end(self, link: object, event: LinkDetached | None = None) -> bool:
        """End it; whether its close is answered later."""
        found = self.links.pop(link, None)
        return found is not None and bool(found.end(event))


class BridgeEnd(Protocol):
    """The bridge's end of a link."""

    def on_event(self, event: Event) -> None:
        """Something came."""

    def end(self, event: LinkDetached | None) -> bool | None:
        """The link is over; None = with its session or connection. True: its close is answered later."""


def _prefix_of(link: Any) -> str:
    attach = link.remote_attach
    node = attach.target if isinstance(link, ReceiverLink) else attach.source
    return f"{node.address.partition('//')[0]}//"


def _queue_end(bridge: SimBridge, link: Any) -> BridgeEnd:
    return (PushEnd if isinstance(link, ReceiverLink) else TakeEnd)(bridge, link)


class PushEnd:
    """A link of a client that pushes."""

    def __init__(self, bridge: SimBridge, link: Any) -> None:
        self.bridge = bridge
        self.link = link
        attach = link.remote_attach
        properties = attach.properties or {}
        self.core = bridge.code.amqp_core.push_core(is_exactly_once=attach.rcv_settle_mode == ReceiverSettleMode.SECOND)
        self.key = f"{properties.get(vocabulary.ROUTER_CONTAINER)}|{properties.get(vocabulary.ROUTER_LINK)}"
        bridge.judge.on_origin(self.key, link.name)
        self._attach = bridge.judge.next_attach()
        tags = list(attach.unsettled or ())
        self._is_over = False
        bridge.do(lambda: bridge.store.resume_link(self.key, tags), self._open)

    def _open(self, state: Any) -> None:
        if self._is_over:
            return
        if isinstance(state, QueueError):
            with suppress(LocalProtocolError):
                self.link.refuse(self.bridge.code.amqp_core.error_of(state))
            return
        known = self.core.on_resumed(state)
        attach = self.link.remote_attach
        with suppress(LocalProtocolError):
            self.link.reply(
                source=attach.source,
                target=attach.target,
                unsettled=None if attach.unsettled is None else known,
                properties={SERVED: self.bridge.name},
            )
            self.do(self.core.begin())

    def on_event(self, event: Event) -> None:
        """Something came."""
        if isinstance(event, DeliveryReceived):
            self.bridge.judge.on_order(f"{self.key} {self._attach}", event.message_format)
            self.do(self.core.on_delivery(event))
        elif isinstance(event, DispositionReceived):
            self.do(self.core.on_disposition(event))

    def end(self, _event: LinkDetached | None) -> None:
        """The link is over."""
        self._is_over = True
        self.core.on_detached()

    def do(self, effects: Any) -> None:
        """Carry out effects of the core."""
        kinds, store = self.bridge.code.push_core, self.bridge.store
        for effect in effects:
            with suppress(StateError):
                if isinstance(effect, kinds.Push):
                    self.bridge.do(partial(self._push, effect), partial(self._pushed, effect.items))
                elif isinstance(effect, kinds.Settled):
                    tags, generation = effect.tags, self.core.generation
                    self.bridge.do(
                        lambda tags=tags, generation=generation: store.settle_deliveries(self.key, generation, tags),  # type: ignore[misc]
                        lambda _result: None,
                    )
                elif isinstance(effect, kinds.Dispose):
                    self.link.dispose(effect.numbers, effect.state, effect.settled)
                elif isinstance(effect, kinds.Grant):
                    self.link.grant(effect.credit)
                elif isinstance(effect, kinds.Detach):
                    self.link.detach(effect.closed, effect.error)

    def _pushed(self, items: Any, results: Any) -> None:
        self.do(self.core.on_pushed(items, results if isinstance(results, list) else [results] * len(items)))

    def _push(self, effect: Any) -> list[Any]:
        results: list[Any] = []
        self.bridge.store.settle_deliveries(self.key, self.core.generation, effect.left)
        for each in effect.items:
            try:
                results.append(
                    self.bridge.store.push_delivery(each.item, self.key, self.core.generation, each.tag)
                    if self.core.is_exactly_once
                    else self.bridge.store.push(each.item)
                )
            except QueueError as error:
                results.append(error)
        return results


class TakeEnd:
    """A link of a worker."""

    def __init__(self, bridge: SimBridge, link: Any) -> None:
        self.bridge = bridge
        self.link = link
        self.core = bridge.code.amqp_core.TakeCore(False)
        self._count = 0
        attach = link.remote_attach
        with suppress(LocalProtocolError):
            link.reply(source=attach.source, target=attach.target, properties={SERVED: bridge.name})

    def on_event(self, event: Event) -> None:
        """Something came."""
        if isinstance(event, LinkFlow) and event.credit_limit is not None:
            self.do(self.core.on_flow(self.link.credit_limit, event.drain))
        elif isinstance(event, DispositionReceived):
            self.do(self.core.on_disposition(event))

    def end(self, _event: LinkDetached | None) -> None:
        """The link is over."""
        self.bridge.waiting.pop(self, None)
        self.do(self.core.on_detached())

    def do(self, effects: Any) -> None:
        """Carry out effects of the core."""
        for effect in effects:
            with suppress(StateError):
                self._carry_out(effect)

    def _carry_out(self, effect: Any) -> None:
        kinds, bridge = self.bridge.code.amqp_core, self.bridge
        if isinstance(effect, kinds.Take):
            count = effect.count
            bridge.waiting.pop(self, None)
            bridge.do(lambda: self._reserve(count), lambda found: self.do(self.core.on_taken(count, found)))
        elif isinstance(effect, kinds.Wait):
            bridge.waiting[self] = lambda: self.do(self.core.on_ready())
        elif isinstance(effect, kinds.Send):
            self._count += 1
            number = self.link.send(effect.tag, effect.payload, settled=effect.settled, message_format=self._count)
            self.core.sent(effect.item, number)
        elif isinstance(effect, kinds.Settle):
            self._settle(effect.outcomes)
        elif isinstance(effect, kinds.Answer):
            self.link.settle([effect.number], effect.state)
        elif isinstance(effect, kinds.Drained):
            self.link.drained()
        elif isinstance(effect, kinds.GiveBack):
            handles = effect.handles
            bridge.do(lambda: self._give_back(handles), lambda _result: None)

    def _reserve(self, count: int) -> Any:
        found = self.bridge.store.reserve(count)
        for each in found:
            self.bridge.judge.on_reserved(each.handle.item, self.bridge.store.now, each.until)
        return found

    def _settle(self, outcomes: Any) -> None:
        def then(results: Any) -> None:
            if isinstance(results, list):
                self.do(self.core.on_settled(outcomes, results))
            else:  # the store could not be reached: again
                self._settle(outcomes)

        self.bridge.do(lambda: [self._apply(each) for each in outcomes], then)

    def _apply(self, outcome: Any) -> QueueError | None:
        try:
            self.bridge.store.apply(outcome.operation)
            self.bridge.judge.on_released(outcome.operation.handle.item)
        except QueueError as error:
            return error
        return None

    def _give_back(self, handles: Any) -> None:
        for handle in handles:
            with suppress(QueueError):
                self.bridge.store.apply(Rollback(handle, 0.0, is_failure=False))
                self.bridge.judge.on_released(handle.item)
