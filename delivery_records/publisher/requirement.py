"""A publisher may require a number of subscriptions for its messages, and may ask who is done with them (rule I-3c).

Three classes take the place of those that other links have, so links that ask for nothing pay nothing.

`RequiringFanout` looks at a message before it is forwarded. If fewer subscriptions than required would owe it, nobody
gets it, and its outcome is *released*. So is what comes behind it until the publisher has settled what was released:
the publisher may send that again, and nothing may overtake it. A delivery of the presented map is always forwarded,
because subscriptions may have had it before.

`CountedOutcomes` states with the outcomes who has processed what is accepted. Hardly anything is kept for a delivery
to know that. When nothing is pending, each subscription that ever owed the delivery has processed it or has ended; so
the names are those of all that had joined by then. Who ended is added from a list made when it left, of what it had
processed until then, and who was never sent it because it had expired (E-10) is left out. A name goes out only when
the names change: a statement is about one delivery and all behind it.

`WaitingOutcomes` reports nothing of a delivery that too few have processed, nor of those behind it (I-3f). It goes on
when there are enough subscriptions. Those for which the delivery had expired count, because they were there; a
delivery with a verdict of its own, or a failure, needs no count.

All three distinguish those that process messages from those that store them for others (I-3g). Which a subscription
does is in its record; of one that has ended it is kept with its name.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from delivery_records.channels.channel import Channels
from delivery_records.model import effects
from delivery_records.model.endpoint import Endpoint
from delivery_records.model.groups import ReadGroup
from delivery_records.model.inputs import PublisherAttach
from delivery_records.model.limits import OWING_NAMES, TopicPolicy
from delivery_records.model.outcomes import DeliveryOutcome
from delivery_records.model.trace import Rule
from delivery_records.model.turn import Turn
from delivery_records.model.view import Subscription
from delivery_records.publisher.fanout import Fanout
from delivery_records.publisher.owner import Owner
from delivery_records.publisher.publisher_outcomes import PublisherOutcomes
from delivery_records.publisher.window import ARRIVING, AWAITED, GONE, REPORTED, Slot, Window
from delivery_records.subscriber.to_egresses import ToEgresses


class Done(NamedTuple):
    """A subscription that is done with a message."""

    name: str
    stores: bool | None
    """It stores the message for others; None: nobody can say whether it does (I-3g)."""


def done(subscription: Subscription) -> Done:
    """What is known of it."""
    return Done(subscription.name, subscription.record.stores)


class Required(NamedTuple):
    """How many subscriptions a publisher requires."""

    subscriptions: int
    processing: int
    """So many of them process messages, and do not only store them."""

    def lacks(self, done: Sequence[Done]) -> bool:
        """Whether these are too few."""
        return len(done) < self.subscriptions or (self.processing > 0 and _processing(done) < self.processing)


def required_by(request: PublisherAttach) -> Required:
    """What a publisher's attach asks for."""
    return Required(request.require or 0, request.require_processed or 0)


