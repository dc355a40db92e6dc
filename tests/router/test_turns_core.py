"""The next turn is for the one that has used least; idle time is no capital."""

from __future__ import annotations

import itertools

from oncewire.transport.turns_core import NEWCOMER_S, RESTED_S, Account, WaitingLine


def use(line: WaitingLine[str], accounts: dict[str, Account], cost_s: float) -> str:
    """One turn of who is next, which then waits for another one."""
    who = line.pop()
    accounts[who].used_s += cost_s
    line.add(accounts[who], who)
    return who


def floods(count: int) -> tuple[WaitingLine[str], dict[str, Account]]:
    line: WaitingLine[str] = WaitingLine()
    accounts = {f"flood {number}": line.newcomer() for number in range(count)}
    for who, account in accounts.items():
        line.add(account, who)
    return line, accounts


def test_those_that_use_as_much_have_as_many_turns() -> None:
    line, accounts = floods(4)
    turns = [use(line, accounts, 0.005) for _ in range(40)]
    assert turns == list(accounts) * 10


def test_who_has_costlier_turns_has_fewer() -> None:
    line, accounts = floods(2)
    costs = {"flood 0": 0.005, "flood 1": 0.001}
    turns = []
    for _ in range(600):
        who = line.pop()
        turns.append(who)
        accounts[who].used_s += costs[who]
        line.add(accounts[who], who)
    assert abs(turns.count("flood 1") - 5 * turns.count("flood 0")) <= 6


def test_who_was_idle_is_next() -> None:
    line, accounts = floods(20)
    victim = line.newcomer()
    for _ in range(100):
        use(line, accounts, 0.005)
    for _ in range(10):
        line.add(victim, "victim")
        assert line.is_next_rested
        assert line.pop() == "victim"
        victim.used_s += 0.0001
        use(line, accounts, 0.005)


def test_who_was_idle_for_long_cannot_save_up_for_a_flood() -> None:
    line, accounts = floods(2)
    sly = accounts["sly"] = line.newcomer()
    for _ in range(10_000):
        use(line, accounts, 0.005)
    line.add(sly, "sly")
    turns = list(itertools.takewhile("sly".__eq__, (use(line, accounts, 0.001) for _ in range(100))))
    assert len(turns) <= (RESTED_S + 0.005) / 0.001  # the last turn of the others was of 5 ms


def test_newcomers_are_behind_those_that_were_idle_and_ahead_of_those_that_had_a_turn() -> None:
    line, accounts = floods(3)
    old = line.newcomer()
    for _ in range(30):
        use(line, accounts, 0.005)
    for number in range(1000):
        line.add(line.newcomer(), f"newcomer {number}")
    line.add(old, "old")
    first = [line.pop() for _ in range(4)]
    assert first[0] == "old"
    assert "newcomer 0" in first


def test_thousands_of_newcomers_do_not_hold_up_who_is_there() -> None:
    line: WaitingLine[str] = WaitingLine()
    old = line.newcomer()
    line.add(old, "old")
    line.pop()
    for number in range(2000):
        line.add(line.newcomer(), f"newcomer {number}")
    for _ in range(10):
        assert line.pop().startswith("newcomer")
        line.add(line.newcomer(), "one more")
        line.add(old, "old")
        assert line.pop() == "old"
        old.used_s += NEWCOMER_S / 100


def test_who_waits_already_has_one_place() -> None:
    line: WaitingLine[str] = WaitingLine()
    account = line.newcomer()
    line.add(account, "a")
    line.add(account, "a")
    assert len(line) == 1
