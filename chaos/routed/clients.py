"""Simulated clients: a sender that resumes with its unsettled map, and a worker."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

from chaos.routed.judge import Judge
from chaos.routed.pipes import End, engine
from oncewire.wire import (
    ACCEPTED,
    RELEASED,
    Accepted,
    ConnectionClosed,
    ConnectionLost,
    DeliveryReceived,
    DispositionReceived,
    Event,
    LinkAttached,
    LinkDetached,
    LocalProtocolError,
    ReceiverSettleMode,
    Released,
    Role,
    SenderLink,
    Source,
    Symbol,
    Target,
    encode_data_message,
    vocabulary,
)


class SimClient:
    """What both kinds share: one connection, one link, and attaching again."""

    def __init__(self, name: str, judge: Judge, random: Random) -> None:
        self.name = name
        self.judge = judge
        self.random = random
        self.end: End | None = None
        self.link: Any = None
        self.is_ready = False
        self.attaches = 0

    @property
    def link_name(self) -> str:
        """Of its one link."""
        return f"{self.name}-link"

    def connect(self) -> End:
        """A new connection."""
        connection = engine(Role.CLIENT, self.name)
        self.link, self.is_ready = None, False
        self.end = End(connection, self._on_event, self.on_lost)
        return self.end

    def attach(self) -> None:
        """Attach the link, in a session of its own."""
        assert self.end is not None
        with suppress(LocalProtocolError):
            self.attaches += 1
            self.link = self._attach(self.end.engine.begin())

    def _attach(self, session: Any) -> Any:
        raise NotImplementedError

    def on_lost(self) -> None:
        """The connection is lost."""
        self.end, self.link, self.is_ready = None, None, False

    def detach(self) -> None:
        """Suspend the link."""
        with suppress(LocalProtocolError):
            self.link.detach(False)
        self.is_ready = False

    def _on_event(self, event: Event) -> None:
        if isinstance(event, ConnectionClosed | ConnectionLost):
            self.on_lost()
            return
        link = getattr(event, "link", None)
        if isinstance(event, LinkDetached):
            self.judge.on_detached(event)
        if link is None or link is not self.link:
            return
        if isinstance(event, LinkDetached):
            self.link, self.is_ready = None, False
            self.on_ended(event)
            if event.needs_answer:
                with suppress(LocalProtocolError):
                    event.link.detach(True)
        elif isinstance(event, LinkAttached):
            remote = link.remote_attach
            self.is_ready = (remote.target if isinstance(link, SenderLink) else remote.source) is not None
            if self.is_ready:
                self.judge.on_reply(link.local_attach, remote)
                self.on_attached()
        else:
            self.on_event(event)

    def act(self) -> None:
        """Do something on the link, if there is something to do."""
        raise NotImplementedError

    def on_attached(self) -> None:
        """The service has answered."""

    def on_ended(self, event: LinkDetached) -> None:
        """The link was ended at the other end."""

    def on_event(self, event: Event) -> None:
        """Something came on the link."""


class SimPusher(SimClient):
    """Sends items until each one is accepted; exactly once unless asked otherwise."""

    address = "queue://work"

    def __init__(
        self, name: str, judge: Judge, random: Random, count: int, on_sent: Callable[[bytes], None], is_second: bool
    ) -> None:
        super().__init__(name, judge, random)
        self.is_second = is_second
        self.left = [f"{name}:{number}".encode() for number in range(count)]
        self.unsettled: dict[bytes, bytes] = {}
        """Tag -> item, of deliveries whose outcome is not known."""
        self._ids: dict[bytes, int] = {}
        self._to_settle: list[bytes] = []
        self._repeat: list[bytes] = []
        self._tags = 0
        self._on_sent = on_sent

    @property
    def is_done(self) -> bool:
        """Whether everything was accepted."""
        return not (self.left or self.unsettled)

    def _attach(self, session: Any) -> Any:
        self._ids.clear()
        self._repeat.clear()
        unsettled = dict.fromkeys(self.unsettled) if self.is_second else None
        mode = ReceiverSettleMode.SECOND if self.is_second else ReceiverSettleMode.FIRST
        forged = {vocabulary.ROUTER_CONTAINER: "another", Symbol("mine"): 1}
        return session.attach_sender(
            self.link_name,
            target=Target(address=self.address),
            unsettled=unsettled,
            rcv_settle_mode=mode,
            properties=forged,
        )

    def on_attached(self) -> None:
        """The service's map says what is accepted; the rest is sent again under its tags."""
        known = self.link.remote_attach.unsettled or {}
        for tag in list(self.unsettled):
            if isinstance(known.get(tag), Accepted):
                self._accept(tag)
        self._repeat = list(self.unsettled)

    def _accept(self, tag: bytes) -> None:
        self.judge.accepted.add(self.unsettled.pop(tag))
        if self.is_second and tag in self._ids:
            self._to_settle.append(tag)

    def on_event(self, event: Event) -> None:
        """Outcomes."""
        if not isinstance(event, DispositionReceived):
            return
        for tag in event.tags:
            if tag not in self.unsettled:
                continue
            if isinstance(event.state, Accepted):
                self._accept(tag)
            elif isinstance(event.state, Released):
                self.left.append(self.unsettled.pop(tag))
                self._to_settle.append(tag)

    def act(self) -> None:
        """Send or settle something."""
        if not self.is_ready or not self.link.is_attached:
            return
        with suppress(LocalProtocolError):
            if self._to_settle and (self.random.random() < 0.5 or not self.link.credit):
                count = self.random.randint(1, len(self._to_settle))
                tags, self._to_settle = self._to_settle[:count], self._to_settle[count:]
                if self.is_second:
                    self.link.settle([self._ids[tag] for tag in tags if tag in self._ids])
                return
            if not self.link.credit:
                return
            if self._repeat:
                tag = self._repeat.pop(0)
            elif self.left:
                self._tags += 1
                tag = b"%d" % self._tags
                self.unsettled[tag] = self.left.pop(0)
                self._on_sent(self.unsettled[tag])
            else:
                return
            body = self.unsettled[tag]
            number = self.link.moved + 1
            self._ids[tag] = self.link.send(tag, encode_data_message(body), message_format=number)


