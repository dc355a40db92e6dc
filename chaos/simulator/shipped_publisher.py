"""A simulated publisher whose every decision is the shipped core's (`oncewire.client.publisher_core`).

The application sends messages 0, 1, 2, ... A journal makes that exact over its own crash: what the journal does not
hold was not submitted, so the application submits it again (its source's position is the journal's next number).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from chaos.simulator import coverage
from chaos.simulator.connections import OpenLink, SimulatedConnection
from chaos.simulator.judge import Judge
from chaos.simulator.large_parts import PartsToSend
from chaos.simulator.roles import Keeps
from chaos.simulator.state import WorldState
from chaos.simulator.steps import Choice
from chaos.simulator.violation import Violation
from delivery_records.model import effects, inputs
from delivery_records.model.outcomes import DeliveryOutcome as RouterOutcome
from oncewire.client import core_effects as wanted
from oncewire.client.journal_records import PublisherChanges, PublisherState
from oncewire.client.outcomes import DoneBy, OutcomeKind, Subscriptions
from oncewire.client.outcomes import Outcome as ClientOutcome
from oncewire.client.publisher_core import PublisherCore

WINDOW = 64
"""Messages the application may have unsettled: more than any simulated router's window, so the router's counts."""
OUTCOMES = {
    RouterOutcome.ACCEPTED: OutcomeKind.ACCEPTED,
    RouterOutcome.REJECTED: OutcomeKind.REJECTED,
    RouterOutcome.RELEASED: OutcomeKind.RELEASED,
    RouterOutcome.MODIFIED: OutcomeKind.MODIFIED,
    RouterOutcome.MODIFIED_FAILED: OutcomeKind.MODIFIED,
    RouterOutcome.UNDELIVERABLE: OutcomeKind.MODIFIED,
}


class PublisherJournal:
    """What would be on disk: a fold of the changes that were committed."""

    def __init__(self) -> None:
        """An empty journal."""
        self.state = PublisherState()

    def write(self, changes: PublisherChanges) -> None:
        """One transaction, as the SQLite journal carries it out."""
        kept = {message.number: message for message in (*self.state.messages,)}
        for stored in changes.stored:
            kept[stored.number] = stored
        for number in changes.doubted:
            kept[number] = kept[number]._replace(in_doubt=True)
        for number, outcome in changes.decided:
            if outcome.is_accepted:
                kept.pop(number, None)
            elif number in kept:
                kept[number] = kept[number]._replace(outcome=outcome)
        for number in changes.forgotten:
            kept.pop(number, None)
        self.state = PublisherState(
            changes.next_number, changes.exposed_before, changes.session, tuple(kept[n] for n in sorted(kept))
        )


class ShippedPublisher:
    """The shipped publisher core, an application and a journal around it."""

    keeps = Keeps.MAP

    def __init__(self, world: WorldState, judge: Judge, open_link: OpenLink, index: int, messages: int) -> None:
        """Send `messages` messages in all."""
        self.world = world
        self.judge = judge
        self.open_link = open_link
        self.index = index
        self.messages = messages
        self.connection: SimulatedConnection | None = None
        self.is_replied = False
        self.is_wanted = True
        self.is_closing = False
        """It never closes its link."""
        self.given_up: set[int] = set()
        self.reported: set[int] = set()
        """Messages it got accepted."""
        self._timeout_s = 0.0
        """T_pub that it has asked for."""
        self._presented: list[int] = []
        """Messages in the map of this attach."""
        self._base = 0
        """The application's number of the message with the core's number 0."""
        self._first_unsent = 0
        self._journal = PublisherJournal()
        self._committing: PublisherChanges | None = None
        self.parts = PartsToSend(world)
        self._ids: dict[int, int] = {}
        """Of this attach: delivery-id -> the core's number."""
        self._require = world.traits.require or None
        self._processed = world.traits.require_processed if self._require else 0
        self._waits = world.traits.waits and self._require is not None
        self._core = self._open_core()

    def _open_core(self) -> PublisherCore:
        """A process over the journal, which another one may take over (P-b)."""
        return self.world.cores.publisher(
            window=WINDOW,
            resend_in_doubt=self.world.traits.in_doubt,
            require=self._require,
            require_processed=self._processed,
            recovered=self._journal.state,
            is_shared=True,
        )

    @property
    def next(self) -> int:
        """The first message that was never sent."""
        return self._first_unsent

    @property
    def _submitted(self) -> int:
        return self._base + self._core.next_number

    def leftover(self) -> str:
        """What is unfinished, in words; empty when it is done."""
        if not self.is_wanted:
            return ""
        if self._submitted < self.messages or self._core.unfinished:
            return f"submitted {self._submitted} of {self.messages}, unfinished {self._core.unfinished}"
        return ""

    # ------------------------------------------------------------------ what may happen

    def may_connect(self) -> bool:
        """No attach while an expired session is being recorded (A-5)."""
        return self.is_wanted and self._core.may_attach

    def choices(self) -> list[Choice]:
        """What the application and the journal may do now."""
        found: list[Choice] = []
        if not self.is_wanted:
            return found
        if self._submitted < self.messages and self._core.has_room(len(self._body(0))):
            found.append(("p.submit", self.index))
        if self._committing is not None:
            found.append(("p.stored", self.index))
        elif self._core.wants_commit:
            found.append(("p.store", self.index))
        if self.parts.may_send(self.connection):
            found.append(("p.part", self.index))
        return found

    def submit(self) -> None:
        """The application sends its next message."""
        self._core.submit(self._body(self._submitted))
        self._without_disk()

    def _body(self, number: int) -> bytes:
        return self.world.body(self.index, number)

    def store(self) -> None:
        """The journal begins a transaction."""
        self._committing = self._core.next_commit()

    def stored(self) -> None:
        """The transaction is durable, and the core hears of it."""
        assert self._committing is not None
        self._journal.write(self._committing)
        self._committing = None
        self._carry_out(self._core.committed())

    def _without_disk(self) -> None:
        """A journal in memory has no delay."""
        while not self.world.traits.durable and self._core.wants_commit:
            self.store()
            self.stored()

    # ------------------------------------------------------------------ connection

    def connect(self, router: int) -> None:
        """Attach with the map (P-1)."""
        self.connection = self.open_link(f"p{self.index}", router)
        self._ids = {}
        self._timeout_s = self.world.session_timeout_s(self.index)
        self.judge.sessions.on_asked(self.index, self._timeout_s)
        self._presented = self.attach(self.connection, self._core, f"p{self.index}")
        self.judge.require.check_map(self.index, self._presented)

    def attach(self, connection: SimulatedConnection, core: PublisherCore, peer: str) -> list[int]:
        """Attach with the map of a process; returns the messages in it."""
        bound = self.world.traits.map_bound
        presented = core.begin_attach(bound)
        messages = [self._base + int.from_bytes(tag, "big") for tag in presented or ()]
        for message in messages:
            self._on_stated(message)
            self.judge.require.on_presented(self.index, message)
            self.judge.policies.on_presented(self.index, message)
        connection.up.append(
            inputs.PublisherAttach(
                connection.link,
                *self.world.names("p", self.index),
                self.world.topic(self.index),
                dict.fromkeys(presented or {}),
                exactly_once=True,
                timeout_s=self._timeout_s,
                map_bound=bound,
                peer=peer,
                starts=core.starts(),
                expiry_policy=self.world.policy,
                place=connection.place,
                owner=self.world.owner(self.index),
                require=self._require,
                require_processed=self._processed,
                waits=self._waits,
            )
        )
        return messages

    def disconnect(self) -> None:
        """The connection drops; what was under way to us is lost."""
        self.judge.on_left(self)
        if self.connection is not None:
            self.connection.drop()
        self.connection = None
        self.is_replied = False
        self._core.lost()

    def crash(self, *, is_durable: bool = False) -> None:
        """The process dies. `is_durable`: the transaction under way was written, but nobody got an answer."""
        self.disconnect()
        if self._committing is not None and is_durable:
            self.world.coverage[coverage.TORN] += 1
            self._journal.write(self._committing)
        self._committing = None
        self.judge.on_starts_lost(self.index)
        if not self.world.traits.durable:  # G7: the outcome of what was in the map stays unknown
            self._base = self._first_unsent
            self.given_up.update(set(range(self._base)) - self.reported)
            self._journal = PublisherJournal()
        self._core = self._open_core()
        for report in self._core.recovered_outcomes():
            self._report(report.number, report.outcome)

    def die(self) -> None:
        """The process dies for good, and its journal with it."""
        self.crash()
        self.is_wanted = False
        self.given_up.update(set(range(self._first_unsent)) - self.reported)

    def replace_process(self) -> PublisherCore:
        """Another process takes the journal over; returns the core of the one that had it (P-b)."""
        replaced = self._core
        self.crash()
        return replaced

    def receive(self, effect: effects.Effect) -> None:
        """One frame of the router."""
        core = self._core
        if isinstance(effect, effects.PublisherReply):
            self.is_replied = True
            self.judge.ended.on_attached(self.index)
            self.judge.sessions.on_stated(self.index, effect.timeout_s, self._timeout_s)
            resume = "resumed" if effect.resumed else "new"
            asked, processed = self._require, self._processed
            self._carry_out(
                core.attached(capable=effect.exactly_once, resume=resume, require=asked, require_processed=processed)
            )
        elif isinstance(effect, effects.AskEcho):
            self._carry_out(core.flow(0, echo=effect.epoch))
            self._know_start(effect.epoch, self._presented)
        elif isinstance(effect, effects.NotifyStart):
            core.started(effect.created, effect.tag)
            last = self._base + int.from_bytes(effect.tag, "big")
            self._know_start(effect.created, range(self._base, last + 1))
        elif isinstance(effect, effects.NotifyEnded):
            self._carry_out(core.ended(effect.tag, effect.names, effect.count))
        elif isinstance(effect, effects.NotifyAcceptedBy):
            core.accepted_by(effect.tag, _done_by(effect))
        elif isinstance(effect, effects.GrantPublisherCredit):
            self._carry_out(core.flow(effect.limit, session=effect.session))
        elif isinstance(effect, effects.Dispose):
            self._on_outcome(effect)
        elif isinstance(effect, (effects.DetachLink, effects.CloseConnection)):
            self.disconnect()
            if isinstance(effect, effects.DetachLink) and effect.condition == "oncewire:session-expired":
                self.judge.sessions.on_session_expired(self.index)
                self.given_up.update(self._presented)  # G4: also outcomes it had got and had not recorded
                self._carry_out(core.expire())

    def _know_start(self, revision: int, messages: Iterable[int]) -> None:
        """I-6a: these were sent before that revision, as its core knows now."""
        for message in () if self._waits else messages:  # I-3f
            self.judge.on_start_reported(self.index, message, revision)

    def _on_outcome(self, effect: effects.Dispose) -> None:
        numbers = [self._ids[delivery_id] for delivery_id in effect.delivery_ids]
        if effect.outcome is RouterOutcome.RELEASED and self._require:
            self._on_released(self._base + number for number in numbers)
        for message in (self._base + number for number in numbers):
            if effect.outcome is RouterOutcome.ACCEPTED:
                self._on_accepted(message)
            else:
                self.judge.on_refused(self.index, message, effect.outcome)
        pairs = [(i, n.to_bytes(8, "big")) for i, n in zip(effect.delivery_ids, numbers, strict=True)]
        outcome = ClientOutcome(OUTCOMES[effect.outcome], effect.condition, effect.description)
        self._carry_out(self._core.disposition(pairs, outcome, effect.settled))

    def _on_released(self, messages: Iterable[int]) -> None:
        """I-3c: what of this attach was sent behind them, and was not resumed there."""
        sent = [self._base + number for number in self._ids.values()]
        for message in messages:
            behind = [each for each in sent if each > message and each not in self._presented]
            self.judge.require.on_release_reported(self.index, message, behind)

    def _on_accepted(self, message: int) -> None:
        """G1 is checked when it gets the outcome, not when it has recorded that."""
        if message not in self.reported:
            self.reported.add(message)
            self.judge.on_accepted(self.index, message)

    # ------------------------------------------------------------------ effects of the core

    def _carry_out(self, asked: Sequence[wanted.PublisherEffect]) -> None:
        for effect in asked:
            if isinstance(effect, wanted.SendTransfer):
                self._send(effect)
            elif isinstance(effect, wanted.SettleDeliveries):
                tags = [self._ids[delivery_id].to_bytes(8, "big") for delivery_id in effect.delivery_ids]
                connection = self._attached()
                connection.up.append(inputs.PublisherSettle(connection.link, tags))
            elif isinstance(effect, (wanted.AnswerEcho, wanted.ProveOwner)):  # it is the owner
                connection = self._attached()
                connection.up.append(inputs.ClientFlow(connection.link, echoed_epoch=effect.value))
            elif isinstance(effect, wanted.ReportOutcome):
                self._report(effect.number, effect.outcome)
            elif isinstance(effect, wanted.ReportEnded):
                self.judge.ended.on_reported(self.index, effect.names, effect.count, self._base + effect.number)
            elif isinstance(effect, wanted.ReportExpired) and effect.sent_again:
                self.world.coverage[coverage.IN_DOUBT] += bool(effect.numbers)
                self.judge.may_come_again((self.index, self._base + number) for number in effect.numbers)
            elif isinstance(effect, wanted.RefuseLink):
                raise Violation(f"REFUSED: p{self.index}: {effect.reason}")
        self._without_disk()

    def _attached(self) -> SimulatedConnection:
        assert self.connection is not None, "the core speaks on a link that is gone"
        return self.connection

    def _send(self, transfer: wanted.SendTransfer) -> None:
        connection = self._attached()
        message = self._base + transfer.number
        self._on_stated(message)
        delivery_id = len(self._ids) + 1
        self._ids[delivery_id] = transfer.number
        whole = inputs.PublisherTransfer(connection.link, delivery_id, transfer.tag, transfer.payload)
        self.parts.send(connection, whole)
        self.world.disturbances += message in self._presented

    def _on_stated(self, message: int) -> None:
        """It is sent, or a map names it after a crash before that (G1, I-6)."""
        if message >= self._first_unsent:
            self._first_unsent = message + 1
            self.judge.on_first_send(self.index, message)

    def _report(self, number: int, outcome: ClientOutcome) -> None:
        """The application gets the outcome."""
        message = self.index, self._base + number
        left_out = {*self.judge.filters.excluded_somewhere(*message), *self.judge.policies.failed_at(message)}
        left_out |= self.judge.shared.declined_by(message)
        self.judge.require.on_outcome(*message, outcome, self.judge.processed, left_out)
        if not outcome.is_accepted:
            self.given_up.add(self._base + number)
        self._core.reported(number)


def _done_by(effect: effects.NotifyAcceptedBy) -> DoneBy:
    processed, stored = (Subscriptions(each.total, tuple(each.names)) for each in (effect.processed, effect.stored))
    return DoneBy(Subscriptions(effect.count, tuple(effect.names)), processed, stored)
