"""A router in two hundred lines: one topic, one publisher, a fixed set of subscriptions, no sockets and no clock.

It carries out the rules a client sees (A-2 to A-7, C-1, I-1 to I-9, E-2 to E-6) and asserts what a client must not do.
What real routers keep in etcd survives `crash()`: the publisher's session and the subscriptions. All else is lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

Frame = tuple[Any, ...]
TAG_BYTES = 8
PREFIX = b"\0nets"
"""Of a network tag: flags and cluster nonce; the session follows in 6 bytes, then the publisher's tag."""
HEADER_BYTES = len(PREFIX) + 6


class Pipe:
    """One connection of one client: a queue in each direction. A broken one loses what is in them."""

    def __init__(self) -> None:
        self.up: deque[Frame] = deque()
        self.down: deque[Frame] = deque()


@dataclass
class Slot:
    """A window entry."""

    received: bool = False
    payload: bytes = b""
    done: set[str] = field(default_factory=set)
    reported: bool = False


class Ingress:
    """The publisher's link."""

    def __init__(self, pipe: Pipe, epoch: int, presented: list[bytes]) -> None:
        self.pipe: Pipe | None = pipe
        self.epoch = epoch
        self.window = {tag: Slot() for tag in presented}
        self.starts_session = not presented
        self.active = False
        self.transfers = self.limit = 0
        self.ids: dict[int, bytes] = {}

    def missing(self) -> list[bytes]:
        return [tag for tag, slot in self.window.items() if not slot.received]


class Egress:
    """A subscriber's link."""

    def __init__(self, pipe: Pipe) -> None:
        self.pipe = pipe
        self.entries: dict[bytes, str] = {}  # known | sent | done | skipped
        self.outcomes: dict[bytes, Any] = {}
        self.to_resume: set[bytes] = set()
        self.settles: deque[bytes] = deque()
        self.held: deque[tuple[bytes, bytes]] = deque()
        self.ids: dict[int, bytes] = {}
        self.next_id = 0
        self.credit = 0


