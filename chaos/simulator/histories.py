"""What simulated clients saw, in the words of real ones (`chaos.clients.events`), for the checker of real experiments.

The judge of the simulator stops at the first fault it sees, with the world's own knowledge. The checker knows only
what clients wrote down. Where all is promised both must come to the same end.
"""

from __future__ import annotations

from chaos import checker
from chaos.clients.events import Accepted, Confirmed, Event, Incarnation, Processed, Received, Sent
from chaos.simulator.state import WorldState

TICK_S = 1e-9
"""Events of one virtual instant keep their order."""


class Histories:
    """One list of events per client."""

    def __init__(self, world: WorldState) -> None:
        """Nothing has happened."""
        self._world = world
        self._publishers: dict[int, list[Event]] = {}
        self._subscribers: dict[int, list[Event]] = {}
        self._incarnations: dict[int, int] = {}
        self._count = 0

    def _now(self) -> float:
        self._count += 1
        return self._world.now + self._count * TICK_S

    def on_sent(self, publisher: int, number: int) -> None:
        """A message is sent for the first time."""
        events = self._publishers.setdefault(publisher, [])
        events.append(Sent(self._now(), number + 1, content(publisher, number)))

    def on_accepted(self, publisher: int, number: int) -> None:
        """A publisher got an outcome."""
        self._publishers.setdefault(publisher, []).append(Accepted(self._now(), number + 1))

    def on_confirmed(self, subscriber: int, incarnation: int) -> None:
        """A subscriber was notified that its subscription counts."""
        self._on_incarnation(subscriber, incarnation)
        self._subscribers[subscriber].append(Confirmed(self._now()))

    def _on_incarnation(self, subscriber: int, incarnation: int) -> None:
        events = self._subscribers.setdefault(subscriber, [])
        if incarnation > self._incarnations.get(subscriber, 0):
            self._incarnations[subscriber] = incarnation
            events.append(Incarnation(self._now(), incarnation))

    def on_received(self, subscriber: int, publisher: int, number: int, incarnation: int) -> None:
        """The application has a message."""
        self._on_incarnation(subscriber, incarnation)
        what = content(publisher, number)
        self._subscribers[subscriber].append(Received(self._now(), f"p{publisher}", number + 1, what))

    def on_processed(self, subscriber: int, publisher: int, number: int) -> None:
        """It has processed the message."""
        what = content(publisher, number)
        self._subscribers[subscriber].append(Processed(self._now(), f"p{publisher}", number + 1, what))

    def verdict(self, subscribers: list[int]) -> checker.Verdict:
        """What the checker says of these subscribers."""
        world = self._world
        publishers = [
            checker.PublisherHistory(
                f"p{publisher.index}",
                [content(publisher.index, number) for number in range(publisher.messages)],
                self._publishers.get(publisher.index, ()),
            )
            for publisher in world.publishers
        ]
        names = frozenset(publisher.name for publisher in publishers)
        return checker.judge(
            publishers, [checker.SubscriberHistory(f"s{i}", names, self._subscribers.get(i, ())) for i in subscribers]
        )


def content(publisher: int, number: int) -> str:
    """What stands for the digest of a message's body."""
    return f"{publisher}/{number}"
