"""Routed links, queues and journals over AMQP under seeded faults, with the code of the router and of the bridge."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest

from chaos.mutants.edit_error import EditError
from chaos.mutants.edits import Edit
from chaos.routed.code import EDITS, MODULES, load
from chaos.routed.findings import CORPUS, circle, first_finding, held_up, kind_of
from chaos.routed.journal_world import JournalWorld
from chaos.routed.owners_world import OwnersWorld
from chaos.routed.world import Kind, World, simulate
from tests.support.protocol import protocol_text

SEEDS = 100
"""Of each kind of world."""
BLOCKS = 10
MUTANT_SEEDS = 200
"""More than any mutant has needed."""
PAGE = protocol_text()
JOURNALS = " ".join((Path(__file__).parents[2] / "docs/journals.md").read_text(encoding="utf-8").split())


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", [World, JournalWorld, OwnersWorld])
@pytest.mark.parametrize("block", [0, *(pytest.param(block, marks=pytest.mark.slow) for block in range(1, BLOCKS))])
def test_nothing_is_lost_twice_or_out_of_order_in_queues_and_journals(block: int, kind: Kind) -> None:
    code, size = load(), SEEDS // BLOCKS
    results = [simulate(code, seed, kind) for seed in range(block * size, (block + 1) * size)]
    assert [result for result in results if result.violation] == []
    assert all(result.accepted for result in results)
    assert sum(result.faults for result in results) > 5 * size


@pytest.mark.parametrize(("kind", "seed"), [(kind, seed) for kind, seeds in CORPUS.items() for seed in seeds])
def test_what_a_seed_has_found_stays_fixed(kind: Kind, seed: int) -> None:
    assert simulate(load(), seed, kind).violation == ""


def test_an_attach_that_goes_round_in_a_circle_is_refused() -> None:
    assert circle(load()) == ""


def test_the_link_of_a_worker_that_is_lost_while_items_wait_ends_at_both_ends() -> None:
    assert held_up(load()) == ""


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.name)
def test_a_rule_that_is_taken_out_is_noticed(edit: Edit) -> None:
    assert first_finding(load(edit), MUTANT_SEEDS, kind_of(edit.rule)) != ""


def test_every_rule_of_routed_links_has_a_mutant() -> None:
    rules = set(re.findall(r"^## (R-\d+)$", PAGE, re.MULTILINE))
    assert rules - {"R-2"} <= {edit.rule for edit in EDITS}, "R-2 is a choice of place, which the router's tests show"
    assert "W-17" in {edit.rule for edit in EDITS}  # W-18: tests/workqueue/test_links.py


def test_every_rule_of_a_journal_that_is_simulated_has_a_mutant() -> None:
    assert {edit.rule for edit in EDITS if edit.rule.startswith("J-")} == {f"J-{number}" for number in range(16, 29)}
    assert "simulates J-16 to J-28" in JOURNALS


def test_what_says_who_owns_what_has_mutants() -> None:
    assert {edit.rule for edit in EDITS} >= {"CO-10", "CO-11", "W-26"}


def test_the_page_says_how_much_was_run() -> None:
    assert f"runs {SEEDS} seeds of each, and {len(EDITS)} mutants" in " ".join(PAGE.split())


def test_a_copy_uses_no_module_that_was_imported_before() -> None:
    originals = {name: importlib.import_module(name) for name in MODULES}
    code = load()
    copies = {name: getattr(code, name.rpartition(".")[2], None) for name in MODULES}
    assert code.half.core.RelayCore is code.half.RelayCore
    assert code.half.core is not originals["router.routed.relay_core"]
    assert all(copies[name] is not originals[name] for name in MODULES)
    assert all(sys.modules[name] is original for name, original in originals.items())
    assert importlib.import_module("router.routed").relay_core is originals["router.routed.relay_core"]


def test_an_edit_that_does_not_fit_is_refused() -> None:
    with pytest.raises(EditError):
        load(Edit("x", "R-1", "no such text", ""))