class RequiringFanout(Fanout):
    """Forwards a message only if enough subscriptions owe it. Only links that require a number have one."""

    __slots__ = ("_processing", "_processing_at", "_released", "required")

    def __init__(
        self,
        turn: Turn,
        endpoint: Endpoint,
        window: Window,
        to_egresses: ToEgresses,
        channels: Channels,
        read_group: ReadGroup,
        required: Required,
    ) -> None:
        """As `Fanout`. `required`: subscriptions that a new message must be owed to."""
        super().__init__(turn, endpoint, window, to_egresses, channels, read_group)
        self.required = required
        self._processing = 0
        """Subscriptions that process what they are owed (I-3g)."""
        self._processing_at = -1
        """The plan's version for which that holds."""
        self._released: deque[Slot] = deque()
        """Released here and perhaps not settled yet, in order; all of them are in the window, or were."""

    @property
    def has_released(self) -> bool:
        """See Fanout."""
        while self._released and self._released[0].state is GONE:
            self._released.popleft()
        return bool(self._released)

    @property
    def has_too_few(self) -> bool:
        """I-3c, I-3g: fewer subscriptions are there than a new message must be owed to."""
        required = self.required
        return len(self.cursors) < required.subscriptions or (
            required.processing > 0 and self._process_here() < required.processing
        )

    def _process_here(self) -> int:
        if self._processing_at != self._turn.plan_version:
            self._processing_at = self._turn.plan_version
            self._processing = _processing([done(each) for each in self.joined_before(self._window.end)])
        return self._processing

    def forward(self, slot: Slot) -> None:
        """I-3c, then I-1."""
        if slot.repeated or not (self.has_released or self.has_too_few):
            super().forward(slot)
            return
        self._trace_release(slot)
        slot.pending = 0
        slot.verdict = DeliveryOutcome.RELEASED
        self._released.append(slot)

    def _trace_release(self, slot: Slot) -> None:
        there, required = len(self.cursors), self.required
        if there < required.subscriptions or not required.processing:
            self.trace(slot, Rule.TOO_FEW, there, required.subscriptions)
        else:
            self.trace(slot, Rule.TOO_FEW_PROCESS, self._process_here(), required.processing)


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
        self._stated: tuple[Done, ...] | None = None
        """What was last reported to the publisher."""
        self._changes: list[tuple[bytes, tuple[Done, ...]]] = []
        """(tag, who): what is reported to it in this turn, for that delivery and those after it."""
        self._done_before: dict[int, list[Done]] = {}
        """Number of a delivery -> subscriptions that were done with it and have ended since."""
        self._names: tuple[Done, ...] = ()
        """All subscriptions."""
        self._names_of = -1
        """The plan's version for which that holds."""

    def on_leaving(self, subscription: Subscription) -> None:
        """A subscription ends: what it has done counts for it."""
        cursor = self._fanout.cursors.get(subscription.key)
        if cursor is None:
            return
        base = self._window.base
        self._done_before = {number: names for number, names in self._done_before.items() if number >= base}
        for slot in self._window.slots():
            if slot.state is not REPORTED and slot.number >= cursor.start and not cursor.owes(slot.number):
                self._done_before.setdefault(slot.number, []).append(done(subscription))

    def send(self, link: int) -> None:
        """I-3c: who is done with what is accepted, ahead of the outcomes."""
        for tag, found in self._changes:
            names, count = _named(found)
            processed = _named(each for each in found if each.stores is False)
            stored = _named(each for each in found if each.stores)
            self._turn.out.append(effects.NotifyAcceptedBy(link, tag, names, count, processed, stored))
        self._changes = []
        super().send(link)

    def _notify(self, slot: Slot) -> None:
        if slot.verdict is None:
            found = self._done_by(slot)
            expired = self.expired_by.get(slot.number) if self.expired_by else None
            if expired:  # E-10: it was never sent there
                found = tuple(each for each in found if each.name not in expired)
            if found != self._stated:
                self._stated = found
                self._changes.append((slot.tag, found))
        super()._notify(slot)

    def _done_by(self, slot: Slot) -> tuple[Done, ...]:
        """Nothing is pending, so whoever has ever owed it is done with it, or has ended."""
        if self._names_of != self._turn.plan_version:
            self._names_of = self._turn.plan_version
            self._names = self._joined_before(self._window.end)
        is_before_a_start = slot.number < self._fanout.last_start
        found = self._joined_before(slot.number) if is_before_a_start else self._names
        ended = self._done_before.get(slot.number)
        return (*found, *ended) if ended else found

    def _joined_before(self, number: int) -> tuple[Done, ...]:
        return tuple(done(each) for each in self._fanout.joined_before(number))


class WaitingOutcomes(CountedOutcomes):
    """States no outcome of what too few have processed, nor of what is behind it (I-3f)."""

    __slots__ = ("_is_short", "_requiring")

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
        self._requiring = fanout
        self._is_short = False

    @property
    def may_go_on(self) -> bool:
        """See PublisherOutcomes."""
        return self._is_short and not self._requiring.has_too_few

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
        return self._requiring.required.lacks(self._done_by(slot))  # E-10: those for which it expired were there


def _processing(found: Iterable[Done]) -> int:
    """How many of these process what they get (I-3g)."""
    return sum(each.stores is False for each in found)


def _named(found: Iterable[Done]) -> effects.Named:
    names = tuple(each.name for each in found)
    return effects.Named(names[:OWING_NAMES], len(names))


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
