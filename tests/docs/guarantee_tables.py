"""Reads the tables of guarantees and finds what is wrong with them; test_guarantees.py says what must hold."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.docs.test_protocol_rules import NAME

MODES = ("Exactly-once", "At-least-once", "At-most-once")
BRIDGE = "Spark bridge"
SIMULATED = "evidence/guarantees.md#simulator"
"""Where links of simulated faults lead."""
TABLES = (*MODES, "Stock clients", BRIDGE)
FAULT_LISTS = {BRIDGE: "The faults of the bridge"}
"""Where the faults of a table are described; of all others under "The faults"."""
HEAD = ("fault", "struck", "lost?", "twice?", "order?", "who must be up", "who must remember", "shown by")
ANSWERS = re.compile(r"(?:no|yes|may|may, flagged|unknown|wanted|rejected|released)(?: \(([a-z])\))?")
EVIDENCE_TABLES = {
    "Real processes": "real",
    "Simulator": "sim",
    "Golden scenarios": "gold",
    "Cores": "core",
    "Parts": "part",
}
STARTS_PROCESSES = re.compile(
    r"\b(?:running_router|RouterProcess|start_router|LocalNetwork|network_under_load|cut_network|ClientProcess|EtcdServer|subprocess"
    r"|running_node|NodeProcess|RouterChild|JournalEdge|tests\.conformance)\b"
)
"""What a test of real processes uses."""

LINK = re.compile(r"\[([^\]]+)\](?!\()")
RULE_LINK = re.compile(
    rf"\[({NAME})\]\(protocol(?:/[\w-]+)?\.md#([\w-]+)\)|\[([JO]-\d+)\]\((?:bridge|journals)\.md#([\w-]+)\)"
)
BRIDGE_FAMILIES = {"J": ("from-the-network-to-a-query", "rules"), "O": ("from-a-query-to-the-network",)}
"""Where the rules of docs/bridge.md and docs/journals.md stand."""
REFERENCE = re.compile(r"^\[([^\]]+)\]: (\S+)$", re.MULTILINE)
NOTE = re.compile(r"^- \(([a-z])\) ", re.MULTILINE)
GAP = re.compile(r"^- ([A-Z][\w -]+), (argued only|not shown): ((?:.|\n  )+)\.$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Facts:
    """What exists and may be named."""

    root: Path
    faults: frozenset[str]
    traits: frozenset[str]
    rules: frozenset[str]

    def test_exists(self, path: str, name: str) -> bool:
        """Whether the file has a test function of that name."""
        return name in functions_of(self.root / path)


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a mode's table."""

    table: str
    cells: tuple[str, ...]

    @property
    def fault(self) -> str:
        """The first cell."""
        return self.cells[0]

    @property
    def name(self) -> str:
        """As the section of gaps names it."""
        return f"{self.fault} ({self.cells[1]})"

    @property
    def shown(self) -> str:
        """The last cell."""
        return self.cells[-1]

    @property
    def evidence(self) -> list[str]:
        """Ids of the evidence it names."""
        return [found for found in LINK.findall(self.shown) if not re.fullmatch(rf"{NAME}|[JO]-\d+", found)]

    @property
    def standing(self) -> str:
        """What it says of itself: shown, argued only, or not shown."""
        if self.shown == "not shown":
            return "not shown"
        return "argued only" if "argued:" in self.shown else "shown"


@cache
def functions_of(path: Path) -> frozenset[str]:
    """Names of the test functions of a file; none if there is no such file."""
    if path.suffix != ".py" or not path.is_file():
        return frozenset()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    )


def section(page: str, heading: str) -> str:
    """The text below a heading of any level, up to the next one."""
    found = re.search(rf"^#+ {re.escape(heading)}\n((?:(?!^#+ ).*\n?)*)", page, re.MULTILINE)
    return "" if found is None else found.group(1)


