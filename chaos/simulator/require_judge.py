"""What is reported to a publisher that requires subscriptions (I-3c), against what subscribers got."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from chaos.simulator import coverage
from chaos.simulator.state import WorldState
from chaos.simulator.violation import Violation
from oncewire.client.outcomes import Outcome, OutcomeKind


class RequireJudge:
    """Watches outcomes as applications get them. A copy in doubt is another message: it is not judged."""

    def __init__(self, world: WorldState) -> None:
        """Nothing was sent."""
        self._world = world
        self._received: dict[tuple[int, int], int] = {}
        """A message and the first subscriber that was sent it."""
        self._released: set[tuple[int, int]] = set()
        self._presented: set[tuple[int, int]] = set()

    def on_presented(self, publisher: int, number: int) -> None:
        """A map names it: what an earlier ingress decided of it is not known any more."""
        self._presented.add((publisher, number))

    def on_received(self, subscriber: int, message: tuple[int, int]) -> None:
        """A message has arrived at a subscriber."""
        self._received.setdefault(message, subscriber)
        if message in self._released:
            raise Violation(f"SENT: p{message[0]}/{message[1]} was released, and s{subscriber} gets it")

    def on_outcome(
        self, publisher: int, number: int, outcome: Outcome, processed: Mapping[int, Collection[tuple[int, int]]],
        excluded: Collection[int] = (),
    ) -> None:  # fmt: skip
        """An application gets the outcome of a message; `processed` by subscribers, or excluded by filters."""
        world, message = self._world, (publisher, number)
        if not world.traits.require or outcome.in_doubt or world.restores:
            return
        if outcome.kind is OutcomeKind.RELEASED:
            world.coverage[coverage.TOO_FEW] += 1
            self._released.add(message)
            if message in self._received:
                raise Violation(f"SENT: p{publisher}/{number} is released, and s{self._received[message]} got it")
        elif outcome.kind is OutcomeKind.ACCEPTED and message not in self._presented:
            named = outcome.subscriptions
            done = len({s for s, messages in processed.items() if message in messages} | {*excluded})  # E-9
            if named is None or not world.traits.require <= named.count <= done:
                raise Violation(f"MISCOUNTED: p{publisher}/{number} is accepted by {named}, and {done} processed it")
