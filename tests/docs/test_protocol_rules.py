"""The protocol pages and the code name the same rules."""

from __future__ import annotations

import ast
import io
import math
import re
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from chaos.mutants.catalogue import DIRECTED, EDITS
from delivery_records.model import limits
from tests.support.protocol import protocol_text

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
COUNTEREXAMPLES = ROOT / "docs" / "counterexamples.md"
CARRYING_OUT = ("oncewire", "delivery_records", "topology", "router")
"""Folders whose code carries rules out; a mention in the fault side proves nothing."""
NAMING = (*CARRYING_OUT, "chaos")
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")])

# Families: K etcd, A attach, I ingress, E egress, T channels, C credit, P/S client, R routed, X addresses, SH shared,
# L large messages, D tags; N, P and S assumed.
# The look-arounds keep UTF-8, SHA-256, P-256, 1E-3 and A-10-B out.
NAME = r"(?:(?:SH|[KAIETCLDNPSRX])-\d{1,2}[a-z]?|[PS]-a)"
RULE = re.compile(rf"(?<![\w-]){NAME}(?![\w-])")
HEADING = re.compile(rf"^#{{2,5}} ({NAME})\s*$")
ASSUMPTION_ROW = re.compile(rf"^\| \*\*({NAME})\*\* \|")
ANY_HEADING = re.compile(r"^#{1,6} ")

UNITS = {"": 1, "ms": 0.001, "s": 1, "h": 3600, "KiB": 1024, "MiB": 1024 * 1024}
CONSTANT_ROW = re.compile(
    r"^\| [^|]+ \| (?P<number>\d+)(?: (?P<unit>ms|s|h|KiB|MiB))? \| `(?P<name>[A-Z_]+)` \|", re.MULTILINE
)

CHECKED = re.compile(r"^\*Checked:\* (.*)$", re.MULTILINE)
BRACKETS = re.compile(r"\([^)]*\)")
MARKS = {"model-checked", "simulated", "tested", "built"}

REASONING_ONLY = "*reasoning only*"
LATER = "*later, not built*"


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule as the protocol page defines it: its name and the text below its heading."""

    name: str
    text: str
    is_assumption: bool = False

    @property
    def is_reasoning_only(self) -> bool:
        """The page says that no code carries it out."""
        return REASONING_ONLY in self.text

    @property
    def marks(self) -> set[str]:
        """How the page says it was checked; what stands in brackets explains a mark and is none."""
        found = CHECKED.search(self.text)
        return set() if found is None else MARKS & set(re.split(r"[\s,.]+", BRACKETS.sub("", found.group(1))))

    @property
    def is_later(self) -> bool:
        """The page says that it is not built yet."""
        return LATER in self.text


@dataclass(frozen=True, slots=True)
class Mention:
    """A rule named in a comment or docstring."""

    name: str
    path: Path
    line: int

    def __str__(self) -> str:
        """As a failing test shows it."""
        return f"{self.path}:{self.line} names {self.name}"


def defined_rules(page: str) -> dict[str, Rule]:
    """The rules a protocol page defines. A rule's text ends at the next heading of any level.

    Raises:
        ValueError: a rule is defined twice.
    """
    rules: dict[str, Rule] = {}
    current: str | None = None
    text: list[str] = []

    def keep(rule: Rule) -> None:
        if rule.name in rules:
            raise ValueError(f"rule {rule.name} is defined twice")
        rules[rule.name] = rule

    for line in [*page.splitlines(), "# end"]:
        if ANY_HEADING.match(line):
            if current is not None:
                keep(Rule(current, "\n".join(text)))
            heading = HEADING.match(line)
            current, text = (heading.group(1) if heading else None), []
        else:
            text.append(line)
        row = ASSUMPTION_ROW.match(line)
        if row:
            keep(Rule(row.group(1), line, is_assumption=True))
    return rules


def mentions_in_source(source: str, path: Path) -> Iterator[Mention]:
    """Rules named in a Python file's comments and bare strings (docstrings of anything, constants included)."""
    if RULE.search(source) is None:
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield from (Mention(found.group(), path, token.start[0]) for found in RULE.finditer(token.string))
    for node in ast.walk(ast.parse(source, filename=str(path))):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield from (Mention(found.group(), path, node.lineno) for found in RULE.finditer(node.value.value))


def mentions_under(root: Path, folders: Iterable[str]) -> list[Mention]:
    """Rules named in all Python files of these folders of a source tree."""
    found: list[Mention] = []
    for folder in folders:
        for path in sorted((root / folder).rglob("*.py")):
            found += mentions_in_source(path.read_text(encoding="utf-8"), path.relative_to(root))
    return found


