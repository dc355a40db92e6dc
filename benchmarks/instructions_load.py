"""The load of `instructions.py`: routers in memory, and clients whose frames are encoded before they are needed."""

from __future__ import annotations

import asyncio
from typing import Self

from chaos.fuzz.honest import HonestClient
from chaos.fuzz.memory_router import MemoryRouter
from oncewire.wire import (
    ACCEPTED,
    DeliveryReceived,
    Disposition,
    DispositionReceived,
    Event,
    LinkAttached,
    ReceiverLink,
    SenderLink,
    Source,
    Target,
    TerminusDurability,
    Transfer,
    encode_data_message,
    encode_performative,
)
from oncewire.wire.frames import encode_frame
from oncewire.wire.vocabulary import EXACTLY_ONCE
from topology.etcd.memory_store import MemoryEtcd

TOPIC = "load"
HUGE = 1 << 30
"""Credit and window of subscribers, which grant nothing more while instructions are counted."""
WARM_UP_BATCHES = 10
REST_S = 1e-6
"""The loop's time passes only when nothing is left to do: a short sleep lasts until all is done."""
DEADLINE_S = 30.0


async def _at_rest() -> None:
    await asyncio.sleep(REST_S)


class Client(HonestClient):
    """One connection; its engine answers until `is_scripted`, from then on only prepared bytes are written."""

    link: SenderLink | ReceiverLink

    def __init__(self, name: str) -> None:
        super().__init__(name, incoming_window=HUGE, desired_capabilities=[EXACTLY_ONCE])
        self.is_scripted = False
        self.done = 0
        """Deliveries that are settled."""

    async def connect(self, port: int) -> Self:
        """Connect and attach."""
        await self.dial(port)
        async with asyncio.timeout(DEADLINE_S):
            while not self.is_ready:
                await _at_rest()
        return self

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        if not self.is_scripted:
            super().data_received(data)


class Publisher(Client):
    """Settles what is accepted."""

    link: SenderLink

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.link = self.session.attach_sender(
            "pub",
            source=Source(address="pub"),
            target=Target(address=TOPIC),
            unsettled={},
            desired_capabilities=[EXACTLY_ONCE],
        )

    def on_event(self, event: Event) -> None:
        """See `Client`."""
        if isinstance(event, DispositionReceived):
            self.link.settle(event.ids)
            self.done += len(event.ids)


class Subscriber(Client):
    """Accepts everything."""

    link: ReceiverLink

    def __init__(self, name: str) -> None:
        super().__init__(name)
        source = Source(address=TOPIC, durable=TerminusDurability.UNSETTLED_STATE, timeout=60)
        self.link = self.session.attach_receiver(
            "sub", source=source, target=Target(address="sub"), unsettled={}, desired_capabilities=[EXACTLY_ONCE]
        )

    def on_event(self, event: Event) -> None:
        """See `Client`."""
        if isinstance(event, LinkAttached):
            self.link.grant(HUGE)
        elif isinstance(event, DeliveryReceived):
            self.link.dispose([event.delivery_id], ACCEPTED, False)
        elif isinstance(event, DispositionReceived):
            self.done += len(event.ids)


class Network:
    """Routers in a row, one publisher at the first, subscribers at the last."""

    def __init__(self, routers: list[MemoryRouter], batch: int, size: int) -> None:
        self._routers = routers
        self._batch = batch
        self._message = encode_data_message(bytes(size))
        self._publisher: Publisher
        self._subscribers: list[Subscriber] = []
        self._sent = 0
        self._script: list[tuple[bytes, bytes, bytes]] = []

    @classmethod
    async def start(cls, routers: int, subscribers: int, batch: int, size: int) -> Self:
        """Start and attach everything, and carry messages until windows are as wide as the load needs."""
        etcd = MemoryEtcd()
        row: list[MemoryRouter] = []
        for number in range(routers):
            to = (f"r{number}=1",) if number else ()
            row.append(MemoryRouter(f"r{number + 1}", etcd, mesh="configured", connectors=",".join(to)))
            await row[-1].start()
        self = cls(row, batch, size)
        async with asyncio.timeout(DEADLINE_S):
            while any(len(router.incarnation.neighbours.routing.next_hops) < routers - 1 for router in row):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        for number in range(subscribers):
            self._subscribers.append(await Subscriber(f"s{number}").connect(row[-1].port))
        self._publisher = await Publisher("p").connect(row[0].port)
        for _ in range(WARM_UP_BATCHES):
            for number in range(self._sent, self._sent + batch):
                self._publisher.link.send(number.to_bytes(8, "big"), self._message)
            self._sent += batch
            self._publisher.flush()
            await _at_rest()
        for client in (self._publisher, *self._subscribers):
            if client.done != self._sent:
                raise AssertionError(f"{client.done} of {self._sent} deliveries are settled")
            client.is_scripted = client.is_leaving = True
        return self

    def encode(self, messages: int) -> None:
        """Prepare every frame that the clients write for so many messages."""
        self._script = []
        for first in range(self._sent, self._sent + messages, self._batch):
            last = first + self._batch - 1
            transfers = b"".join(self._transfer(number) for number in range(first, last + 1))
            accepted = encode_frame(0, encode_performative(Disposition(True, first, last, False, ACCEPTED)))
            settled = encode_frame(0, encode_performative(Disposition(False, first, last, True, None)))
            self._script.append((transfers, accepted, settled))

    def _transfer(self, number: int) -> bytes:
        frame = Transfer(0, number, number.to_bytes(8, "big"), 0, False)
        return encode_frame(0, encode_performative(frame) + self._message)

    async def carry(self, messages: int) -> None:
        """Transfer, accept and settle so many messages of what was prepared."""
        publisher, subscribers = self._publisher, self._subscribers
        for transfers, accepted, settled in self._script[: messages // self._batch]:
            publisher.write(transfers)
            await _at_rest()
            for subscriber in subscribers:
                subscriber.write(accepted)
            await _at_rest()
            publisher.write(settled)
            await _at_rest()

    def is_right(self, messages: int) -> bool:
        """Whether the routers carried so many messages beside those of the warm-up, and keep none of them."""
        from delivery_records.model.outcomes import Decision

        first, last = self._routers[0].incarnation.records, self._routers[-1].incarnation.records
        return (
            first.counts[Decision.DELIVERY_SETTLED] == self._sent + messages
            and not first.budget.held
            and not last.budget.held
            and all(not sync.numbers for egress in last.egresses.values() for sync in egress.syncs.values())
        )

    async def stop(self) -> None:
        """Stop the routers."""
        for router in self._routers:
            await router.stop()
