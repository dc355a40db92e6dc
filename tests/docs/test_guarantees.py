"""The tables of guarantees: every row is shown by something that exists, or says that it is not."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from chaos.simulator.fault_names import ALL_FAULTS
from chaos.simulator.traits import Traits
from tests.docs.guarantee_tables import (
    HEAD,
    REFERENCE,
    Facts,
    evidence_of,
    missing_evidence,
    section,
    table,
    wrong_answers,
    wrong_evidence,
    wrong_gaps,
    wrong_links,
    wrong_rules,
    wrong_score,
    wrong_tables,
)
from tests.docs.test_protocol_rules import ROOT, defined_rules
from tests.docs.test_rules_of_pages import FAMILIES
from tests.support.protocol import protocol_text

PAGES = [
    ROOT / "docs" / name
    for name in (
        "guarantees.md",
        "guarantees-exactly-once.md",
        "guarantees-weaker.md",
        "guarantees-spark.md",
        "evidence/guarantees.md",
    )
]
EVIDENCE = re.compile(r"\[((?:real|sim|gold|core|part)-[\w-]+)\](?!\()")


@pytest.fixture(scope="module")
def page() -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in PAGES)


@pytest.fixture(scope="module")
def facts() -> Facts:
    return Facts(
        ROOT,
        frozenset(ALL_FAULTS),
        frozenset(field.name for field in dataclasses.fields(Traits)),
        frozenset([*defined_rules(protocol_text()), *(rule for family in FAMILIES for rule in family.rows())]),
    )


def assert_none(problems: Iterator[str]) -> None:
    found = list(problems)
    assert not found, "\n".join(found)


def test_every_mode_has_a_row_for_every_fault(page: str) -> None:
    assert len(table(section(page, "The faults"))) > 30
    assert_none(wrong_tables(page))


def test_every_cell_is_an_answer_and_every_note_is_there(page: str) -> None:
    assert_none(wrong_answers(page))


def test_every_row_is_shown_or_says_that_it_is_argued_or_not_shown(page: str) -> None:
    assert_none(wrong_evidence(page))


def test_all_evidence_exists_and_is_of_its_kind(page: str, facts: Facts) -> None:
    assert len(evidence_of(page)) > 100
    assert_none(missing_evidence(page, facts))


def test_every_piece_of_evidence_links_to_its_file(page: str) -> None:
    assert_none(wrong_links(page, ROOT))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_every_page_has_the_links_that_its_rows_use_and_no_other(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    used = {i for line in text.splitlines() if line.startswith("|") for i in EVIDENCE.findall(line)}
    assert {i for i, _ in REFERENCE.findall(text)} == used


def test_every_rule_exists(page: str, facts: Facts) -> None:
    assert_none(wrong_rules(page, facts))


def test_what_is_not_shown_is_listed_as_such(page: str) -> None:
    assert_none(wrong_gaps(page))


def test_the_counts_of_evidence_are_true(page: str) -> None:
    assert_none(wrong_score(page))


def test_every_guarantee_and_assumption_is_named(page: str) -> None:
    wanted = [*(f"G{n}" for n in range(1, 9)), "P-1", "P-2", "S-1", "N-1", "N-3"]
    assert [name for name in wanted if not re.search(rf"\b{name}\b", page)] == []


# --- the checks themselves: each must see the fault it is there for

SMALL = """# Page
## How to read the tables
How many:

| table         | rows | real | simulator | core | argued | not shown |
|---------------|------|------|-----------|------|--------|-----------|
| Exactly-once  | 2    | 1    | 1         | 0    | 0      | 1         |
| At-least-once | 2    | 1    | 0         | 0    | 1      | 0         |
| At-most-once  | 2    | 0    | 2         | 0    | 0      | 0         |
| Stock clients | 1    | 1    | 0         | 0    | 0      | 0         |
| Spark bridge  | 1    | 1    | 0         | 0    | 0      | 0         |

## The faults

