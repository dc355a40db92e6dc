"""CO-10: who should own what, where processes come and go."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from oncewire.store.sharing_core import shared_out

NAMES = [f"shard-{number}" for number in range(7)]
MEMBERS = "abcd"
askings = st.dictionaries(st.sampled_from(NAMES), st.sets(st.sampled_from(MEMBERS), min_size=1))


def all_ask(members: str, count: int) -> dict[str, set[str]]:
    return {name: set(members) for name in NAMES[:count]}


def test_one_process_has_all_and_a_second_one_gets_half_of_it() -> None:
    alone = shared_out(all_ask("a", 4), {})
    assert alone == dict.fromkeys(NAMES[:4], "a")
    both = shared_out(all_ask("ab", 4), alone)
    assert Counter(both.values()) == {"a": 2, "b": 2}


def test_what_is_as_even_as_can_be_stays_where_it_is() -> None:
    owners = {NAMES[0]: "b", NAMES[1]: "b", NAMES[2]: "a"}
    assert shared_out(all_ask("ab", 3), owners) == owners


def test_a_shard_goes_only_to_a_process_that_asks_for_it() -> None:
    asking = {"eu": {"a"}, "us": {"a"}, "asia": {"a", "b"}}
    assert shared_out(asking, dict.fromkeys(asking, "a")) == {"eu": "a", "us": "a", "asia": "b"}


def test_an_owner_that_asks_no_longer_owns_nothing() -> None:
    assert shared_out({"eu": {"b"}}, {"eu": "a", "us": "a"}) == {"eu": "b"}


@given(askings, st.randoms(use_true_random=False))
def test_each_shard_has_an_owner_that_asks_for_it_and_no_single_move_makes_it_more_even(
    asking: dict[str, set[str]], rng: random.Random
) -> None:
    owners = {name: rng.choice(MEMBERS) for name in asking if rng.random() < 0.7}
    shared = shared_out(asking, owners)
    assert shared.keys() == asking.keys()
    loads = Counter(shared.values())
    for name, owner in shared.items():
        assert owner in asking[name]
        assert all(loads[owner] - loads[other] <= 1 for other in asking[name])
    # Who does as it says changes nothing any more.
    assert shared_out(asking, shared) == shared


@given(st.lists(st.sets(st.sampled_from(MEMBERS), min_size=1), min_size=1, max_size=6), st.integers(1, 7))
def test_whoever_comes_and_goes_all_have_the_same_but_for_one_and_nothing_moves_between_two_who_stay_without_need(
    lives: list[set[str]], count: int
) -> None:
    owners: dict[str, str] = {}
    for members in lives:
        before = owners
        owners = shared_out(all_ask("".join(sorted(members)), count), owners)
        loads = Counter(owners.values())
        assert max(loads.values()) - min(loads[member] for member in members) <= 1
        moved = [name for name in owners if before.get(name) in members and owners[name] != before[name]]
        most = -(-count // len(members))
        kept = Counter(member for member in before.values() if member in members)
        assert len(moved) <= sum(max(0, have - count // len(members)) for have in kept.values())
        assert most >= max(loads.values())
