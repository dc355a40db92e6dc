"""The client processes of experiments: `python -m chaos.clients.load PLAN`, started by chaos/clients/client_process.py.

A publisher sends its share of the source at a steady rate, until it ends or is stopped; a subscriber processes
what it gets in batches. Both write down each event before they act on it, and end at once when the experiment that
started them is gone.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections import deque
from contextlib import suppress
from itertools import islice
from pathlib import Path

import uvloop

from chaos.clients.client_plan import STOP_COMMAND, PublisherPlan, SubscriberPlan, decode_plan
from chaos.clients.events import (
    Accepted,
    Attached,
    Closed,
    Confirmed,
    Disconnected,
    Event,
    EventJournal,
    Incarnation,
    Opened,
    OutcomeUnknown,
    Processed,
    Received,
    Refused,
    Resumed,
    Sent,
    digest_of,
    read_journal,
)
from chaos.clients.groups import group_of
from chaos.clients.processed_table import write_payloads, write_processed
from oncewire import client as reported
from oncewire.client import Client, Delivery, Outcome, OutcomeKind, Properties, Publisher, Sending, Subscriber, connect

TICK_S = 0.02
"""How often a publisher looks which messages are due: its rate is even to this much."""
PREFETCH_BATCHES = 2
"""One batch is processed while the next one comes."""
OPEN_TIMEOUT_S = 60.0
"""Many processes start at once, on a busy machine."""
EXPERIMENT_GONE = 3
"""Exit code when the end of standard input says that nobody waits for this process any more."""


class _Witness:
    """Writes a client's events, and turns what the client library reports into some of them."""

    def __init__(self, plan: PublisherPlan | SubscriberPlan) -> None:
        self._journal = EventJournal(Path(plan.events))
        self._router = ""
        self._is_attached = False
        self.write(Opened(now(), plan.name, os.getpid()))

    def write(self, *events: Event) -> None:
        """Append to the journal of events."""
        self._journal.write(*events)

    def on_event(self, event: reported.ClientEvent) -> None:
        """Serve as `connect(on_event=)`."""
        match event:
            case reported.Connected():
                self._router = event.router
            case reported.LinkActive(resumed=True):
                self._is_attached = True
                self.write(Resumed(now(), self._router, event.unsettled))
            case reported.LinkActive():
                self._is_attached = True
                self.write(Attached(now(), self._router))
            case reported.Disconnected(cause=reason) | reported.LinkInterrupted(condition=reason):
                if self._is_attached:
                    self._is_attached = False
                    self.write(Disconnected(now(), reason))
            case reported.NewIncarnation():
                self.write(Incarnation(now(), event.before), Incarnation(now(), event.now))
            case _:
                pass


def now() -> float:
    """The clock of the journals."""
    return time.monotonic()


def _connect(plan: PublisherPlan | SubscriberPlan, witness: _Witness) -> Client:
    return connect(
        plan.urls,
        container_id=plan.name,
        timeout=OPEN_TIMEOUT_S,
        idle_time_out=plan.idle_timeout_s,
        on_event=witness.on_event,
    )


# --- publisher --------------------------------------------------------------------------------------------------------


async def publish(plan: PublisherPlan, stopping: asyncio.Future[None]) -> None:
    """Send the share until it ends or `stopping` is done, collect an outcome for each message, close."""
    witness = _Witness(plan)
    async with _connect(plan, witness) as client:
        publisher = await client.publisher(plan.topic, name=plan.name, journal=plan.journal, window=plan.window)
        async with publisher, asyncio.TaskGroup() as group:
            sendings: deque[Sending] = deque(publisher.recovered)
            _write_outcomes_of_earlier_lives(plan, witness, publisher)
            sent = asyncio.Event()
            group.create_task(_collect(witness, sendings, sent))
            await _send_share(plan, witness, publisher, sendings, stopping)
            sent.set()
    witness.write(Closed(now()))


def _write_outcomes_of_earlier_lives(plan: PublisherPlan, witness: _Witness, publisher: Publisher) -> None:
    """Journal what the client's durable journal knows to be accepted, and an earlier life died before writing down."""
    known = {event.seq for event in read_journal(Path(plan.events)) if isinstance(event, Accepted)}
    open_ones = {sending.number + 1 for sending in publisher.recovered}
    taken = range(1, publisher.next_number + 1)
    witness.write(*(Accepted(now(), seq) for seq in taken if seq not in known and seq not in open_ones))


async def _send_share(
    plan: PublisherPlan,
    witness: _Witness,
    publisher: Publisher,
    sendings: deque[Sending],
    stopping: asyncio.Future[None],
) -> None:
    done = publisher.next_number
    rows = enumerate(islice(plan.share.rows(), done, None), done + 1)
    began = now()
    sent = 0
    while not stopping.done():
        due = round((now() - began) * plan.rate) - sent if plan.rate else plan.window
        if plan.gate is not None:
            due = min(due, _let_through(plan.gate) - done - sent)
        chunk = list(islice(rows, max(0, due)))
        if due > 0 and not chunk:
            return
        for seq, row in chunk:
            witness.write(Sent(now(), seq, digest_of(row)))
            group = group_of(seq, plan.groups)
            group_id = None if group is None else str(group)
            properties = Properties(message_id=f"{plan.name}/{seq}", group_id=group_id)
            sending = await publisher.submit(row, properties=properties)
            assert sending.number == seq - 1, "the client's numbers and ours went apart"
            sendings.append(sending)
        sent += len(chunk)
        await asyncio.sleep(TICK_S if plan.rate else 0)


