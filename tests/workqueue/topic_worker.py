"""One of the processes between topics: ``topic_worker.py ROLE STORE ROUTERS POINT PASS``.

It is killed (SIGKILL) when it passes a crash point for the PASS-th time; with POINT "" it is not. ROLE is `feed` (topic
`in` into queue `in`), `work`, or `publish`. `work` decides on two messages for each item, and notes them in a table of
its own in the same transaction: one by `transact`, and one, in a second queue, by `item.publish`.
"""

from __future__ import annotations

import asyncio
import sys

from bridges.store import topic_link
from bridges.workqueue import Feed, Operations, OutboxPublisher, Queue, QueueError, Reserved, Target, new_message
from oncewire.store import owners
from tests.store.killing import die_at_point

LEASE_S, RENEW_S = 4.0, 0.5
"""Shorter than a service's: whoever stands by for a process that was killed takes over soon."""
TIMEOUT_S = 0.5
"""Of a reservation: the next worker takes over soon."""


def first_step(do: Operations, item: Reserved) -> None:
    """Effect, message and next step of one item."""
    do.execute("INSERT INTO effects (topic, body) VALUES ('one', ?)", (item.payload.decode(),))
    do.move(item.handle, [Target("second")], [new_message("one", item.payload)])


async def work(url: str) -> None:
    """Both steps, each one item at a time; a store that is gone comes back."""
    while True:
        try:
            async with Queue.open(url, "in") as queue, asyncio.TaskGroup() as group:
                second = Queue(queue.store, "second")
                await second.configure()
                group.create_task(work_first(queue))
                group.create_task(work_second(second))
        except* QueueError as errors:
            sys.stderr.write(f"{errors.exceptions[0]}\n")
        await asyncio.sleep(0.1)


async def work_first(queue: Queue) -> None:
    """The first step."""
    while True:
        (item,) = await queue.reserve_many(1, TIMEOUT_S, wait=None)
        await queue.transact(lambda do: first_step(do, item))  # noqa: B023


async def work_second(queue: Queue) -> None:
    """The second step."""
    while True:
        async with queue.reserve(TIMEOUT_S) as item:
            item.publish("two", item.payload)


async def feed(url: str, routers: list[str]) -> None:
    """From the topic into the queue."""
    async with Queue.open(url, "in") as queue:
        await Feed(queue, "in", routers).run()


async def publish(url: str, routers: list[str]) -> None:
    """From the outbox to the topics."""
    async with Queue.open(url, "in") as queue:
        await OutboxPublisher(queue.store, routers).run()


def main(role: str, url: str, routers: str, point: str, times: str) -> None:
    """Run a role until the end."""
    owners.LEASE_S, topic_link.RENEW_S = LEASE_S, RENEW_S
    if point:
        die_at_point(point, int(times))
    works = {"feed": feed(url, routers.split(",")), "publish": publish(url, routers.split(",")), "work": work(url)}
    chosen = works.pop(role)
    for other in works.values():
        other.close()
    asyncio.run(chosen)


if __name__ == "__main__":
    main(*sys.argv[1:])
