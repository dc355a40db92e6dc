"""Large messages on their way to a client: parts to the engine, and what its connection has taken (L-3, L-4)."""

from __future__ import annotations

from typing import Final

from delivery_records.model.effects import DeliverPart
from delivery_records.model.inputs import Input, LargeTaken
from delivery_records.model.parts import Part
from oncewire.wire import SenderLink
from router.clients.message_edits import edit_for_attempt

SPOILER: Final = bytes(7)
"""In the transfer that aborts: rhea 3 knows no aborts, and takes what has come for the message if nothing is missing
but the last transfer, which may be empty. No section of a message begins so."""


class Sending:
    """The large deliveries of one subscriber's link, and how much of them its connection has taken (L-4)."""

    __slots__ = ("_handed", "_is_spoilt", "_link", "_taken", "number")

    def __init__(self, number: int, link: SenderLink, *, may_know_no_aborts: bool = False) -> None:
        """Nothing was sent.

        Args:
            number: of the link in the record core.
            link: of the engine.
            may_know_no_aborts: the client is a stock one.
        """
        self._is_spoilt = may_know_no_aborts
        self.number = number
        self._link = link
        self._handed = 0
        """Bytes of `DeliverPart.data` of the delivery that has begun last; 0 behind an abort."""
        self._taken = 0
        """Of those, what the record core was notified of."""

    def send(self, effect: DeliverPart, *, counts_repeats: bool) -> int | None:
        """Hand a part to the engine; what belongs to no delivery that has begun is dropped.

        Returns:
            The delivery-id, where the part begins a delivery.

        Raises:
            LocalProtocolError: see `SenderLink.begin` and `send_part`.
        """
        link = self._link
        if effect.part is Part.FIRST:
            data = effect.data
            if not effect.message_format and (effect.redelivered or effect.attempt or effect.annotations):
                data = edit_for_attempt(effect, data, counts_repeats=counts_repeats)
            begun = link.begin(
                effect.tag, data, settled=effect.settled, resume=effect.resume, message_format=effect.message_format
            )
            self._handed, self._taken = len(effect.data), 0
            return begun
        if not link.has_begun:  # the link takes only smaller messages, or was detached in the same read
            return None
        if effect.part is Part.ABORT:
            self.abort()
        elif effect.part is Part.LAST:
            link.finish(effect.data)
            self._handed += len(effect.data)
        else:
            link.send_part(effect.data)
            self._handed += len(effect.data)
        return None

    def abort(self) -> None:
        """End the delivery that has begun; nothing more is said of what was taken of it."""
        self._link.abort(SPOILER if self._is_spoilt else b"")
        self._handed = self._taken = 0

    def taken_input(self) -> Input | None:
        """How much more the connection has taken since it was asked last."""
        # A first part that was edited is longer than what the record core counts; and the end of a delivery that was
        # answered early may still wait before this one.
        taken = max(self._taken, self._handed - self._link.unsent_bytes)
        size, self._taken = taken - self._taken, taken
        return LargeTaken(self.number, size) if size else None

    @property
    def is_at_rest(self) -> bool:
        """Whether there is nothing to ask for until the next part."""
        return self._taken >= self._handed


_NOBODY: Final[dict[Sending, None]] = {}
"""Most connections have no large message; never changed."""


class Sendings:
    """The links of one connection that have sent parts of which the record core has not heard."""

    __slots__ = ("_unheard",)

    def __init__(self) -> None:
        """There are none."""
        self._unheard: dict[Sending, None] = _NOBODY

    def __bool__(self) -> bool:
        return bool(self._unheard)

    def add(self, sending: Sending) -> None:
        """A part was handed to the engine."""
        if not self._unheard:
            self._unheard = {}
        self._unheard[sending] = None

    def taken(self, *, is_behind: bool) -> list[Input]:
        """At the end of a turn, behind the write: what the connection has taken. Nothing while it is behind."""
        if is_behind:
            return []
        found: list[Input] = []
        for sending in list(self._unheard):
            each = sending.taken_input()
            if each is not None:
                found.append(each)
            if sending.is_at_rest:
                del self._unheard[sending]
        return found

    def forget(self) -> None:
        """The connection is over, or the incarnation."""
        self._unheard = _NOBODY
