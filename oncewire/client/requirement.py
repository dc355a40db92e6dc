"""How many subscriptions a publisher requires, and who its router has named as done (I-3c, I-3g)."""

from __future__ import annotations

from bisect import bisect_right

from oncewire.client.outcomes import DoneBy, Outcome, OutcomeKind, Required, accepted_by, released_for_want_of


def _first_number(reported: tuple[int, Outcome]) -> int:
    return reported[0]


class Requirement:
    """Of one publisher; what was named is of one attach.

    Args:
        subscriptions: that each message must have when it arrives; None: it does not ask who is done with it.
        processing: so many of them must process it, and not only store it.
    """

    def __init__(self, subscriptions: int | None, processing: int) -> None:
        self.asked = subscriptions
        self.counts = Required(subscriptions or 0, processing)
        self._named: list[tuple[int, Outcome]] = []
        """(number, outcome) of messages that are accepted, from that one on, in order."""

    @property
    def is_any(self) -> bool:
        """Whether a message can have too few."""
        return any(self.counts)

    def refusal(self, require: int | None, require_processed: int | None) -> str | None:
        """Why the router of this attach reply cannot be used; None: it counts as this publisher does."""
        if self.asked and require != self.asked:
            return "it does not know x-opt-topic-require, and would accept what too few subscriptions get"
        if self.counts.processing and require_processed != self.counts.processing:
            return "it does not know x-opt-topic-require-processed, and would count what is only stored"
        return None

    def name(self, number: int, done: DoneBy) -> None:
        """The router has named who is done with what is accepted from this message on."""
        self._named.append((number, accepted_by(done, self.counts)))

    def forget_named(self) -> None:
        """The attach is over."""
        self._named.clear()

    def released(self) -> Outcome:
        """Of a message that too few subscriptions matched."""
        return released_for_want_of(self.counts)

    def counted(self, oldest: int, number: int, outcome: Outcome) -> Outcome:
        """The outcome of a message, with the subscriptions that were named for it; `oldest`: of what is unsettled."""
        if outcome.kind is OutcomeKind.RELEASED:
            return self.released() if self.is_any else outcome
        if outcome.kind is not OutcomeKind.ACCEPTED:
            return outcome
        known = self._named
        # Outcomes are decided in the order of the messages (I-3), but a disposition reports those of one kind together.
        needed = bisect_right(known, oldest, key=_first_number) - 1
        if needed > 0:
            del known[:needed]
        at = bisect_right(known, number, key=_first_number) - 1
        return known[at][1] if at >= 0 else outcome