def constant_rows(page: str) -> dict[str, float]:
    """Constant -> value, of the table rows `| name | value | `CONSTANT` | ...`; times in seconds, sizes in bytes."""
    return {row["name"]: float(row["number"]) * UNITS[row["unit"] or ""] for row in CONSTANT_ROW.finditer(page)}


def marked(rules: dict[str, Rule], mark: str) -> set[str]:
    """The names of the rules with that mark."""
    return {rule.name for rule in rules.values() if mark in rule.marks}


def unknown_names(rules: dict[str, Rule], mentions: Iterable[Mention]) -> list[Mention]:
    """Mentions of rules that the page does not define."""
    return [mention for mention in mentions if mention.name not in rules]


def unnamed_rules(rules: dict[str, Rule], mentions: Iterable[Mention]) -> list[str]:
    """Rules of the page that neither the code names nor a mark excuses. Assumptions are nobody's to carry out."""
    named = {mention.name for mention in mentions}
    return [
        rule.name
        for rule in rules.values()
        if not (rule.name in named or rule.is_assumption or rule.is_reasoning_only or rule.is_later)
    ]


@pytest.fixture(scope="module")
def rules() -> dict[str, Rule]:
    return defined_rules(protocol_text())


@pytest.fixture(scope="module")
def mentions() -> list[Mention]:
    return mentions_under(ROOT, NAMING)


@pytest.fixture(scope="module")
def carried_out(mentions: list[Mention]) -> list[Mention]:
    return [mention for mention in mentions if mention.path.parts[0] in CARRYING_OUT]


def test_every_rule_named_in_the_code_is_on_the_protocol_page(rules: dict[str, Rule], mentions: list[Mention]) -> None:
    unknown = unknown_names(rules, mentions)
    assert not unknown, "not defined in docs/protocol:\n" + "\n".join(map(str, unknown))


def test_every_rule_of_the_protocol_page_is_named_in_the_code_or_marked(
    rules: dict[str, Rule], carried_out: list[Mention]
) -> None:
    unnamed = unnamed_rules(rules, carried_out)
    assert not unnamed, f"named nowhere in the code and not marked {REASONING_ONLY}: {', '.join(unnamed)}"


def test_a_rule_that_the_code_names_is_not_marked_as_reasoning_only(
    rules: dict[str, Rule], carried_out: list[Mention]
) -> None:
    named = {mention.name for mention in carried_out}
    stale = [rule.name for rule in rules.values() if rule.is_reasoning_only and rule.name in named]
    assert not stale, f"marked {REASONING_ONLY} although the code names them: {', '.join(stale)}"


def test_a_rule_marked_as_simulated_can_be_edited_out(rules: dict[str, Rule]) -> None:
    unproved = marked(rules, "simulated") - {edit.rule for edit in (*EDITS, *DIRECTED)}
    assert not unproved, f"marked simulated, but no edit takes them out: {', '.join(sorted(unproved))}"


def test_a_rule_marked_as_tested_is_named_by_a_test(rules: dict[str, Rule]) -> None:
    named = {
        found.group()
        for folder in TESTS.iterdir()
        if folder.is_dir() and folder != Path(__file__).parent
        for path in folder.rglob("*.py")
        for found in RULE.finditer(path.read_text(encoding="utf-8"))
    }
    unproved = marked(rules, "tested") - named
    assert not unproved, f"marked tested, but no test names them: {', '.join(sorted(unproved))}"


def test_every_rule_that_is_built_says_how_it_was_checked(rules: dict[str, Rule]) -> None:
    silent = [
        rule.name
        for rule in rules.values()
        if not (rule.marks or rule.is_assumption or rule.is_later or rule.is_reasoning_only)
    ]
    assert not silent, f"no line *Checked:* with a known mark: {', '.join(silent)}"


def test_no_rule_is_left_for_later(rules: dict[str, Rule]) -> None:
    later = {rule.name for rule in rules.values() if rule.is_later}
    assert later == set()


def test_the_protocol_page_has_every_family_of_rules(rules: dict[str, Rule]) -> None:
    families = {name.split("-")[0] for name in rules}
    assert families == {"K", "A", "I", "E", "T", "C", "P", "S", "R", "X", "N", "SH", "L", "D"}
    assert {"I-3", "E-4a", "K-1a", "A-2b", "T-7", "T-8", "T-9", "P-a", "S-a"} <= set(rules)


def test_every_rule_named_on_any_page_is_on_the_protocol_page(rules: dict[str, Rule]) -> None:
    unknown = [
        Mention(found.group(), page.relative_to(ROOT), number)
        for page in PAGES
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1)
        for found in RULE.finditer(line)
        if found.group() not in rules
    ]
    assert not unknown, "\n".join(map(str, unknown))


