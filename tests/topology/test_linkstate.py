"""Link states reach every router, and best paths follow cuts, repairs and silence: routers in memory, virtual time."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable
from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topology.links import linkstate
from topology.links.linkstate import MAX_AGE_S, REFRESH_S, SILENCE_S, DropNeighbour, Effect, LinkStateView, SendTo
from topology.links.linkstate_codec import (
    MAX_NODE_ID_BYTES,
    Announcement,
    Heartbeat,
    LinkStateError,
    LinkStateMessage,
    LinkStateUpdate,
    decode_message,
    encode_message,
)
from topology.links.paths import Graph, best_paths


class Mesh:
    """Routers joined by FIFO links; a link carries messages until it is cut, and loses what is under way then."""

    def __init__(self, routers: Iterable[int], seed: int = 0) -> None:
        self.now = 0.0
        self.routers = {rid: LinkStateView(rid, f"node-{rid}", self.now) for rid in routers}
        self.costs: dict[frozenset[int], int] = {}
        self.frozen: set[int] = set()
        self.dropped: list[tuple[float, int, int]] = []
        self.sent = 0
        self._under_way: dict[tuple[int, int], deque[bytes]] = {}
        self._chance = random.Random(seed)

    def join(self, one: int, other: int, cost: int = 1) -> None:
        self.costs[frozenset((one, other))] = cost
        self._under_way[one, other] = deque()
        self._under_way[other, one] = deque()
        for rid, neighbour in ((one, other), (other, one)):
            self._carry_out(rid, self.routers[rid].neighbour_up(neighbour, cost, self.now))

    def cut(self, one: int, other: int) -> None:
        """Both ends notice at once, as when a connection is reset."""
        for rid, neighbour in ((one, other), (other, one)):
            del self._under_way[rid, neighbour]
        del self.costs[frozenset((one, other))]
        for rid, neighbour in ((one, other), (other, one)):
            self._carry_out(rid, self.routers[rid].neighbour_down(neighbour, self.now))

    def run(self, seconds: float = 0.0) -> None:
        """Deliver what is under way, in any order of links, then let time pass."""
        ends_at = self.now + seconds
        while True:
            self._deliver()
            awake = [r for rid, r in self.routers.items() if rid not in self.frozen]
            deadline = min(router.next_deadline() for router in awake)
            if deadline > ends_at:
                break
            self.now = max(self.now, deadline)
            for rid, router in self.routers.items():
                if rid not in self.frozen and router.next_deadline() <= self.now:
                    self._carry_out(rid, router.handle_timer(self.now))
        self.now = ends_at
        for router in self.routers.values():
            router.update_paths()

    def graph(self) -> Graph:
        graph: dict[int, dict[int, int]] = {rid: {} for rid in self.routers}
        for ends, cost in self.costs.items():
            one, other = ends
            graph[one][other] = graph[other][one] = cost
        return graph

    def assert_converged(self) -> None:
        graph = self.graph()
        for rid, router in self.routers.items():
            assert router.paths == best_paths(graph, rid)

    def _deliver(self) -> None:
        while True:
            ready = [ends for ends, queue in self._under_way.items() if queue and ends[1] not in self.frozen]
            if not ready:
                return
            sender, receiver = self._chance.choice(ready)
            message = decode_message(self._under_way[sender, receiver].popleft())
            self._carry_out(receiver, self.routers[receiver].receive(message, sender, self.now))

    def _carry_out(self, rid: int, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, DropNeighbour):
                self.dropped.append((self.now, rid, effect.rid))
                continue
            for neighbour in effect.neighbours:
                queue = self._under_way.get((rid, neighbour))
                if queue is not None:
                    queue.append(encode_message(effect.message))
                    self.sent += isinstance(effect.message, Announcement)


def ring(size: int, seed: int = 0) -> Mesh:
    mesh = Mesh(range(1, size + 1), seed)
    for one, other in pairwise([*range(1, size + 1), 1]):
        mesh.join(one, other)
    return mesh


def test_a_cut_link_is_routed_around_and_used_again_when_it_heals() -> None:
    mesh = ring(6)
    mesh.run()
    mesh.cut(1, 2)
    mesh.run()
    mesh.assert_converged()
    assert mesh.routers[1].paths.next_hops[2] == 6
    mesh.join(1, 2)
    mesh.run()
    mesh.assert_converged()
    assert mesh.routers[1].paths.next_hops[2] == 2


def test_a_neighbour_that_falls_silent_is_routed_around_within_three_seconds() -> None:
    mesh = ring(4)
    mesh.run(10.0)
    silent_from = mesh.now
    mesh.frozen.add(3)
    mesh.run(SILENCE_S)
    assert SILENCE_S <= 3.0
    assert {(rid, neighbour) for _, rid, neighbour in mesh.dropped} == {(2, 3), (4, 3)}
    assert all(at - silent_from <= 3.0 for at, _, _ in mesh.dropped)
    for rid in (1, 2, 4):
        assert 3 not in mesh.routers[rid].paths.next_hops
        assert 3 not in mesh.routers[rid].paths.next_hops.values()
    assert mesh.routers[2].paths.next_hops == {1: 1, 4: 1}


def test_quiet_neighbours_are_kept_by_their_heartbeats() -> None:
    mesh = ring(3)
    mesh.run(3 * SILENCE_S)
    assert not mesh.dropped
    mesh.assert_converged()


def test_any_traffic_counts_as_a_sign_of_life() -> None:
    router = LinkStateView(1, "a", 0.0)
    router.neighbour_up(2, 1, 0.0)
    for tenths in range(100):
        router.heard(2, tenths / 10)
        assert not any(isinstance(effect, DropNeighbour) for effect in router.handle_timer(tenths / 10))
    assert router.handle_timer(9.9 + SILENCE_S)[0] == DropNeighbour(2)


def test_a_link_only_one_end_announces_is_not_used() -> None:
    router = LinkStateView(1, "a", 0.0)
    router.neighbour_up(2, 1, 0.0)
    router.receive(Announcement((LinkStateUpdate(2, "b", 1, ((3, 1),)),)), 2, 0.0)
    assert router.update_paths() is None
    router.receive(Announcement((LinkStateUpdate(2, "b", 2, ((1, 1), (3, 1))),)), 2, 0.0)
    changed = router.update_paths()
    assert changed is not None
    assert changed.reachable == changed.moved == {2}


def test_an_older_state_is_answered_with_the_newer_one_and_not_passed_on() -> None:
    router = LinkStateView(1, "a", 0.0)
    router.neighbour_up(2, 1, 0.0)
    router.neighbour_up(3, 1, 0.0)
    newer = LinkStateUpdate(9, "i", 5, ((8, 1),))
    assert router.receive(Announcement((newer,)), 2, 0.0) == [SendTo((3,), Announcement((newer,)))]
    assert router.receive(Announcement((newer,)), 3, 0.0) == []
    (answer,) = router.receive(Announcement((LinkStateUpdate(9, "i", 4, ()),)), 3, 0.0)
    assert isinstance(answer, SendTo)
    assert answer.neighbours == (3,)
    assert isinstance(answer.message, Announcement)
    assert answer.message.states[0].sequence == 5


def test_a_router_speaks_for_itself_whatever_others_say_of_it() -> None:
    router = LinkStateView(1, "a", 0.0)
    router.neighbour_up(2, 1, 0.0)
    false = LinkStateUpdate(1, "a", 1_000, ((7, 1),))
    other = LinkStateUpdate(9, "i", 1, ())
    effects = router.receive(Announcement((false, other)), 2, 0.0)
    announced = [
        state
        for e in effects
        if isinstance(e, SendTo) and isinstance(e.message, Announcement)
        for state in e.message.states
    ]
    assert [(state.origin, state.links) for state in announced] == [(1, ((2, 1),))]
    assert announced[0].sequence > 1_000
    assert 9 in router.node_ids()


def test_what_is_reported_about_an_incarnation_that_is_gone_is_ignored() -> None:
    mesh = ring(4)
    mesh.run()
    mesh.cut(2, 3)
    mesh.cut(3, 4)
    for rid in (1, 2, 4):
        mesh.routers[rid].router_gone(3)
    mesh.routers[2].receive(Announcement((LinkStateUpdate(3, "node-3", 99, ((2, 1), (4, 1))),)), 1, mesh.now)
    mesh.run()
    for rid in (1, 2, 4):
        assert 3 not in mesh.routers[rid].node_ids()
        assert 3 not in mesh.routers[rid].paths.next_hops


def test_links_to_a_router_that_has_ended_still_have_its_name() -> None:
    mesh = ring(4)
    mesh.run()
    router = mesh.routers[1]
    router.router_gone(3)
    router.router_gone(3)
    router.router_gone(99)  # never heard of
    assert 3 in router.announced()[2]
    assert router.names() == {1: "node-1", 2: "node-2", 3: "node-3", 4: "node-4"}
    assert router.node_ids().keys() == {1, 2, 4}


def test_states_that_nobody_refreshes_are_forgotten_everywhere() -> None:
    mesh = ring(4)
    mesh.run()
    mesh.cut(2, 3)
    mesh.cut(3, 4)
    mesh.run(MAX_AGE_S + REFRESH_S)
    for rid in (1, 2, 4):
        assert set(mesh.routers[rid].node_ids()) == {1, 2, 4}
    # A router that was unreachable states what it remembers; too old, it revives nobody.
    mesh.join(3, 4)
    mesh.run()
    mesh.assert_converged()


def test_a_state_keeps_its_age_from_router_to_router_and_is_refused_when_too_old() -> None:
    router = LinkStateView(1, "a", 0.0)
    router.neighbour_up(2, 1, 0.0)
    router.receive(Announcement((LinkStateUpdate(9, "i", 1, (), age_s=100),)), 2, 0.0)
    effects = router.neighbour_up(3, 1, 50.0)
    reported = {
        state.origin: state.age_s
        for effect in effects
        if isinstance(effect, SendTo) and effect.neighbours == (3,) and isinstance(effect.message, Announcement)
        for state in effect.message.states
    }
    assert reported[9] >= 150
    assert router.receive(Announcement((LinkStateUpdate(8, "h", 1, (), int(MAX_AGE_S)),)), 2, 50.0) == []
    assert 8 not in router.node_ids()


def test_a_refresh_that_says_the_same_is_no_reason_to_compute_paths() -> None:
    router = LinkStateView(1, "a", 0.0)
    router.neighbour_up(2, 1, 0.0)
    router.receive(Announcement((LinkStateUpdate(2, "b", 1, ((1, 1),)),)), 2, 0.0)
    router.update_paths()
    router.receive(Announcement((LinkStateUpdate(2, "b", 2, ((1, 1),)),)), 2, 1.0)
    assert not router.is_stale
    router.receive(Announcement((LinkStateUpdate(2, "b", 3, ()),)), 2, 2.0)
    assert router.is_stale


def test_refreshes_keep_states_and_move_no_path() -> None:
    mesh = ring(4)
    mesh.run()
    mesh.run(MAX_AGE_S * 2)
    assert all(len(router.node_ids()) == 4 for router in mesh.routers.values())
    mesh.assert_converged()


def test_moved_names_the_routers_whose_next_hop_changed() -> None:
    mesh = ring(4)
    mesh.run()
    router = mesh.routers[1]
    assert router.paths.next_hops == {2: 2, 3: 2, 4: 4}
    mesh.cut(2, 3)
    mesh._deliver()
    changed = router.update_paths()
    assert changed is not None
    assert changed.reachable == {2, 3, 4}
    assert changed.moved == {3}


def test_a_flood_ends_and_costs_about_two_messages_a_link() -> None:
    mesh = Mesh(range(1, 9))
    for one, other in combinations(range(1, 9), 2):
        mesh.join(one, other)
    mesh.run()
    before = mesh.sent
    mesh.cut(1, 2)
    mesh.run()
    assert mesh.sent - before <= 2 * 2 * len(mesh.costs)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), routers=st.integers(2, 9), steps=st.integers(1, 25))
def test_any_mesh_converges_after_any_cuts_and_repairs(seed: int, routers: int, steps: int) -> None:
    chance = random.Random(seed)
    mesh = Mesh(range(1, routers + 1), seed)
    pairs = list(combinations(range(1, routers + 1), 2))
    for _ in range(steps):
        one, other = chance.choice(pairs)
        if frozenset((one, other)) in mesh.costs:
            mesh.cut(one, other)
        else:
            mesh.join(one, other, chance.randint(1, 3))
        if chance.random() < 0.3:
            mesh.run(chance.random() * 5)
    mesh.run()
    mesh.assert_converged()


# --- bounds


def test_a_sequence_nobody_reaches_is_ignored() -> None:
    router = LinkStateView(1, "a", 0.0)
    router.neighbour_up(2, 1, 0.0)
    for origin in (1, 9):
        assert router.receive(Announcement((LinkStateUpdate(origin, "x", 2**64 - 1, ()),)), 2, 0.0) == []
    assert 9 not in router.node_ids()


def test_no_more_routers_are_remembered_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linkstate, "MAX_ROUTERS", 10)
    router = LinkStateView(1, "a", 0.0)
    router.neighbour_up(2, 1, 0.0)
    for origin in range(2, 50):
        router.receive(Announcement((LinkStateUpdate(origin, "x", 1, ()),)), 2, 0.0)
    assert len(router.node_ids()) == 10


def test_gone_incarnations_are_remembered_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linkstate, "MAX_GONE", 5)
    router = LinkStateView(1, "a", 0.0)
    for rid in range(2, 100):
        router.router_gone(rid)
    assert len(router._gone) == 5


def test_one_neighbour_more_than_the_limit_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linkstate, "MAX_NEIGHBOURS", 2)
    router = LinkStateView(1, "a", 0.0)
    router.neighbour_up(2, 1, 0.0)
    router.neighbour_up(3, 1, 0.0)
    assert router.neighbour_up(4, 1, 0.0) == [DropNeighbour(4)]
    assert router.neighbour_up(3, 2, 0.0) != [DropNeighbour(3)]


# --- bytes

updates = st.builds(
    LinkStateUpdate,
    st.integers(0, 2**64 - 1),
    st.text(max_size=MAX_NODE_ID_BYTES // 4),
    st.integers(0, 2**64 - 1),
    st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(1, 2**32 - 1)), max_size=5).map(tuple),
    st.integers(0, 2**16 - 1),
)
messages: st.SearchStrategy[LinkStateMessage] = st.just(Heartbeat()) | st.builds(
    Announcement, st.lists(updates, max_size=5).map(tuple)
)


@given(message=messages)
def test_messages_survive_the_way_through_bytes(message: LinkStateMessage) -> None:
    assert decode_message(encode_message(message)) == message


@given(message=messages, data=st.data())
def test_a_cut_or_changed_message_is_another_message_or_an_error(
    message: LinkStateMessage, data: st.DataObject
) -> None:
    encoded = bytearray(encode_message(message))
    if data.draw(st.booleans()):
        encoded = encoded[: data.draw(st.integers(0, len(encoded)))]
    else:
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    try:
        decoded = decode_message(bytes(encoded))
    except LinkStateError:
        return
    assert encode_message(decoded) == bytes(encoded)


@pytest.mark.parametrize("data", [b"", b"\x02", b"\x00\x00", b"\x01", b"\x01\xff\xff", b"\x01\x00\x01" + b"\x00" * 30])
def test_rubbish_is_an_error(data: bytes) -> None:
    with pytest.raises(LinkStateError):
        decode_message(data)
