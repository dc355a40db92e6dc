"""What `oncewire bench` does: publishers and subscribers of one process, and how long their messages take."""

from __future__ import annotations

import asyncio
import secrets
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import partial

from oncewire.client.connection import Client
from oncewire.client.errors import NotAccepted
from oncewire.client.events import ClientEvent
from oncewire.client.outcomes import Outcome
from oncewire.client.publisher import Publisher
from oncewire.client.settled_publisher import SettledPublisher
from oncewire.client.subscriber import Subscriber

STAMP = struct.Struct("!d")
"""Begins each message: when it was handed to the publisher, by this process's clock."""
QUIET_S = 2.0
"""At-most-once: what has not arrived after this long without any arrival is lost."""


@dataclass(frozen=True, slots=True)
class BenchPlan:
    """What is measured.

    Attributes:
        topic: all publish and subscribe to it.
        messages: of all publishers together.
        size: bytes of each body.
        publishers, subscribers: how many, each with a connection of its own.
        window: messages of one publisher that wait for their outcome.
        settled: at-most-once.
    """

    topic: str
    messages: int
    size: int
    publishers: int
    subscribers: int
    window: int
    settled: bool


@dataclass(slots=True)
class BenchResult:
    """What was measured.

    Attributes:
        published: messages that were sent.
        accepted: of these, how many every subscription has processed; 0 with `settled`.
        received: deliveries of all subscribers.
        publish_s: from the first message to the last outcome (with `settled`: to the last write).
        receive_s: from the first message to the last delivery.
        acceptance: seconds from handing a message over to its outcome, of each message.
        arrival: seconds from handing a message over to its delivery, of each delivery.
    """

    published: int = 0
    accepted: int = 0
    received: int = 0
    publish_s: float = 0.0
    receive_s: float = 0.0
    acceptance: list[float] = field(default_factory=list)
    arrival: list[float] = field(default_factory=list)

    def as_json(self) -> dict[str, object]:
        """Rates and latencies under names that stay."""
        return {
            "published": self.published,
            "accepted": self.accepted,
            "received": self.received,
            "published_per_s": rate(self.published, self.publish_s),
            "received_per_s": rate(self.received, self.receive_s),
            "acceptance_ms": percentiles_ms(self.acceptance),
            "arrival_ms": percentiles_ms(self.arrival),
        }


def rate(count: int, seconds: float) -> int:
    """Per second; 0 where nothing was done."""
    return round(count / seconds) if seconds > 0 else 0


def percentiles_ms(seconds: Sequence[float]) -> dict[str, float] | None:
    """p50, p90, p99 and the longest, in milliseconds; None = nothing was measured."""
    if not seconds:
        return None
    ordered = sorted(seconds)
    places = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    return {
        name: round(1000 * ordered[min(len(ordered) - 1, int(part * len(ordered)))], 3) for name, part in places.items()
    }


async def run_bench(
    plan: BenchPlan, connect: Callable[[Callable[[ClientEvent], None] | None], Client], show: Callable[[int], None]
) -> BenchResult:
    """Send and receive everything, and return what was measured.

    Args:
        plan: what to measure.
        connect: makes a client that is not entered yet.
        show: called with the messages that are through.

    Raises:
        ClientError: no router, or a link was refused.
    """
    result = BenchResult()
    run = secrets.token_hex(4)
    async with AsyncExitStack() as clients:
        subscribers = [
            await (await clients.enter_async_context(connect(None))).subscriber(plan.topic, settled=plan.settled)
            for _ in range(plan.subscribers)
        ]
        entered = [await clients.enter_async_context(connect(None)) for _ in range(plan.publishers)]
        publishers: list[Publisher | SettledPublisher] = [
            await client.settled_publisher(plan.topic, name=None)
            if plan.settled
            else await client.publisher(plan.topic, window=plan.window)
            for client in entered
        ]
        share, more = divmod(plan.messages, plan.publishers)
        began = time.perf_counter()
        try:
            async with asyncio.TaskGroup() as tasks:
                for subscriber in subscribers:
                    tasks.create_task(_receive(subscriber, plan, run, began, result))
                for number, publisher in enumerate(publishers):
                    count = share + (number < more)
                    if isinstance(publisher, SettledPublisher):
                        tasks.create_task(_send_settled(publisher, count, plan, run, began, result, show))
                    else:
                        tasks.create_task(_send(publisher, count, plan, run, began, result, show))
        except BaseExceptionGroup as errors:
            raise _first(errors) from None
        for subscriber in subscribers:
            await subscriber.unsubscribe()
    return result


def _body(plan: BenchPlan, run: str) -> bytes:
    """The stamp, the run, then whatever fills the size; the run distinguishes our messages of the topic from others."""
    head = STAMP.pack(time.perf_counter()) + run.encode()
    return head + bytes(max(0, plan.size - len(head)))


async def _send(
    publisher: Publisher,
    count: int,
    plan: BenchPlan,
    run: str,
    began: float,
    result: BenchResult,
    show: Callable[[int], None],
) -> None:
    def done(sent_at: float, future: asyncio.Future[Outcome]) -> None:
        now = time.perf_counter()
        if not future.cancelled() and future.exception() is None and future.result().is_accepted:
            result.accepted += 1
            result.acceptance.append(now - sent_at)
        result.publish_s = now - began
        show(result.accepted)

    for _ in range(count):
        sent_at = time.perf_counter()
        sending = await publisher.submit(_body(plan, run))
        result.published += 1
        sending.future.add_done_callback(partial(done, sent_at))
    with suppress(NotAccepted):  # the result has how many
        await publisher.flush()


async def _send_settled(
    publisher: SettledPublisher,
    count: int,
    plan: BenchPlan,
    run: str,
    began: float,
    result: BenchResult,
    show: Callable[[int], None],
) -> None:
    for _ in range(count):
        await publisher.send(_body(plan, run))
        result.published += 1
        result.publish_s = time.perf_counter() - began
        show(result.published)
        if not result.published % 64:
            await asyncio.sleep(0)  # sending waits for nothing while there is credit: subscribers need their turn


async def _receive(subscriber: Subscriber, plan: BenchPlan, run: str, began: float, result: BenchResult) -> None:
    mark = run.encode()
    received = 0
    while received < plan.messages:
        try:
            delivery = await subscriber.receive(QUIET_S if plan.settled else None)
        except TimeoutError:
            if result.published < plan.messages:
                continue
            return  # what is missing is lost: at-most-once
        now = time.perf_counter()
        body = delivery.body
        if isinstance(body, bytes) and body[STAMP.size : STAMP.size + len(mark)] == mark:
            received += 1
            result.received += 1
            result.receive_s = now - began
            result.arrival.append(now - STAMP.unpack_from(body)[0])
        await delivery.accept()


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
