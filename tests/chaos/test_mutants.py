"""Every rule of the protocol can be edited out of the code, and then a seed shows it; or the catalogue says why not."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from chaos.mutants.anchors import find, replaced
from chaos.mutants.catalogue import ALL, EDITS, LATER, WITHOUT, Elsewhere, by_name
from chaos.mutants.edit_error import EditError
from chaos.mutants.edits import Edit, _compiled, _sources, anchor_of, load
from chaos.mutants.search import search
from chaos.simulator.cores import SHIPPED, Cores
from chaos.simulator.schedule import Result, run_seed
from tests.support.protocol import protocol_text

TESTS = Path(__file__).resolve().parents[1]
RULE = re.compile(r"^## ((?:[A-Z]+-\d+[a-z]?)|P-[ab]|S-a)$", re.MULTILINE)

QUICK = (
    "snapshot-without-deletions",
    "C5-obligations-of-subscriptions",
    "C3-activation-declares-U",
    "held-in-disorder",
    "reset-repeats",
    "recovered-counts-as-new",
    "done-is-done-again",
)
"""Mutants of each core that a few seeds kill."""
QUICK_SEEDS = 400
EDITS_AT_ONCE = 20
MANY = 60
"""The catalogue holds at least so many."""


def test_each_old_text_is_found_once_and_has_a_reason() -> None:
    sources = _sources()  # read once
    assert all(edit.why and anchor_of(edit, sources) for edit in ALL)


def together(edits: Sequence[Edit], most: int) -> Iterator[tuple[Edit, ...]]:
    """The edits in groups; those of a group leave each other's places as they are."""
    left = list(edits)
    while left:
        sources, group, later = _sources(), list[Edit](), list[Edit]()
        for edit in left:
            try:
                anchor = anchor_of(edit, sources) if len(group) < most else None
            except EditError:
                anchor = None  # another of the group has changed its place
            if anchor is None:
                later.append(edit)
                continue
            sources[anchor.module] = replaced(sources[anchor.module], anchor, edit.old, edit.new)
            group.append(edit)
        assert group, f"found nowhere: {[edit.name for edit in left]}"
        yield tuple(group)
        left = later


def test_the_edited_cores_can_be_made() -> None:
    """Each loads the whole core, so several are loaded at once."""
    made: list[Edit] = []
    for edits in together(ALL, EDITS_AT_ONCE):
        assert load(edits) != SHIPPED, [edit.name for edit in edits]
        made += edits
    assert sorted(edit.name for edit in made) == sorted(edit.name for edit in ALL)


def test_edited_cores_leave_the_shipped_ones_as_they_are() -> None:
    before = run_seed(3)
    for edit in EDITS[:3]:
        load((edit,))
    assert run_seed(3).story == before.story


def test_modules_that_an_edit_does_not_touch_are_compiled_once() -> None:
    load((EDITS[0],))
    before = _compiled.cache_info().misses
    load((EDITS[1],))
    assert _compiled.cache_info().misses - before <= 2, "its own module, and that of the other as it is shipped"


def test_every_name_stands_for_one_edit() -> None:
    names = [edit.name for edit in ALL]
    assert len(set(names)) == len(names)
    assert len(names) >= MANY
    assert all(by_name(name).name == name for name in names)


def test_every_rule_of_the_protocol_has_an_edit_or_a_reason_why_none_can_show_it() -> None:
    found = RULE.findall(protocol_text())
    rules = {rule for rule in found if not rule.startswith("R-")}  # tests/chaos/test_routed.py has those
    edited = {edit.rule for edit in ALL}
    assert edited | set(WITHOUT) | LATER == rules
    assert not edited & set(WITHOUT)
    assert not LATER & (edited | set(WITHOUT))


@pytest.mark.parametrize("elsewhere", WITHOUT.values(), ids=list(WITHOUT))
def test_a_rule_without_an_edit_names_a_test_that_exists(elsewhere: Elsewhere) -> None:
    path, _, function = elsewhere.test.partition("::")
    assert re.search(rf"^(async )?def {function}\(", (TESTS / path).read_text(encoding="utf-8"), re.MULTILINE)
    assert elsewhere.reason


