"""A publisher's unsettled map as a pure state machine: rules P-a and P-b with A-4, A-5, C-1, I-9, P-1 and P-2.

The shell reports what happened and carries out the effects it gets back, in order. It asks `next_commit()` for what is
to be written to the journal whenever `wants_commit` is true, writes it durably, and calls `committed()`; one commit is
under way at a time, so everything that came up meanwhile is in the next one (group commit).

A message is submitted -> stored -> handed to a link -> outcome received -> outcome recorded -> settled, removed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import takewhile

from oncewire.client.core_effects import (
    AnswerDrain,
    AnswerEcho,
    AskOwing,
    ProveOwner,
    PublisherEffect,
    RefuseLink,
    ReportActive,
    ReportEnded,
    ReportExpired,
    ReportOutcome,
    ReportOwing,
    SendTransfer,
    SettleDeliveries,
)
from oncewire.client.defaults import WINDOW, WINDOW_BYTES
from oncewire.client.journal_records import PublisherChanges, PublisherState, StoredMessage
from oncewire.client.map_entry import TAG_BYTES, MapEntry
from oncewire.client.outcomes import UNKNOWN, DoneBy, Outcome, OutcomeKind
from oncewire.client.requirement import Requirement

NO_BOUND = 1 << 31
"""More entries than any map holds: the peer's frame size sets no limit."""


