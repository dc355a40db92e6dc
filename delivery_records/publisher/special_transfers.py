"""Transfers that are not simply the next whole delivery of a publisher (rules I-1a to I-1c, I-9, L-1).

One of the presented map that is sent again, one sent settled, resumed or aborted, one that comes in parts or may
expire, and one whose sections nobody can read. A plain delivery passes none of this.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from delivery_records.model.inputs import PublisherTransfer
from delivery_records.model.limits import TopicPolicy
from delivery_records.model.outcomes import Decision, DeliveryOutcome
from delivery_records.model.trace import Rule
from delivery_records.model.turn import Turn
from delivery_records.publisher.fanout import Fanout
from delivery_records.publisher.lifetimes import Lifetimes
from delivery_records.publisher.resends import Resends
from delivery_records.publisher.resumption import Resumption
from delivery_records.publisher.window import AWAITED, Slot, Window

Annotate: TypeAlias = Callable[[bytes, str, bytes, int, str], bytes]
"""(message, publisher, tag, session, user) -> the message with our annotations (I-1b); ValueError if malformed."""


class TransferOwner(Protocol):
    """The ingress, as this part of it knows it."""

    name: str
    session: int
    user: str
    exactly_once: bool
    policy: TopicPolicy

    def on_settled(self, tags: list[bytes]) -> None:
        """I-4."""

    def trace(self, slot: Slot, rule: Rule, *fields: object) -> None:
        """A step of a delivery, while an operator wants to see them."""

    def detach(self, condition: str, description: str) -> None:
        """Suspend the link from our side."""


class SpecialTransfers:
    """Of one publisher."""

    __slots__ = ("_annotate", "_owner", "_turn", "fanout", "lifetimes", "resends", "resumption", "window")

    def __init__(
        self,
        turn: Turn,
        owner: TransferOwner,
        annotate: Annotate,
        window: Window,
        fanout: Fanout,
        lifetimes: Lifetimes,
        resends: Resends,
        resumption: Resumption,
    ) -> None:
        """None has come yet."""
        self._turn = turn
        self._owner = owner
        self._annotate = annotate
        self.window = window
        self.fanout = fanout
        self.lifetimes = lifetimes
        self.resends = resends
        self.resumption = resumption

    def store_other(self, slot: Slot, message: bytes, transfer: PublisherTransfer) -> None:
        """A large message (L-1), or one that may expire (E-10)."""
        if transfer.is_large:
            self.fanout.streams.begin(slot, message, transfer.delivery_id)
            return
        self.window.fill(slot, message, transfer.delivery_id)
        self.lifetimes.on_stored(slot, self._owner.policy.ttl_s)

    def on_repeated(self, transfer: PublisherTransfer) -> None:
        """What is presented was sent again."""
        if transfer.settled:
            self._owner.on_settled(
                [transfer.tag]
            )  # a resend that is settled at once: given up behind this one try (I-4a)
        else:
            self.resends.on_repeated()

    def is_awaited(self, slot: Slot, transfer: PublisherTransfer) -> bool:
        """Whether the publisher repeats a delivery of its map, and not a tag that is in use."""
        if slot.state is not AWAITED:
            if self.resumption.take(slot, transfer):
                return False
            self._turn.note(Decision.TRANSFER_TAG_IN_USE, publisher=self._owner.name)
            self._owner.detach("amqp:not-allowed", "the delivery-tag names a delivery that is not settled yet")
            return False
        if self._owner.exactly_once:
            self.resends.abandon(slot.number)  # P-1: in order, so what it passed over will not come
        return True

    def has_place(self, transfer: PublisherTransfer) -> bool:
        """Whether a settled, resumed or aborted transfer belongs in the window; if not, it is dealt with."""
        if transfer.aborted:
            self._turn.counts[Decision.TRANSFER_ABORTED] += 1  # I-1a: no trace; what is unreceived may be repeated
            return transfer.resume and self.resumption.takes(transfer)
        if transfer.resume:
            return self.resumption.takes(transfer)
        if transfer.settled and self.window.find(transfer.tag) is None:
            self._forward_presettled(transfer)
            return False
        return True

    def _forward_presettled(self, transfer: PublisherTransfer) -> None:
        """I-1c: a place in the stream, but neither window entry nor tag in U."""
        self.resends.abandon(self.window.end)
        message = transfer.message
        if transfer.message_format == 0:
            try:
                message = self._annotate(message, self._owner.name, transfer.tag, self._owner.session, self._owner.user)
            except ValueError:
                self._turn.counts[Decision.TRANSFER_MALFORMED] += 1
                return
        self._turn.counts[Decision.TRANSFER_PRESETTLED] += 1
        if self._turn.tracing is not None:
            self._turn.tracing.own(self._owner.session, transfer.tag, Rule.PRESETTLED)
        ttl_s, message_format = self._owner.policy.ttl_s, transfer.message_format
        expires_at = self.lifetimes.deadline(message, message_format, ttl_s) if ttl_s else None
        self.fanout.forward_presettled(transfer.tag, message, message_format, expires_at)

    def was_malformed(self, slot: Slot, transfer: PublisherTransfer) -> bool:
        """L-5: it came malformed and was aborted, and is owed to nobody: the same is true of what comes now."""
        if slot.failure:
            self.store_malformed(slot, transfer, slot.failure)
        return bool(slot.failure)

    def store_malformed(self, slot: Slot, transfer: PublisherTransfer, reason: str) -> None:
        """I-1b: a message whose sections cannot be read is rejected in its place and not forwarded."""
        self._turn.counts[Decision.TRANSFER_MALFORMED] += 1
        if transfer.is_large:
            self.fanout.streams.begin(slot, b"", transfer.delivery_id)  # L-1: told behind its last part
        else:
            self.window.fill(slot, b"", transfer.delivery_id)
        slot.pending = 0
        slot.verdict = DeliveryOutcome.REJECTED
        slot.failure = reason or "malformed"
        self.fanout.discard_letter(slot)
        self.fanout.forget(slot.number)  # SH-6: no group waits for it
        self._owner.trace(slot, Rule.MALFORMED, reason)
        if slot.repeated:
            self.on_repeated(transfer)
