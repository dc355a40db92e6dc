"""Bridge nodes and queries of Spark under seeded faults, with their shipped code: rules J-1 to J-15, and J-29."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from chaos.mutants.edits import Edit
from chaos.queries.code import EDITS, load
from chaos.queries.findings import first_finding, kind_of
from chaos.queries.journal_world import BatchesWorld
from chaos.queries.world import QueryWorld, Subject
from chaos.routed.world import Kind, simulate

SEEDS = 200
"""Of each kind of world."""
BLOCKS = 20
MUTANT_SEEDS = 100
"""More than any mutant has needed."""
DOCS = Path(__file__).parents[2] / "docs"
QUICK = [edit for edit in EDITS if edit.name in {"accepted-before-it-is-appended", "copies-are-appended"}]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", [QueryWorld, BatchesWorld])
@pytest.mark.parametrize("block", [0, *(pytest.param(block, marks=pytest.mark.slow) for block in range(1, BLOCKS))])
def test_a_query_gets_each_message_once_and_in_order_whatever_crashes(block: int, kind: Kind) -> None:
    code, size = load(), SEEDS // BLOCKS
    results = [simulate(code, seed, kind) for seed in range(block * size, (block + 1) * size)]
    assert [result for result in results if result.violation] == []
    assert sum(result.accepted for result in results) > 10 * size
    assert sum(result.faults for result in results) > 3 * size


@pytest.mark.parametrize("kind", [QueryWorld, BatchesWorld])
def test_a_run_leaves_the_log_of_its_process_as_it_was(kind: Kind) -> None:
    assert not simulate(load(), 0, kind).violation
    assert logging.root.manager.disable == logging.getLogger("oncewire").level == logging.NOTSET


def test_a_block_of_seeds_has_every_subject() -> None:
    assert len(Subject) <= SEEDS // BLOCKS


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "edit",
    [edit if edit in QUICK else pytest.param(edit, marks=pytest.mark.slow) for edit in EDITS],
    ids=[edit.name for edit in EDITS],
)
def test_a_rule_of_queries_that_is_taken_out_is_noticed(edit: Edit) -> None:
    assert first_finding(load(edit), MUTANT_SEEDS, kind_of(edit.rule)) is not None


def test_every_rule_of_a_journal_that_a_query_reads_has_a_mutant() -> None:
    assert {edit.rule for edit in EDITS} == {*(f"J-{number}" for number in range(1, 16)), "J-29"}
    assert len({edit.name for edit in EDITS}) == len(EDITS)


def test_the_pages_say_how_much_was_run() -> None:
    said = f"(../tests/chaos/test_queries.py) run {SEEDS} seeds of each, and {len(EDITS)} mutants"
    assert said in " ".join((DOCS / "bridge.md").read_text(encoding="utf-8").split())
    journals = " ".join((DOCS / "journals.md").read_text(encoding="utf-8").split())
    assert "`chaos/queries` simulates J-1 to J-15, and J-29" in journals
