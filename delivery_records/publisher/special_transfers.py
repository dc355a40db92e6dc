"""Transfers that are not simply the next whole delivery of a publisher (rules I-1a to I-1c, I-9, L-1).

One of the presented map that is sent again, one sent settled, resumed or aborted, one that comes in parts or may
expire, and one whose sections nobody can read. A plain delivery passes none of this.
"""

from __future__ import annotations

from delivery_records.model.inputs import PublisherTransfer
from delivery_records.model.message_format import Annotate
from delivery_records.model.outcomes import Decision, DeliveryOutcome
from delivery_records.model.trace import Rule
from delivery_records.model.turn import Turn
from delivery_records.publisher.fanout import Fanout
from delivery_records.publisher.lifetimes import Lifetimes
from delivery_records.publisher.owner import Owner
from delivery_records.publisher.resends import Resends
from delivery_records.publisher.resumption import Resumption
from delivery_records.publisher.window import AWAITED, Slot, Window


class SpecialTransfers:
    """Of one publisher."""

    __slots__ = ("_annotate", "_owner", "_turn", "fanout", "lifetimes", "resends", "resumption", "window")

    def __init__(
        self,
        turn: Turn,
        owner: Owner,
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

    def take(self, transfer: PublisherTransfer) -> None:
        """I-1: store it, if it has a place in the window, and send it on."""
        if (transfer.settled or transfer.resume or transfer.aborted) and not self._has_place(transfer):
            return
        slot = self.window.find(transfer.tag)
        if slot is None:
            self.resends.abandon(self.window.end)
            slot = self.window.append(transfer.tag)
            slot.pending = len(self.fanout.cursors)
        elif not self._is_awaited(slot, transfer) or self._was_malformed(slot, transfer):
            return
        slot.receiver_settles = transfer.receiver_settles
        message = transfer.message
        if transfer.message_format == 0:
            try:
                message = self._annotated(transfer)
            except ValueError as error:
                self._store_malformed(slot, transfer, str(error))
                return
        self._store(slot, message, transfer)
        if not slot.repeated:
            self._turn.stored += 1
            self._owner.send_on(slot)
            return
        self._turn.counts[Decision.TRANSFER_REPEATED] += 1
        self._owner.send_on(slot)
        self._on_repeated(transfer)

    def _annotated(self, transfer: PublisherTransfer) -> bytes:
        owner = self._owner
        return self._annotate(transfer.message, owner.name, transfer.tag, owner.session, owner.user)  # I-1b

    def _store(self, slot: Slot, message: bytes, transfer: PublisherTransfer) -> None:
        """A large message (L-1), one that may expire (E-10), or a plain one."""
        slot.message_format = transfer.message_format
        if transfer.is_large:
            self.fanout.begin_large(slot, message, transfer.delivery_id)
        else:
            self.window.fill(slot, message, transfer.delivery_id)
            self._owner.limit_life(slot)
        slot.is_special = bool(slot.repeated or slot.message_format or slot.is_large or self._owner.policy.ttl_s)

    def _on_repeated(self, transfer: PublisherTransfer) -> None:
        """What is presented was sent again."""
        if transfer.settled:
            self._owner.on_settled([transfer.tag])  # I-4a: settled at once, so given up behind this one try
        else:
            self.resends.on_repeated()

    def _is_awaited(self, slot: Slot, transfer: PublisherTransfer) -> bool:
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

    def _has_place(self, transfer: PublisherTransfer) -> bool:
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
                message = self._annotated(transfer)
            except ValueError:
                self._turn.counts[Decision.TRANSFER_MALFORMED] += 1
                return
        self._turn.counts[Decision.TRANSFER_PRESETTLED] += 1
        if self._turn.tracing is not None:
            self._turn.tracing.own(self._owner.session, transfer.tag, Rule.PRESETTLED)
        ttl_s, message_format = self._owner.policy.ttl_s, transfer.message_format
        expires_at = self.lifetimes.deadline(message, message_format, ttl_s) if ttl_s else None
        self.fanout.forward_presettled(transfer.tag, message, message_format, expires_at)

    def _was_malformed(self, slot: Slot, transfer: PublisherTransfer) -> bool:
        """L-5: it came malformed and was aborted, and is owed to nobody: the same is true of what comes now."""
        if slot.failure:
            self._store_malformed(slot, transfer, slot.failure)
        return bool(slot.failure)

    def _store_malformed(self, slot: Slot, transfer: PublisherTransfer, reason: str) -> None:
        """I-1b: a message whose sections cannot be read is rejected in its place and not forwarded."""
        self._turn.counts[Decision.TRANSFER_MALFORMED] += 1
        if transfer.is_large:
            self.fanout.begin_large(slot, b"", transfer.delivery_id)  # L-1: reported behind its last part
        else:
            self.window.fill(slot, b"", transfer.delivery_id)
        slot.pending = 0
        slot.verdict = DeliveryOutcome.REJECTED
        slot.failure = reason or "malformed"
        self.fanout.discard_letter(slot)
        for share in self.fanout.shares.values():
            share.let_go(slot.number)  # SH-6: no group waits for it
        self._owner.trace(slot, Rule.MALFORMED, reason)
        if slot.repeated:
            self._on_repeated(transfer)
