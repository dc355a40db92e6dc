"""Credit of publishers and of subscribers against brute force (rules C-1, C-3, C-4, C-5).

For a publisher the model counts what is unreceived and what is free in the window, and knows after each of the
publisher's turns which grant is due. For subscribers it knows which deliveries each is still to get, how much credit
is left and what its map holds, so it can say whether anything waits that need not wait.
"""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from chaos.mutants.catalogue import by_name
from chaos.mutants.edits import Edit
from delivery_records.model import effects, inputs
from delivery_records.model.limits import KIB, WINDOW_BYTES, Limits, TopicPolicy
from delivery_records.model.outcomes import DeliveryOutcome
from tests.delivery_records.harness import Net
from tests.delivery_records.links import PublisherLink
from tests.delivery_records.stateful_models import (
    Core,
    CoreNet,
    FrugalSubscriber,
    Publisher,
    assert_fault_is_seen,
    run_machine,
)
from tests.support.effort import rounds

PUBLISHER_EXAMPLES, PUBLISHER_STEPS = 80, 40
SUBSCRIBER_EXAMPLES, SUBSCRIBER_STEPS = 70, 40
PATIENT = 1e9
"""Seconds; nobody is detached for being slow here."""


class PublisherCreditMachine(RuleBasedStateMachine):
    """One publisher whose credit is looked at; other publishers and bounded maps that change its share (C-4)."""

    def __init__(self, core: Core) -> None:
        super().__init__()
        self.core = core
        self.is_sound = True

    @initialize(
        window=st.integers(1, 12),
        map_bound=st.sampled_from([0, 0, 2, 5]),
        window_bytes=st.sampled_from([WINDOW_BYTES, 3 * KIB]),
    )
    def begin(self, window: int, map_bound: int, window_bytes: int) -> None:
        self.window_size, self.map_bound, self.window_bytes = window, map_bound, window_bytes
        limits = Limits(window=window, window_bytes=window_bytes, settle_timeout_s=PATIENT, resend_timeout_s=PATIENT)
        self.net: Net = CoreNet(self.core, limits=limits)
        self.node = self.net.nodes[0]
        self.subscribers = {"s": self.net.subscriber(self.node, "s", limit=1_000_000)}
        self.bounds = {"s": 0}
        self.others: dict[str, PublisherLink] = {}
        self.window: dict[bytes, int | None] = {}
        """Tag -> bytes of its message, None while it is known from the map only (U_r)."""
        self.made = 0
        self.largest = 0
        """The most the window may hold: the largest size it had, or what a map presented (C-1)."""
        self._attach()

    def _attach(self) -> None:
        self.received = self.limit = self.resumed = self._read = 0
        self.window = dict.fromkeys(self.window)
        self.link = self.net.publisher(self.node, unsettled=dict.fromkeys(self.window), map_bound=self.map_bound)
        self.largest = max(self.largest, len(self.window))
        self.tags: dict[int, bytes] = {}
        self._check(is_own_turn=True)

    # ------------------------------------------------------------------ the model

    @property
    def size(self) -> int:
        """C-1, C-4: W, the share of the smallest map of the topic, and what fits the publisher's own frame."""
        shares = [bound // (1 + len(self.others)) for bound in self.bounds.values() if bound]
        size = min([self.window_size, *(max(1, share) for share in shares)])
        return max(1, min(size, self.map_bound)) if self.map_bound else size

    @property
    def unreceived(self) -> int:
        return sum(size is None for size in self.window.values())

    @property
    def stored_bytes(self) -> int:
        return sum(size or 0 for size in self.window.values())

    @property
    def outstanding(self) -> int:
        return self.limit - self.received

    def _check(self, *, is_own_turn: bool) -> None:
        """After one turn: exactly the grant that is due; of bytes the model knows bounds only, not the mean."""
        self.is_sound = False
        self.largest = max(self.largest, self.size)
        grants = [grant.limit for grant in self.link.all(effects.GrantPublisherCredit)]
        new, self._read = grants[self._read :], len(grants)
        free = max(0, self.size - len(self.window))
        wanted = self.unreceived + free
        step = max(1, self.size // 4)
        is_due = wanted - self.outstanding >= step or (self.outstanding <= 0 < wanted)
        assert len(new) <= 1, "C-1: one grant in a turn"
        if self.window_bytes == WINDOW_BYTES:
            expected = [self.received + wanted] if is_due else []
            assert new == expected or not (new or is_own_turn), f"C-1: granted {new}, not {expected}"
        else:
            self._check_bytes(new, free, step)
        self.limit = new[-1] if new else self.limit
        assert self.outstanding >= 0, "C-1: what was granted is not withdrawn"
        if self.unreceived:
            assert self.outstanding > 0, "C-1: resends never wait for credit"
        if not self.window:
            assert self.outstanding > 0, "C-1: an empty window always takes a message"
        assert len(self.window) <= self.largest, f"C-1: {len(self.window)} deliveries in a window of {self.largest}"
        self.is_sound = True

    def _check_bytes(self, new: list[int], free: int, step: int) -> None:
        """A message counts as 1 KiB at least; a window without bodies always takes one."""
        room = max(0, self.window_bytes - self.stored_bytes) // KIB
        most = self.received + self.unreceived + min(free, room if self.stored_bytes else max(1, room))
        for limit in new:
            assert limit <= most, f"C-1: granted {limit} although bytes allow {most}"
            assert limit - self.limit >= step or self.outstanding <= 0, "C-1: a grant is worth a frame"

    def _drop_unreceived(self, before: bytes | None = None) -> None:
        """I-9: what is passed over is given up."""
        for tag in list(self.window):
            if tag == before:
                return
            if self.window[tag] is None:
                del self.window[tag]

    # ------------------------------------------------------------------ the publisher

    def _transfer(self, tag: bytes, size: int = 0, **how: bool) -> None:
        self.received += 1
        self.tags[self.link.send(tag, bytes(size), **how)] = tag

    @rule(size=st.sampled_from([0, 100, KIB, 3 * KIB, 40 * KIB]), count=st.integers(1, 4))
    def send_new(self, size: int, count: int) -> None:
        for _ in range(count):
            if self.outstanding > 0:
                self.made += 1
                self._drop_unreceived()
                tag = b"%d" % self.made
                self.window[tag] = size
                self._transfer(tag, size)
                self._check(is_own_turn=True)

    @rule(skipped=st.integers(0, 4).map(lambda n: max(0, n - 3)), size=st.sampled_from([0, KIB, 3 * KIB]))
    def send_again(self, skipped: int, size: int) -> None:
        unreceived = [tag for tag, known in self.window.items() if known is None]
        if unreceived:
            tag = unreceived[min(skipped, len(unreceived) - 1)]
            self._drop_unreceived(before=tag)
            self.window[tag] = size
            self._transfer(tag, size)
            self._check(is_own_turn=True)

    @rule()
    def abort(self) -> None:
        """C-1: it costs credit and takes no place."""
        if self.outstanding > 0:
            self._transfer(b"aborted", aborted=True)
            self._check(is_own_turn=True)

    @rule()
    def send_presettled(self) -> None:
        if self.outstanding > 0:
            self._drop_unreceived()
            self._transfer(b"presettled", settled=True)
            self._check(is_own_turn=True)

    @precondition(lambda self: self.resumed < 2)
    @rule()
    def send_with_resume(self) -> None:
        """A-3a: ignored at the price of its credit; the third time ends the link."""
        if self.outstanding > 0:
            self.resumed += 1
            self._transfer(b"resumed", resume=True)
            self._check(is_own_turn=True)

    @rule(skipped=st.integers(0, 3), count=st.integers(1, 12))
    def settle(self, skipped: int, count: int) -> None:
        """Reported or not (I-4a), in any order."""
        tags = [tag for tag, size in self.window.items() if size is not None][skipped : skipped + count]
        if tags:
            for tag in tags:
                del self.window[tag]
            self.link.settle(*tags)
            self._check(is_own_turn=True)

    @rule(luck=st.integers(0, 2))
    def attach_again(self, luck: int) -> None:
        if not luck:
            self.link.drop()
            self._attach()

    # ------------------------------------------------------------------ the others

    @rule(count=st.integers(1, 12))
    def accept(self, count: int) -> None:
        for subscriber in self.subscribers.values():
            tags = [delivery.tag for delivery in subscriber.all(effects.Deliver)][-count:]
            subscriber.feed(inputs.SubscriberDisposition(subscriber.number, tags, DeliveryOutcome.ACCEPTED, False))
            self._check(is_own_turn=False)

    @rule(name=st.sampled_from(["q1", "q2"]))
    def another_publisher_comes_or_goes(self, name: str) -> None:
        link = self.others.pop(name, None)
        if link is None:
            self.others[name] = self.net.publisher(self.node, name)
        else:
            link.detach(closed=True)
        self._check(is_own_turn=False)

    @rule(name=st.sampled_from(["b1", "b2"]), bound=st.integers(1, 14))
    def a_bounded_map_comes_or_goes(self, name: str, bound: int) -> None:
        link = self.subscribers.pop(name, None)
        if link is None:
            self.subscribers[name] = self.net.subscriber(self.node, name, map_bound=bound, limit=1_000_000)
            self.bounds[name] = bound
        else:
            link.detach(closed=True)
            del self.bounds[name]
        self._check(is_own_turn=False)

    def teardown(self) -> None:
        """What is settled comes back as credit, all of it: no sequence of turns may lose any."""
        if not self.is_sound or not hasattr(self, "window"):
            return
        tags = list(self.window)
        self.window = {}
        self.link.settle(*tags)
        self._check(is_own_turn=bool(tags))
        for _ in range(20):
            self.send_new(0, 1)
            self.settle(0, 1)
        assert self.outstanding > 0
        if self.window_bytes == WINDOW_BYTES:
            assert self.outstanding > self.size - max(1, self.size // 4), "C-1: credit was lost on the way"


def test_a_publisher_has_credit_for_its_resends_and_for_what_is_free_in_the_window() -> None:
    run_machine(PublisherCreditMachine, rounds(PUBLISHER_EXAMPLES), PUBLISHER_STEPS)


PUBLISHER_FAULTS = {
    "resends compete with new messages": ("C-1", by_name("F1-credit-for-resends")),
    "credit beyond the window": (
        "C-1",
        Edit(
            "beyond-window",
            "C-1",
            "min(size - taken, self._room(window))",
            "min(size, self._room(window))",
            "what is unsettled is not taken off",
        ),
    ),
    "every place is granted at once": (
        "C-1",
        Edit("no-portions", "C-1", ">= max(1, size // 4) or", ">= 1 or", "a flow for each settlement"),
    ),
    "bytes do not count": (
        "C-1: granted .* although bytes allow",
        Edit(
            "no-bytes",
            "C-1",
            "        if free <= 0:\n            return 0\n",
            "        free = 1 << 40\n",
            "large messages fill the memory",
        ),
    ),
    "an empty window takes nothing": (
        "C-1: an empty window",
        Edit(
            "nothing-fits",
            "C-1",
            "return max(room, 1) if held == 0 else room",
            "return room",
            "a message larger than the window waits for ever",
        ),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", PUBLISHER_FAULTS)
def test_the_publishers_machine_sees_the_fault(fault: str) -> None:
    claim, edit = PUBLISHER_FAULTS[fault]
    assert_fault_is_seen(PublisherCreditMachine, PUBLISHER_STEPS, claim, edit)


# ---------------------------------------------------------------------- subscribers


class SubscriberCreditMachine(RuleBasedStateMachine):
    """Two routers, a publisher and a subscriber at each; the publishers had credit before the maps came (C-4)."""

    def __init__(self, core: Core) -> None:
        super().__init__()
        self.core = core
        self.is_sound = True

    @initialize(
        window=st.integers(1, 6),
        bounds=st.tuples(st.integers(0, 4), st.integers(0, 4)),
        prefetches=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    )
    def begin(self, window: int, bounds: tuple[int, int], prefetches: tuple[int, int]) -> None:
        limits = Limits(
            window=window, settle_timeout_s=PATIENT, resend_timeout_s=PATIENT, policy=TopicPolicy(max_attempts=10_000)
        )
        self.net = CoreNet(self.core, 2, limits=limits)
        self.publishers = [Publisher(self.net, node, f"p{at}") for at, node in enumerate(self.net.nodes)]
        self.subscribers = [
            FrugalSubscriber(self.net, node, f"s{at}", bounds[at], prefetches[at])
            for at, node in enumerate(self.net.nodes)
        ]
        self.net.advance(1.0)
        self.go_on(window, 0)

    # ------------------------------------------------------------------ steps

    @rule(index=st.integers(0, 1), count=st.integers(1, 6))
    def send(self, index: int, count: int) -> None:
        for _ in range(count):
            self.publishers[index].send(8)

    @rule(count=st.integers(1, 3), processed=st.integers(0, 2))
    def go_on(self, count: int, processed: int) -> None:
        """What mostly happens, on all sides."""
        for subscriber in self.subscribers:
            subscriber.read()
            subscriber.process(processed)
            subscriber.replenish()
        for publisher in self.publishers:
            publisher.read()
            for tag in [tag for tag, outcome in publisher.map.items() if outcome is not None]:
                publisher.settle(tag)
            for _ in range(count):
                publisher.send(8)

    @rule(index=st.integers(0, 1), count=st.integers(1, 4))
    def process_and_say_nothing_of_credit(self, index: int, count: int) -> None:
        self.subscribers[index].process(count)

    @rule(index=st.integers(0, 1))
    def replenish(self, index: int) -> None:
        self.subscribers[index].replenish()

    @rule(index=st.integers(0, 1), luck=st.integers(0, 2))
    def drain(self, index: int, luck: int) -> None:
        """C-5: answered, and no credit is left then."""
        if luck == 0:
            subscriber = self.subscribers[index]
            before = len(subscriber.link.all(effects.CompleteDrain))
            subscriber.replenish(drain=True)
            assert len(subscriber.link.all(effects.CompleteDrain)) == before + 1, "C-5: a drain is answered"
            assert subscriber.credit == 0, "C-5: nothing is left after a drain"

    @rule(
        index=st.integers(0, 1),
        luck=st.integers(0, 3),
        outcome=st.sampled_from([DeliveryOutcome.RELEASED, DeliveryOutcome.MODIFIED, DeliveryOutcome.MODIFIED_FAILED]),
    )
    def refuse(self, index: int, luck: int, outcome: DeliveryOutcome) -> None:
        """E-4a; now and then the publisher gives up what was just asked for again."""
        if luck > 1:
            return
        refused = self.subscribers[index].refuse(outcome)
        for publisher in self.publishers:
            if luck == 0 and refused in publisher.map and refused is not None:
                publisher.settle(refused)
        self._forget_given_up()

    @rule(index=st.integers(0, 1), skipped=st.integers(0, 2))
    def settle(self, index: int, skipped: int) -> None:
        publisher = self.publishers[index]
        for tag in [tag for tag, outcome in publisher.map.items() if outcome is not None][skipped:]:
            publisher.settle(tag)

    @rule(index=st.integers(0, 1), at=st.integers(0, 2))
    def give_up(self, index: int, at: int) -> None:
        """I-4a: held copies and what was asked for again are dropped, too (E-5)."""
        publisher = self.publishers[index]
        unfinished = [tag for tag, outcome in publisher.map.items() if outcome is None]
        if at < len(unfinished):
            publisher.settle(unfinished[at])
            self._forget_given_up()

    def _forget_given_up(self) -> None:
        """What was given up does not come again; its place is free once the SETTLE has arrived."""
        given_up = self.publishers[0].given_up | self.publishers[1].given_up
        for subscriber in self.subscribers:
            subscriber.again = {tag for tag in subscriber.again if tag[11:] not in given_up}

    @rule(way=st.sampled_from([(0, 1), (1, 0)]))
    def hold_or_release(self, way: tuple[int, int]) -> None:
        """What is between the routers is late, so that the two subscribers get it in different orders."""
        self.net.held = self.net.held ^ {way}
        self.net.run()

    @rule(index=st.integers(0, 1), at=st.integers(0, 1), luck=st.integers(0, 2))
    def move(self, index: int, at: int, luck: int) -> None:
        """Attach again, here or at the other router, with the map as it is."""
        if luck == 0:
            subscriber = self.subscribers[index]
            subscriber.link.drop()
            subscriber.read()
            subscriber.attach(self.net.nodes[at])

    @rule(seconds=st.sampled_from([0.1, 1.1, 5.0]))
    def time_passes(self, seconds: float) -> None:
        self.net.advance(seconds)

    # ------------------------------------------------------------------ what must hold after every step

    @invariant()
    def nobody_gets_too_much_and_nothing_waits_without_need(self) -> None:
        self.is_sound = False
        for subscriber in self.subscribers:
            subscriber.read()
        for publisher in self.publishers:
            for tag in publisher.read():
                for subscriber in self.subscribers:
                    assert tag in subscriber.processed or self._is_excused(subscriber, tag), f"G1: {tag!r}"
        if not self.net.held and not any(self.net.frames.values()):
            for subscriber in self.subscribers:
                self._check_waiting(subscriber)
        self.is_sound = True

    def _is_excused(self, subscriber: FrugalSubscriber, tag: bytes) -> bool:
        return any(lost[11:] == tag for lost in subscriber.lost)

    def _check_waiting(self, subscriber: FrugalSubscriber) -> None:
        """C-3, C-4: while there is credit, what is held is held for want of room."""
        if subscriber.credit <= 0:
            return
        assert not subscriber.to_resume or not self._resumable(subscriber), "C-3: a resume waits although it may go"
        held = [*subscriber.map, *subscriber.again]
        is_full = subscriber.map_bound > 0 and len(held) >= subscriber.map_bound
        here = {tag[11:] for tag in held}
        for publisher in self.publishers:
            waiting = [t for t in publisher.map if t not in here and t not in subscriber.processed]
            waiting = [tag for tag in waiting if not self._is_excused(subscriber, tag)]
            if any(tag in publisher.sent for tag in here) and is_full:
                continue
            assert not waiting, f"C-3, C-4: {waiting} wait although {subscriber.name} has credit and room"

    def _resumable(self, subscriber: FrugalSubscriber) -> list[bytes]:
        """Entries that need a message again: presented without an outcome. The others wait for their settlement."""
        return [tag for tag in subscriber.to_resume if not subscriber.map[tag]]

    # ------------------------------------------------------------------ the end

    def teardown(self) -> None:
        """C-3, C-4: nobody waits for anybody for ever, whatever credit and maps were."""
        if not self.is_sound or not hasattr(self, "publishers"):
            return
        self.net.held = set()
        self.net.run()
        for _ in range(40):
            for subscriber in self.subscribers:
                subscriber.read()
                subscriber.process(1)
                subscriber.replenish()
            for publisher in self.publishers:
                publisher.read()
                for tag in [tag for tag, outcome in publisher.map.items() if outcome is not None]:
                    publisher.settle(tag)
            self.net.advance(70.0 if any(subscriber.again for subscriber in self.subscribers) else 0.0)
        self.nobody_gets_too_much_and_nothing_waits_without_need()
        for publisher in self.publishers:
            assert not publisher.map, f"C-3, C-4: deadlock, {list(publisher.map)} are never done"
        self._check_rest()

    def _check_rest(self) -> None:
        for subscriber in self.subscribers:
            assert not subscriber.map, f"G6: {subscriber.name} keeps {list(subscriber.map)}"
            for publisher in self.publishers:
                done = [tag for tag in subscriber.processed if tag in publisher.sent]
                owed = [tag for tag in publisher.sent if tag in done or tag not in publisher.given_up]
                owed = [tag for tag in owed if tag in done or not self._is_excused(subscriber, tag)]
                assert sorted(done) == sorted(owed), "G4: no hole"
                assert done == owed or subscriber.refused, "G3: in order"
        for node in self.net.nodes:
            for egress in node.core.egresses.values():
                assert (egress.outgoing.held, egress.outgoing.mapped) == (0, 0), (
                    f"C-4: {egress.outgoing.mapped} places are taken at rest"
                )
                assert not any(egress.sessions.values()), "G6: entries"


def test_a_subscriber_gets_what_its_credit_and_its_map_allow_and_nobody_waits_for_ever() -> None:
    run_machine(SubscriberCreditMachine, rounds(SUBSCRIBER_EXAMPLES), SUBSCRIBER_STEPS)


SUBSCRIBER_FAULTS = {
    "accepted entries count": ("C-3|C-4", by_name("C16-unaccepted-counts-only")),
    "full maps lock each other out": ("C-3|C-4", by_name("map-bound")),
    "a settled copy stays held": ("C-3|C-4|G6", by_name("held-copy")),
    "held ones go without credit": (
        "C-3",
        Edit(
            "no-credit",
            "C-3",
            "        while waiting and not self._settle_queue and self.sent < self.limit:\n",
            "        while waiting and not self._settle_queue:\n",
            "a subscriber gets more than it asked for",
        ),
    ),
    "new credit releases nothing": (
        "C-3|C-5",
        Edit(
            "no-release",
            "C-3",
            "            self.proof.on_sign_of_life(self)  # A-10\n        self.outgoing.pump()\n",
            "            self.proof.on_sign_of_life(self)  # A-10\n",
            "what is held waits for the next frame of somebody else",
        ),
    ),
    "a place is never given back": (
        "C-3|C-4",
        Edit(
            "place-leak",
            "C-4",
            "        elif state in WANTED:\n            self._count_place(entry, -1)\n",
            "",
            "a delivery that was refused and given up fills the map for good",
        ),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", SUBSCRIBER_FAULTS)
def test_the_subscribers_machine_sees_the_fault(fault: str) -> None:
    claim, edit = SUBSCRIBER_FAULTS[fault]
    assert_fault_is_seen(SubscriberCreditMachine, SUBSCRIBER_STEPS, claim, edit)