def table(text: str) -> list[tuple[str, ...]]:
    """The cells of the first table of a text, heading first."""
    rows: list[tuple[str, ...]] = []
    for line in text.splitlines():
        if line.startswith("|"):
            cells = tuple(cell.strip() for cell in line.strip("|").split("|"))
            if not all(set(cell) <= set("-:") for cell in cells):
                rows.append(cells)
        elif rows:
            break
    return rows


def faults_of(page: str, name: str) -> list[str]:
    """The faults that the rows of a table may be about."""
    return [cells[0] for cells in table(section(page, FAULT_LISTS.get(name, "The faults")))[1:]]


def rows_of(page: str, name: str) -> list[Row]:
    """The rows of one mode's table, without its heading."""
    return [Row(name, cells) for cells in table(section(page, name))[1:]]


def evidence_of(page: str) -> dict[str, str]:
    """Evidence id -> where it is; an id that stands twice is there once."""
    return {cells[0]: cells[1].strip("`") for heading in EVIDENCE_TABLES for cells in table(section(page, heading))[1:]}


# --- checks: each yields one line for each fault of the page


def wrong_tables(page: str) -> Iterator[str]:
    """Every mode has its table, and the same faults as the list of faults and as the other modes."""
    for name in TABLES:
        faults = faults_of(page, name)
        cells = table(section(page, name))
        if not cells or cells[0] != HEAD:
            yield f"{name}: no table with the columns {', '.join(HEAD)}"
            continue
        met = {row.fault for row in rows_of(page, name)}
        if name in MODES or name in FAULT_LISTS:
            yield from (f"{name} has no row for: {fault}" for fault in faults if fault not in met)
        yield from (f"{name} has a fault that is not on the list: {fault}" for fault in sorted(met - {*faults}))


def wrong_answers(page: str) -> Iterator[str]:
    """Every cell has a plain answer; a note in brackets stands below the table, and every note is used."""
    for name in TABLES:
        notes = set(NOTE.findall(section(page, name)))
        used: set[str] = set()
        for row in rows_of(page, name):
            if len(row.cells) != len(HEAD) or not all(row.cells):
                yield f"{name}, {row.fault}: a cell is empty or too many"
                continue
            for question, answer in zip(HEAD[2:5], row.cells[2:5], strict=True):
                found = ANSWERS.fullmatch(answer)
                if found is None:
                    yield f"{name}, {row.name}: {question} {answer!r} is no answer"
                elif found.group(1):
                    used.add(found.group(1))
        yield from (f"{name}: there is no note ({letter})" for letter in sorted(used - notes))
        yield from (f"{name}: note ({letter}) belongs to no cell" for letter in sorted(notes - used))


def wrong_evidence(page: str) -> Iterator[str]:
    """Every row names evidence of the lists, or says that it is argued, or not shown."""
    known = evidence_of(page)
    used: set[str] = set()
    for name in TABLES:
        for row in rows_of(page, name):
            used.update(row.evidence)
            yield from (f"{name}, {row.name}: unknown evidence {i}" for i in row.evidence if i not in known)
            rest = RULE_LINK.sub("", LINK.sub("", row.shown)).replace("argued:", "").strip()
            if row.standing == "not shown":
                continue
            if rest:
                yield f"{name}, {row.name}: {rest!r} is no evidence"
            if row.standing == "argued only" and not RULE_LINK.search(row.shown):
                yield f"{name}, {row.name}: argued from no rule"
            if row.standing == "shown" and not [i for i in row.evidence if not i.startswith("part-")]:
                yield f"{name}, {row.name}: no evidence, and it says neither argued nor not shown"
    yield from (f"{i} shows nothing" for i in sorted(known.keys() - used))


def missing_evidence(page: str, facts: Facts) -> Iterator[str]:
    """Everything in the lists of evidence exists and is of the kind its list says."""
    for heading, kind in EVIDENCE_TABLES.items():
        for i, where, *_ in table(section(page, heading))[1:]:
            if not i.startswith(f"{kind}-"):
                yield f"{i} is in the list of {kind}"
            yield from (f"{i}: {problem}" for problem in _missing(where.strip("`"), kind, facts))


