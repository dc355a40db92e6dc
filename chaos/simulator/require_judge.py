"""What is reported to a publisher that requires subscriptions (I-3c), against what subscribers got."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from chaos.simulator import coverage
from chaos.simulator.state import WorldState
from chaos.simulator.violation import Violation
from oncewire.client.outcomes import TOO_FEW, Outcome, OutcomeKind


class RequireJudge:
    """Watches outcomes as applications get them. A copy in doubt is another message: it is not judged."""

    def __init__(self, world: WorldState) -> None:
        """Nothing was sent."""
        self._world = world
        self._received: dict[tuple[int, int], int] = {}
        """A message and the first subscriber that was sent it."""
        self._released: set[tuple[int, int]] = set()
        self._presented: set[tuple[int, int]] = set()
        self._behind: dict[tuple[int, int], list[int]] = {}
        """A message that a router has reported as released, and what was sent behind it on the same attach."""
        self._sent_to_nobody: set[tuple[int, int]] = set()
        """What was sent behind a message that an application knows to be released."""

    def on_presented(self, publisher: int, number: int) -> None:
        """A map names it: what an earlier ingress decided of it is not known any more."""
        self._presented.add((publisher, number))
        self._behind.pop((publisher, number), None)

    def check_map(self, publisher: int, numbers: Iterable[int]) -> None:
        """I-3c: what was sent behind a released message is released with it, so the owner's map does not name it."""
        for number in numbers:
            if (publisher, number) in self._sent_to_nobody and not self._world.restores:
                raise Violation(f"BEHIND: p{publisher}/{number} was sent behind a released message, and is presented")

    def on_release_reported(self, publisher: int, number: int, behind: list[int]) -> None:
        """A router reports a message as released; `behind` was sent behind it on that attach."""
        self._behind[publisher, number] = behind

    def on_received(self, subscriber: int, message: tuple[int, int]) -> None:
        """A message has arrived at a subscriber."""
        self._received.setdefault(message, subscriber)
        if message in self._released:
            raise Violation(f"SENT: p{message[0]}/{message[1]} was released, and s{subscriber} gets it")

    def on_outcome(
        self,
        publisher: int,
        number: int,
        outcome: Outcome,
        processed: Mapping[int, Collection[tuple[int, int]]],
        excluded: Collection[int] = (),
    ) -> None:
        """An application gets the outcome of a message; `processed` by subscribers, or excluded by filters."""
        world, message = self._world, (publisher, number)
        if not world.traits.require or outcome.in_doubt or world.restores:
            return
        if outcome.kind is OutcomeKind.RELEASED:
            world.coverage[coverage.TOO_FEW] += 1
            self._released.add(message)
            self._sent_to_nobody.update((publisher, each) for each in self._behind.pop(message, ()))
            if message in self._received:
                raise Violation(f"SENT: p{publisher}/{number} is released, and s{self._received[message]} got it")
        elif outcome.kind is OutcomeKind.UNKNOWN and outcome.condition == TOO_FEW and world.traits.waits:
            if not world.traits.ttl_s:  # E-10
                raise Violation(f"UNPROCESSED: p{publisher}/{number} is unknown, and its publisher waits (I-3f)")
        elif message in self._sent_to_nobody:
            raise Violation(f"BEHIND: p{publisher}/{number} was sent behind a released message, and is {outcome.kind}")
        elif outcome.kind is OutcomeKind.ACCEPTED and message not in self._presented:
            named = outcome.subscriptions
            done = len({s for s, messages in processed.items() if message in messages} | {*excluded})  # E-9
            if named is None or not world.traits.require <= named.count <= done:
                raise Violation(f"MISCOUNTED: p{publisher}/{number} is accepted by {named}, and {done} processed it")
