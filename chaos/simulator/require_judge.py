"""What is reported to a publisher that requires subscriptions (I-3c, I-3g), against what subscribers got."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from chaos.simulator import coverage
from chaos.simulator.roles import Keeps
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
        world = self._world
        lacks = world.traits.require_processed > len(self._processing(range(len(world.subscribers))))
        requires = world.traits.shipped and world.publishers[message[0]].keeps is Keeps.MAP
        if lacks and requires and message not in self._presented and not world.restores:
            raise Violation(f"SENT: p{message[0]}/{message[1]} is only stored, and s{subscriber} gets it (I-3g)")

    def _processing(self, subscribers: Iterable[int]) -> set[int]:
        return {each for each in subscribers if not self._world.stores(each)}

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
            done = {s for s, messages in processed.items() if message in messages} | {*excluded}  # E-9
            if named is None or not world.traits.require <= named.count <= len(done):
                raise Violation(
                    f"MISCOUNTED: p{publisher}/{number} is accepted by {named}, and {done} are done with it"
                )
            self._check_words(f"p{publisher}/{number}", outcome, done)

    def _check_words(self, message: str, outcome: Outcome, done: set[int]) -> None:
        """I-3g: what one has stored is not processed by it."""
        processing, traits = self._processing(done), self._world.traits
        processed, stored = outcome.processed_by, outcome.stored_by
        if processed is None or not traits.require_processed <= processed.count <= len(processing):
            raise Violation(f"MISCOUNTED: {message} is processed by {processed}, and {processing} have processed it")
        if stored is None or stored.count > len(done - processing):
            raise Violation(f"MISCOUNTED: {message} is stored by {stored}, and {done - processing} have stored it")
        self._world.coverage[coverage.ONLY_STORED] += bool(stored.count and not processed.count)
