"""Golden scenarios: each counterexample ends well on the shipped core and badly without its rule."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.mutants.catalogue import ALL, DIRECTED, by_name
from chaos.mutants.edit_error import EditError
from chaos.mutants.edits import Edit, load
from chaos.simulator.scenario import read, replay
from tests.support.effort import partly

FOLDER = Path(__file__).parent / "scenarios"
FILES = sorted(FOLDER.glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_shipped_core_notifies_the_same_story_and_ends_well(path: Path) -> None:
    scenario, _, story = read(path.read_text())
    verdict = replay(scenario)
    assert verdict.violation is None
    assert list(verdict.story) == list(story), "regenerate with: python -m chaos.mutants.regenerate FOLDER NAME"


@pytest.mark.parametrize("path", partly(FILES, 8), ids=lambda path: path.stem)
def test_the_scenario_fails_when_its_rule_is_edited_out(path: Path) -> None:
    scenario, promised, _ = read(path.read_text())
    verdict = replay(scenario, load((by_name(path.stem),)))
    assert verdict.violation == promised


def test_scenarios_are_of_edits_and_show_all_that_no_seed_shows() -> None:
    names = {path.stem for path in FILES}
    assert names <= {edit.name for edit in ALL}
    assert names >= {edit.name for edit in DIRECTED}


def test_an_edit_whose_text_is_not_found_fails_the_run() -> None:
    with pytest.raises(EditError, match="stands 0 times"):
        load((Edit("gone", "I-4", "no such line", "", ""),))
