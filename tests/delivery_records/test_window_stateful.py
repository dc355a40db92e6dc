"""A publisher's window against a list of deliveries, each with those who owe it (rules I-1 to I-6, I-9, T-7).

The ingress is the shipped core; its only egress is played by the test, which acknowledges what it likes in any order
and under any epoch, and reads every SYNC, MSG and SETTLE. The model is a plain list; nothing of it is the core's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from chaos.mutants.catalogue import by_name
from chaos.mutants.edits import Edit
from delivery_records.model import effects
from delivery_records.model.limits import Limits
from delivery_records.model.message_format import MessageFormat
from delivery_records.model.messages import Msg, RouterMessage, Settle, Sync
from delivery_records.model.outcomes import DeliveryOutcome
from delivery_records.model.tags import link_key
from delivery_records.model.view import Kind
from delivery_records.publisher.window import Window
from tests.delivery_records.links import PublisherLink
from tests.delivery_records.stateful_models import Core, CoreNet, PlayedEgress, assert_fault_is_seen, run_machine
from tests.support.effort import rounds

EXAMPLES = 100
STEPS = 40
MALFORMED = b"\xff"
"""A body that begins with this cannot be annotated (I-1b)."""
NAMES = ("s0", "s1", "s2", "s3")
LONG_RUN = 2**33
"""A run may name more numbers than any window holds (T-7)."""


def annotate(message: bytes, publisher: str, tag: bytes, session: int, user: str) -> bytes:
    if message.startswith(MALFORMED):
        raise ValueError("no section begins like this")
    return b"annotated " + message


@dataclass(slots=True)
class Delivery:
    """One unsettled delivery in the model."""

    number: int
    tag: bytes
    owed: set[str]
    body: bytes | None = None
    """What the publisher sent in this epoch; None: known from the presented map only."""
    delivery_id: int = -1
    is_reported: bool = False
    is_repeated: bool = False

    @property
    def is_malformed(self) -> bool:
        return self.body is not None and self.body.startswith(MALFORMED)

    @property
    def stored(self) -> bytes:
        """The message the ingress is to hold."""
        return b"" if self.body is None or self.is_malformed else b"annotated " + self.body


@dataclass(slots=True)
class Model:
    """The window as a list. Every sent frame is written down as a tuple, in order."""

    window: list[Delivery] = field(default_factory=list)
    end: int = 0
    subscriptions: dict[str, list[int]] = field(default_factory=dict)
    """Name -> epochs of its present life, the newest last."""
    is_attached: bool = True
    frames: list[tuple[object, ...]] = field(default_factory=list)
    reported: dict[DeliveryOutcome, list[int]] = field(default_factory=dict)

    def resume(self, tags: Iterable[bytes]) -> None:
        """A new epoch: every subscription owes every entry of the map (I-3, T-7)."""
        self.window = [
            Delivery(number, tag, set(self.subscriptions), is_repeated=True) for number, tag in enumerate(tags)
        ]
        self.end = len(self.window)
        self.is_attached = True
        self.sync(list(self.subscriptions))

    def sync(self, names: list[str]) -> None:
        """I-5: U without what goes to nobody, then what is received and still owed."""
        if not names:
            return
        reported = [delivery for delivery in self.window if not delivery.is_malformed]
        epochs = frozenset(self.subscriptions[name][-1] for name in names)
        self.frames.append(("SYNC", epochs, tuple(d.number for d in reported), tuple(d.tag for d in reported)))
        for delivery in reported:
            self._forward(delivery, {name for name in names if name in delivery.owed})

    def _forward(self, delivery: Delivery, names: set[str]) -> None:
        if delivery.body is not None and names:
            epochs = frozenset(self.subscriptions[name][-1] for name in names)
            self.frames.append(("MSG", delivery.number, delivery.tag, delivery.stored, epochs))

    def send(self, tag: bytes, body: bytes, delivery_id: int) -> None:
        """I-1, and I-9: what the publisher passed over will not come any more."""
        found = self.find(tag)
        passed = [d for d in self.window if d.body is None and (found is None or d.number < found.number)]
        if found is None:
            found = Delivery(self.end, tag, set(self.subscriptions))
            self.end += 1
            self.window.append(found)
        found.body, found.delivery_id = body, delivery_id
        if found.is_malformed:
            found.owed = set()  # I-1b: it goes nowhere
        self._forward(found, found.owed)
        self.turn_ends(passed)

    def acknowledge(self, name: str, first: int, count: int) -> None:
        """I-2: whatever of it is in the window is no longer owed by that subscription."""
        for delivery in self.window:
            if first <= delivery.number < first + count:
                delivery.owed.discard(name)

    def turn_ends(self, dropped: Iterable[Delivery] = ()) -> None:
        """I-4: forget and say so; I-3: report what is due, in order."""
        numbers = sorted(delivery.number for delivery in dropped)
        self.window = [delivery for delivery in self.window if delivery.number not in numbers]
        if self.is_attached:
            for delivery in self.window:
                if delivery.owed or delivery.body is None:
                    break
                if not delivery.is_reported:
                    delivery.is_reported = True
                    outcome = DeliveryOutcome.REJECTED if delivery.is_malformed else DeliveryOutcome.ACCEPTED
                    self.reported.setdefault(outcome, []).append(delivery.delivery_id)
        if numbers and self.subscriptions:
            self.frames.append(("SETTLE", tuple(numbers)))

    def find(self, tag: bytes) -> Delivery | None:
        return next((delivery for delivery in self.window if delivery.tag == tag), None)


class WindowMachine(RuleBasedStateMachine):
    """One publisher, up to four subscriptions at a router that the test plays."""

    def __init__(self, core: Core) -> None:
        super().__init__()
        self.net = CoreNet(core, limits=Limits(window=1000), message_format=MessageFormat(annotate))
        self.egress = PlayedEgress(self.net, self.net.nodes[0])
        self.model = Model()
        self.bodies: dict[bytes, bytes] = {}
        """What the publisher sends under a tag, the first time and again (P-1)."""
        self.former: list[tuple[int, int, int]] = []
        """The publisher's epoch when a subscription ended, an epoch of the subscription, and where the window ended."""
        self.link: PublisherLink = self.net.publisher(self.net.nodes[0])
        self.read_outcomes = 0
        self.has_left = False
        """A subscription was deleted, and nothing was settled since."""
        self.is_sound = True

    # ------------------------------------------------------------------ the world

    @property
    def epoch(self) -> int:
        return self.net.etcd.keys[(Kind.PUBLISHER, link_key("p", "link"))].mod_revision

    @initialize(names=st.sets(st.sampled_from(NAMES), max_size=3), count=st.integers(0, 6))
    def begin(self, names: set[str], count: int) -> None:
        for name in sorted(names):
            self.join(name)
        for number in range(count):
            self._send(b"first%d" % number, b"%d" % number)

    def _send(self, tag: bytes, body: bytes) -> None:
        self.bodies[tag] = body
        delivery_id = self.link.send(tag, body)
        self.model.send(tag, body, delivery_id)

    @precondition(lambda self: self.model.is_attached)
    @rule(size=st.integers(0, 60), is_malformed=st.integers(0, 7).map(lambda n: n == 0))
    def send_new(self, size: int, is_malformed: bool) -> None:
        body = (MALFORMED if is_malformed else b"") + bytes([size]) * size
        self._send(b"t%d" % len(self.bodies), body)

    @precondition(lambda self: self.model.is_attached and any(d.body is None for d in self.model.window))
    @rule(skipped=st.integers(0, 5).map(lambda n: max(0, n - 3)))
    def send_again(self, skipped: int) -> None:
        """P-1: in the original order; I-9: what is passed over is given up."""
        unreceived = [delivery.tag for delivery in self.model.window if delivery.body is None]
        tag = unreceived[min(skipped, len(unreceived) - 1)]
        self._send(tag, self.bodies[tag])

    @precondition(lambda self: self.model.is_attached and self.model.window)
    @rule(data=st.data(), only_reported=st.booleans())
    def settle(self, data: st.DataObject, only_reported: bool) -> None:
        """I-4, out of order as the publisher likes; I-4a when it settles early."""
        choice = [d for d in self.model.window if d.is_reported or not only_reported]
        if not choice:
            return
        chosen = data.draw(st.lists(st.sampled_from(choice), unique_by=id, max_size=5))
        self.link.settle(*(delivery.tag for delivery in chosen), b"never sent")
        self.model.turn_ends(chosen)

    @rule(
        name=st.sampled_from(NAMES),
        ends=st.tuples(st.integers(0, 40), st.integers(0, 12)),
        age=st.integers(0, 2),
        is_long=st.integers(0, 9).map(lambda n: n == 0),
        outcome=st.sampled_from([DeliveryOutcome.ACCEPTED, DeliveryOutcome.REJECTED]),
    )
    def acknowledge(self, name: str, ends: tuple[int, int], age: int, is_long: bool, outcome: DeliveryOutcome) -> None:
        """I-2: any egress, any epoch of this life, any numbers, as often as it likes."""
        first = ends[0] if not self.model.window else ends[0] % (self.model.end + 2)
        count = LONG_RUN if is_long else ends[1]
        epochs = self.model.subscriptions.get(name)
        if epochs is None:
            return
        self.egress.acknowledge(self.epoch, epochs[-1 - age % len(epochs)], outcome, (first, count))
        self.model.acknowledge(name, first, count)
        self.model.turn_ends()

    @rule(name=st.sampled_from(NAMES))
    def acknowledge_the_head(self, name: str) -> None:
        """What mostly happens: the oldest deliveries are done."""
        epochs = self.model.subscriptions.get(name)
        owed = [delivery.number for delivery in self.model.window if name in delivery.owed]
        if epochs is None or not owed:
            return
        self.egress.acknowledge(self.epoch, epochs[-1], DeliveryOutcome.ACCEPTED, (owed[0], 2), (owed[-1], 1))
        self.model.acknowledge(name, owed[0], 2)
        self.model.acknowledge(name, owed[-1], 1)
        self.model.turn_ends()

    @precondition(lambda self: self.former)
    @rule(data=st.data())
    def acknowledge_in_a_former_life(self, data: st.DataObject) -> None:
        """I-2, I-6: it was sent nothing behind the window's end of that time, where the next life begins."""
        publisher_epoch, epoch, end = data.draw(st.sampled_from(self.former))
        self.egress.acknowledge(publisher_epoch, epoch, DeliveryOutcome.ACCEPTED, (0, end))

    @precondition(lambda self: self.model.subscriptions)
    @rule(epochs_ago=st.integers(1, 5))
    def acknowledge_another_window(self, epochs_ago: int) -> None:
        """T-7: numbers of another publisher epoch say nothing about this one."""
        subscription = next(iter(self.model.subscriptions.values()))[-1]
        self.egress.acknowledge(self.epoch - epochs_ago, subscription, DeliveryOutcome.ACCEPTED, (0, 100))

    @rule(name=st.sampled_from(NAMES))
    def join(self, name: str) -> None:
        """I-6 when it is new: it owes only what is received from now on. I-5 when it moved."""
        epoch = self.egress.attach(link_key(name, "link"), name)
        self.model.subscriptions.setdefault(name, []).append(epoch)
        self.model.sync([name])

    @rule(name=st.sampled_from(NAMES))
    def leave(self, name: str) -> None:
        """I-3: what a deleted subscription owed is owed no longer."""
        epochs = self.model.subscriptions.pop(name, None)
        if epochs is None:
            return
        self.net.delete_subscription(name)
        self.has_left = True
        self.former += [(self.epoch, epoch, self.model.end) for epoch in epochs]
        for delivery in self.model.window:
            delivery.owed.discard(name)
        self.model.turn_ends()

    @precondition(lambda self: self.model.is_attached)
    @rule(luck=st.integers(0, 2))
    def lose_the_link(self, luck: int) -> None:
        """A-9: the window stays and goes on collecting acceptances."""
        if luck:
            return
        self.link.drop()
        self.model.is_attached = False

    @precondition(lambda self: not self.model.is_attached)
    @rule(recorded=st.integers(0, 8))
    def come_back(self, recorded: int) -> None:
        """A-4: reported outcomes the publisher recorded are terminal in its map, the others are U."""
        reported = [delivery.tag for delivery in self.model.window if delivery.is_reported][:recorded]
        unsettled = {d.tag: DeliveryOutcome.ACCEPTED if d.tag in reported else None for d in self.model.window}
        self.has_left = False
        self.link = self.net.publisher(self.net.nodes[0], unsettled=unsettled)
        self.read_outcomes = 0
        self.model.resume(tag for tag, outcome in unsettled.items() if outcome is None)

    # ------------------------------------------------------------------ what must hold after every step

    @invariant()
    def everything_is_as_in_the_model(self) -> None:
        self.is_sound = False
        self._check_frames()
        self._check_reported()
        self._check_slots()
        self._check_owed()
        self.is_sound = True

    def _check_frames(self) -> None:
        """I-1, I-4, I-5, T-6, T-7: exactly these frames, in this order, with these very bytes."""
        joined = frozenset(epochs[-1] for epochs in self.model.subscriptions.values())
        got = [_frame(message, joined) for message in self._without_marks(self.egress.read())]
        expected, self.model.frames = self.model.frames, []
        assert got == expected, f"frames: {got} instead of {expected}"

    def _without_marks(self, messages: Sequence[RouterMessage]) -> list[RouterMessage]:
        """T-3: behind a deletion the first SETTLE, and only that, waits behind a MSG to nobody."""
        kept: list[RouterMessage] = []
        was_marked = False
        for message in messages:
            is_mark = isinstance(message, Msg) and message.to == (message.publisher_epoch,)
            if was_marked or isinstance(message, Settle):
                assert isinstance(message, Settle), "a mark stands before a SETTLE"
                assert was_marked is self.has_left, "a SETTLE waits for each deletion once"
                self.has_left = False
            was_marked = is_mark
            if not is_mark:
                kept.append(message)
        return kept

    def _check_reported(self) -> None:
        """I-3: reported is what is received and owed by nobody, up to the first that is not."""
        reported: dict[DeliveryOutcome, list[int]] = {}
        disposed = self.link.all(effects.Dispose)
        for effect in disposed[self.read_outcomes :]:
            reported.setdefault(effect.outcome, []).extend(effect.delivery_ids)
        self.read_outcomes = len(disposed)
        expected, self.model.reported = self.model.reported, {}
        assert reported == expected, f"reported: {reported} instead of {expected}"

    def _window(self) -> Window:
        return self.net.nodes[0].core.ingresses[link_key("p", "link")].window

    def _check_slots(self) -> None:
        window, model = self._window(), self.model.window
        slots = list(window.slots())
        numbers = [slot.number for slot in slots]
        assert numbers == sorted(set(numbers)), "numbers ascend"
        assert [(slot.number, slot.tag) for slot in slots] == [(d.number, d.tag) for d in model], "window: entries"
        assert [slot.state.value != "awaited" for slot in slots] == [d.body is not None for d in model]
        assert [slot.repeated for slot in slots] == [d.is_repeated for d in model]
        assert [slot.message for slot in slots] == [d.stored for d in model], "bodies are kept byte for byte"
        assert [slot.state.value == "reported" for slot in slots] == [d.is_reported for d in model]
        flags = [slot.state.value == "reported" for slot in slots]
        assert flags == sorted(flags, reverse=True), "reported is a prefix of the window"
        assert window.body_bytes == sum(len(d.stored) for d in model), "window: bytes"
        assert window.unreceived == sum(d.body is None for d in model), "window: unreceived"
        assert window.reported == sum(d.is_reported for d in model), "window: reported"
        assert len(window) == len(model)
        assert window.end == self.model.end
        assert window.base == (model[0].number if model else self.model.end)
        unreported = [d.number for d in model if not d.is_reported]
        assert window.base <= window.next_accept <= (unreported[0] if unreported else self.model.end)
        for number in range(self.model.end + 1):
            slot = window.at(number)
            assert (slot is not None) == (number in numbers)
            assert window.found([number]) == ([] if slot is None else [slot])
        assert all(window.find(slot.tag) is slot for slot in slots)
        assert window.find(b"never sent") is None

    def _check_owed(self) -> None:
        """I-1, I-2, I-6: pending is what brute force counts, and the names are right, too."""
        fanout = self.net.nodes[0].core.ingresses[link_key("p", "link")].fanout
        pending = [slot.pending for slot in self._window().slots()]
        assert pending == [len(d.owed) for d in self.model.window], f"pending: {pending}"
        for delivery in self.model.window:
            owing = {name.partition("/")[0] for name in fanout.owing(delivery.number)}
            assert owing == delivery.owed, f"owing {delivery.number}: {owing} instead of {delivery.owed}"
        for cursor in fanout.cursors.values():
            assert all(number > cursor.through for number in cursor.beyond)

    # ------------------------------------------------------------------ the end

    def teardown(self) -> None:
        """G6: whatever happened, what is sent, acknowledged and settled leaves nothing behind."""
        if not self.is_sound:
            return
        if not self.model.is_attached:
            self.come_back(0)
        while any(delivery.body is None for delivery in self.model.window):
            self.send_again(0)
        self._send(b"last", b"last")
        for name, epochs in self.model.subscriptions.items():
            self.egress.acknowledge(self.epoch, epochs[-1], DeliveryOutcome.ACCEPTED, (0, LONG_RUN))
            self.model.acknowledge(name, 0, LONG_RUN)
            self.model.turn_ends()
        self.everything_is_as_in_the_model()
        assert all(delivery.is_reported for delivery in self.model.window), "reported: everything that nobody owes"
        self.link.settle(*(delivery.tag for delivery in self.model.window))
        self.model.turn_ends(list(self.model.window))
        self.everything_is_as_in_the_model()
        window, fanout = self._window(), self.net.nodes[0].core.ingresses[link_key("p", "link")].fanout
        assert (len(window), window.body_bytes, window.reported, window.unreceived) == (0, 0, 0, 0)
        assert window.base == window.next_accept == window.end
        assert all(cursor.through == window.end and not cursor.beyond for cursor in fanout.cursors.values())


