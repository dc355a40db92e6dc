"""A member of a shared subscription at its egress (rules SH-2, SH-4).

It says what its subscriber has, and takes only what it can send at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from delivery_records.model import effects
from delivery_records.model.assigned import Assigned
from delivery_records.model.groups import no_group
from delivery_records.model.inputs import ClientFlow, LossCause, SubscriberAttach
from delivery_records.model.limits import CREDIT_LOOK_S
from delivery_records.model.messages import Claim, Nack, Return, Room, Run, Sync
from delivery_records.model.outcomes import DeliveryOutcome
from delivery_records.model.runs import add_run, frozen_runs
from delivery_records.model.tags import OWN_TAG_AT, SESSION_AT, is_letter_tag, network_tag
from delivery_records.model.timers import Timer
from delivery_records.model.turn import Turn
from delivery_records.model.view import Subscription, SubscriptionMode
from delivery_records.subscriber.egress import EgressParts
from delivery_records.subscriber.entries import NO_NUMBER, WANTED, Entry, LargeBody, SyncState
from delivery_records.subscriber.filtered_egress import FilteredEgress
from delivery_records.subscriber.returned_groups import ReturnedGroups

GROWTH: Final = 2
"""Room that has grown by so much since it was stated is stated again."""
MAX_ROOM: Final = 0xFFFFFFFF
"""What a CLAIM or a ROOM can say; link-credit is no larger (AMQP 1.0 section 2.7.4)."""


class MemberEgress(FilteredEgress):
    """One member. Nothing new waits here for credit: another member may have some (SH-2)."""

    __slots__ = (
        "_failed",
        "_failures",
        "_heads",
        "_left",
        "_lives",
        "_over",
        "_returned",
        "_short",
        "_spent",
        "_stated",
        "_used",
    )

    def __init__(self, turn: Turn, subscription: Subscription, request: SubscriberAttach, parts: EgressParts) -> None:
        """As `Egress`."""
        super().__init__(turn, subscription, request, parts)
        self._lives = not request.exactly_once
        """Its attach was not read from a connection that is dead (SH-4). Without a map there is nothing to believe."""
        self._failed: set[bytes] = set()
        """What it presented as failed (E-4a)."""
        self._failures: dict[int, list[tuple[int, bytes]]] = {}
        """Publisher epoch -> numbers and tags of those; its ingress hears of them ahead of the CLAIM."""
        for entries in self.sessions.values():
            for entry in [entry for entry in entries.values() if entry.state in WANTED]:
                if entry.outcome is not None:
                    self._failed.add(entry.tag)
                self._hand_back(entries, entry)
        shared = turn.view.subscriptions.get(subscription.record.member_of)
        is_grouped = shared is not None and shared.record.grouped
        self._returned = ReturnedGroups(parts.message_format.read_group if is_grouped else no_group)
        self._over: dict[int, int] = {}
        """Publisher epoch -> what its reserved place in a full map was used for."""
        self._heads: dict[int, int] = {}
        """Publisher epoch -> what its ingress offered last as what the publisher waits for."""
        self._short: dict[int, SyncState] = {}
        """Publishers whose ingress was notified that there is no room."""
        self._stated = 0
        """Room that was last stated in a CLAIM or ROOM."""
        self._left: dict[int, int] = {}
        """Publisher epoch -> what is left at least of the room that was stated to its ingress: answers give it back."""
        self._used: dict[int, SyncState] = {}
        """Of these, those that have used some."""
        self._spent: dict[int, SyncState] = {}
        """Of these, those that have used all, as far as is known without their answers."""

    def reply(self) -> None:
        """See Egress."""
        super().reply()
        self._offer_room()

    def on_sync(self, publisher_key: str, ingress_rid: int, session: int, sync: Sync) -> None:
        """SH-4: behind E-2, answer which of U the map of this member has, done with or not."""
        over = self._over.get(sync.publisher_epoch)
        sending = self.outgoing.large.current
        super().on_sync(publisher_key, ingress_rid, session, sync)
        if over is not None:  # what a full map took beyond its bound is there still
            self._over[sync.publisher_epoch] = over
        self.outgoing.reserve = len(self.syncs)
        state = self.syncs[sync.publisher_epoch]
        state.serial = sync.serial
        state.first_new = NO_NUMBER  # SH-5: another member may have had any
        if self._failed:
            tags = [network_tag(self._turn.nonce, session, tag, sync.is_letters) for tag in sync.tags]
            self._failures[state.epoch] = [
                (number, tag) for number, tag in zip(sync.numbers, tags, strict=True) if tag in self._failed
            ]
            self._forget_failed(state.prefix, set(tags))
        if self._lives:
            self._claim(state)
        if sending is not None and self.outgoing.large.current is None:
            self._offer_room()  # L-5: others waited for the end of that transfer

    def _forget_failed(self, prefix: bytes, kept: set[bytes]) -> None:
        """What is not in U any more is settled (E-2)."""
        is_letter = is_letter_tag(prefix)
        self._failed = {
            tag
            for tag in self._failed
            if tag in kept or tag[SESSION_AT:OWN_TAG_AT] != prefix[1:] or is_letter_tag(tag) is not is_letter
        }

    def on_session_gone(self, session: int) -> None:
        """E-6."""
        for is_letters in (False, True) if self._failed else ():
            self._forget_failed(network_tag(self._turn.nonce, session, b"", is_letters), set())
        super().on_session_gone(session)

    def ask_for_life(self) -> None:
        """SH-4: the map of a stale attach would give away what the member has."""
        super().ask_for_life()
        if not self._lives:
            if self.proof.is_proven:  # else it was asked just now
                self._turn.out.append(effects.AskEcho(self.link, self.epoch))
            self._turn.timers.set(Timer.LIFE, self.key, self._turn.now + self._turn.limits.proof_timeout_s)

    def on_reput(self, subscription: Subscription) -> None:
        """A-10; SH-4: an outcome was a sign of life for its terms, and none for its map, which counts by the echo."""
        super().on_reput(subscription)
        self.ask_for_life()

    def on_silence(self) -> None:
        """No answer within T_life: detached, and not closed, as a publisher (A-4)."""
        if not self._lives:
            text = "no answer to the flow with x-opt-topic-echo, which a member of a shared subscription must give"
            self._turn.out.append(effects.DetachLink(self.link, False, "amqp:link:detach-forced", text))
            self._parts.suspend(self, LossCause.DETACH)

    def _claim(self, state: SyncState) -> None:
        for number, tag in self._failures.pop(state.epoch, ()):
            self._failed.discard(tag)
            self._parts.answer(state, Nack(state.epoch, state.named, number, True, is_presented=True))
        runs: list[list[int]] = []
        for number in sorted(state.numbers):
            add_run(runs, number)
        room = self._free()
        if not room:
            self._short[state.epoch] = state
        self._left[state.epoch] = room
        self._parts.answer(state, Claim(state.epoch, state.named, room, frozen_runs(runs), state.serial))

    def on_msg(
        self,
        publisher_epoch: int,
        number: int,
        tag: bytes,
        message: bytes,
        redelivered: bool = False,
        attempt: int = 0,
        message_format: int = 0,
        large: LargeBody | None = None,
    ) -> None:
        """SH-2: send it, or give it back at once."""
        sync = self.syncs.get(publisher_epoch)
        if sync is not None and number not in sync.numbers:
            if self._excludes(publisher_epoch, message, message_format):  # E-9: no member is to have it
                self._count(publisher_epoch, tag)
                sync.acknowledge(number, DeliveryOutcome.ACCEPTED)
                return
            overtakes = self._returned.overtakes(publisher_epoch, number, message, message_format)
            if overtakes or not self._takes(sync, number):
                self._returned.add(publisher_epoch, number, message, message_format)
                self._short[sync.epoch] = sync
                self._used.pop(sync.epoch, None)
                self._spent.pop(sync.epoch, None)
                self._parts.answer(sync, Return(sync.epoch, sync.named, number))
                if large is not None:
                    large.is_taken_up = True  # L-2: its RETURN says that it is not wanted
                return
            left = self._left[publisher_epoch] = self._left.get(publisher_epoch, 0) - 1
            self._used[publisher_epoch] = sync
            if left <= 0:
                self._spent[publisher_epoch] = sync
        super().on_msg(publisher_epoch, number, tag, message, redelivered, attempt, message_format, large)
        if self._used:
            self._watch_credit()
        if self._returned.remove(publisher_epoch, number):
            self._offer_room()  # SH-6: what went back because it would have overtaken this one
        has_body = large is None or not large.is_place  # L-7: else it asks for it, and is owed it till then
        if sync is not None and has_body and self.mode is SubscriptionMode.AT_MOST_ONCE:
            sync.acknowledge(number, DeliveryOutcome.ACCEPTED)  # c.3: it will not answer, and nobody else is to do it

    def on_settle(self, publisher_epoch: int, runs: Iterable[Run]) -> None:
        """E-5."""
        self._returned.on_settled(publisher_epoch, runs)
        super().on_settle(publisher_epoch, runs)

    def _takes(self, sync: SyncState, number: int) -> bool:
        """SH-2: whether a new delivery would be sent now.

        A full map takes what a publisher waits for: before that is done, nothing of that publisher is settled (C-4).
        """
        if not self.outgoing.free_credit:
            return False
        if self.outgoing.has_room:
            return True
        if self._over.get(sync.epoch) in sync.numbers or self._heads.get(sync.epoch) != number:
            return False
        self._over[sync.epoch] = number
        return True

    def expects(self, publisher_epoch: int, number: int, assigned: Assigned) -> bool:
        """How what comes next was assigned; False: by a CLAIM that named what was handed back since (SH-5)."""
        if assigned is Assigned.AS_HEAD:
            self._heads[publisher_epoch] = number
        sync = self.syncs.get(publisher_epoch)
        return assigned is not Assigned.BY_ITS_MAP or sync is None or number in sync.numbers

    def _want_again(self, entry: Entry, outcome: DeliveryOutcome, settled: bool, delay_ms: int | None) -> None:
        """SH-5: what a member does not want is not its own any more, and no CLAIM may name it."""
        super()._want_again(entry, outcome, settled, delay_ms)
        self._hand_back(self.sessions[entry.tag[SESSION_AT:OWN_TAG_AT]], entry)
        self._offer_room()  # C-4: its place in the map is free

    def _hand_back(self, entries: dict[bytes, Entry], entry: Entry) -> None:
        self.outgoing.settle(entry)
        del entries[entry.tag]
        if entry.sync is not None:
            entry.sync.numbers.pop(entry.number, None)

    def on_flow(self, flow: ClientFlow) -> None:
        """C-3, and SH-2: who was notified that there is no room is notified of room."""
        lived, self._lives = self._lives, self._lives or flow.echoed_epoch == self.epoch
        super().on_flow(flow)
        if self._lives and not lived:
            self._turn.timers.cancel(Timer.LIFE, self.key)
            for state in list(self.syncs.values()):
                self._claim(state)
        self._offer_room()
        if self._spent and self.outgoing.free_credit:
            self._look_at_spent()

    def after_settling(self) -> None:
        """C-4: there may be room in the map again."""
        self._offer_room()

    def forget(self) -> None:
        """SH-2: the link is gone, or its streams start anew: nothing more for it till the next CLAIM."""
        for sync in self.syncs.values():
            self._parts.answer(sync, Room(sync.epoch, sync.named, 0))
        super().forget()

    def _forget_sync(self, epoch: int) -> None:
        super()._forget_sync(epoch)
        self._short.pop(epoch, None)
        self._returned.forget(epoch)
        self._left.pop(epoch, None)
        self._used.pop(epoch, None)
        self._spent.pop(epoch, None)
        self._over.pop(epoch, None)
        self._heads.pop(epoch, None)
        self._failures.pop(epoch, None)
        self.outgoing.reserve = len(self.syncs)

    @property
    def _room(self) -> int:
        """SH-2: deliveries that it takes now, by credit and map; a full map keeps a place for the oldest one (C-4)."""
        return min(self.outgoing.free_credit, max(1, self.outgoing.places)) if self._lives else 0

    def _free(self) -> int:
        """Deliveries that it takes beyond those that it has; what was stated is remembered."""
        self._stated = self._room
        return min(self._stated, MAX_ROOM)

    def _offer_room(self) -> None:
        free = self._room
        # Twice as much, so that a client that adds one at a time costs each ingress a few messages and not one each.
        has_grown = free > GROWTH * self._stated
        if has_grown or (free and self._short):
            syncs, self._short = self.syncs if has_grown else self._short, {}
            self._state_room(list(syncs.values()))
        if free and self._used:
            self._watch_credit()

    def _watch_credit(self) -> None:
        if self.outgoing.free_credit and not self._turn.timers.is_set(Timer.CREDIT, self.key):
            self._turn.timers.set(Timer.CREDIT, self.key, self._turn.now + CREDIT_LOOK_S)

    def _look_at_spent(self) -> None:
        """SH-2: who has used all that was stated hears of more at once, unless an answer has given some back."""
        spent, self._spent = self._spent, {}
        waiting: list[SyncState] = []
        for epoch, sync in spent.items():
            newest = next(reversed(sync.numbers.values()), None)
            if newest is not None and newest.outcome is None:
                waiting.append(sync)
            else:
                self._left[epoch] = 1
        self._state_room(waiting)

    def look_at_credit(self) -> None:
        """SH-2: nobody would hear of credit for those that follow, where nothing is answered meanwhile."""
        free = self._room
        self._state_room([sync for epoch, sync in self._used.items() if free > GROWTH * self._left[epoch]])

    def _state_room(self, syncs: list[SyncState]) -> None:
        room = self._free() if syncs else 0
        for sync in syncs:
            if self.outgoing.free_credit:
                self._left[sync.epoch] = room
                self._used.pop(sync.epoch, None)
                self._spent.pop(sync.epoch, None)
                self._parts.answer(sync, Room(sync.epoch, sync.named, room))
            else:  # an ingress here has used it up meanwhile
                self._short[sync.epoch] = sync
