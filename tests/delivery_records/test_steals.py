"""Two live clients with one identity steal each other's link, but not for ever (rule A-8a)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from chaos.mutants.edits import Edit
from chaos.routed.code import copies
from delivery_records.attachments.steals import StealGuard
from delivery_records.model.limits import STEAL_REFUSAL_S, STEAL_WINDOW_S, STEALS
from delivery_records.model.outcomes import Decision
from tests.delivery_records.harness import Net
from tests.delivery_records.links import Link, PublisherLink, SubscriberLink

KINDS = pytest.mark.parametrize("kind", ["s", "p"])


def _attach(net: Net, kind: str, peer: str) -> Link:
    if kind == "s":
        subscriber = SubscriberLink(net, net.nodes[0])
        subscriber.attach(peer=peer)
        return subscriber
    publisher = PublisherLink(net, net.nodes[0])
    publisher.attach(unsettled={}, peer=peer)
    return publisher


@KINDS
def test_the_third_steal_is_refused_and_names_both_clients(kind: str) -> None:
    net = Net()
    links = [_attach(net, kind, peer) for peer in ("ada:1", "bob:2", "ada:3", "bob:4")]
    assert [link.detached() is None for link in links] == [False, False, True, False]
    assert [links[0].end().condition, links[1].end().condition] == ["amqp:link:stolen"] * 2
    assert (links[3].end().condition, links[3].end().closed) == ("amqp:resource-locked", True)
    assert "bob:2" in links[3].end().description
    assert "ada:3" in links[3].end().description
    assert net.nodes[0].count(Decision.STEAL_REFUSED) == 1


@KINDS
def test_the_refusal_ends_after_a_while(kind: str) -> None:
    net = Net()
    for peer in ("ada", "bob", "ada", "bob"):
        _attach(net, kind, peer)
    net.advance(STEAL_REFUSAL_S - 15.0)
    assert _attach(net, kind, "bob").detached() is not None
    net.advance(16.0)
    assert _attach(net, kind, "bob").detached() is None


@KINDS
def test_steals_far_apart_are_not_refused(kind: str) -> None:
    net = Net()
    for number in range(8):
        _attach(net, kind, f"peer{number}")
        net.advance(STEAL_WINDOW_S + 1.0)
    assert net.nodes[0].count(Decision.STEAL_REFUSED) == 0


@KINDS
def test_attaching_again_after_a_lost_connection_is_no_steal(kind: str) -> None:
    net = Net()
    for _ in range(10):
        _attach(net, kind, "ada").drop()
    assert net.nodes[0].count(Decision.STEAL_REFUSED) == 0


def test_a_refusal_names_how_long_it_lasts() -> None:
    guard = StealGuard()
    guard.on_stolen("subs/x", 0.0, "ada", "bob")
    guard.on_stolen("subs/x", 1.0, "bob", "ada")
    first, later = guard.refusal("subs/x", 2.0, "bob"), guard.refusal("subs/x", 12.0, "bob")
    assert first is not None
    assert later is not None
    assert "refused for 30 s" in first
    assert "refused for 20 s" in later


def test_the_client_that_holds_the_link_may_attach_again_during_a_refusal() -> None:
    guard = StealGuard()
    guard.on_stolen("subs/x", 0.0, "ada", "bob")
    guard.on_stolen("subs/x", 1.0, "bob", "ada")
    assert guard.refusal("subs/x", 2.0, "bob") is not None
    assert guard.refusal("subs/x", 3.0, "ada") is None
    assert guard.refusal("subs/x", 33.0, "bob") is None


def test_what_a_guard_remembers_is_bounded() -> None:
    guard = StealGuard()
    for number in range(30_000):
        path = f"subs/{number}"
        for _ in range(2):
            guard.on_stolen(path, 0.0, "ada", "bob")
        guard.refusal(path, 0.0, "ada")
    assert guard.remembered <= 20_000


# --- rapid takeovers --------------------------------------------------------------------------------------------------

PATH = "subs/x"
RETRY_S = 0.2
"""How soon a client attaches again: far less than the window."""
LONG_S = 600.0


def fight(guard: Any) -> list[float]:
    """Two clients attach again as soon as their link is stolen; returns when the guard let an attach through."""
    admitted: list[float] = []
    holder, now = "ada", 0.0
    while now < LONG_S:
        for peer in ("ada", "bob"):
            now += RETRY_S
            if peer != holder and guard.refusal(PATH, now, peer) is None:
                guard.on_stolen(PATH, now, holder, peer)
                admitted.append(now)
                holder = peer
    return admitted


def take_over(guard: Any, lease_s: float) -> int:
    """Two owners of a store replace each other once in each lease; returns how many takeovers were refused."""
    refused, now = 0, 0.0
    for number in range(100):
        now += lease_s
        holder, thief = ("ada", "bob") if number % 2 == 0 else ("bob", "ada")
        if guard.refusal(PATH, now, thief) is None:
            guard.on_stolen(PATH, now, holder, thief)
        else:
            refused += 1
    return refused


def judge(guards: Callable[[], Any]) -> None:
    """What A-8a says of a guard."""
    admitted = fight(guards())
    per_window = [sum(at <= each < at + STEAL_REFUSAL_S for each in admitted) for at in admitted]
    assert max(per_window) <= STEALS + 1, "they take the link from each other without end"
    assert admitted[-1] > LONG_S / 2, "one that is refused for ever"
    assert take_over(guards(), STEAL_WINDOW_S / STEALS + 0.1) == 0, "owners that replace each other are refused"
    guard = guards()
    for number in range(STEALS):
        guard.on_stolen(PATH, float(number), f"peer{number}", "ada")
    assert guard.refusal(PATH, STEALS + 1.0, "bob") is not None
    assert guard.refusal(PATH, STEALS + 2.0, "ada") is None, "the client that has the link is refused"


def test_two_that_fight_for_a_link_are_stopped_and_owners_that_replace_each_other_are_not() -> None:
    judge(StealGuard)
    assert take_over(StealGuard(), STEAL_WINDOW_S / STEALS / 2) > 0, "shorter leases meet the guard"


GUARD = "delivery_records.attachments.steals"
EDITS = (
    Edit("nobody-is-refused", "A-8a", "if len(recent) < STEALS:", "if True:"),
    Edit("the-holder-is-refused", "A-8a", "if now < until and peer != thief:", "if now < until:"),
    Edit("refused-for-ever", "A-8a", "if now < until and peer != thief:", "if peer != thief:"),
    Edit(
        "steals-far-apart-count",
        "A-8a",
        "recent = [steal for steal in steals if now - steal[0] <= STEAL_WINDOW_S]",
        "recent = list(steals)",
    ),
    Edit(
        "refused-once",
        "A-8a",
        "self._refused_until[path] = (now + STEAL_REFUSAL_S, holder, thief)",
        "self._refused_until[path] = (now, holder, thief)",
    ),
)


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.name)
def test_a_part_of_the_guard_that_is_taken_out_is_noticed(edit: Edit) -> None:
    guard = copies((GUARD,), edit)[GUARD].StealGuard
    with pytest.raises(AssertionError):
        judge(guard)