class PublisherCore:
    """One publisher link over all its attaches.

    Args:
        window: messages that may be unsettled or waiting.
        window_bytes: bytes of them.
        resend_in_doubt: when the session expires, send its unsettled messages again, marked, instead of reporting
            "outcome unknown" (A-5).
        exactly_once: insist on the capability `topic-exactly-once`. False: present no map; at-least-once.
        require: subscriptions that each message must have when it arrives (I-3c); None: do not ask who is done with it.
        require_processed: so many of them must process it, and not only store it (I-3g).
        recovered: what the journal holds.
        is_shared: another process may take over the journal while this one runs (P-b).
    """

    def __init__(
        self,
        *,
        window: int = WINDOW,
        window_bytes: int = WINDOW_BYTES,
        resend_in_doubt: bool = False,
        exactly_once: bool = True,
        require: int | None = None,
        require_processed: int = 0,
        recovered: PublisherState | None = None,
        is_shared: bool = False,
    ) -> None:
        state = recovered or PublisherState()
        self._window = window
        self._window_bytes = window_bytes
        self._resend_in_doubt = resend_in_doubt
        self._exactly_once = exactly_once
        self._is_shared = is_shared
        self.requirement = Requirement(require, require_processed)
        self.holds_released = False
        """Send nothing behind a released message: its owner sends all of it again, in order, in another session."""
        self.is_holding = False
        self._messages: dict[int, MapEntry] = {}  # the map, in order of numbers
        self._bytes = 0
        self._handed = 0
        self._next_number = state.next_number
        self._recovered_before = state.next_number
        self._exposed_before = state.exposed_before
        self._session = state.session
        # what the next commit writes
        self._unstored: list[MapEntry] = []
        self._decided: list[MapEntry] = []
        self._forgotten: list[int] = []
        self._doubted: list[int] = []
        self._state_changed = False
        self._exposing: int | None = None
        """The mark of P-1 in the commit that is under way; None: none is."""
        self._committing_messages: list[MapEntry] = []
        self._committing_decided: list[MapEntry] = []
        self._expiring = False
        self._expiry_in_commit = False
        self._recovered_outcomes: list[ReportOutcome] = []
        # the present attach
        self._attached = False
        self._active = False
        self._presented = 0
        self._map_bound = NO_BOUND
        self._queue: deque[MapEntry] = deque()  # stored, to be sent on this attach, in order
        self._sent = 0
        self._credit_limit = 0
        self._behind: set[int] = set()
        """Messages that are released as one before them is, and that the router has not reported yet (I-3c)."""
        self._to_settle: list[int] = []
        """Delivery-ids of what is recorded, which waits for these."""
        for stored in state.messages:
            self._recover(stored)

    def _recover(self, stored: StoredMessage) -> None:
        if stored.outcome is not None:
            self._recovered_outcomes.append(ReportOutcome(stored.number, stored.outcome))
            return
        handed = stored.number < self._exposed_before
        self._messages[stored.number] = MapEntry(stored.number, stored.payload, stored.in_doubt, handed)
        self._bytes += len(stored.payload)
        self._handed += handed

    # ------------------------------------------------------------------------------------------ the application

    @property
    def unfinished(self) -> int:
        """Messages that are not settled yet."""
        return len(self._messages)

    @property
    def session(self) -> int:
        """The publisher's session at the network; 0 while it is not known."""
        return self._session

    @property
    def next_number(self) -> int:
        """Number the next message gets: how many messages were submitted since the journal was made."""
        return self._next_number

    @property
    def is_active(self) -> bool:
        """True while the link is attached and has had credit."""
        return self._active

    @property
    def window(self) -> int:
        """Messages that may be unsettled or waiting."""
        return self._window

    def has_room(self, size: int, count: int = 1) -> bool:
        """Whether `count` messages of `size` bytes together may be submitted now (back-pressure)."""
        held = len(self._messages)
        return held == 0 or (held + count <= self._window and self._bytes + size <= self._window_bytes)

    def submit(self, payload: bytes) -> int:
        """Take an encoded message and return its number. The caller has asked `has_room()`."""
        number = self._next_number
        self._next_number = number + 1
        message = MapEntry(number, payload)
        self._messages[number] = message
        self._bytes += len(payload)
        self._unstored.append(message)
        return number

    def take_stored(self, number: int, payload: bytes) -> None:
        """Take an encoded message that the journal holds already, under its number there; they grow, perhaps with gaps.

        All messages of a publisher are taken in this way, or none.
        """
        assert number >= self._next_number, "P-2: a number is not used twice"
        self._next_number = number + 1
        message = self._messages[number] = MapEntry(number, payload)
        self._bytes += len(payload)
        self._queue.append(message)

    def recovered_outcomes(self) -> list[ReportOutcome]:
        """Outcomes that were recorded before a restart and may not have been reported to the application."""
        return self._recovered_outcomes

    def recovered_messages(self) -> list[int]:
        """Numbers of the messages a restart found in the journal without an outcome; they go on by themselves."""
        return [number for number in self._messages if number < self._recovered_before]

    def reported(self, number: int) -> None:
        """The application has got an outcome other than accepted: the journal may forget the message."""
        self._forgotten.append(number)

    def ask(self, number: int) -> list[PublisherEffect]:
        """Ask the router who still owes `number`. Empty when it was not sent on the present attach."""
        message = self._messages.get(number)
        if message is None or not self._active or not message.handed or message.answered:
            return []
        return [AskOwing(message.tag)]

    # ------------------------------------------------------------------------------------------------- the link

    @property
    def may_attach(self) -> bool:
        """False while something is being recorded that decides what is in the map.

        An expired session (A-5): with a fresh attach before that, a crash in between would present the old entries in
        the new session, where they would be taken for unsettled ones and processed a second time.

        Outcomes that were received (P-a): presented as unsettled they are owed again, to subscriptions that came later,
        too; recorded afterwards, they would be missing from the next map while these wait for them.
        """
        return not (self._expiring or self._decided or self._committing_decided)

    def fits(self, map_bound: int) -> bool:
        """Whether the map fits a frame that holds `map_bound` entries (C-4)."""
        return self._handed <= map_bound

    def begin_attach(self, map_bound: int = NO_BOUND) -> dict[bytes, None] | None:
        """Start a new attach; returns the unsettled map to present, None = present null.

        The map holds what may have reached a socket and has no outcome (P-1): what got one and could not be
        settled on the old connection is recorded by now and left out, and absence means settled.
        """
        assert self.may_attach
        assert self.fits(map_bound)
        self.lost()
        self._map_bound = map_bound
        self._queue.clear()
        unstored = {message.number for message in self._unstored}
        unstored.update(message.number for message in self._committing_messages)
        for message in self._messages.values():
            if message.number not in unstored:
                message.presented = message.handed
                self._presented += message.handed
                self._queue.append(message)
        if not self._exactly_once:
            return None
        return {message.tag: None for message in self._queue if message.presented}

    def starts(self) -> list[tuple[bytes, int]]:
        """I-6a: (tag, revision) for the attach: that entry of the map and all before it were sent before that revision.

        What is known of a message is known of all before it, so the revisions do not fall and 0s stand at the end. One
        pair for all entries with the same revision.
        """
        newest: dict[int, bytes] = {}
        for message in self._messages.values():
            if message.presented and message.start:
                newest[message.start] = message.tag
        return [(tag, revision) for revision, tag in newest.items()]

    def _sent_before(self, revision: int, messages: Iterable[MapEntry]) -> None:
        for message in messages:
            if not message.start or message.start > revision:
                message.start = revision

    def started(self, revision: int, tag: bytes) -> None:
        """The router reported that a subscription created at `revision` starts behind the message `tag` (I-6a)."""
        if self._attached and len(tag) == TAG_BYTES:
            last = int.from_bytes(tag, "big")
            messages = takewhile(lambda message: message.number <= last, self._messages.values())
            self._sent_before(revision, (message for message in messages if message.handed))

    def attached(
        self, *, capable: bool, resume: str, require: int | None = None, require_processed: int | None = None
    ) -> list[PublisherEffect]:
        """The attach reply came.

        Args:
            capable: the reply offers `topic-exactly-once`.
            resume: `x-opt-topic-resume` of the reply, empty if absent.
            require: `x-opt-topic-require` of the reply, None if absent.
            require_processed: likewise `x-opt-topic-require-processed`.
        """
        refusal = self.requirement.refusal(require, require_processed)
        if refusal is not None:
            return [RefuseLink(refusal)]
        if self._exactly_once and not capable:
            return [RefuseLink("it does not offer the capability topic-exactly-once")]
        if self._exactly_once and self._presented and resume == "new":
            return [RefuseLink("it started a new session although unsettled deliveries were presented")]
        self._attached = True
        return []

    def flow(
        self, credit_limit: int, *, drain: bool = False, echo: int | None = None, session: int | None = None
    ) -> list[PublisherEffect]:
        """A flow came.

        Args:
            credit_limit: deliveries the router allows in all on this attach.
            drain: it wants the credit used or given back.
            echo: value of `x-opt-topic-echo` (A-4).
            session: value of `x-opt-topic-session` (F24).
        """
        effects: list[PublisherEffect] = []
        if not self._attached:
            return effects
        if echo is not None:
            effects.append(ProveOwner(echo) if self._is_shared else AnswerEcho(echo))
            # I-6a: the echo is the revision of this attach, and its map was sent before it
            self._sent_before(echo, (message for message in self._messages.values() if message.presented))
        if session is not None and session != self._session:
            self._session = session
            self._state_changed = True
        self._credit_limit = credit_limit
        if not self._active and credit_limit > 0:
            self._active = True
            effects.append(ReportActive(self._session, self._presented))
        self._send(effects)
        if drain:
            effects.append(AnswerDrain())
            self._sent = max(self._sent, credit_limit)
        return effects

    def asked(self, tag: bytes, names: Sequence[str], count: int) -> list[PublisherEffect]:
        """The router answered `ask()`."""
        message = self._messages.get(int.from_bytes(tag, "big")) if len(tag) == TAG_BYTES else None
        return [] if message is None else [ReportOwing(message.number, tuple(names), count)]

    def ended(self, tag: bytes, names: Sequence[str], count: int) -> list[PublisherEffect]:
        """Subscriptions ended while they owed the message of this tag, or later ones; outcomes follow (I-3b)."""
        is_ours = self._attached and len(tag) == TAG_BYTES
        return [ReportEnded(int.from_bytes(tag, "big"), tuple(names), count)] if is_ours else []

    def accepted_by(self, tag: bytes, done: DoneBy) -> None:
        """The router reported who is done with what is accepted, from the message of this tag on (I-3c, I-3g)."""
        number = int.from_bytes(tag, "big") if len(tag) == TAG_BYTES else -1
        if self._attached and number in self._messages:
            self.requirement.name(number, done)

    def disposition(
        self, deliveries: Sequence[tuple[int, bytes]], outcome: Outcome | None, settled: bool
    ) -> list[PublisherEffect]:
        """The router reported an outcome for (delivery-id, tag) pairs of this attach.

        `outcome` None with `settled` means the router settled without saying what happened.
        """
        if outcome is None:
            if not settled:
                return []
            outcome = UNKNOWN._replace(condition="", description="the router settled it without an outcome")
        for delivery_id, tag in deliveries:
            message = self._messages.get(int.from_bytes(tag, "big"))
            if message is None or message.answered:
                if self._behind:
                    self._on_reported_behind(tag, delivery_id, settled)
                continue
            message.answered = True
            message.delivery_id = delivery_id
            message.settled_by_peer = settled
            if message.outcome is not None:  # it is being recorded, so it is settled with the others
                assert message.number in self._behind, "what was reported on an earlier link is recorded and gone (P-a)"
                self._behind.remove(message.number)
                continue
            reported = outcome
            if self.requirement.asked is not None:
                reported = self.requirement.counted(next(iter(self._messages)), message.number, outcome)
            message.outcome = reported._replace(in_doubt=True) if message.in_doubt else reported
            self._decided.append(message)
        if outcome.kind is OutcomeKind.RELEASED:
            self._on_released()
        effects: list[PublisherEffect] = []
        self._settle(effects)
        self._send(effects)
        return effects

    def _on_released(self) -> None:
        """I-3c: what was sent behind a release is released with it, reported or not."""
        is_behind = False
        for message in self._messages.values() if self.requirement.is_any else ():
            if message.presented or not message.handed:
                continue
            if message.outcome is not None:
                is_behind = is_behind or message.outcome.kind is OutcomeKind.RELEASED
            elif is_behind:
                message.outcome = self.requirement.released()._replace(in_doubt=message.in_doubt)
                self._decided.append(message)
                self._behind.add(message.number)
        if self.holds_released:
            self._hold()

    def _on_reported_behind(self, tag: bytes, delivery_id: int, settled: bool) -> None:
        """The router reports what is recorded already."""
        number = int.from_bytes(tag, "big")
        if number in self._behind:
            self._behind.remove(number)
            if not settled:
                self._to_settle.append(delivery_id)

    def _settle(self, effects: list[PublisherEffect]) -> None:
        """I-3c: not before the router has all that was sent behind a release: until then it forwards nothing."""
        if self._to_settle and not self._behind:
            effects.append(SettleDeliveries(self._to_settle))
            self._to_settle = []

    def _hold(self) -> None:
        """What was not sent yet stays here; after a crash it must not look as if it had been sent."""
        self.is_holding = True
        self._hide_unsent()

    def was_sent(self, number: int) -> bool:
        """Whether a message may have reached the network, and has no recorded outcome."""
        message = self._messages.get(number)
        return message is not None and message.handed

    def lost(self) -> None:
        """The link is gone (detached, or its connection lost): everything stays in the map."""
        self._attached = self._active = False
        self._presented = self._sent = self._credit_limit = 0
        self.requirement.forget_named()
        self._behind.clear()
        self._to_settle = []
        for message in self._messages.values():
            message.presented = message.answered = message.settled_by_peer = False

    def expire(self) -> list[PublisherEffect]:
        """The router refused with `oncewire:session-expired` (A-5).

        Exactly the entries that may have reached a socket are affected; others wait for the new session as they are.
        Attach again when `may_attach`.
        """
        self.lost()
        self._session = 0
        self._state_changed = True
        for message in self._messages.values():
            message.start = 0  # I-6a: in a new session it is a new message
        affected = [message for message in self._messages.values() if message.handed and message.outcome is None]
        for message in affected:
            if self._resend_in_doubt:
                message.in_doubt = True
                message.handed = False
                self._handed -= 1
                self._doubted.append(message.number)
            else:
                message.outcome = UNKNOWN
                self._decided.append(message)
        self._hide_unsent()
        self._expiring = True
        return [ReportExpired(tuple(message.number for message in affected), self._resend_in_doubt)]

    def _hide_unsent(self) -> None:
        """It has reached no socket of a session that exists: after a crash it must not look as if it had."""
        rest = [message.number for message in self._messages.values() if not message.handed]
        self._exposed_before = min([self._exposed_before, *rest])
        self._state_changed = True

    # ---------------------------------------------------------------------------------------------- the journal

    @property
    def wants_commit(self) -> bool:
        """Whether there is something to write and no commit is under way."""
        return self._exposing is None and bool(
            self._unstored
            or self._decided
            or self._forgotten
            or self._doubted
            or self._state_changed
            or self._waits_for_exposure()
        )

    def _waits_for_exposure(self) -> bool:
        waits = bool(self._queue) and self._sendable() > 0 and not self.is_holding
        return waits and self._queue[0].number >= self._exposed_before

    def _sendable(self) -> int:
        """How many messages credit lets go now."""
        return self._credit_limit - self._sent if self._attached else 0

    def next_commit(self) -> PublisherChanges:
        """What is to be written now, in one transaction; `committed()` must follow when it is durable."""
        forgotten, doubted = tuple(self._forgotten), tuple(self._doubted)
        exposed_before = self.skip_commit()
        stored, decided = self._committing_messages, self._committing_decided
        return PublisherChanges(
            stored=tuple([StoredMessage(message.number, message.payload) for message in stored]),
            next_number=self._next_number,
            exposed_before=exposed_before,
            session=self._session,
            decided=tuple([(message.number, message.outcome) for message in decided if message.outcome is not None]),
            forgotten=forgotten,
            doubted=doubted,
        )

    def skip_commit(self) -> int:
        """As `next_commit`, where nothing outlives the process and so nothing is written; returns the mark of P-1."""
        assert self._exposing is None
        stored = self._unstored
        self._exposing = self._exposure(stored)
        self._committing_messages, self._committing_decided = stored, self._decided
        self._unstored, self._decided = [], []
        if self._forgotten or self._doubted:
            self._forgotten, self._doubted = [], []
        self._state_changed = False
        self._expiry_in_commit = self._expiring
        return self._exposing

    def _exposure(self, stored: list[MapEntry]) -> int:
        """P-1: the mark below which messages may reach a socket, moved as far as the credit at hand goes.

        Messages that are stored while there is credit are exposed by the same commit, so the common case costs one.
        """
        credit = self._sendable()
        if credit <= 0 or self._expiring or self.is_holding:
            return self._exposed_before
        waiting = len(self._queue)
        if credit <= waiting:
            last = self._queue[credit - 1]
        elif stored:
            last = stored[min(credit - waiting, len(stored)) - 1]
        elif waiting:
            last = self._queue[-1]
        else:
            return self._exposed_before
        return max(self._exposed_before, last.number + 1)

    def committed(self) -> list[PublisherEffect]:
        """The changes are durable: send what was stored, settle and report what was decided (P-a, in this order)."""
        exposing, self._exposing = self._exposing, None
        assert exposing is not None
        effects: list[PublisherEffect] = []
        if self.is_holding:  # this commit may have begun before the release
            self._exposed_before = min(self._exposed_before, exposing)
            self._expiring = self._expiring and not self._expiry_in_commit
        elif self._expiry_in_commit or not self._expiring:
            self._exposed_before = exposing
            self._expiring = False  # else: this commit began before the session expired and carries the old mark
        self._queue.extend(self._committing_messages)
        self._committing_messages = []
        self._finish_decided(effects)
        self._send(effects)
        return effects

    def _finish_decided(self, effects: list[PublisherEffect]) -> None:
        reports: list[PublisherEffect] = []
        for message in self._committing_decided:
            assert message.outcome is not None
            if message.answered and not message.settled_by_peer:
                self._to_settle.append(message.delivery_id)
            reports.append(ReportOutcome(message.number, message.outcome))
            self._remove(message)
        self._committing_decided = []
        self._settle(effects)
        effects.extend(reports)

    # --------------------------------------------------------------------------------------------------- helpers

    def _remove(self, message: MapEntry) -> None:
        if self._messages.pop(message.number, None) is not None:
            self._bytes -= len(message.payload)
            self._handed -= message.handed

    def _send(self, effects: list[PublisherEffect]) -> None:
        """Send in order as far as credit, exposure (P-1) and the frame bound of the map (C-4) allow."""
        while self._queue and self._sendable() > 0:
            message = self._queue[0]
            if self.is_holding and not message.presented:
                return
            if message.number >= self._exposed_before and not (message.handed or message.presented):
                return
            if not message.handed:
                if self._handed >= self._map_bound:
                    return
                message.handed = True
                self._handed += 1
            self._queue.popleft()
            self._sent += 1
            effects.append(SendTransfer(message.number, message.tag, message.payload, message.in_doubt))