class SimWorker(SimClient):
    """Reserves items and states outcomes, most of them accepted."""

    def __init__(self, name: str, judge: Judge, random: Random, store: Any) -> None:
        super().__init__(name, judge, random)
        self._items: dict[int, tuple[int, int]] = {}
        self._asked: dict[int, tuple[int, int]] = {}
        self._store = store
        self._is_draining = False
        self.is_calm = False

    @property
    def is_answered(self) -> bool:
        """Whether it waits for no answer to an outcome or to a drain."""
        return not self._asked and not (self._is_draining and self.link is not None and self.link.credit)

    def _attach(self, session: Any) -> Any:
        self._items.clear()
        self._asked.clear()
        self._is_draining = False
        return session.attach_receiver(self.link_name, source=Source(address="queue://work"))

    def on_event(self, event: Event) -> None:
        """Items, and answers of the service."""
        if isinstance(event, DeliveryReceived):
            item, reservation = int.from_bytes(event.tag[:8], "big"), int.from_bytes(event.tag[8:], "big")
            self.judge.on_item(self.name, item, reservation)
            self.judge.on_order(f"{self.name}.{self.attaches}", event.message_format)
            self._items[event.delivery_id] = (item, reservation)
        elif isinstance(event, DispositionReceived) and event.settled:
            for number in event.ids:
                found = self._asked.pop(number, None)
                if found is not None and isinstance(event.state, Accepted):
                    self.judge.on_finished(self._store, *found)

    def act(self) -> None:
        """Grant, drain or state an outcome."""
        if not self.is_ready or not self.link.is_attached:
            return
        with suppress(LocalProtocolError):
            if self._items and self.random.random() < 0.7:
                number = self.random.choice(sorted(self._items))
                found = self._items.pop(number)
                is_accepted = self.is_calm or self.random.random() < 0.8
                self._asked[number] = found
                self.link.dispose([number], ACCEPTED if is_accepted else RELEASED, False)
            elif self._is_draining and self.link.credit:
                return  # until the credit is used or given back
            elif self.link.credit < 3:
                self._is_draining = self.random.random() < 0.3
                self.link.grant(self.random.randint(1, 8), drain=self._is_draining)
            elif not self.is_calm and self.random.random() < 0.2:
                self.link.grant(self.random.randint(0, 2))  # takes credit back
