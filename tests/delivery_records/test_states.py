"""The states of a delivery: tables in the code, diagrams on the protocol page, and what the core does agree."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from chaos.mutants.edits import run_from_sources
from chaos.simulator.cores import SHIPPED
from chaos.simulator.scenario import read, replay
from delivery_records.publisher.phase import PHASE_NEXT
from delivery_records.publisher.window import SLOT_NEXT
from delivery_records.subscriber.entries import ENTRY_NEXT
from tests.support.protocol import protocol_text

ROOT = Path(__file__).resolve().parents[2]
SCENARIOS = sorted((ROOT / "tests" / "delivery_records" / "scenarios").glob("*.txt"))
TABLES = pytest.mark.parametrize(
    ("table", "first"),
    [(SLOT_NEXT, "awaited"), (ENTRY_NEXT, "known"), (PHASE_NEXT, "proving")],
    ids=["slot", "entry", "phase"],
)


def diagram_of(first: str) -> set[tuple[str, str]]:
    """The arrows of the diagram on the protocol page whose first state is `first`, without the beginnings."""
    page = protocol_text()
    diagrams = re.findall(r"stateDiagram-v2\n(.*?)```", page, re.DOTALL)
    (diagram,) = [text for text in diagrams if text.lstrip().startswith(f"[*] --> {first}\n")]
    return set(re.findall(r"(\w+) --> (\w+)", diagram))


@TABLES
def test_the_diagram_on_the_page_is_the_table(table: Mapping[Enum, Sequence[Enum]], first: str) -> None:
    assert diagram_of(first) == {(state.value, after.value) for state, nexts in table.items() for after in nexts}


@TABLES
def test_each_state_has_its_row(table: Mapping[Enum, Sequence[Enum]], first: str) -> None:
    assert set(table) == set(type(next(iter(table))))


KINDS = (("window", "Slot"), ("entries", "Entry"))
Steps = set[tuple[Enum, Enum]]


@pytest.fixture(scope="module")
def steps() -> dict[str, tuple[Mapping[Enum, Sequence[Enum]], Steps]]:
    """Of each kind of delivery: its table, and the steps that it takes in all scenarios."""
    core = run_from_sources()  # attributes of compiled classes cannot be watched
    found: dict[str, tuple[Mapping[Enum, Sequence[Enum]], Steps]] = {}
    with pytest.MonkeyPatch.context() as patch:
        for module, name in KINDS:
            found[name] = (getattr(core[module], f"{name.upper()}_NEXT"), set())
            patch.setattr(getattr(core[module], name), "state", _watched(core[module], name, found[name][1]))
        cores = replace(SHIPPED, records=core["records"].Records)
        for path in SCENARIOS:
            assert replay(read(path.read_text(encoding="utf-8"))[0], cores).violation is None
    return found


def _watched(module: Any, name: str, taken: Steps) -> property:
    slot = getattr(module, name).__dict__["state"]

    def set_state(delivery: Any, state: Enum) -> None:
        former = getattr(delivery, "state", state)
        if former is not state:
            taken.add((former, state))
        slot.__set__(delivery, state)

    return property(slot.__get__, set_state)


@pytest.mark.parametrize("name", [name for _, name in KINDS])
def test_a_delivery_takes_no_step_that_is_not_in_the_table(
    name: str, steps: dict[str, tuple[Mapping[Enum, Sequence[Enum]], Steps]]
) -> None:
    table, taken = steps[name]
    assert {f"{former} -> {state}" for former, state in taken if state not in table[former]} == set()
    assert {former for former, _ in taken} == {state for state in table if table[state]}, "each state is left"
