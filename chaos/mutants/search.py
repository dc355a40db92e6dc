"""Find a seed that shows a rule's absence, and shorten it to a scenario."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from chaos.mutants.edits import Edit, load
from chaos.simulator.scenario import Scenario, replay, shorten, undisturbed
from chaos.simulator.schedule import Result, run_seed

_BROKEN = "BROKEN: "
"""How a violation begins that is no broken guarantee but an exception."""
_OUR_INVARIANT = f"{_BROKEN}{AssertionError.__name__}"


@dataclass(frozen=True, slots=True)
class Search:
    """What became of a search."""

    found: Result | None = None
    """The first seed that shows the rule's absence; None when none does."""
    shipped: Result | None = None
    """The first seed on the way at which the shipped cores fail too: a fault of theirs, and no word about the rule."""
    crashed: Result | None = None
    """The first seed on the way at which the edited code just crashed, which is no word about the rule either."""


def is_crash(violation: str) -> bool:
    """True when the code fell over its own edit; a broken guarantee or invariant (assertion) is a finding."""
    return violation.startswith(_BROKEN) and not violation.startswith(_OUR_INVARIANT)


def search(edit: Edit, seeds: range, still_worth: Callable[[], bool], run: Callable[..., Result] = run_seed) -> Search:
    """Run seeds until one breaks a guarantee while the rule is edited out, and only then.

    Args:
        edit: the rule.
        seeds: in this order.
        still_worth: asked before each seed; False ends the search.
        run: as `run_seed`, which it may wrap.
    """
    mutated = load((edit,))
    failing: Result | None = None
    crashed: Result | None = None
    for seed in seeds:
        if not still_worth():
            break
        result = run(seed, mutated, edit.aim)
        if result.violation is None:
            continue
        shipped = run(seed, aim=edit.aim)
        if shipped.violation is not None:
            failing = failing or shipped
        elif is_crash(result.violation):
            crashed = crashed or result
        else:
            return Search(result, failing, crashed)
    return Search(None, failing, crashed)


def shortest_scenario(edit: Edit, result: Result, still_worth: Callable[[], bool]) -> tuple[Scenario, str] | None:
    """The failing run without the steps that do not matter, and what it breaks; None if it does not repeat."""
    mutated = load((edit,))
    scenario = Scenario(result.setting, tuple(result.story))
    found = replay(scenario, mutated).violation
    if found is None:
        return None
    kind = found.partition(":")[0]
    scenario = shorten(scenario, mutated, kind, still_worth)
    if not scenario.steps:
        scenario = undisturbed(scenario.setting)  # it breaks without any fault: write how it should go
    violation = replay(scenario, mutated).violation
    return None if violation is None else (scenario, violation)