def test_an_aim_that_is_neither_fault_nor_field_is_refused() -> None:
    with pytest.raises(ValueError, match="drop-x is neither a fault nor a field"):
        run_seed(0, aim=("drop-x",))
    with pytest.raises(ValueError, match="nobody=1 is neither"):
        run_seed(0, aim=("nobody=1",))


def test_an_aim_says_what_the_world_is_like() -> None:
    setting = run_seed(5, aim=("drop-p", "publishers=2", "never=1", "shipped=0", "map_bound=2")).setting
    assert (setting.publishers, setting.traits.never, setting.traits.shipped, setting.traits.map_bound) == (
        2,
        True,
        False,
        2,
    )


@pytest.mark.parametrize("name", QUICK)
def test_a_seed_kills_the_mutant_and_not_the_shipped_cores(name: str) -> None:
    edit = by_name(name)
    done = search(edit, range(QUICK_SEEDS), lambda: True)
    assert done.found is not None
    assert done.shipped is None


def test_a_seed_at_which_the_shipped_cores_fail_is_kept_and_is_no_kill() -> None:
    edit = by_name(QUICK[0])
    shipped_fails_at = []

    def run(seed: int, cores: Cores = SHIPPED, aim: tuple[str, ...] = ()) -> Result:
        result = run_seed(seed, load((edit,)), aim)  # as if the shipped cores had the fault too
        if cores is SHIPPED:
            shipped_fails_at.append(seed)
        return result

    done = search(edit, range(QUICK_SEEDS), lambda: len(shipped_fails_at) < 2, run)
    assert done.found is None
    assert done.shipped is not None
    assert (done.shipped.seed, len(shipped_fails_at)) == (shipped_fails_at[0], 2)


def test_an_edit_that_only_crashes_is_no_kill() -> None:
    edit = by_name("credit")
    crashing = replace(edit, new="        raise KeyError\n" + edit.old)
    done = search(crashing, range(10), lambda: True)
    assert done.found is None
    assert done.crashed is not None
    assert str(done.crashed.violation).startswith("BROKEN: KeyError")


def test_an_edit_of_a_module_that_only_holds_data_is_refused() -> None:
    with pytest.raises(EditError, match="data: the old text stands 0 times"):
        load((Edit("data", "I-4", "class View", "class Other", ""),))


STATEMENT = "    def take(self):\n        if self.free and not self.used:\n            self.go(1, 2)\n"


def test_an_edit_finds_its_statement_in_another_file_layout_and_beside_comments() -> None:
    old = "self.free and not self.used"
    sources = {"a": "def take():\n    pass\n", "b": "x = (self.free  # there is room\n    and not self.used)\n"}
    anchor = find(sources, old)
    assert (anchor.module, replaced(sources["b"], anchor, old, "True")) == ("b", "x = (True)\n")


def test_an_edit_takes_whole_lines_with_their_indentation() -> None:
    old = "        if self.free and not self.used:\n            self.go(1, 2)\n"
    sources = {"a": f"class A:\n    if x:\n{textwrap.indent(STATEMENT, '    ')}"}
    anchor = find(sources, old)
    assert replaced(sources["a"], anchor, old, "        if True:\n            self.stop()\n") == (
        "class A:\n    if x:\n        def take(self):\n            if True:\n                self.stop()\n"
    )


def test_a_text_that_stands_twice_needs_the_name_of_its_function() -> None:
    source = "class A:\n    def one(self):\n        go()\n    def two(self):\n        go()\n"
    with pytest.raises(EditError, match="stands 2 times, not once: a, a"):
        find({"a": source}, "go()")
    anchor = find({"a": source}, "go()", "A.two")
    assert replaced(source, anchor, "go()", "stop()") == source[:-5] + "stop()\n"
    with pytest.raises(EditError, match=r"stands 0 times in A\.three"):
        find({"a": source}, "go()", "A.three")
