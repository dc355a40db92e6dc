"""What a subscriber has, against what its publisher's ingress says: the decisions of rules E-2 and E-3."""

from __future__ import annotations

from collections.abc import Callable

from delivery_records.model.messages import Nack, Sync, ToIngress
from delivery_records.model.outcomes import Decision, DeliveryOutcome
from delivery_records.model.tags import network_tag
from delivery_records.model.trace import Rule
from delivery_records.model.turn import Turn
from delivery_records.subscriber.entries import (
    DONE_AT_SUBSCRIBER,
    IN_PLACE,
    NEVER_SENT,
    WAITING,
    Entry,
    State,
    SyncState,
    was_sent,
)
from delivery_records.subscriber.outgoing import Outgoing


class KnownDeliveries:
    """At one egress."""

    __slots__ = ("_answer", "_turn", "outgoing")

    def __init__(self, turn: Turn, outgoing: Outgoing, answer: Callable[[SyncState, ToIngress], None]) -> None:
        """`answer` notifies the ingress of a stream."""
        self._turn = turn
        self._answer = answer
        self.outgoing = outgoing

    def declare(self, sync: Sync, state: SyncState, old: SyncState | None, *, is_part: bool) -> None:
        """E-2: U of a stream that starts with `state`; `is_part`: what precedes in U may be after the start of S."""
        nonce, session, is_letters, entries = self._turn.nonce, state.session, state.is_letters, state.entries
        tags = [network_tag(nonce, session, tag, is_letters) for tag in sync.tags]
        unsettled = set(tags)
        if old is not None:  # E-3: the same tag under another number of the same epoch
            numbered = zip(tags, sync.numbers, strict=True)
            unsettled -= {tag for tag, number in numbered if old.is_former(tag, state.epoch, number)}
        for entry in [entry for tag, entry in entries.items() if tag not in unsettled]:
            self.outgoing.trace(entry, Rule.NOT_IN_U)
            self.outgoing.settle(entries.pop(entry.tag))
        last = -1
        if not is_part:  # E-10: what expired did so behind others that were held, and not sent
            last = max((at for at, tag in enumerate(tags) if was_sent(entries.get(tag))), default=-1)
        for at, (number, tag) in enumerate(zip(sync.numbers, tags, strict=True)):
            found = entries.get(tag)
            if found is None:
                if at > last:
                    continue
                # E-2 (add): what precedes something S has, and is not in its map, precedes S's start.
                found = entries[tag] = Entry(tag, State.SKIPPED)
                found.outcome = DeliveryOutcome.ACCEPTED
                self._turn.counts[Decision.SKIPPED] += 1
                self.outgoing.trace(found, Rule.SKIPPED)
            found.sync = state
            found.number = number
            state.numbers[number] = found
            was_never_sent = found.state in NEVER_SENT
            if found.outcome is not None and (was_never_sent or found.state in DONE_AT_SUBSCRIBER):
                state.acknowledge(number, found.outcome)
                if not was_never_sent:
                    self.outgoing.trace(found, Rule.ACKNOWLEDGED_AGAIN, found.outcome.value)
        state.places = sum(entry.state in IN_PLACE for entry in entries.values())

    def wants(self, entry: Entry, sync: SyncState, attempt: int) -> bool:
        """E-3: DONE is acknowledged again, SENT needs nothing, KNOWN and AGAIN need the message."""
        if entry.state in DONE_AT_SUBSCRIBER or entry.state in NEVER_SENT:
            assert entry.outcome is not None
            self.outgoing.trace(entry, Rule.ALREADY_DONE)
            self._turn.counts[Decision.ALREADY_DONE] += 1
            sync.acknowledge(entry.number, entry.outcome)
            return False
        if entry.state in WAITING:
            self._turn.counts[Decision.ALREADY_SENT] += 1
            self.outgoing.trace(entry, Rule.ALREADY_SENT)
            return False
        is_unheard = sync.is_letters and entry.attempt > attempt  # I-3e: before its ingress had sent the letter
        if entry.outcome is not None or is_unheard:
            self._state_presented(entry, sync, attempt)
            return False
        return True

    def _state_presented(self, entry: Entry, sync: SyncState, attempt: int) -> None:
        """E-4a: S has failed it, and perhaps nobody has heard of it: this attempt is over before it is sent."""
        entry.outcome = None
        entry.attempt = max(entry.attempt, attempt)
        self._turn.counts[Decision.OUTCOME_AGAIN] += 1
        self.outgoing.trace(entry, Rule.WANTED_AGAIN, DeliveryOutcome.MODIFIED_FAILED.value)
        self._answer(sync, Nack(sync.epoch, sync.named, entry.number, True, entry.attempt, is_presented=True))
