"""The reference model's configurations and traces, run with the real cores (docs/model-and-code.md)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from chaos.mutants.catalogue import by_name
from chaos.mutants.edits import load
from chaos.simulator.cores import SHIPPED
from chaos.simulator.model_configurations import (
    AMENDED,
    CONFIGURATIONS,
    DIRECTED,
    EXHAUSTIVE,
    FAULTS,
    PAIRS_ATTACHED,
    PAIRS_LATE_JOIN,
    Configuration,
)
from chaos.simulator.model_runs import Placement, Plan, explore, run_schedule
from chaos.simulator.model_traces import follow, read_trace
from chaos.simulator.scenario import replay

FOLDER = Path(__file__).parent / "model_schedules"
FILES = sorted(FOLDER.glob("*.txt"))
SCENARIOS = Path(__file__).parents[1] / "delivery_records" / "scenarios"
SETS = {
    "exhaustive": (EXHAUSTIVE, 24),
    "amended": (AMENDED, 24),
    "directed": (DIRECTED, 24),
    "pairs, attached": (PAIRS_ATTACHED, 9),
    "pairs, late join": (PAIRS_LATE_JOIN, 9),
}
"""Rows, and schedules of each: few, so that it takes seconds; `explore` runs as many as one has time for."""

HEALINGS = range(6)
"""Orders in which everything heals behind a trace."""
SHOWN_BY_A_GOLDEN_SCENARIO = {
    "C10": "C10-sync-even-when-empty",
    "C12": "C12-next-number-only",
    "C13": "C2-absence-means-settled",
    "F3": "F3-no-ghosts",
    "F8": "F8-abandoned-entries",
    "credit": "credit",
    "inorder": "inorder",
    "drain": "C7-skip-what-precedes-the-start",
    "session2": "session2",
}
"""Traces on which the code ends well even without the rule, because a second one stands behind it: here is the
scenario that tells the rule's absence."""


def _row(name: str, **budget: int) -> Configuration:
    wanted = {fault.replace("_", "-"): count for fault, count in budget.items()}
    return next(row for row in CONFIGURATIONS if row.name == name and dict(row.budget) == wanted)


# ---------------------------------------------------------------------- configurations


def _explore_all(rows: tuple[Configuration, ...], schedules: int) -> None:
    found = [explore(row, schedules) for row in rows]
    broken = [run for run in found if run.violation is not None]
    assert [(run.configuration.name, run.configuration.budget, run.violation) for run in broken] == []
    assert all(run.schedules == schedules for run in found)
    assert any(run.deliveries for run in found)


@pytest.mark.parametrize("name", SETS)
def test_every_configuration_of_the_model_runs_clean(name: str) -> None:
    _explore_all(*SETS[name])