def _frame(message: RouterMessage, joined: frozenset[int]) -> tuple[object, ...]:
    """A frame as the model writes it down; a MSG to all goes to everybody who has joined."""
    if isinstance(message, Sync):
        assert list(message.numbers) == sorted(set(message.numbers)), "SYNC: numbers ascend"
        return ("SYNC", frozenset(message.subscription_epochs), message.numbers, message.tags)
    if isinstance(message, Msg):
        to = joined if message.to is None else frozenset(message.to)
        return ("MSG", message.number, message.tag, message.message, to)
    assert isinstance(message, Settle)
    numbers = [number for first, count in message.runs for number in range(first, first + count)]
    assert len(numbers) == len(set(numbers)), "SETTLE: a number is named once"
    return ("SETTLE", tuple(sorted(numbers)))


def test_a_window_is_a_list_of_deliveries_each_owed_by_a_set_of_subscriptions() -> None:
    run_machine(WindowMachine, rounds(EXAMPLES), STEPS)


FAULTS = {
    "a joiner owes what was there before it": ("owing|pending|SYNC|frames", by_name("joiner-start")),
    "an entry that was passed over stays": ("frames|reported|window", by_name("F8-abandoned-entries")),
    "accepted out of order": (
        "reported",
        Edit(
            "in-order",
            "I-3",
            "            if slot is not None and (slot.pending or slot.state is AWAITED or slot.state is ARRIVING):\n"
            "                return\n",
            "            if slot is not None and (slot.pending or slot.state is AWAITED or slot.state is ARRIVING):\n"
            "                window.next_accept += 1\n                continue\n",
            "an outcome reported ahead of an older one",
        ),
    ),
    "an acknowledgement counts twice": (
        "reported|pending",
        Edit(
            "counted-twice",
            "I-2",
            "        new = [number for number in range(first, stop) if number not in self.beyond]\n",
            "        new = list(range(first, stop))\n",
            "an ACK that comes twice stands for somebody else's",
        ),
    ),
    "bytes of a settled body stay counted": (
        "window: bytes",
        Edit(
            "bytes-leak",
            "I-4",
            "        self.body_bytes -= len(slot.message)\n",
            "",
            "bytes of deliveries that are gone use up the window",
        ),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_the_machine_sees_the_fault(fault: str) -> None:
    claim, edit = FAULTS[fault]
    assert_fault_is_seen(WindowMachine, STEPS, claim, edit)