def _let_through(gate: str) -> int:
    return int(Path(gate).read_text())


async def _collect(witness: _Witness, sendings: deque[Sending], sent: asyncio.Event) -> None:
    """Write down outcomes as they come: a router reports them in the order of the messages (I-3)."""
    while sendings or not sent.is_set():
        if not sendings:
            await asyncio.sleep(TICK_S)
            continue
        sending = sendings.popleft()
        events = [_outcome_event(sending.number + 1, await sending)]
        while sendings and (outcome := sendings[0].outcome) is not None:
            events.append(_outcome_event(sendings.popleft().number + 1, outcome))
        witness.write(*events)


def _outcome_event(seq: int, outcome: Outcome) -> Event:
    if outcome.is_accepted:
        return Accepted(now(), seq)
    if outcome.kind is OutcomeKind.UNKNOWN:
        return OutcomeUnknown(now(), seq)
    return Refused(now(), seq, outcome.kind.value)


# --- subscriber -------------------------------------------------------------------------------------------------------


async def subscribe(plan: SubscriberPlan) -> None:
    """Process batches until asked to stop, then end the subscription."""
    # From the start: the experiment may be gone before there is a link.
    stopping = asyncio.ensure_future(_reported_to_stop())
    witness = _Witness(plan)
    async with _connect(plan, witness) as client:
        subscriber = await client.subscriber(
            plan.address,
            name=plan.name,
            journal=plan.journal,
            prefetch=plan.batch * PREFETCH_BATCHES,
            timeout=round(plan.timeout_s),
            share=plan.share,
            by_group=plan.by_group,
        )
        witness.write(Confirmed(now()))
        working = asyncio.ensure_future(_work(plan, witness, subscriber))
        await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()  # it ends by a fault only
        working.cancel()
        with suppress(asyncio.CancelledError):
            await working
        await subscriber.unsubscribe()
    witness.write(Closed(now()))


async def _work(plan: SubscriberPlan, witness: _Witness, subscriber: Subscriber) -> None:
    while True:
        batch = await _take_batch(plan, witness, subscriber)
        while _is_held(plan.hold):  # noqa: ASYNC110  # a file of another process
            await asyncio.sleep(TICK_S)
        done = [_processed(delivery) for delivery in batch]
        if plan.journal is None:
            witness.write(*done)
            await subscriber.finish(batch)
            continue
        # The effect and the acceptance become durable together; the checker reads these rows as events.
        async with subscriber.transaction(*batch) as connection:
            write_processed(connection, done)
            if plan.keeps_payloads:
                write_payloads(connection, [delivery.payload for delivery in batch])


def _is_held(hold: str | None) -> bool:
    return hold is not None and Path(hold).exists()


async def _take_batch(plan: SubscriberPlan, witness: _Witness, subscriber: Subscriber) -> list[Delivery]:
    batch: list[Delivery] = []
    ends_at = 0.0
    while len(batch) < plan.batch:
        left = ends_at - now() if batch else None
        if left is not None and left <= 0:
            break
        try:
            taken = await subscriber.receive_many(plan.batch - len(batch), timeout=left)
        except TimeoutError:
            break
        ends_at = ends_at or now() + plan.batch_s
        witness.write(*(_received(delivery) for delivery in taken))
        batch += taken
    return batch


def _received(delivery: Delivery) -> Received:
    publisher, seq = _identity(delivery)
    return Received(now(), publisher, seq, _digest(delivery), delivery.is_redelivered)


def _processed(delivery: Delivery) -> Processed:
    publisher, seq = _identity(delivery)
    return Processed(now(), publisher, seq, _digest(delivery))


def _identity(delivery: Delivery) -> tuple[str, int]:
    """Publisher and number, as the publisher wrote them into the message-id; another message has number 0."""
    properties = delivery.message.properties
    name, _, number = str(properties.message_id if properties is not None else "").rpartition("/")
    return name, int(number) if number.isdecimal() else 0


def _digest(delivery: Delivery) -> str:
    body = delivery.body
    return digest_of(body if isinstance(body, bytes) else repr(body).encode())


# --- the process ------------------------------------------------------------------------------------------------------


async def _reported_to_stop() -> None:
    """Wait for the stop command; at the end of standard input the experiment is gone, and so are we."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    if await reader.readline() != STOP_COMMAND:
        os._exit(EXPERIMENT_GONE)


async def _run(text: str) -> None:
    plan = decode_plan(text)
    if isinstance(plan, SubscriberPlan):
        await subscribe(plan)
        return
    stopping = asyncio.ensure_future(_reported_to_stop())
    await publish(plan, stopping)
    stopping.cancel()


if __name__ == "__main__":
    uvloop.run(_run(sys.argv[1]))
