"""One experiment: a network, clients with a load, faults, and the verdict at the end.

The demo and the tests with real processes are made of this. The order is always: `start`, faults, `finish`, `verdict`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from heapq import merge
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import aiohttp

from chaos.checker import PublisherHistory, SubscriberHistory, Verdict, judge
from chaos.clients.client_plan import PublisherPlan, SubscriberPlan
from chaos.clients.client_process import ClientProcess
from chaos.clients.events import Processed, Sent, digest_of
from chaos.network.network_state import RouterState, read_states
from delivery_records.model.topics import matches
from router.commands.local_network import LocalNetwork

T = TypeVar("T")

LOOK_S = 0.05
"""How often journals and routers are looked at: a fault comes at most this much after its condition."""
START_TIMEOUT_S = 60.0
"""Eight Python processes on a busy machine may need many seconds to start."""
REST_TIMEOUT_S = 20.0
"""After the last message was accepted until no router holds a record: settles are on their way."""


class TrialFailed(Exception):
    """The experiment came to no end: what was waited for did not happen. The text says what."""


class Trial:
    """The clients of an experiment on a running network. Use as a context manager: it ends every client it started."""

    def __init__(
        self,
        network: LocalNetwork,
        folder: Path,
        publishers: Sequence[PublisherPlan],
        subscribers: Sequence[SubscriberPlan],
        *,
        patience_s: float = 0.0,
    ) -> None:
        """Nothing is started yet; the network must run.

        Args:
            network: where the clients connect to.
            folder: for logs.
            publishers, subscribers: the clients.
            patience_s: how long to wait for their start and for rest at the end, if longer than usual.
        """
        self.network = network
        self.publishers = {plan.name: ClientProcess(plan, folder / f"{plan.name}.log") for plan in publishers}
        self.subscribers = {plan.name: ClientProcess(plan, folder / f"{plan.name}.log") for plan in subscribers}
        self._left: dict[str, ClientProcess] = {}
        """Subscribers that were killed and never come back."""
        self.on_look: Callable[[], None] = lambda: None
        """Called after every look at the journals, for progress."""
        self._plans = list(publishers)
        self._subscriber_plans = list(subscribers)
        self._folder = folder
        self._is_cut_short = False
        self._session: aiohttp.ClientSession | None = None
        self._start_s = max(patience_s, START_TIMEOUT_S)
        self._rest_s = max(patience_s, REST_TIMEOUT_S)

    @property
    def clients(self) -> list[ClientProcess]:
        """All clients."""
        return [*self.publishers.values(), *self.subscribers.values()]

    # --- life ---------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Open what is needed to look at routers."""
        self._session = aiohttp.ClientSession()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Kill every client that still runs."""
        await asyncio.gather(*(client.kill() for client in self.clients))
        if self._session is not None:
            await self._session.close()

    async def start(self) -> None:
        """Start the subscribers, wait until all are confirmed, then start the publishers.

        Raises:
            TrialFailed, ClientFailed: a client did not come up.
        """
        await asyncio.gather(*(client.start() for client in self.subscribers.values()))
        await self.wait_until(
            lambda: all(client.is_confirmed for client in self.subscribers.values()),
            "all subscriptions are confirmed",
            self._start_s,
        )
        await asyncio.gather(*(client.start() for client in self.publishers.values()))

    async def add_subscriber(self, plan: SubscriberPlan) -> ClientProcess:
        """Start a further subscriber while the others run; returns when its process exists."""
        assert plan.name not in self.subscribers, plan.name
        client = ClientProcess(plan, self._folder / f"{plan.name}.log")
        self.subscribers[plan.name] = client
        self._subscriber_plans.append(plan)
        await client.start()
        return client

    async def lose_subscriber(self, name: str) -> None:
        """SIGKILL a subscriber that never comes back. What it did counts, and nothing is waited for from it."""
        await self.subscribers[name].kill()
        self._left[name] = self.subscribers.pop(name)

    async def cut_short(self) -> None:
        """Ask the publishers to send no more: what they have sent until then is all there is; `finish` is next."""
        self._is_cut_short = True
        await asyncio.gather(*(client.notify_to_stop() for client in self.publishers.values()))

    async def finish(self, timeout_s: float) -> None:
        """Wait until the publishers are done and the network is at rest, then stop the subscribers.

        Raises:
            TrialFailed: a publisher has messages without an outcome, or records are left over.
            ClientFailed: a client did not end in good order.
        """
        await self.wait_until(
            lambda: all(client.has_ended for client in self.publishers.values()), "all publishers are done", timeout_s
        )
        await self.wait_until_at_rest()
        await asyncio.gather(*(client.stop() for client in self.subscribers.values()))

    def verdict(self) -> Verdict:
        """Judge by the clients' journals and the source."""
        return judge(*self.histories())

    def histories(self) -> tuple[list[PublisherHistory], list[SubscriberHistory]]:
        """Read what the verdict is made of."""
        subscribers = [
            SubscriberHistory(
                name,
                frozenset(each.name for each in self._plans if matches(plans[0].address, each.topic)),
                list(merge(*(self._processes[plan.name].history() for plan in plans), key=lambda event: event.t)),
                is_shared=plans[0].share is not None,
                groups=self._plans[0].groups if plans[0].by_group else 0,
                left_with=frozenset(
                    (event.publisher, event.seq)
                    for plan in plans
                    if plan.name in self._left
                    for event in self._left[plan.name].history()
                    if isinstance(event, Processed)
                ),
            )
            for name, plans in self._subscriptions.items()
        ]
        return [self._history(plan) for plan in self._plans], subscribers

    @property
    def _processes(self) -> dict[str, ClientProcess]:
        return self.subscribers | self._left

    @property
    def _subscriptions(self) -> dict[str, list[SubscriberPlan]]:
        """Who has each: members of a shared one, else one subscriber."""
        found: dict[str, list[SubscriberPlan]] = {}
        for plan in self._subscriber_plans:
            found.setdefault(plan.share or plan.name, []).append(plan)
        return found

    def _history(self, plan: PublisherPlan) -> PublisherHistory:
        events = self.publishers[plan.name].history()
        # A publisher writes each number down before it sends it, so that nothing sent lies beyond the last one.
        sent = max((event.seq for event in events if isinstance(event, Sent)), default=0)
        rows = islice(plan.share.rows(), sent if self._is_cut_short else None)
        return PublisherHistory(plan.name, [digest_of(row) for row in rows], events)

    # --- waiting ------------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Bring the clients' counts up to date; raises ClientFailed if one ended wrongly."""
        for client in self.clients:
            client.look()
            client.check()
        self.on_look()

    async def wait_until(self, condition: Callable[[], bool], what: str, timeout_s: float) -> None:
        """Look at the journals until the condition holds.

        Raises:
            TrialFailed: it does not hold in time.
            ClientFailed: a client ended wrongly meanwhile.
        """
        ends_at = time.monotonic() + timeout_s
        while True:
            self.look()
            if condition():
                return
            if time.monotonic() > ends_at:
                raise TrialFailed(f"not within {timeout_s:g} s: {what}; {self.describe()}")
            await asyncio.sleep(LOOK_S)

    async def meanwhile(self, work: Awaitable[T]) -> T:
        """Wait for something else and look at the journals until it is done. Raises ClientFailed as `look`."""
        task = asyncio.ensure_future(work)
        try:
            while not task.done():
                self.look()
                await asyncio.wait({task}, timeout=LOOK_S)
            return task.result()
        finally:
            if not task.done():
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    async def wait_until_attached(self, timeout_s: float) -> None:
        """Wait until every client that runs has its link attached at a router. Raises as `wait_until`."""
        await self.wait_until(
            lambda: all(client.is_attached or client.has_ended for client in self.clients),
            "every client is attached",
            timeout_s,
        )

    @property
    def behind(self) -> int:
        """By how many messages the flow that lags most is behind its publisher, as of the last look."""
        most = 0
        for plan in self._plans:
            sent = self.publishers[plan.name].reached.get(plan.name, 0)
            for plans in self._subscriptions.values():
                if matches(plans[0].address, plan.topic):
                    reached = max(self._processes[each.name].reached.get(plan.name, 0) for each in plans)
                    most = max(most, sent - reached)
        return most

    async def wait_until_unsettled(self, at_least: int, candidates: Sequence[str], timeout_s: float) -> RouterState:
        """Wait until `at_least` deliveries are unsettled through one of the candidates; returns the busiest.

        Raises:
            TrialFailed: that many there never were.
            ClientFailed: a client ended wrongly meanwhile.
        """
        ends_at = time.monotonic() + timeout_s
        while True:
            self.look()
            states = await self.states(candidates)
            busiest = max(states.values(), key=lambda state: state.unsettled, default=None)
            if busiest is not None and busiest.unsettled >= at_least:
                return busiest
            if time.monotonic() > ends_at:
                seen = {name: state.unsettled for name, state in states.items()}
                raise TrialFailed(
                    f"never {at_least} deliveries unsettled within {timeout_s:g} s: last {seen}; {self.describe()}"
                )
            await asyncio.sleep(LOOK_S)

    async def wait_until_at_rest(self) -> None:
        """Wait until no router holds a delivery record (G6). Raises TrialFailed naming what is left over."""
        ends_at = time.monotonic() + self._rest_s
        while True:
            self.look()
            running = [name for name, router in self.network.routers.items() if router.is_running]
            states = await self.states(running)
            if len(states) == len(running) and not any(state.unsettled for state in states.values()):
                return
            if time.monotonic() > ends_at:
                left = {
                    name: {link: count for link, count in state.records.items() if count}
                    for name, state in states.items()
                }
                raise TrialFailed(f"not at rest after {self._rest_s:g} s, records left over: {left}")
            await asyncio.sleep(LOOK_S)

    async def states(self, routers: Sequence[str]) -> dict[str, RouterState]:
        """Read the states of these routers; one that does not answer is left out."""
        assert self._session is not None, "use the trial as a context manager"
        return await read_states(self._session, {name: self.network.routers[name].http for name in routers})

    def describe(self) -> str:
        """Say where each client is, for error texts."""
        places = []
        for client in self.clients:
            counts = ", ".join(f"{word} {client.counts[word]}" for word in sorted(client.counts))
            state = "ended" if client.has_ended else f"at {client.router}" if client.is_attached else "not attached"
            places.append(f"{client.name} {state} ({counts})")
        return "; ".join(places)