| fault | what happens | answered by |
|---|---|---|
| killed | gone | [I-3](protocol/i.md#i-3) |
| stopped | asleep | [I-3](protocol/i.md#i-3) |

## Exactly-once

HEAD
| killed | P | no | no | no (a) | R | P | [real-1] [sim-crash] |
| stopped | P | no | no | no | R | P | not shown |

- (a) A note.

## At-least-once

HEAD
| killed | P | no | may | no | R | P | [real-1] |
| stopped | P | no | no | no | R | P | argued: [I-3](protocol/i.md#i-3) |

## At-most-once

HEAD
| killed | P | may | no | no | R | P | [sim-crash] |
| stopped | S | may | no | no | R | P | [gold-1] [part-1] |

## Stock clients

HEAD
| killed | P | no | no | no | R | P | [real-1] |

## The faults of the bridge

| fault | what happens | answered by |
|---|---|---|
| driver killed | gone | [O-2](bridge.md#from-a-query-to-the-network) |

## Spark bridge

HEAD
| driver killed | any | no | no | no | R | P | [real-1] |

## What is not shown yet

- Exactly-once, not shown: stopped (P).
- At-least-once, argued only: stopped
  (P).

## Evidence
### Real processes
| id | where | what |
|---|---|---|
| real-1 | tests/router/test_a.py::test_it | - |

### Simulator
| id | where | what |
|---|---|---|
| sim-crash | `simulated:crash` | - |

### Golden scenarios
| id | where | what |
|---|---|---|
| gold-1 | `tests/delivery_records/scenarios/one.txt` | - |

### Parts
| id | where | what |
|---|---|---|
| part-1 | tests/router/test_a.py::test_part | - |

[real-1]: ../tests/router/test_a.py
[sim-crash]: evidence/guarantees.md#simulator
[gold-1]: ../tests/delivery_records/scenarios/one.txt
[part-1]: ../tests/router/test_a.py
""".replace("HEAD", f"| {' | '.join(HEAD)} |\n{'|---' * len(HEAD)}|")


@pytest.fixture
def small_facts(tmp_path: Path) -> Facts:
    tests, scenarios = tmp_path / "tests" / "router", tmp_path / "tests" / "delivery_records" / "scenarios"
    tests.mkdir(parents=True)
    scenarios.mkdir(parents=True)
    (tests / "test_a.py").write_text(
        "async def test_it():\n    running_router()\n\ndef test_part():\n    pass\n\ndef helper():\n    pass\n"
    )
    (tests / "test_b.py").write_text("def test_it():\n    pass\n")
    (scenarios / "one.txt").write_text("a story")
    return Facts(tmp_path, frozenset({"crash"}), frozenset({"slow"}), frozenset({"I-3", "O-2"}))


def all_problems(page: str, facts: Facts) -> list[str]:
    return [
        *wrong_tables(page),
        *wrong_answers(page),
        *wrong_evidence(page),
        *missing_evidence(page, facts),
        *wrong_links(page, facts.root),
        *wrong_rules(page, facts),
        *wrong_gaps(page),
        *wrong_score(page),
    ]


def test_a_page_without_a_fault_passes(small_facts: Facts) -> None:
    assert all_problems(SMALL, small_facts) == []


PLANTED: Mapping[str, tuple[str, str, Sequence[str]]] = {
    "a test that does not exist": (
        "test_a.py::test_it |",
        "test_a.py::test_gone |",
        ["tests/router/test_a.py has no test test_gone"],
    ),
    "a helper instead of a test": (
        "test_a.py::test_it |",
        "test_a.py::helper |",
        ["tests/router/test_a.py has no test helper"],
    ),
    "a file that does not exist": (
        "tests/router/test_a.py::test_it |",
        "tests/router/test_x.py::test_it |",
        ["there is no file tests/router/test_x.py"],
    ),
    "a test without processes among the real ones": (
        "tests/router/test_a.py::test_it |",
        "tests/router/test_b.py::test_it |",
        ["tests/router/test_b.py starts no process"],
    ),
    "a fault the simulator does not have": (
        "simulated:crash",
        "simulated:flood",
        ["the simulator has no simulated:flood"],
    ),
    "a trait the simulator does not have": (
        "simulated:crash",
        "simulated-trait:crash",
        ["the simulator has no simulated-trait:crash"],
    ),
    "a scenario that does not exist": (
        "scenarios/one.txt` |",
        "scenarios/two.txt` |",
        ["there is no file tests/delivery_records/scenarios/two.txt"],
    ),
    "an experiment that does not exist": (
        "tests/router/test_a.py::test_it |",
        "docs/evidence/none.md |",
        ["there is no file docs/evidence/none.md"],
    ),
    "a rule that does not exist": (
        "argued: [I-3](protocol/i.md#i-3)",
        "argued: [I-33](protocol/i.md#i-33)",
        ["there is no rule I-33"],
    ),
    "a rule of the bridge that does not exist": ("[O-2](bridge", "[O-3](bridge", ["there is no rule O-3"]),
    "a rule of the bridge whose link leads elsewhere": (
        "bridge.md#from-a-query-to-the-network",
        "bridge.md#reasons",
        ["the link of O-2 leads to reasons"],
    ),
    "a fault of the bridge without a row": (
        "| driver killed | any |",
        "| node killed | any |",
        ["Spark bridge has no row for: driver killed", "a fault that is not on the list: node killed"],
    ),
    "a rule whose link leads elsewhere": (
        "asleep | [I-3](protocol/i.md#i-3)",
        "asleep | [I-3](protocol/i.md#i-4)",
        ["the link of I-3 leads to i-4"],
    ),
    "evidence that is in no list": (
        "| [real-1] |\n| stopped",
        "| [real-9] |\n| stopped",
        ["killed (P): unknown evidence real-9"],
    ),
    "a row without evidence": ("[gold-1] [part-1] |", "yes |", ["stopped (S): no evidence", "'yes' is no evidence"]),
    "a row with a part only": (
        "[gold-1] [part-1] |",
        "[part-1] |",
        ["stopped (S): no evidence", "gold-1 shows nothing"],
    ),
    "a row argued from nothing": ("argued: [I-3](protocol/i.md#i-3)", "argued: ", ["stopped (P): argued from no rule"]),
    "a mode without a fault of the others": (
        "| stopped | S | may | no | no | R | P | [gold-1] [part-1] |\n",
        "",
        ["At-most-once has no row for: stopped"],
    ),
    "a fault that is on no list": (
        "| stopped | S |",
        "| drowned | S |",
        ["At-most-once has no row for: stopped", "At-most-once has a fault that is not on the list: drowned"],
    ),
    "a mode without a table": ("## Stock clients\n", "## Others\n", ["Stock clients: no table"]),
    "an answer that is none": ("| killed | P | may |", "| killed | P | hardly |", ["lost? 'hardly' is no answer"]),
    "a note that is not there": ("| no (a) |", "| no (b) |", ["there is no note (b)", "note (a) belongs to no cell"]),
    "an empty cell": (
        "| killed | P | may | no | no | R | P |",
        "| killed | P | may | no | no |  | P |",
        ["killed: a cell is empty"],
    ),
    "a gap that is not listed": (
        "- Exactly-once, not shown: stopped (P).\n",
        "",
        ["Exactly-once, not shown: the rows are stopped (P)"],
    ),
    "a gap that is none any more": (
        "| R | P | not shown |",
        "| R | P | [real-1] |",
        ["Exactly-once, not shown: the rows are none"],
    ),
    "a count that is wrong": (
        "| At-most-once  | 2    |",
        "| At-most-once  | 3    |",
        ["At-most-once: the counts are [2, 0, 2, 0, 0, 0]"],
    ),
    "evidence that links elsewhere": (
        "[real-1]: ../tests/router/test_a.py",
        "[real-1]: ../tests/router/test_b.py",
        ["real-1 links to"],
    ),
    "evidence in a list of another kind": (
        "| real-1 | tests",
        "| core-1 | tests",
        ["core-1 is in the list of real", "unknown evidence real-1"],
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found(name: str, small_facts: Facts) -> None:
    text, instead, expected = PLANTED[name]
    assert text in SMALL
    found = all_problems(SMALL.replace(text, instead, 1), small_facts)
    for words in expected:
        assert any(words in problem for problem in found), found
