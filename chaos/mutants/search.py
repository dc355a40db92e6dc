"""Find a seed that shows a rule's absence, and shorten it to a scenario."""

from __future__ import annotations

from collections.abc import Callable

from chaos.mutants.edits import Edit, load
from chaos.simulator.scenario import Scenario, replay, shorten, undisturbed
from chaos.simulator.schedule import Result, run_seed


def first_failing_seed(edit: Edit, seeds: range, still_worth: Callable[[], bool]) -> Result | None:
    """The first seed whose run breaks a guarantee while the rule is edited out, and only then; None when none does."""
    mutated = load((edit,))
    for seed in seeds:
        if not still_worth():
            return None
        result = run_seed(seed, mutated, edit.aim)
        if result.violation is not None and run_seed(seed, aim=edit.aim).violation is None:
            return result
    return None


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
        scenario = undisturbed(scenario.setting)  # it breaks without any fault: tell how it should go
    violation = replay(scenario, mutated).violation
    return None if violation is None else (scenario, violation)