def _missing(where: str, kind: str, facts: Facts) -> Iterator[str]:
    if kind == "sim":
        word, _, name = where.partition(":")
        known = {"simulated": facts.faults, "simulated-trait": facts.traits}.get(word, frozenset())
        if name not in known:
            yield f"the simulator has no {where}"
        return
    path, _, name = where.partition("::")
    if not (facts.root / path).is_file():
        yield f"there is no file {path}"
    elif kind == "gold":
        if not path.startswith("tests/delivery_records/scenarios/"):
            yield f"{path} is no golden scenario"
    elif path.startswith("docs/evidence/") and not name:
        return
    elif not facts.test_exists(path, name):
        yield f"{path} has no test {name}"
    elif kind == "real" and not STARTS_PROCESSES.search((facts.root / path).read_text(encoding="utf-8")):
        yield f"{path} starts no process"


def wrong_links(page: str, root: Path) -> Iterator[str]:
    """Every evidence id is a link to its file."""
    links = dict(REFERENCE.findall(page))
    for i, where in evidence_of(page).items():
        path = where.partition("::")[0]
        wanted = SIMULATED if i.startswith("sim-") else path
        target = links.get(i, "")
        reported = target if "#" in target else str((root / "docs" / target).resolve().relative_to(root))
        if reported != wanted:
            yield f"{i} links to {target!r} and not to {wanted}"


def wrong_rules(page: str, facts: Facts) -> Iterator[str]:
    """Every rule exists, and its link leads to it."""
    for name, anchor, of_bridge, place in RULE_LINK.findall(page):
        if (name or of_bridge) not in facts.rules:
            yield f"there is no rule {name or of_bridge}"
        if name and anchor not in (name.lower(), "assumptions"):
            yield f"the link of {name} leads to {anchor}"
        if of_bridge and place not in BRIDGE_FAMILIES[of_bridge[0]]:
            yield f"the link of {of_bridge} leads to {place}"
    for heading in ("The faults", *FAULT_LISTS.values()):
        for fault, *_, rules in table(section(page, heading))[1:]:
            if not RULE_LINK.search(rules):
                yield f"{fault} is answered by no rule"


def wrong_gaps(page: str) -> Iterator[str]:
    """What is argued only or not shown stands in the list of gaps, and nothing else does."""
    reported = {
        (mode, standing): re.sub(r"\s+", " ", names).split("; ")
        for mode, standing, names in GAP.findall(section(page, "What is not shown yet"))
    }
    for name in TABLES:
        for standing in ("argued only", "not shown"):
            wanted = [row.name for row in rows_of(page, name) if row.standing == standing]
            if wanted != reported.pop((name, standing), []):
                yield f"{name}, {standing}: the rows are {'; '.join(wanted) or 'none'}"
    yield from (f"no such list of gaps: {mode}, {standing}" for mode, standing in reported)


def score(page: str) -> dict[str, list[int]]:
    """Table -> rows; with real processes, simulator, cores; argued only; not shown."""
    found = {}
    for name in TABLES:
        rows = rows_of(page, name)
        shown = [row for row in rows if row.standing == "shown"]
        by = [{i.partition("-")[0] for i in row.evidence} for row in shown]
        counts = [sum(bool(kinds & wanted) for kinds in by) for wanted in ({"real"}, {"sim", "gold"}, {"core"})]
        weak = [sum(row.standing == word for row in rows) for word in ("argued only", "not shown")]
        found[name] = [len(rows), *counts, *weak]
    return found


def wrong_score(page: str) -> Iterator[str]:
    """The table of how many rows have which evidence is true."""
    reported = {cells[0]: cells[1:] for cells in table(section(page, "How to read the tables").split("How many")[-1])}
    for name, counts in score(page).items():
        if reported.get(name) != tuple(map(str, counts)):
            yield f"{name}: the counts are {counts}"


def rules_named_in(rule: re.Pattern[str], source: str) -> Iterator[str]:
    """Rules in a file's comments and docstrings, found by the pattern of their names."""
    if rule.search(source) is None:
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield from rule.findall(token.string)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield from rule.findall(node.value.value)
