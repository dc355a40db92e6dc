"""A publisher may require a number of subscriptions for its messages, and may ask who processed them (rule I-3c)."""

from __future__ import annotations

from collections import deque

from delivery_records.channels.channel import Channels
from delivery_records.model import effects
from delivery_records.model.endpoint import Endpoint
from delivery_records.model.groups import ReadGroup
from delivery_records.model.inputs import PublisherAttach
from delivery_records.model.limits import OWING_NAMES, TopicPolicy
from delivery_records.model.outcomes import DeliveryOutcome
from delivery_records.model.trace import Rule
from delivery_records.model.turn import Turn
from delivery_records.publisher.fanout import Fanout
from delivery_records.publisher.owner import Owner
from delivery_records.publisher.publisher_outcomes import PublisherOutcomes
from delivery_records.publisher.window import ARRIVING, AWAITED, GONE, REPORTED, Slot, Window
from delivery_records.subscriber.to_egresses import ToEgresses


class RequiringFanout(Fanout):
    """Forwards a message only if enough subscriptions owe it. Only links that require a number have one."""

    __slots__ = ("_released", "required")

    def __init__(
        self,
        turn: Turn,
        endpoint: Endpoint,
        window: Window,
        to_egresses: ToEgresses,
        channels: Channels,
        read_group: ReadGroup,
        required: int,
    ) -> None:
        """As `Fanout`. `required`: subscriptions that a new message must be owed to."""
        super().__init__(turn, endpoint, window, to_egresses, channels, read_group)
        self.required = required
        self._released: deque[Slot] = deque()
        """Released here and perhaps not settled yet, in order; all of them are in the window, or were."""

    @property
    def has_released(self) -> bool:
        """See Fanout."""
        while self._released and self._released[0].state is GONE:
            self._released.popleft()
        return bool(self._released)

    def forward(self, slot: Slot) -> None:
        """I-3c, then I-1."""
        if slot.repeated or not (self.has_released or len(self.cursors) < self.required):
            super().forward(slot)
            return
        self.trace(slot, Rule.TOO_FEW, len(self.cursors), self.required)
        slot.pending = 0
        slot.verdict = DeliveryOutcome.RELEASED
        self._released.append(slot)


class CountedOutcomes(PublisherOutcomes):
    """States, beside the outcomes, which subscriptions processed what is accepted. Only links that ask have one."""

    __slots__ = ("_changes", "_done_before", "_fanout", "_names", "_names_of", "_stated")

    def __init__(
        self,
        turn: Turn,
        owner: Owner,
        window: Window,
        fanout: Fanout,
        policy: TopicPolicy,
        exactly_once: bool,
        settles_first: bool,
    ) -> None:
        """As `PublisherOutcomes`; `fanout` knows the subscriptions."""
        super().__init__(turn, owner, window, policy, exactly_once, settles_first)
        self._fanout = fanout
        self._stated: tuple[str, ...] | None = None
        """What was last reported to the publisher."""
        self._changes: list[tuple[bytes, tuple[str, ...]]] = []
        """(tag, names): what is reported to it in this turn, for that delivery and those after it."""
        self._done_before: dict[int, list[str]] = {}
        """Number of a delivery -> subscriptions that processed it and have ended since."""
        self._names: tuple[str, ...] = ()
        """Of all subscriptions."""
        self._names_of = -1
        """The plan's version for which that holds."""

    def on_leaving(self, key: str, name: str) -> None:
        """A subscription ends: what it has processed counts for it."""
        cursor = self._fanout.cursors.get(key)
        if cursor is None:
            return
        base = self._window.base
        self._done_before = {number: names for number, names in self._done_before.items() if number >= base}
        for slot in self._window.slots():
            if slot.state is not REPORTED and slot.number >= cursor.start and not cursor.owes(slot.number):
                self._done_before.setdefault(slot.number, []).append(name)

    def send(self, link: int) -> None:
        """I-3c: who processed what is accepted, ahead of the outcomes."""
        for tag, names in self._changes:
            self._turn.out.append(effects.NotifyAcceptedBy(link, tag, names[:OWING_NAMES], len(names)))
        self._changes = []
        super().send(link)

    def _notify(self, slot: Slot) -> None:
        if slot.verdict is None:
            names = self._processed_by(slot)
            if names != self._stated:
                self._stated = names
                self._changes.append((slot.tag, names))
        super()._notify(slot)

    def _processed_by(self, slot: Slot) -> tuple[str, ...]:
        """Nothing is pending, so whoever has ever owed it has processed it, or has ended."""
        if self._names_of != self._turn.plan_version:
            self._names_of = self._turn.plan_version
            self._names = self._fanout.joined_before(self._window.end)
        is_before_a_start = slot.number < self._fanout.last_start
        names = self._fanout.joined_before(slot.number) if is_before_a_start else self._names
        ended = self._done_before.get(slot.number)
        expired = self.expired_by.get(slot.number) if self.expired_by else None
        if expired:  # E-10: it was never sent there
            return tuple(name for name in (*names, *(ended or ())) if name not in expired)
        return (*names, *ended) if ended else names


class WaitingOutcomes(CountedOutcomes):
    """States no outcome of what too few have processed, nor of what is behind it (I-3f)."""

    __slots__ = ("_is_short", "_required")

    def __init__(
        self,
        turn: Turn,
        owner: Owner,
        window: Window,
        fanout: RequiringFanout,
        policy: TopicPolicy,
        exactly_once: bool,
        settles_first: bool,
    ) -> None:
        """As `CountedOutcomes`."""
        super().__init__(turn, owner, window, fanout, policy, exactly_once, settles_first)
        self._required = fanout.required
        self._is_short = False

    @property
    def may_go_on(self) -> bool:
        """See PublisherOutcomes."""
        return self._is_short and len(self._fanout.cursors) >= self._required

    def decide_in_order(self) -> None:
        """I-3, as far as enough have processed it."""
        window = self._window
        while not self._is_short and window.next_accept < window.end:
            slot = window.at(window.next_accept)
            if slot is not None:
                if slot.pending or slot.state is AWAITED or slot.state is ARRIVING:
                    return
                self._is_short = self._has_too_few(slot)
                if self._is_short:
                    return
            window.next_accept += 1  # first: telling may take the slot out and move it on
            if slot is not None:
                self._notify(slot)

    def _has_too_few(self, slot: Slot) -> bool:
        if slot.verdict is not None or slot.failure:
            return False
        expired = self.expired_by.get(slot.number, ())  # E-10: they were there
        return len(self._processed_by(slot)) + len(expired) < self._required


def counted_outcomes(
    turn: Turn,
    owner: Owner,
    window: Window,
    fanout: Fanout,
    modes: tuple[TopicPolicy, bool, bool],
    request: PublisherAttach,
) -> CountedOutcomes:
    """The outcomes of a publisher that asks who processed its messages."""
    if request.waits and isinstance(fanout, RequiringFanout):
        return WaitingOutcomes(turn, owner, window, fanout, *modes)
    return CountedOutcomes(turn, owner, window, fanout, *modes)