@pytest.mark.parametrize(("letter", "count"), [("C", 16), ("F", 39)])
def test_every_counterexample_and_finding_has_a_row_that_names_its_remedy(letter: str, count: int) -> None:
    rows = {
        found.group(1): found.group(2)
        for found in re.finditer(
            rf"^\| ({letter}\d+) \|(.*)\|$", COUNTEREXAMPLES.read_text(encoding="utf-8"), re.MULTILINE
        )
    }
    assert list(rows) == [f"{letter}{number}" for number in range(1, count + 1)]
    without = [
        name
        for name, row in rows.items()
        if not (RULE.search(row) or re.search(r"\]\(protocol(?:/[\w-]+)?\.md#|as C\d+|\bG\d\b", row))
    ]
    assert not without, f"no rule answers {', '.join(without)}"


def test_times_and_limits_on_the_protocol_page_are_those_of_the_code() -> None:
    rows = constant_rows(protocol_text())
    assert len(rows) > 30, "the tables of times and limits were not found"
    wrong = [
        f"{name} is {getattr(limits, name, None)}, the page says {reported}"
        for name, reported in rows.items()
        if not math.isclose(getattr(limits, name, math.nan), reported)
    ]
    assert not wrong, "\n".join(wrong)


def test_every_guarantee_stands_on_the_protocol_page() -> None:
    found = re.findall(r"^\| \*\*(G\d)\*\* ", protocol_text(), re.MULTILINE)
    assert found == [f"G{number}" for number in range(1, 9)]


# The checks themselves: each must see the fault it is there for.

PAGE = f"""# A page
| **N-1** | an assumption |
### I-3
**Accept.** Text that mentions I-4.
### I-4
Settle.
#### E-9
{REASONING_ONLY}
### SH-1
{LATER}
## Other
Prose about T-1.
"""


def test_rules_are_headings_and_assumption_rows_and_nothing_else() -> None:
    rules = defined_rules(PAGE)
    assert list(rules) == ["N-1", "I-3", "I-4", "E-9", "SH-1"]
    assert rules["N-1"].is_assumption
    assert rules["E-9"].is_reasoning_only
    assert rules["SH-1"].is_later
    assert not rules["I-4"].is_reasoning_only


def test_a_rule_defined_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="I-3 is defined twice"):
        defined_rules(PAGE + "### I-3\n")


def test_a_planted_unknown_rule_is_found(tmp_path: Path) -> None:
    (tmp_path / "router").mkdir()
    (tmp_path / "router" / "node.py").write_text('"""Fences (I-3)."""\nx = 1  # K-99: no such rule\n')
    found = unknown_names(defined_rules(PAGE), mentions_under(tmp_path, NAMING))
    assert [str(mention) for mention in found] == ["router/node.py:2 names K-99"]


def test_a_planted_unnamed_rule_is_found(tmp_path: Path) -> None:
    (tmp_path / "router").mkdir()
    (tmp_path / "router" / "node.py").write_text("x = 1  # I-3\n")
    assert unnamed_rules(defined_rules(PAGE), mentions_under(tmp_path, NAMING)) == ["I-4"]


def test_only_comments_and_docstrings_name_rules() -> None:
    source = (
        '"""Module (K-1a).\n\nAlso P-a."""\n'
        "LIMIT = 3\n"
        '"""Docstring of a constant (A-10)."""\n'
        'text = "K-2 in a plain string"\n'
        "def f() -> None:\n"
        "    x = 5  # SH-1, I-1a/b and E-4a.\n"
    )
    names = [mention.name for mention in mentions_in_source(source, Path("a.py"))]
    assert sorted(names) == ["A-10", "E-4a", "I-1a", "K-1a", "P-a", "SH-1"]


@pytest.mark.parametrize(
    "text", ["UTF-8", "SHA-256", "SHA-1", "P-256", "1E-3", "A-10-B", "C1", "xI-3", "I-3ab", "T-100"]
)
def test_other_names_with_dashes_are_not_rules(text: str) -> None:
    assert RULE.search(f"# see {text} here") is None


def test_a_row_of_constants_is_read_with_its_unit() -> None:
    page = "| probe | 500 ms | `PROBE_S` | x |\n| w | 64 MiB | `BYTES` | |\n| n | 10 | `N` | |\n| ttl | 10 s | - | |\n"
    assert constant_rows(page) == {"PROBE_S": 0.5, "BYTES": 64 * 1024 * 1024, "N": 10}


def test_marks_are_read_from_the_last_line_of_a_rule_and_not_from_its_brackets() -> None:
    rules = defined_rules(
        "### I-3\nText, tested.\n\n*Checked:* model-checked (not simulated), tested.\n### I-4\nText.\n"
    )
    assert rules["I-3"].marks == {"model-checked", "tested"}
    assert not rules["I-4"].marks
    assert marked(rules, "tested") == {"I-3"}
