"""A subscriber's unsettled map as a pure state machine: rule S-a with C-3, C-4, C-5, A-4, A-6, A-7 and S-1.

The shell reports what happened and carries out the effects it gets back, in order. It asks `next_commit()` for what is
to be written to the journal whenever `wants_commit` is true (or in the application's own transaction), writes it, and
calls `committed()`; one commit is under way at a time.

An entry's life: arrived -> processed by the application (outcome known) -> done (outcome recorded: in the journal)
-> settled by the router, forgotten. One that is settled before it is done leaves the map at once, so that a transfer of
its tag is another delivery (E-3); the application processes it all the same.

The application may finish deliveries in any order. The journal never holds a done entry without every earlier entry of
the same session: E-2 would take those for what precedes the subscription, and they would be lost. They are stored
without an outcome and without their body; after a restart the router sends the body again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import islice, zip_longest

from oncewire.client.arrived_entry import ArrivedEntry, PresentedMap
from oncewire.client.core_effects import (
    AnswerEcho,
    DeliverMessage,
    DisposeDeliveries,
    GrantCredit,
    ProveOwner,
    RefuseLink,
    ReportConfirmed,
    ReportGivenUp,
    ReportIncarnation,
    SubscriberEffect,
)
from oncewire.client.defaults import PREFETCH
from oncewire.client.journal_records import SubscriberChanges, SubscriberState
from oncewire.client.outcomes import Outcome

LAZY_FORGETS = 1024
"""Settled tags the journal may still hold: forgetting needs no commit of its own, the router leaves them out (A-6)."""
SESSION_BYTES = slice(1, 11)
"""Of a network tag: cluster nonce and session, which together name the stream a delivery belongs to."""


def _serial(entry: ArrivedEntry) -> int:
    return entry.serial


def _states(entries: Sequence[ArrivedEntry]) -> dict[bytes, Outcome | None]:
    return {entry.tag: entry.outcome if entry.recorded else None for entry in entries}


class SubscriberCore:
    """One subscriber link over all its attaches.

    Args:
        prefetch: unprocessed new deliveries the router may send ahead.
        exactly_once: insist on the capability `topic-exactly-once`. False: at-least-once.
        recovered: what the journal holds.
        is_shared: another process may take over the journal while this one runs (P-b).
    """

    def __init__(
        self,
        *,
        prefetch: int = PREFETCH,
        exactly_once: bool = True,
        recovered: SubscriberState | None = None,
        is_shared: bool = False,
    ) -> None:
        assert prefetch >= 1
        state = recovered or SubscriberState()
        self._prefetch = prefetch
        self._exactly_once = exactly_once
        self._is_shared = is_shared
        self.copies = 0
        """Deliveries that the application was not given because they are copies (D-3); see `deduplicating_core`."""
        self._incarnation = state.incarnation
        self._next_serial = 1
        self._map: dict[bytes, ArrivedEntry] = {}  # in order of arrival (S-1)
        self._unprocessed: dict[int, ArrivedEntry] = {}  # by serial, in order of arrival
        self._settled_early: dict[bytes, ArrivedEntry] = {}  # settled, not processed, and the journal holds the tag
        # what the next commit writes
        self._processed: list[ArrivedEntry] = []
        self._forgotten: dict[bytes, None] = {}
        self._incarnation_changed = False
        self._committing: list[ArrivedEntry] | None = None
        # the present attach
        self._attach = 0
        self._attached = False
        self._settles_first = False
        self._presented: list[ArrivedEntry] = []
        self._rest: list[ArrivedEntry] = []
        """Presented behind the attach, if its router takes that (C-4)."""
        self._parts = 0
        self._to_resume: set[bytes] = set()
        self._received = 0
        self._held = 0
        self._limit = 0
        for tag, outcome in state.entries:
            entry = self._new_entry(tag, b"")
            entry.outcome = outcome
            entry.stored = True
            entry.recorded = outcome is not None
            entry.lacks_body = outcome is None
            self._map[tag] = entry

    # ------------------------------------------------------------------------------------------ the application

    @property
    def unfinished(self) -> int:
        """Deliveries that are not processed, or processed and not settled yet."""
        return len(self._map) + sum(
            not entry.pre_settled and self._map.get(entry.tag) is not entry for entry in self._unprocessed.values()
        )

    @property
    def unprocessed(self) -> int:
        """Deliveries the application has not finished with."""
        return len(self._unprocessed)

    @property
    def incarnation(self) -> int:
        """The subscription's incarnation; 0 while it is not known."""
        return self._incarnation

    def is_unprocessed(self, serial: int) -> bool:
        """Whether the application has yet to finish with this delivery."""
        return serial in self._unprocessed

    def complete(self, serial: int, outcome: Outcome) -> None:
        """The application has processed a delivery; the next commit records it.

        Raises:
            KeyError: the delivery was completed before.
        """
        entry = self._unprocessed.pop(serial)
        entry.outcome = outcome
        self._processed.append(entry)

    def release(self, serial: int) -> list[SubscriberEffect]:
        """The application wants the delivery again: that is done here, never by the network (E-4a, S-1).

        Raises:
            KeyError: the delivery was completed before.
        """
        entry = self._unprocessed[serial]
        entry.again += 1
        return [DeliverMessage(serial, entry.tag, entry.payload, entry.pre_settled, entry.again, entry.message_format)]

    # ------------------------------------------------------------------------------------------------- the link

    def begin_attach(self, map_bound: int) -> PresentedMap | None:
        """Start a new attach; returns the map to present, None = present null.

        Args:
            map_bound: entries that fit a frame (C-4). When there are more, a part is presented first.
        """
        self.lost()
        entries = [entry for entry in self._map.values() if not entry.settled]
        if len(entries) > map_bound:
            self._presented = self._part(entries, map_bound)
            first = {entry.tag for entry in self._presented}
            self._rest = [entry for entry in entries if entry.tag not in first]
        else:
            self._presented = entries
        if not self._exactly_once:
            return None
        return PresentedMap(_states(self._presented), _states(self._rest))

    def _part(self, entries: Sequence[ArrivedEntry], bound: int) -> list[ArrivedEntry]:
        """C-4: the oldest entries of each session, as many of one as of another, from another session on each time.

        A publisher gets outcomes in order (I-3), so of its deliveries only the oldest can be settled next; and those
        that come with their body again come in order (G3).
        """
        sessions: dict[bytes, list[ArrivedEntry]] = {}
        for entry in entries:
            sessions.setdefault(entry.tag[SESSION_BYTES], []).append(entry)
        lines = list(sessions.values())
        begin = self._parts % len(lines)
        self._parts += 1
        ranks = zip_longest(*lines[begin:], *lines[:begin])
        part = islice((entry for rank in ranks for entry in rank if entry is not None), bound)
        return sorted(part, key=_serial)

    def attached(
        self,
        kept: Collection[bytes],
        *,
        capable: bool,
        is_whole: bool = True,
        incarnation: int = 0,
        settles_first: bool = False,
    ) -> list[SubscriberEffect]:
        """The attach reply came.

        Args:
            kept: tags of the reply's map (empty for null).
            capable: the reply offers `topic-exactly-once`.
            is_whole: the router took the rest of the map, too; else this attach is a round (C-4).
            incarnation: `x-opt-topic-incarnation` of the reply, 0 if absent.
            settles_first: the reply grants rcv-settle-mode first only.
        """
        if self._exactly_once and (not capable or settles_first):
            lacks = "the capability topic-exactly-once" if not capable else "rcv-settle-mode second"
            return [RefuseLink(f"it does not offer {lacks}")]
        effects: list[SubscriberEffect] = []
        self._attached = True
        self._settles_first = settles_first
        for entry in [*self._presented, *self._rest] if is_whole else self._presented:
            if entry.tag in kept:
                self._to_resume.add(entry.tag)
            elif self._exactly_once:
                self._settle(entry, effects)  # a left-out entry is settled
            else:
                self._leave_out(entry, names_last=incarnation > 0)
        self._presented, self._rest = [], []
        if incarnation and incarnation != self._incarnation:
            effects.append(ReportIncarnation(self._incarnation, incarnation))
            self._incarnation = incarnation
            self._incarnation_changed = True
        self._replenish(effects)
        return effects

    def flow(self, *, echo: int | None = None, confirmed: int | None = None) -> list[SubscriberEffect]:
        """A flow came.

        Args:
            echo: value of `x-opt-topic-echo`.
            confirmed: value of `x-opt-topic-confirmed` (A-6b).
        """
        effects: list[SubscriberEffect] = []
        if not self._attached:
            return effects
        if echo is not None:
            effects.append(ProveOwner(echo) if self._is_shared else AnswerEcho(echo))
        if confirmed is not None:
            effects.append(ReportConfirmed(confirmed))
        return effects

    def transfer(
        self,
        delivery_id: int,
        tag: bytes,
        payload: bytes,
        *,
        settled: bool = False,
        resume: bool = False,
        aborted: bool = False,
        message_format: int = 0,
        receiver_settles: bool = False,
    ) -> list[SubscriberEffect]:
        """A whole delivery came, or one that was aborted.

        `receiver_settles`: the router wants its outcome settled, whatever the link's mode is (AMQP 2.7.5).
        """
        effects: list[SubscriberEffect] = []
        self._received += 1
        # S-a: what arrives settled and without resume is never a repeat, whatever its tag: the settled resumes of A-7
        # say that they are, and what this end holds is settled by disposition.
        is_new = settled and not resume
        entry = None if is_new else self._map.get(tag)
        if not aborted:
            if not is_new:
                self._to_resume.discard(tag)
            if entry is not None:
                entry.message_format = message_format
                entry.receiver_settles = receiver_settles
                self._repeat(entry, delivery_id, payload, settled, effects)
            elif not resume:  # AMQP 2.6.13: a resume of what this end does not hold is ignored
                self._arrive(delivery_id, tag, payload, settled, message_format, effects)
                if receiver_settles and not settled:
                    self._map[tag].receiver_settles = True
        self._replenish(effects)
        return effects

    def _arrive(
        self,
        delivery_id: int,
        tag: bytes,
        payload: bytes,
        settled: bool,
        message_format: int,
        effects: list[SubscriberEffect],
    ) -> None:
        entry = self._new_entry(tag, payload)
        entry.message_format = message_format
        entry.delivery_id = delivery_id
        entry.attach = self._attach
        entry.settled = entry.pre_settled = settled
        entry.counts = True
        self._held += 1
        self._unprocessed[entry.serial] = entry
        if not settled:
            earlier = self._settled_early.get(tag)
            if earlier is not None:
                self._forget(earlier)  # E-3: from now on the tag names this delivery, in the journal too
            self._map[tag] = entry
        effects.append(DeliverMessage(entry.serial, tag, payload, settled, message_format=message_format))

    def _repeat(
        self, entry: ArrivedEntry, delivery_id: int, payload: bytes, settled: bool, effects: list[SubscriberEffect]
    ) -> None:
        """S-a: a tag of the map came again. It is answered or waited for, never delivered a second time."""
        entry.settled = False  # null was presented, and it is still owed: it is answered on this attach
        entry.delivery_id = delivery_id
        entry.attach = self._attach
        if settled:
            self._settle(entry, effects)
        elif entry.recorded:
            assert entry.outcome is not None
            self._answer(entry, effects)
        elif entry.lacks_body:
            self._take_body(entry, payload, effects)

    def _answer(self, entry: ArrivedEntry, effects: list[SubscriberEffect]) -> None:
        """State the recorded outcome; settled, and so forgotten, where this end settles first (c.3)."""
        assert entry.outcome is not None
        settles = self._settles_first or entry.receiver_settles
        effects.append(DisposeDeliveries((entry.delivery_id,), entry.outcome, settles))
        if settles:
            self._forget(entry)

    def _take_body(self, entry: ArrivedEntry, payload: bytes, effects: list[SubscriberEffect]) -> None:
        """S-a: "take this body, at its old place". The router repeats a session in order, so that place is now."""
        entry.lacks_body = False
        entry.payload = payload
        entry.counts = True
        self._held += 1
        self._unprocessed[entry.serial] = entry
        effects.append(
            DeliverMessage(entry.serial, entry.tag, payload, settled=False, message_format=entry.message_format)
        )

    def settled(self, deliveries: Sequence[tuple[int, bytes]]) -> list[SubscriberEffect]:
        """The router settled (delivery-id, tag) pairs: forget them, after they are processed."""
        effects: list[SubscriberEffect] = []
        for _, tag in deliveries:
            entry = self._map.get(tag)
            if entry is not None:
                self._settle(entry, effects)
        return effects

    def lost(self) -> None:
        """The link is gone (detached, or its connection lost): everything stays in the map."""
        self._attach += 1
        self._attached = False
        self._presented, self._rest = [], []
        self._to_resume.clear()
        self._received = self._held = self._limit = 0
        for entry in self._unprocessed.values():
            entry.counts = False
        for entry in [*self._processed, *(self._committing or ())]:
            entry.counts = False

    def end_subscription(self, *, keeps_done: bool = True) -> None:
        """The subscription was deleted on the application's request; what is not done is dropped.

        Args:
            keeps_done: what is done and not settled stays in the map, for a subscription of the same name that follows:
                a publisher may still send it again (S-1). False: nobody can open it again.
        """
        self.lost()
        for entry in list(self._map.values()):
            if entry.outcome is not None and keeps_done and self._exactly_once:
                continue
            entry.settled = True
            if entry.recorded or entry.lacks_body or entry.serial in self._unprocessed:
                self._forget(entry)
        for entry in list(self._settled_early.values()):
            self._forget(entry)
        self._unprocessed.clear()
        self._incarnation = 0
        self._incarnation_changed = True

    # ---------------------------------------------------------------------------------------------- the journal

    @property
    def wants_commit(self) -> bool:
        """Whether there is something that must be written and no commit is under way."""
        return self._committing is None and bool(
            self._processed or self._incarnation_changed or len(self._forgotten) >= LAZY_FORGETS
        )

    @property
    def may_commit(self) -> bool:
        """Whether no commit is under way: the application's transaction may carry the next one."""
        return self._committing is None

    def next_commit(self) -> SubscriberChanges:
        """What is to be written now, in one transaction; `committed()` must follow when it is durable."""
        assert self._committing is None
        self._committing = self._processed
        self._processed = []
        written = [entry for entry in self._committing if not entry.settled]
        if self._exactly_once:
            written += self._earlier_unfinished(written)
        written.sort(key=_serial)  # the journal keeps the order of arrival
        for entry in written:
            entry.stored = True
        for entry in self._committing:
            if entry.settled and entry.stored:
                self._forget(entry)  # nobody settles it any more: it goes with the effect of processing it
        changes = SubscriberChanges(
            incarnation=self._incarnation,
            entries=tuple((entry.tag, entry.outcome) for entry in written),
            forgotten=tuple(self._forgotten),
        )
        self._forgotten = {}
        self._incarnation_changed = False
        return changes

    def _earlier_unfinished(self, done: Sequence[ArrivedEntry]) -> list[ArrivedEntry]:
        """S-a: what arrived before one of `done` in its session, is not done, and is not in the journal yet."""
        newest = max((entry.serial for entry in done), default=0)
        before: list[ArrivedEntry] = []
        for entry in self._unprocessed.values():
            if entry.serial > newest:
                break  # serials only fall at entries that got their body again, and those are stored
            if not entry.stored and not entry.settled:
                before.append(entry)
        if not before:  # the usual case: finished in order
            return before
        last: dict[bytes, int] = {}
        for entry in done:
            session = entry.tag[SESSION_BYTES]
            last[session] = max(entry.serial, last.get(session, 0))
        return [entry for entry in before if entry.serial < last.get(entry.tag[SESSION_BYTES], 0)]

    def committed(self) -> list[SubscriberEffect]:
        """The changes are durable: state the outcomes to the router, let new deliveries come (C-3)."""
        entries = self._committing
        assert entries is not None
        self._committing = None
        accepted: list[int] = []
        effects: list[SubscriberEffect] = []
        for entry in entries:
            entry.recorded = True
            entry.payload = b""
            if entry.counts:
                entry.counts = False
                self._held -= 1
            if entry.settled:
                self._forget(entry)
            elif self._attached and entry.attach == self._attach:
                assert entry.outcome is not None
                if not entry.outcome.is_accepted or entry.receiver_settles:
                    self._answer(entry, effects)
                    continue
                accepted.append(entry.delivery_id)
                if self._settles_first:
                    self._forget(entry)
        if accepted:
            outcome_accepted = next(entry.outcome for entry in entries if entry.outcome and entry.outcome.is_accepted)
            effects.insert(0, DisposeDeliveries(accepted, outcome_accepted, self._settles_first))
        if self._attached:
            self._replenish(effects)
        return effects

    # --------------------------------------------------------------------------------------------------- helpers

    def _new_entry(self, tag: bytes, payload: bytes) -> ArrivedEntry:
        serial = self._next_serial
        self._next_serial = serial + 1
        return ArrivedEntry(serial, tag, payload)

    def _settle(self, entry: ArrivedEntry, effects: list[SubscriberEffect]) -> None:
        entry.settled = True
        if entry.recorded:
            self._forget(entry)
        elif entry.lacks_body:
            # Settled without our outcome: its publisher gave it up, or the subscription had ended. "Process it first"
            # cannot be done here, the body went with the former process and does not come again.
            self._forget(entry)
            effects.append(ReportGivenUp(entry.tag))
        else:
            self._free_tag(entry)

    def _leave_out(self, entry: ArrivedEntry, *, names_last: bool) -> None:
        """S-a: null was presented, so the reply says nothing of this entry. If it is still owed, it comes again.

        `names_last`: the tags are network tags, which name the same delivery on each link. Other routers' do not.
        """
        if entry.recorded or entry.lacks_body:
            self._forget(entry)
            return
        entry.settled = True  # until it comes again
        if not names_last:
            self._free_tag(entry)

    def _free_tag(self, entry: ArrivedEntry) -> None:
        """S-a: it is processed first, and forgotten then; what comes with its tag is another delivery (E-3)."""
        del self._map[entry.tag]
        if entry.stored:
            self._settled_early[entry.tag] = entry

    def _forget(self, entry: ArrivedEntry) -> None:
        tag = entry.tag
        if self._map.get(tag) is entry:
            del self._map[tag]
        if self._settled_early.get(tag) is entry:
            del self._settled_early[tag]
        if entry.stored:  # else the journal holds nothing of it, or by now another delivery with its tag
            entry.stored = False
            self._forgotten[tag] = None

    def _replenish(self, effects: list[SubscriberEffect]) -> None:
        """C-3: prefetched places that are free, and one credit for every kept entry that is not resumed yet (A-7).

        Derived from what is there, never counted up, so no path can lose credit. The limit only ever grows: a new
        delivery uses its own place, a processed, settled, repeated or aborted one gives it back.
        """
        limit = self._received + self._prefetch - self._held + len(self._to_resume)
        grown = limit - self._limit
        if grown > 0 and (grown >= self._prefetch // 4 or self._limit <= self._received):
            self._limit = limit
            effects.append(GrantCredit(limit - self._received))