class ReferenceRouter:
    def __init__(self, subscriptions: Iterable[str], window: int = 4) -> None:
        self.subscriptions = list(subscriptions)
        self.revision = 100
        self.incarnations = {name: self.next_revision() for name in self.subscriptions}
        self.session = 0
        self.window = window
        self.resumed_entries = 0
        self.expiries = 0
        self.crash()

    def next_revision(self) -> int:
        self.revision += 1
        return self.revision

    def subscribe(self, name: str) -> None:
        """A subscription appears: it is owed what is received from now on (I-6)."""
        if name not in self.incarnations:
            self.subscriptions.append(name)
            self.incarnations[name] = self.next_revision()
            for slot in self.ingress.window.values() if self.ingress is not None else ():
                slot.done.add(name)

    def unsubscribe(self, name: str) -> None:
        """A subscription is deleted: nothing is owed to it any more."""
        self.subscriptions.remove(name)
        del self.incarnations[name]
        self.egresses.pop(name, None)
        if self.ingress is not None:
            for slot in self.ingress.window.values():
                slot.done.discard(name)
            self.accept(self.ingress)

    def owing(self, tag: bytes) -> list[str]:
        """The subscriptions that have not finished with a message."""
        slot = None if self.ingress is None else self.ingress.window.get(tag)
        return [] if slot is None else [name for name in self.subscriptions if name not in slot.done]

    def crash(self) -> None:
        """All memory is gone."""
        self.ingress: Ingress | None = None
        self.egresses: dict[str, Egress] = {}

    def expire_session(self) -> None:
        """The publisher's key is deleted (K-5); its entries are settled at the subscribers (E-6)."""
        self.expiries += bool(self.session)
        self.session = 0
        self.ingress = None
        self.settle_foreign_sessions()

    # --- publisher ------------------------------------------------------------------------------------------------

    def from_publisher(self, pipe: Pipe) -> None:
        frame = pipe.up.popleft()
        kind = frame[0]
        if kind == "attach":
            self.attach_publisher(pipe, list(frame[1]))
            return
        ingress = self.ingress
        if ingress is None or ingress.pipe is not pipe:
            return
        if kind == "echo":
            assert frame[1] == ingress.epoch
            self.activate(ingress)
        elif kind == "transfer":
            self.transfer(ingress, *frame[1:])
        elif kind == "settle":
            for delivery_id in frame[1]:
                self.drop(ingress, ingress.ids.pop(delivery_id))
            self.grant(ingress)
        else:
            raise AssertionError(frame)

    def attach_publisher(self, pipe: Pipe, presented: list[bytes]) -> None:
        if presented and not self.session:
            pipe.down.append(("expired",))
            return
        self.ingress = Ingress(pipe, self.next_revision(), presented)
        self.resumed_entries += len(presented)
        pipe.down.append(("attached", "resumed" if presented else "new"))
        pipe.down.append(("flow", 0, self.ingress.epoch, None))

    def activate(self, ingress: Ingress) -> None:
        if ingress.active:
            return
        if ingress.starts_session:
            self.session = self.next_revision()
            self.settle_foreign_sessions()
        ingress.active = True
        for name in self.egresses:
            self.sync(name)
        self.grant(ingress)

    def grant(self, ingress: Ingress) -> None:
        """C-1: what is still to be repeated is credited beyond the window."""
        limit = ingress.transfers + len(ingress.missing()) + max(0, self.window - len(ingress.window))
        if ingress.active and limit > ingress.limit and ingress.pipe is not None:
            session = self.session if ingress.limit == 0 else None
            ingress.limit = limit
            ingress.pipe.down.append(("flow", limit, None, session))

    def transfer(self, ingress: Ingress, delivery_id: int, tag: bytes, payload: bytes) -> None:
        assert ingress.active, "sent before credit"
        ingress.transfers += 1
        assert ingress.transfers <= ingress.limit, "sent beyond credit"
        assert len(tag) == TAG_BYTES
        slot = ingress.window.get(tag)
        if slot is None:
            for missing in ingress.missing():  # I-9
                self.drop(ingress, missing)
            slot = ingress.window[tag] = Slot()
        else:
            assert not slot.received, "tag in use"
            assert ingress.missing()[0] == tag, "resends out of order"
        slot.received = True
        slot.payload = payload
        ingress.ids[delivery_id] = tag
        for name in self.egresses:
            self.message(name, tag, slot)
        self.accept(ingress)

    def accept(self, ingress: Ingress) -> None:
        """I-3: in window order."""
        for tag, slot in ingress.window.items():
            if not slot.received or len(slot.done) < len(self.subscriptions):
                return
            if not slot.reported and ingress.pipe is not None:
                slot.reported = True
                delivery_id = next(number for number, named in ingress.ids.items() if named == tag)
                ingress.pipe.down.append(("accepted", [(delivery_id, tag)]))

    def drop(self, ingress: Ingress, tag: bytes) -> None:
        """I-4."""
        del ingress.window[tag]
        for name in self.egresses:
            self.settle(name, self.network_tag(tag))

    def publisher_lost(self, pipe: Pipe) -> None:
        if self.ingress is not None and self.ingress.pipe is pipe:
            self.ingress.pipe = None

    # --- subscribers ------------------------------------------------------------------------------------------------

    def network_tag(self, tag: bytes) -> bytes:
        return PREFIX + self.session.to_bytes(6, "big") + tag

    def is_current(self, network_tag: bytes) -> bool:
        session = int.from_bytes(network_tag[len(PREFIX) : HEADER_BYTES], "big")
        return self.session != 0 and session == self.session

    def from_subscriber(self, name: str, pipe: Pipe) -> None:
        frame = pipe.up.popleft()
        kind = frame[0]
        if kind == "attach":
            self.attach_subscriber(name, pipe, frame[1])
            return
        egress = self.egresses.get(name)
        if egress is None or egress.pipe is not pipe:
            return
        if kind == "credit":
            egress.credit = frame[1] - egress.next_id + frame[2]
            self.write(egress)
        elif kind == "dispose":
            for delivery_id in frame[1]:
                tag = egress.ids[delivery_id]
                if egress.entries.get(tag) == "sent":
                    egress.entries[tag] = "done"
                    egress.outcomes[tag] = frame[2]
                if tag in egress.entries:
                    self.acknowledge(name, tag)
        else:
            raise AssertionError(frame)

    def attach_subscriber(self, name: str, pipe: Pipe, presented: dict[bytes, Any]) -> None:
        egress = self.egresses[name] = Egress(pipe)
        for tag, outcome in presented.items():
            if self.is_current(tag):  # others are left out
                egress.entries[tag] = "known" if outcome is None else "done"
                egress.outcomes[tag] = outcome
                egress.to_resume.add(tag)
        self.resumed_entries += len(egress.entries)
        pipe.down.append(("attached", list(egress.entries), self.incarnations[name]))
        pipe.down.append(("confirmed", self.incarnations[name]))
        if self.ingress is not None and self.ingress.active:
            self.sync(name)

    def sync(self, name: str) -> None:
        """I-5 and E-2: what is absent from the window is settled, what precedes an entry and is none was never owed."""
        ingress, egress = self.ingress, self.egresses[name]
        assert ingress is not None
        owed = {self.network_tag(tag) for tag in ingress.window}
        for tag, state in list(egress.entries.items()):
            if tag not in owed:
                self.settle(name, tag)
            elif state == "done":
                self.acknowledge(name, tag)
        tags = [self.network_tag(tag) for tag in ingress.window]
        last = max((at for at, tag in enumerate(tags) if tag in egress.entries), default=-1)
        for tag in tags[: last + 1]:
            if tag not in egress.entries:
                egress.entries[tag] = "skipped"
                self.acknowledge(name, tag)
        for tag, slot in list(ingress.window.items()):
            if slot.received and name not in slot.done:
                self.message(name, tag, slot)

    def message(self, name: str, tag: bytes, slot: Slot) -> None:
        """E-3."""
        egress = self.egresses[name]
        network_tag = self.network_tag(tag)
        state = egress.entries.get(network_tag)
        if state in {"done", "skipped"}:
            self.acknowledge(name, network_tag)
        elif state != "sent":
            egress.entries[network_tag] = "sent"
            egress.held.append((network_tag, slot.payload))
            self.write(egress)

    def acknowledge(self, name: str, network_tag: bytes) -> None:
        """I-2."""
        ingress = self.ingress
        if ingress is None or not ingress.active or not self.is_current(network_tag):
            return
        slot = ingress.window.get(network_tag[HEADER_BYTES:])
        if slot is not None:
            slot.done.add(name)
            self.accept(ingress)

    def settle(self, name: str, tag: bytes) -> None:
        """E-5: settle at the subscriber and forget."""
        egress = self.egresses[name]
        if egress.entries.pop(tag, "skipped") == "skipped":  # not there, or S has never heard of it
            return
        held = [item for item in egress.held if item[0] == tag]
        for item in held:
            egress.held.remove(item)
        if tag in egress.to_resume:
            egress.settles.append(tag)
            self.write(egress)
        elif not held:
            egress.pipe.down.append(("settled", [(0, tag)]))

    def settle_foreign_sessions(self) -> None:
        """E-6."""
        for name, egress in self.egresses.items():
            for tag in list(egress.entries):
                if not self.is_current(tag):
                    self.settle(name, tag)

    def write(self, egress: Egress) -> None:
        """A-7: settled resumes go ahead of deliveries, both as far as credit goes."""
        while egress.credit > 0 and (egress.settles or egress.held):
            egress.credit -= 1
            egress.next_id += 1
            if egress.settles:
                tag, payload, settled = egress.settles.popleft(), b"", True
            else:
                (tag, payload), settled = egress.held.popleft(), False
            resume = tag in egress.to_resume
            egress.to_resume.discard(tag)
            egress.ids[egress.next_id] = tag
            egress.pipe.down.append(("transfer", egress.next_id, tag, payload, settled, resume))

    def subscriber_lost(self, name: str, pipe: Pipe) -> None:
        egress = self.egresses.get(name)
        if egress is not None and egress.pipe is pipe:
            del self.egresses[name]
