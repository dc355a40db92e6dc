"""What pages name exists: tests, files of tests, commands with their options, and constants in tables of limits."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import click
import pytest

from oncewire.cli.run import root_command
from tests.docs.code_blocks import PAGES, ROOT
from tests.docs.guarantee_tables import functions_of

TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(test_\w+))?`")
TEST_ALONE = re.compile(r"`(test_\w+)`")
COMMAND = re.compile(r"`(oncewire [a-z][^`\n#|&>]*)`")
LIMIT = re.compile(r"^\| `([A-Z][A-Z_]+)` \| (\d+) \|", re.MULTILINE)
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@cache
def all_tests() -> frozenset[str]:
    """The names of all test functions."""
    return frozenset(name for path in (ROOT / "tests").rglob("*.py") for name in functions_of(path))


@each_page
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert [
        f"{path}::{name}"
        for path, name in TEST.findall(text)
        if not (ROOT / path).is_file() or (name and name not in functions_of(ROOT / path))
    ] == []
    files = {path.stem for path in (ROOT / "tests").rglob("test_*.py")}
    assert set(TEST_ALONE.findall(text)) - all_tests() - files == set()


@each_page
def test_every_command_that_a_page_names_is_understood(page: Path) -> None:
    for line in COMMAND.findall(page.read_text(encoding="utf-8")):
        command: click.Command = root_command()
        words = line.split()[1:]
        while isinstance(command, click.Group) and words and not words[0].startswith(("-", "...")):
            found = command.get_command(click.Context(command), words.pop(0))
            assert found is not None, line
            command = found
        options = {name for parameter in command.get_params(click.Context(command)) for name in parameter.opts}
        assert {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)} <= options, line


@cache
def constants() -> frozenset[tuple[str, int]]:
    """What the files of the product name with whole numbers, and with what is reckoned from such names."""
    paths = [path for folder in ("bridges", "oncewire") for path in sorted((ROOT / folder).rglob("*.py"))]
    texts = [path.read_text(encoding="utf-8") for path in paths]
    lines = [line for text in texts for line in re.findall(r"^([A-Z]\w*) = ([\w .*/<]+)$", text, re.MULTILINE)]
    known: dict[str, int] = {}
    found: set[tuple[str, int]] = set()
    for _ in range(2):  # a file may reckon with what another one names
        for name, text in lines:
            if set(re.findall(r"[A-Za-z]\w*", text)) <= known.keys():
                known[name] = int(eval(text, {}, known))
                found.add((name, known[name]))
    return frozenset(found)


@each_page
def test_every_constant_in_a_table_of_limits_has_the_value_that_the_page_names(page: Path) -> None:
    named = LIMIT.findall(page.read_text(encoding="utf-8"))
    assert [(name, value) for name, value in named if (name, int(value)) not in constants()] == []
