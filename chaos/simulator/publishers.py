"""A simulated publisher that keeps to rule P-a, speaking the record core's inputs and effects directly."""

from __future__ import annotations

from chaos.simulator.connections import OpenLink, SimulatedConnection
from chaos.simulator.judge import Judge
from chaos.simulator.large_parts import PartsToSend
from chaos.simulator.marks import Mark
from chaos.simulator.roles import Keeps
from chaos.simulator.state import WorldState
from chaos.simulator.steps import Choice
from delivery_records.model import effects, inputs
from delivery_records.model.outcomes import DeliveryOutcome


class Publisher:
    """A publisher with an unsettled map; message i carries `bytes` that name publisher and number."""

    keeps = Keeps.MAP

    def __init__(self, world: WorldState, judge: Judge, open_link: OpenLink, index: int, messages: int) -> None:
        """Send `messages` messages in all."""
        self.world = world
        self.judge = judge
        self.open_link = open_link
        self.index = index
        self.messages = messages
        self.next = 0
        self.base = 0
        self.map: dict[int, Mark] = {}
        self.connection: SimulatedConnection | None = None
        self.resend: list[int] = []
        self.limit = 0
        self.sent = 0
        self.is_replied = False
        self.is_closing = False
        self.is_wanted = True
        self.given_up: set[int] = set()
        self._ids: dict[int, int] = {}
        self._starts: dict[int, int] = {}
        """Of a message in the map: the lowest revision before which it was sent, as far as that is known (I-6a)."""
        self._presented: list[int] = []
        self._timeout_s = 0.0
        self.parts = PartsToSend(world)

    def tag(self, number: int) -> bytes:
        """Tags restart in a new session, as a publisher without durable counter does (P-2)."""
        return (number - self.base).to_bytes(4, "big")

    def connect(self, router: int) -> None:
        """Attach with the map."""
        outcomes = {
            self.tag(number): DeliveryOutcome.ACCEPTED if mark is Mark.ACCEPTED else None
            for number, mark in self.map.items()
        }
        self.connection = self.open_link(f"p{self.index}", router)
        self.resend, self.limit, self.sent, self.is_replied, self._ids = [], 0, 0, False, {}
        self._timeout_s = self.world.session_timeout_s(self.index)
        self.judge.sessions.on_asked(self.index, self._timeout_s)
        self._presented = list(self.map)
        for number in self._presented:
            self.judge.policies.on_presented(self.index, number)
        self._starts = {number: revision for number, revision in self._starts.items() if number in self.map}
        starts = [(self.tag(number), self._starts[number]) for number in self.map if number in self._starts]
        self._up(
            inputs.PublisherAttach(
                self.connection.link,
                *self.world.names("p", self.index),
                self.world.topic(self.index),
                outcomes,
                exactly_once=True,
                timeout_s=self._timeout_s,
                peer=f"p{self.index}",
                starts=starts,
                expiry_policy=self.world.policy,
                place=self.connection.place,
                owner=self.world.owner(self.index),
            )
        )
        if self.world.traits.pipelines:
            self._up(inputs.ClientFlow(self.connection.link))  # AMQP allows it (section 2.4.2); it proves nothing (F2)

    def _up(self, item: inputs.Input) -> None:
        assert self.connection is not None
        if isinstance(item, inputs.PublisherTransfer):
            self.parts.send(self.connection, item)
        else:
            self.connection.up.append(item)

    def abort(self) -> None:
        """The application gives up what it is sending, in the middle of it (L-5)."""
        tag = self.parts.abort()
        number = next(number for number in self.map if self.tag(number) == tag)
        self.given_up.add(number)
        self._settled(number)

    def disconnect(self) -> None:
        """The connection drops; what was under way to us is lost."""
        self.judge.on_left(self)
        self.parts.drop()
        if self.connection is not None:
            self.connection.drop()
        self.connection = None
        self.is_replied = False

    def crash(self, *, is_durable: bool = False) -> None:
        """Lose the map (G7): the outcome of what was in it stays unknown."""
        self.disconnect()
        self._forget_map()

    def die(self) -> None:
        """Its process is gone for good."""
        self.crash()
        self.is_wanted = False

    def _forget_map(self) -> None:
        self.given_up.update(number for number, mark in self.map.items() if mark is Mark.NONE)
        self.map = {}
        self.base = self.next
        self._starts = {}
        self.judge.on_starts_lost(self.index)

    def _sent_before(self, revision: int, numbers: list[int]) -> None:
        """I-6a: the router knows that these were sent before a revision."""
        for number in numbers:
            self._starts[number] = min(revision, self._starts.get(number, revision))
            self.judge.on_start_reported(self.index, number, revision)

    def may_connect(self) -> bool:
        """It has not closed its link."""
        return self.is_wanted

    def close(self) -> None:
        """End the session for good: detach(closed=true) until it is answered without error (I-8)."""
        self.is_closing = True
        self.parts.drop()
        self._forget_map()
        if self.is_replied and self.connection is not None:
            self._up(inputs.LinkDetach(self.connection.link, True))

    def settle_early(self) -> None:
        """Settle the oldest delivery that has no outcome yet: it is given up (I-4a)."""
        for number in self._ids.values():
            is_sent = not self.parts.holds(self.tag(number)) if number in self.map else False
            if self.map.get(number) is Mark.NONE and self.connection is not None and is_sent:
                self.given_up.add(number)
                self._settled(number)
                self._up(inputs.PublisherSettle(self.connection.link, [self.tag(number)]))
                return

    def leftover(self) -> str:
        """What is unfinished, in words; empty when it is done."""
        if not self.is_wanted:
            return ""
        return f"sent {self.next}, unsettled {self.map}" if self.next < self.messages or self.map else ""

    def choices(self) -> list[Choice]:
        """It may send."""
        found: list[Choice] = [("p.send", self.index)] if self.connection is not None and self.can_send() else []
        if self.parts.may_send(self.connection):
            found.append(("p.part", self.index))
        if self.world.traits.aborts and self.connection is not None and self.parts.is_in_the_middle:
            found.append(("p.abort", self.index))
        return found

    def can_send(self) -> bool:
        """Credit is there, and something to send."""
        return self.has_credit() and (bool(self.resend) or self.next < self.messages)

    def has_credit(self) -> bool:
        """On a link that it has not ended."""
        has_ended = self.is_closing or (self.connection is not None and self.connection.has_ended)
        return not has_ended and self.is_replied and self.sent < self.limit

    def send(self) -> None:
        """P-a: resends first, in order, as new transfers; then new messages."""
        if self.resend:
            number = self.resend.pop(0)
            self.world.disturbances += 1
        else:
            number = self.next
            self.next += 1
            self.map[number] = Mark.NONE
            self.judge.on_first_send(self.index, number)
        assert self.connection is not None
        self.sent += 1
        self._ids[self.sent] = number
        body = self.world.body(self.index, number)
        self._up(inputs.PublisherTransfer(self.connection.link, self.sent, self.tag(number), body))

    def receive(self, effect: effects.Effect) -> None:
        """One frame of the router."""
        assert self.connection is not None
        if isinstance(effect, effects.PublisherReply) and self.is_closing:
            self.is_replied = True
            self._up(inputs.LinkDetach(self.connection.link, True))
        elif isinstance(effect, effects.PublisherReply):
            self.is_replied = True
            self.judge.ended.on_attached(self.index)
            self.judge.sessions.on_stated(self.index, effect.timeout_s, self._timeout_s)
            for number in [number for number, mark in self.map.items() if mark is Mark.ACCEPTED]:
                self._settled(number)
            self.resend = list(self.map)
            if self.world.traits.abandons and len(self.resend) > 1:
                given_up = self.resend.pop(0)  # legal for entries only the source knows (section 2.6.13)
                del self.map[given_up]
                self.given_up.add(given_up)
        elif isinstance(effect, effects.AskEcho):
            self._up(inputs.ClientFlow(self.connection.link, echoed_epoch=effect.epoch))
            self._sent_before(effect.epoch, self._presented)
        elif isinstance(effect, effects.NotifyStart):
            last = self.base + int.from_bytes(effect.tag, "big")
            self._sent_before(effect.created, [number for number in self.map if number <= last])
        elif isinstance(effect, effects.NotifyEnded):
            oldest = self.base + int.from_bytes(effect.tag, "big")
            self.judge.ended.on_reported(self.index, effect.names, effect.count, oldest)
        elif isinstance(effect, effects.GrantPublisherCredit):
            self.limit = effect.limit
        elif isinstance(effect, effects.Dispose):
            self._on_reported([self._ids[delivery_id] for delivery_id in effect.delivery_ids], effect.outcome)
        elif isinstance(effect, (effects.DetachLink, effects.CloseConnection)):
            if isinstance(effect, effects.DetachLink) and effect.condition == "oncewire:session-expired":
                self.judge.sessions.on_session_expired(self.index)
                self._forget_map()
            if self.is_closing and isinstance(effect, effects.DetachLink) and effect.closed and not effect.condition:
                self.is_wanted = False
            self.disconnect()

    def _on_reported(self, numbers: list[int], outcome: DeliveryOutcome) -> None:
        settled = []
        for number in numbers:
            if self.map.get(number) is Mark.NONE:
                if outcome is DeliveryOutcome.ACCEPTED:
                    self.judge.on_accepted(self.index, number)
                else:
                    self.judge.on_refused(self.index, number, outcome)
                    self.given_up.add(number)  # it does not try again
                self.map[number] = Mark.ACCEPTED
                settled.append(self.tag(number))
                self._settled(number)
        if settled and self.connection is not None:
            self._up(inputs.PublisherSettle(self.connection.link, settled))

    def _settled(self, number: int) -> None:
        del self.map[number]