@pytest.mark.parametrize("name", SETS)
def test_every_configuration_of_the_model_runs_clean_with_the_shipped_clients(name: str) -> None:
    rows, schedules = SETS[name]
    _explore_all(tuple(row.with_shipped_clients() for row in rows), schedules // 3)


def test_no_two_configurations_are_the_same() -> None:
    assert len(set(CONFIGURATIONS)) == len(CONFIGURATIONS)


def test_budgets_name_faults_that_exist_and_all_of_them() -> None:
    assert {fault for row in CONFIGURATIONS for fault, _ in row.budget} == set(FAULTS)


def test_the_first_levels_are_enumerated_completely() -> None:
    run = explore(_row("2R 1P 1S 1m", expire_p=2, drop_p=1), 600)
    steps = [run_schedule(run.configuration, Plan(order)) for order in (False, True)]
    assert run.levels == [2, sum(len(found.children) for found in steps)]
    assert run.schedules == 600


def test_a_search_takes_the_same_schedules_again_for_the_same_seed_and_others_for_another() -> None:
    row = _row("2R 1P 1S 2m", drop_p=2)
    one, again, other = explore(row, 60, 1), explore(row, 60, 1), explore(row, 60, 2)
    assert one == again
    assert one.steps != other.steps


def test_a_fault_is_placed_in_front_of_its_step_and_sends_its_client_to_its_router() -> None:
    row = _row("2R 1P 1S 2m", drop_p=2)
    plain = run_schedule(row, Plan(False))
    drop = next(
        child for child in plain.children if child.kind == "!drop-p" and child.at == 5 and child.router == 1
    )
    story = run_schedule(row, Plan(False, (drop,))).scenario.steps
    at = story.index(("!drop-p", 0))
    assert story[:at] == plain.scenario.steps[:at]
    assert ("p.connect", 0, 1) in story[at:]


def test_what_is_delayed_happens_when_nothing_else_can() -> None:
    row = _row("2R 1P 1S 2m", drop_p=2)
    watch = next(child for child in run_schedule(row, Plan(False)).children if child.hold == ("s.process", 0))
    later = run_schedule(row, Plan(False, (Placement(watch.at, hold=watch.hold),)))
    steps = later.scenario.steps
    first = steps.index(("s.process", 0))
    assert steps.index(("p.send", 0)) < first
    assert later.violation is None


# ------------------------------------------------------ the search finds a rule's absence


@pytest.mark.parametrize(
    ("edit", "row", "kind"),
    [
        ("C1-settled-is-forgotten", _row("3R 1P 1S 2m", crash=1), "DUP"),
        ("C2-absence-means-settled", _row("2R 1P 1S 2m", drop_s=2), "LEAK"),
        ("C12-next-number-only", _row("3R 1P 1S 2m", reset=1, drop_s=1), "BLOCKED"),
        ("C16-unaccepted-counts-only", _row("2R 2P 2S 1m each credit 1"), "BLOCKED"),
        ("expired", _row("2R 1P 1S 2m", expire_p=1, drop_p=1), "DUP"),
    ],
)
def test_the_search_finds_that_a_rule_is_missing(edit: str, row: Configuration, kind: str) -> None:
    cores = load((by_name(edit),))
    run = explore(row, 400, 0, cores)
    assert run.violation is not None
    assert run.violation.startswith(kind)
    assert run.scenario is not None
    assert replay(run.scenario, cores).violation == run.violation
    assert replay(run.scenario).violation is None


# ---------------------------------------------------------------------- traces


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_trace_that_breaks_the_model_without_a_rule_ends_well_on_the_shipped_core(path: Path) -> None:
    trace = read_trace(path.read_text())
    for healing in HEALINGS:
        followed = follow(trace, healing_seed=healing)
        assert followed.violation is None
        assert len(followed.steps) > len(trace.actions) / 2


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_trace_breaks_the_core_from_which_the_rule_was_taken(path: Path) -> None:
    trace = read_trace(path.read_text())
    if trace.edit:
        cores = load((by_name(trace.edit),))
        found = [follow(trace, cores, healing).violation or "" for healing in HEALINGS]
        assert trace.broken in {violation.partition(":")[0] for violation in found}
    else:
        assert path.stem in SHOWN_BY_A_GOLDEN_SCENARIO


def test_the_golden_scenarios_that_stand_in_for_a_trace_exist() -> None:
    missing = [
        name for name in SHOWN_BY_A_GOLDEN_SCENARIO.values() if not (SCENARIOS / f"{name}.txt").exists()
    ]
    assert missing == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_trace_is_followed_as_far_as_the_model_went(path: Path) -> None:
    """One that is mostly passed over would show nothing. Without its rule it goes as far as it breaks."""
    trace = read_trace(path.read_text())
    followed = follow(trace, load((by_name(trace.edit),)) if trace.edit else SHIPPED)
    assert len(followed.passed_over) < len(trace.actions) / 2


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_trace_ends_well_with_any_action_left_out_or_taken_one_later(path: Path) -> None:
    trace = read_trace(path.read_text())
    actions = trace.actions
    near = [actions[:at] + actions[at + 1 :] for at in range(len(actions))]
    near += [
        (*actions[:at], *reversed(actions[at : at + 2]), *actions[at + 2 :]) for at in range(len(actions) - 1)
    ]
    found = [(changed, follow(replace(trace, actions=changed)).violation) for changed in near]
    assert [(changed, violation) for changed, violation in found if violation is not None] == []
