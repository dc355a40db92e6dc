"""SYNC, MSG and SETTLE for the subscriptions at this router, from any ingress, its own too (rules E-1 to E-5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from delivery_records.model.endpoint import Endpoint
from delivery_records.model.letter_topics import gets_letters
from delivery_records.model.messages import (
    ExpiringMsg,
    FormerAnnotations,
    LargePart,
    Msg,
    Return,
    Run,
    Settle,
    Sync,
    Taken,
    ToEgress,
    ToIngress,
)
from delivery_records.model.outcomes import Decision
from delivery_records.model.parts import NOT_WANTED, Part
from delivery_records.model.trace import Rule
from delivery_records.model.turn import Turn
from delivery_records.subscriber import large_parts
from delivery_records.subscriber.egress import Egress
from delivery_records.subscriber.entries import LargeBody
from delivery_records.subscriber.pieces import Pieces


class ToEgresses:
    """The egresses of this router, and which of them are synced to which publisher."""

    __slots__ = (
        "_give_back",
        "_turn",
        "egresses",
        "former_epochs",
        "on_fault",
        "pieces",
        "refused_letters",
        "synced",
        "synced_letters",
        "synced_members",
    )

    def __init__(
        self, turn: Turn, on_fault: Callable[[Endpoint, Exception], None], give_back: Callable[[int, ToIngress], None]
    ) -> None:
        """No subscription is attached here.

        Args:
            turn: of this router.
            on_fault: confines what one of them raised (K-3b).
            give_back: notifies the ingress at a router that a member, or a subscription, has no link here (SH-2, L-2).
        """
        self._turn = turn
        self._give_back = give_back
        self.on_fault = on_fault
        self.egresses: dict[str, Egress] = {}
        self.synced: dict[int, dict[str, Egress]] = {}
        """Subscriptions here that are synced to a publisher epoch."""
        self.synced_members: dict[int, dict[str, Egress]] = {}
        """The same of members of shared subscriptions: only a MSG that names them is for them (SH-2)."""
        self.synced_letters: dict[int, dict[str, Egress]] = {}
        """The same of dead-letter subscriptions, to a letters stream: no MSG to all is for them (I-3e)."""
        self.former_epochs: dict[int, str] = {}
        """Of links here whose keys were put again: an ingress that has not seen it names them so (A-10)."""
        self.refused_letters: dict[int, None] = {}
        """Routers whose letters streams the rules here do not know: they are asked again when the rules change."""
        self.pieces = Pieces(turn, self.egresses, self._begin, self._hand_over)
        """What waits of messages to many (T-10)."""

    def deliver(self, origin: int, message: ToEgress) -> None:
        """Hand a message of the ingress at `origin` over, behind what waits of its stream."""
        if self.pieces.lines and self.pieces.wait(origin, message):
            return
        egresses = self._begin(origin, message)
        if egresses:
            assert isinstance(message, Msg | Settle)
            self._give(origin, message, egresses)

    def to_these(self, message: Msg | Settle, egresses: Sequence[Egress]) -> None:
        """The same of an ingress here, which knows those that it is for."""
        if not (self.pieces.lines and self.pieces.wait(self._turn.rid, message, egresses)):
            self._give(self._turn.rid, message, egresses)

    def settle_these(self, epoch: int, runs: tuple[Run, ...], egresses: Sequence[Egress]) -> None:
        """The SETTLE of an ingress here; most have one subscription, for which no message is made."""
        if len(egresses) == 1 and not self.pieces.lines:
            self.settle(egresses[0], epoch, runs)
        else:
            self.to_these(Settle(epoch, runs), egresses)

    def _give(self, origin: int, message: Msg | Settle, egresses: Sequence[Egress]) -> None:
        if len(egresses) == 1 or not self.pieces.take(origin, message, egresses):
            for egress in egresses:
                self._hand_over(egress, message)

    def _begin(self, origin: int, message: ToEgress) -> Sequence[Egress]:
        """Carry out a message, but for handing it to those that it returns."""
        if isinstance(message, Msg):
            if not message.to or not self._is_for_member(origin, message, message.to[0]):
                return self._reached_by(message)
        elif isinstance(message, Settle):
            epoch = message.publisher_epoch
            of_all = (self.synced, self.synced_members, self.synced_letters)
            return [egress for synced in of_all if epoch in synced for egress in synced[epoch].values()]
        elif isinstance(message, LargePart):
            self._on_large(origin, message)
        elif isinstance(message, FormerAnnotations):
            self._on_annotations(message)
        else:
            self._on_sync(origin, message)
        return ()

    def _hand_over(self, egress: Egress, message: Msg | Settle) -> None:
        if isinstance(message, Settle):
            self.settle(egress, message.publisher_epoch, message.runs)
        else:
            self.hand_over(egress, message)

    def _key(self, epoch: int) -> str:
        """Which subscription or member an epoch names; empty: none."""
        return self._turn.view.subscription_epochs.get(epoch) or self.former_epochs.get(epoch, "")

    def _on_large(self, origin: int, part: LargePart) -> None:
        """L-2: for the named subscriptions and members, those of other routers left out."""
        view, epoch = self._turn.view, part.publisher_epoch
        for named in part.to:
            subscription = view.subscriptions.get(self._key(named))
            if subscription is None or subscription.record.rid != self._turn.rid:
                continue
            synced = self.synced_members if subscription.record.member_of else self.synced
            egress = synced.get(epoch, {}).get(subscription.key)
            if egress is None:  # E-1: without a link, or a SYNC of that epoch
                if part.part is Part.FIRST:
                    is_member = bool(subscription.record.member_of)
                    back = Return(epoch, named, part.number)
                    self._give_back(origin, back if is_member else Taken(epoch, named, part.number, NOT_WANTED))
                continue
            try:
                if not part.assigned or egress.expects(epoch, part.number, part.assigned):
                    large_parts.take_part(egress, part)
            except Exception as error:  # noqa: BLE001  (K-3b)
                self.on_fault(egress, error)

    def _on_sync(self, origin: int, sync: Sync) -> None:
        key = self._turn.view.publisher_epochs.get(sync.publisher_epoch)
        if key is None:  # E-1: only the publisher's latest epoch speaks for it
            self._turn.counts[Decision.FRAME_STALE] += 1
            return
        session = self._turn.view.publishers[key].session
        for epoch in sync.subscription_epochs:
            egress = self.egresses.get(self._key(epoch))
            if egress is not None:
                # E-1: a former epoch is not in the view, and a link is as old as the epoch that is (T-8), or older.
                assert egress.epoch == epoch or epoch in self.former_epochs
                try:
                    if sync.is_letters and sync.numbers and not self._takes_letters(egress, key):
                        self.refused_letters[origin] = None
                        egress.on_session_gone(session)
                    else:
                        egress.on_sync(key, origin, session, sync)
                except Exception as error:  # noqa: BLE001  (K-3b)
                    self.on_fault(egress, error)
            else:
                self._turn.counts[Decision.FRAME_STALE] += 1

    def _on_annotations(self, message: FormerAnnotations) -> None:
        """E-4b: for what is here, and for the MSG that follows."""
        egress = self.egresses.get(self._key(message.subscription_epoch))
        sync = None if egress is None else egress.syncs.get(message.publisher_epoch)
        if sync is not None:  # E-1
            sync.annotate(message.number, message.added)

    def _takes_letters(self, egress: Egress, publisher_key: str) -> bool:
        """I-3e: a stream from before a change of the rules would bring again what that change has settled."""
        view = self._turn.view
        topic = view.publishers[publisher_key].record.topic
        return gets_letters(self._turn.policy_of(topic), topic, view.subscriptions[egress.key].record.topic)

    def _reached_by(self, message: Msg) -> Sequence[Egress]:
        turn = self._turn
        synced = self.synced.get(message.publisher_epoch)
        letters = None if message.to is None else self.synced_letters.get(message.publisher_epoch)
        if synced is None and letters is None:
            turn.counts[Decision.FRAME_NOT_SYNCED] += 1
            if turn.tracing is not None:
                epoch = message.publisher_epoch
                turn.tracing.of_epoch(epoch, message.tag, Rule.NOT_SYNCED, epoch)
            return ()
        if message.to is None:
            return list((synced or {}).values())
        keys = [self._key(epoch) for epoch in message.to]
        return [streams[key] for key in keys for streams in (synced, letters) if streams and key in streams]

    def hand_over(self, egress: Egress, message: Msg) -> None:
        """For one egress here."""
        try:
            if message.assigned and not egress.expects(message.publisher_epoch, message.number, message.assigned):
                return
            if type(message) is ExpiringMsg:
                egress.on_expiring(message)
            elif message.settled:
                egress.on_presettled(message.publisher_epoch, message.tag, message.message, message.message_format)
            else:
                egress.on_msg(
                    message.publisher_epoch,
                    message.number,
                    message.tag,
                    message.message,
                    message.redelivered,
                    message.attempt,
                    message.message_format,
                    LargeBody(is_place=True) if message.is_large else None,
                )
        except Exception as error:  # noqa: BLE001  (K-3b)
            self.on_fault(egress, error)

    def _is_for_member(self, origin: int, message: Msg, epoch: int) -> bool:
        """SH-2: a MSG for a member names it alone; given back where it has no link here."""
        view = self._turn.view
        member = view.subscriptions.get(self._key(epoch))
        if member is None or not member.record.member_of:
            return False
        egress = self.synced_members.get(message.publisher_epoch, {}).get(member.key)
        if egress is not None:
            self.hand_over(egress, message)
        elif member.record.rid == self._turn.rid and not message.settled:
            self._give_back(origin, Return(message.publisher_epoch, epoch, message.number))
        return True

    def settle(self, egress: Egress, publisher_epoch: int, runs: Sequence[Run]) -> None:
        """E-5, for one egress here."""
        try:
            egress.on_settle(publisher_epoch, runs)
        except Exception as error:  # noqa: BLE001  (K-3b)
            self.on_fault(egress, error)
