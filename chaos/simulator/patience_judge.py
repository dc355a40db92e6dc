"""What a policy may do: call a subscription slow (K-5b), by what its link was sent and answered; grant less (K-5c)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from chaos.simulator.promises import FASTEST_CLOCK
from chaos.simulator.state import WorldState
from chaos.simulator.violation import Violation
from delivery_records.model import effects, inputs
from delivery_records.model.parts import Part


class _Link:
    """One subscriber's link, as its router has served it."""

    def __init__(self, now: float) -> None:
        """Just attached."""
        self.unanswered: dict[bytes, float] = {}
        self.oldest_since = now
        self.limit = 0
        self.sent = 0
        self.dry_since = now


def check_granted(effect: effects.Effect, longest_s: int) -> None:
    """A router states how long a terminus is kept.

    Raises:
        Violation: it is longer than the policy grants.
    """
    stating = effects.SubscriberReply | effects.Confirm | effects.PublisherReply
    if isinstance(effect, stating) and effect.timeout_s > longest_s:
        raise Violation(f"UNGRANTED: {effect.timeout_s:g} s are stated, {longest_s} s were granted")


class PatienceJudge:
    """Watches what routers send to subscribers, and what they have read of them."""

    def __init__(self, world: WorldState) -> None:
        """Nobody is attached."""
        self._world = world
        self._links: dict[int, _Link] = {}
        self._early: set[bytes] = set()
        """Answered in this turn, and perhaps sent in it before."""

    def on_effect(self, effect: effects.Effect) -> None:
        """A router sends something to a client."""
        now = self._world.now
        if isinstance(effect, effects.SubscriberReply):
            if effect.patience != self._world.patience:
                raise Violation(f"UNSTATED: {effect.patience} is stated, {self._world.patience} was granted")
            self._links[effect.link] = _Link(now)
        elif isinstance(effect, effects.DeliverPart) and effect.part is not Part.FIRST:
            if effect.part is Part.ABORT:
                self._done(effect.link, [effect.tag])
        elif isinstance(effect, (effects.Deliver, effects.DeliverPart)):
            link = self._links[effect.link]
            link.sent += 1
            if link.sent >= link.limit:
                link.dry_since = now
            if effect.tag in self._early:
                self._early.discard(effect.tag)
            elif not effect.settled:
                if not link.unanswered:
                    link.oldest_since = now
                link.unanswered[effect.tag] = now
        elif isinstance(effect, effects.SettleAtSubscriber):
            self._done(effect.link, effect.tags)
        elif isinstance(effect, effects.CompleteDrain):
            link = self._links[effect.link]
            link.sent = max(link.sent, link.limit)
            link.dry_since = now

    def on_turn(self, batch: Sequence[inputs.Input]) -> None:
        """A router has read this of a client, and is going to handle it."""
        self._early.clear()
        for item in batch:
            self._on_read(item)

    def _on_read(self, item: inputs.Input) -> None:
        if isinstance(item, inputs.LargeTaken) and item.link in self._links:
            taking = self._links[item.link]
            taking.oldest_since = taking.dry_since = self._world.now  # L-3: it goes on
            return
        if isinstance(item, inputs.SubscriberDisposition):
            if item.outcome is not None or item.settled:
                link = self._links.get(item.link)
                self._early.update(tag for tag in item.tags if link is not None and tag not in link.unanswered)
                self._done(item.link, item.tags)
        elif isinstance(item, inputs.ClientFlow) and item.link in self._links:
            link = self._links[item.link]
            if link.limit > link.sent and item.limit <= link.sent:
                link.dry_since = self._world.now
            link.limit = item.limit

    def _done(self, number: int, tags: Iterable[bytes]) -> None:
        link = self._links.get(number)
        if link is None:
            return
        for tag in tags:
            if tag in link.unanswered:
                if next(iter(link.unanswered)) == tag:
                    link.oldest_since = self._world.now
                del link.unanswered[tag]

    def check_slow(self, number: int) -> None:
        """A router calls the subscriber of this link slow.

        Raises:
            Violation: it has made progress within the time that was stated.
        """
        patience, link, now = self._world.patience, self._links[number], self._world.now
        assert patience is not None
        if link.unanswered:
            waited, what = now - link.oldest_since, "its oldest delivery"
        elif link.sent >= link.limit:
            waited, what = now - link.dry_since, "its credit"
        else:
            raise Violation(f"HURRIED: link {number} is called slow and owes nothing")
        if waited < patience.seconds / FASTEST_CLOCK:
            raise Violation(f"HURRIED: link {number} is called slow after {waited:.1f} s with {what}, not {patience}")
