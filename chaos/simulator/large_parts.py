"""Large messages of simulated clients (rules L-1 to L-7): sent in parts over time, put together where they arrive.

A part is a frame of its own. A publisher sends the next one when it likes, and while the session window of its router
is open (C-6); a router learns that a part has left for a subscriber when the subscriber reads it.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise

from chaos.simulator.connections import PartlyReceived, SimulatedConnection
from chaos.simulator.state import FIRST_BYTES, PART_BYTES, WorldState
from chaos.simulator.violation import Violation
from delivery_records.model import effects, inputs
from delivery_records.model.parts import Part


class PartsToSend:
    """What a publisher's engine has not sent yet, in order: transfers on one link do not interleave (2.6.14)."""

    def __init__(self, world: WorldState) -> None:
        """Nothing waits."""
        self._world = world
        self._connection: SimulatedConnection | None = None
        self._waiting: deque[inputs.PublisherTransfer | inputs.LargeTransfer] = deque()

    def send(self, connection: SimulatedConnection, transfer: inputs.PublisherTransfer) -> None:
        """A transfer of the publisher; the parts of a large one go one by one. Behind the link's end it is not sent."""
        if connection.has_ended:
            return
        if connection is not self._connection:
            self._connection = connection
            self._waiting.clear()
        may_be_large = self._world.traits.streams and connection.streams and not transfer.settled
        if may_be_large and len(transfer.message) > FIRST_BYTES:
            self._waiting.extend(_parts(transfer))
        elif self._waiting:
            self._waiting.append(transfer)
        else:
            connection.up.append(transfer)

    def drop(self) -> None:
        """The link is closed, or gone."""
        self._waiting.clear()

    def holds(self, tag: bytes) -> bool:
        """A transfer of that tag has not left completely."""
        return any(waiting.tag == tag for waiting in self._waiting)

    def waiting(self, connection: SimulatedConnection) -> list[inputs.PublisherTransfer | inputs.LargeTransfer]:
        """What has not left yet on that connection."""
        return list(self._waiting) if connection is self._connection else []

    def is_sending(self, delivery_id: int) -> bool:
        """A delivery has not left completely."""
        return any(waiting.delivery_id == delivery_id for waiting in self._waiting)

    @property
    def is_in_the_middle(self) -> bool:
        """A delivery has begun and is not through."""
        first = self._waiting[0] if self._waiting else None
        return isinstance(first, inputs.LargeTransfer) and first.part is not Part.FIRST

    def may_send(self, connection: SimulatedConnection | None) -> bool:
        """Something waits, and its router's session window is open."""
        if connection is None or connection is not self._connection or not self._waiting:
            return False
        router = self._world.routers[connection.router]
        ingresses = [] if router.records is None else router.records.ingresses.values()
        ingress = next((ingress for ingress in ingresses if ingress.link == connection.link), None)
        if ingress is None:
            return True
        under_way = sum(len(part.data) for part in connection.up if isinstance(part, inputs.LargeTransfer))
        if ingress.window.body_bytes + under_way < self._world.limits.window_bytes:
            return True
        # C-6: one frame at a time, of a large message of which nothing waits, or of a map (F1)
        is_due = ingress.large.is_arriving or ingress.window.unreceived > 0
        return is_due and not under_way + ingress.fanout.streams.held_bytes

    def go_on(self) -> None:
        """The next part leaves, and what is no part behind it."""
        assert self._connection is not None
        self._connection.up.append(self._waiting.popleft())
        while self._waiting and isinstance(self._waiting[0], inputs.PublisherTransfer):
            self._connection.up.append(self._waiting.popleft())

    def abort(self) -> bytes:
        """The application gives up what it is sending; returns its tag."""
        assert self._connection is not None
        first = self._waiting[0]
        assert isinstance(first, inputs.LargeTransfer)
        while self._waiting and self._waiting[0].tag == first.tag:
            self._waiting.popleft()
        end = inputs.LargeTransfer(first.link, first.delivery_id, first.tag, b"", Part.ABORT)
        self._waiting.appendleft(end)
        self.go_on()
        return first.tag


def _parts(transfer: inputs.PublisherTransfer) -> list[inputs.LargeTransfer]:
    body = transfer.message
    cuts = [0, *range(FIRST_BYTES, len(body), PART_BYTES), len(body)]
    parts = [
        inputs.LargeTransfer(transfer.link, transfer.delivery_id, transfer.tag, body[begin:end], Part.MIDDLE)
        for begin, end in pairwise(cuts)
    ]
    parts[0].part, parts[-1].part, parts[0].resume = Part.FIRST, Part.LAST, transfer.resume
    return parts


def read_part(connection: SimulatedConnection, effect: effects.Effect) -> effects.Effect | None:
    """What a client's engine makes of a frame: a whole delivery, an abort, or nothing yet.

    Raises:
        Violation: transfers of two deliveries on one link (2.6.14), or parts that do not belong together.
    """
    partly = connection.partly
    if not isinstance(effect, effects.DeliverPart):
        if isinstance(effect, effects.Deliver) and partly is not None:
            raise Violation(f"INTERLEAVED: {effect} comes in the middle of {partly.first.tag.hex()}")
        return effect
    if connection.is_open and not connection.is_dead and effect.data:
        connection.up.append(inputs.LargeTaken(connection.link, len(effect.data)))
    if effect.part is Part.FIRST:
        if partly is not None:
            raise Violation(f"INTERLEAVED: {effect.tag.hex()} begins in the middle of {partly.first.tag.hex()}")
        connection.partly = PartlyReceived(effect, bytearray(effect.data))
        return None
    if partly is None or partly.first.tag != effect.tag:
        raise Violation(f"INTERLEAVED: a part of {effect.tag.hex()}, which has not begun")
    if effect.part is Part.ABORT:
        connection.partly = None
        return effect
    partly.body += effect.data
    if effect.part is Part.MIDDLE:
        return None
    connection.partly = None
    first = partly.first
    return effects.Deliver(
        first.link,
        first.tag,
        bytes(partly.body),
        first.resume,
        first.settled,
        None,
        first.redelivered,
        first.attempt,
        first.annotations,
        first.message_format,
    )


def check_outcomes(waiting: PartsToSend, effect: effects.Effect) -> None:
    """L-1: an outcome comes behind the last part.

    Raises:
        Violation: it comes earlier.
    """
    if isinstance(effect, effects.Dispose) and any(waiting.is_sending(number) for number in effect.delivery_ids):
        raise Violation(f"EARLY: {effect.outcome.value} is reported before the last part was sent")
