"""docs/conformance-suite.md lists every scenario of the protocol test suite, and the tests it names are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "conformance-suite.md"
BESIDE_THE_LIST = {("OpenTest", "openWithMaxFrameSizeBelowMinimum")}
"""Ported too, although it has parameters there and is not counted among the 172."""

_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

Names = set[tuple[str, str]]
"""Class and scenario."""


def _scenarios() -> Names:
    found: Names = set()
    for line in (HERE / "scenarios.txt").read_text().splitlines():
        name, _, scenarios = line.partition(": ")
        found |= {(name, scenario) for scenario in scenarios.split()}
    return found


def _tests() -> dict[tuple[str, str], str]:
    """Test classes and their tests, with the files they are in."""
    found: dict[tuple[str, str], str] = {}
    for path in HERE.glob("test_*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                for member in node.body:
                    if isinstance(member, ast.FunctionDef) and member.name.startswith("test_"):
                        found[node.name, member.name] = path.stem.removeprefix("test_")
    return found


def _test_of(name: tuple[str, str]) -> tuple[str, str]:
    return "Test" + name[0].removesuffix("Test"), "test_" + _HUMPS.sub("_", name[1]).lower()


def _rows() -> list[list[str]]:
    rows = [line.strip("|\n ").split("|") for line in PAGE.read_text().splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row + [""] * (5 - len(row))] for row in rows]


def _ported(row: list[str]) -> Names:
    return {(row[0], scenario) for cell in row[2:4] for scenario in cell.split()}


def _not_applicable(row: list[str]) -> dict[tuple[str, str], str]:
    found: dict[tuple[str, str], str] = {}
    for part in filter(None, row[4].split("; ")):
        scenarios, _, reason = part.partition(": ")
        found |= {(row[0], scenario): reason for scenario in scenarios.split()}
    return found


def test_the_list_has_all_scenarios_of_the_suite() -> None:
    found = _scenarios()
    assert len(found) == 172
    assert len({name for name, _ in found}) == 34


def test_the_table_lists_each_scenario_once() -> None:
    rows = _rows()[2:]
    listed = [name for row in rows for name in [*sorted(_ported(row)), *_not_applicable(row)]]
    assert len(listed) == len(set(listed))
    assert set(listed) == _scenarios()
    assert all(reason for row in rows for reason in _not_applicable(row).values())


def test_the_heads_of_the_table_count_what_stands_under_them() -> None:
    heads, _, *rows = _rows()
    for column in (2, 3):
        assert heads[column].endswith(f"({sum(len(row[column].split()) for row in rows)})")
    assert heads[4].endswith(f"({sum(len(_not_applicable(row)) for row in rows)})")


def test_each_ported_scenario_has_its_test_in_the_file_the_table_names_and_no_other_has_one() -> None:
    tests = _tests()
    for row in _rows()[2:]:
        ported = {_test_of(name) for name in _ported(row)}
        assert ported <= set(tests), sorted(ported - set(tests))
        assert {tests[name] for name in ported} == set(filter(None, row[1].split(", "))), row[0]
        assert not {_test_of(name) for name in _not_applicable(row)} & set(tests)


def test_at_least_140_scenarios_are_ported_and_no_test_stands_beside_the_list() -> None:
    ported = {name for row in _rows()[2:] for name in _ported(row)}
    assert len(ported) >= 140
    assert set(_tests()) == {_test_of(name) for name in ported | BESIDE_THE_LIST}


def test_the_list_of_what_is_asserted_otherwise_names_ported_scenarios() -> None:
    ported = {scenario for row in _rows()[2:] for _, scenario in _ported(row)}
    ported |= {scenario for _, scenario in BESIDE_THE_LIST}
    listed = re.findall(r"`([a-z]\w+[A-Z]\w*)(\.\.\.)?`", PAGE.read_text().split("\n## ")[1])
    assert len(listed) > 20
    for name, is_beginning in listed:
        assert any(each.startswith(name) if is_beginning else each == name for each in ported), name
