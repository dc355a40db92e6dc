"""Every code block of every page is run by a test, or says why it is only checked here, or a fragment."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import click
import pytest

from bridges.node.settings import NODE, SUBSCRIPTION
from oncewire.cli.run import root_command
from tests.docs.code_blocks import PAGES, ROOT, Block, all_blocks, blocks_of, commands_of

BLOCKS = all_blocks()
NO_CODE = frozenset({"mermaid", "text"})
"""Pictures, and what programs print."""
OTHER_PROGRAMS = frozenset({"docker", "etcdctl", "helm", "journalctl", "kill", "kubectl", "sudo"})
"""Used on pages as everybody knows them."""
NEVER = r"(?!)"
"""Matches nothing: what will not be built."""
RECORDS = "docs/evidence/"
"""Pages that programs write: the command that made the figures, which need no note, and what it printed."""
OURS = frozenset({"oncewire", "router", "topology", "delivery_records", "bridges", "chaos"})
INDENTED = re.compile(r"(?:^|\n\n)    (?! )[^\n]+")
LIST_ITEM = re.compile(r"^\s*(?:[-*]|\d+\.) ")


def check_oncewire(words: list[str]) -> None:
    """Click understands the command line, with its values.

    Raises:
        click.UsageError: it does not.
    """
    command: click.Command = root_command()
    context = click.Context(command)
    while isinstance(command, click.Group) and not _runs_by_itself(command, words):
        assert words, "a group is no command"
        name, *words = words
        found = command.get_command(context, name)
        assert found is not None, name
        command, context = found, click.Context(found, parent=context)
    if "--help" in words:
        return
    try:
        command.make_context(command.name, list(words))
    except click.BadParameter as error:
        if "does not exist" not in error.message:  # a file of the reader's
            raise


def _runs_by_itself(group: click.Group, words: list[str]) -> bool:
    """A group that does something, too, as `oncewire local --routers 2`."""
    return group.invoke_without_command and bool(group.params) and not set(words) & set(group.commands)


def check_command(words: list[str]) -> None:
    """The command exists, with its options and files."""
    program, *arguments = words
    if program.removeprefix(".venv/bin/") == "oncewire":
        check_oncewire(arguments)
    elif program == "make":
        phony = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        targets = [word for word in arguments if "=" not in word]
        assert targets, "make without a target"
        assert set(targets) <= set(" ".join(phony).split())
    elif program == ".venv/bin/python":
        paths = [word for word in arguments if "/" in word]
        assert paths, "nothing to run"
        assert [path for path in paths if not (ROOT / path).exists()] == []
    else:
        assert program in OTHER_PROGRAMS, f"{program} is not known here"


def dotted(tables: Mapping[str, object], before: str = "") -> Iterator[str]:
    """Names of settings, `table.key` where they stand in a table."""
    for key, value in tables.items():
        if isinstance(value, Mapping):
            yield from dotted(value, f"{before}{key}.")
        else:
            yield before + key


def check(block: Block) -> None:
    """Its commands or settings exist; no other language can be checked."""
    if block.language == "sh":
        for command in commands_of(block.text):
            check_command(command)
    elif block.language == "json":
        for line in block.text.splitlines():
            json.loads(line)
    else:
        assert block.language == "toml", "run it in a test, or say why it is a fragment"
        settings = tomllib.loads(block.text)
        assert {key for each in settings.pop("subscription", []) for key in each} <= set(SUBSCRIPTION)
        assert set(dotted(settings)) <= set(NODE)


def shown(blocks: list[Block]) -> list[object]:
    """As parameters of a test."""
    return [pytest.param(block, id=str(block)) for block in blocks]


@pytest.mark.parametrize("block", shown([block for block in BLOCKS if block.language not in NO_CODE]))
def test_every_code_block_is_run_or_says_why_it_is_only_checked_or_a_fragment(block: Block) -> None:
    if block.run_by:
        test = (ROOT / block.run_by).read_text(encoding="utf-8")
        assert Path(block.page).name in test, "that test does not read this page"
        return
    why = block.why_fragment or block.why_checked
    assert why or block.page.startswith(RECORDS), "name the test that runs it, or say why none does"
    assert not why or len(why.split()) > 2, "that is no reason"
    if not block.why_fragment:
        check(block)


@pytest.mark.parametrize("block", shown([block for block in BLOCKS if block.language == "python"]))
def test_every_name_that_a_python_block_imports_from_us_exists(block: Block) -> None:
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in OURS:
            assert node.module is not None
            spec = importlib.util.find_spec(node.module)
            assert spec is not None, node.module
            assert spec.origin is not None
            if any(part == "spark" for part in node.module.split(".")):  # cannot be imported without Spark
                source = Path(spec.origin).read_text(encoding="utf-8")
                assert all(re.search(rf"\b{alias.name}\b", source) for alias in node.names)
            else:
                module = importlib.import_module(node.module)
                missing = [alias.name for alias in node.names if not hasattr(module, alias.name)]
                assert [name for name in missing if importlib.util.find_spec(f"{node.module}.{name}") is None] == []


def test_every_code_block_says_its_language() -> None:
    assert [str(block) for block in BLOCKS if not block.language] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_code_hides_in_an_indented_block(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for block in blocks_of(page):
        text = text.replace(block.text, "")
    for found in INDENTED.finditer(text):
        before = text[: found.start()].rstrip().rpartition("\n\n")[2]
        assert LIST_ITEM.match(before) or before.startswith("  "), found[0]


@pytest.mark.parametrize(
    "text",
    [
        "oncewire chaos simulat",
        "oncewire drain --ur http://r1:8672",
        "oncewire chaos simulate --seeds many",
        "make demos",
        "make",
        "nomad run",
        ".venv/bin/python benchmarks/bench_nothing.py",
        "oncewire chaos",
    ],
)
def test_a_command_that_does_not_exist_is_found(text: str) -> None:
    (command,) = commands_of(text)
    with pytest.raises((AssertionError, click.UsageError)):
        check_command(command)


@pytest.mark.parametrize(
    ("promise", "built"),
    [
        (r"dead[- ]letter", r"dead_letter|store_command\(\"dead\""),
        (r"rejections by policy", r"rejects_by_policy"),
        (r"(?:compiled|built|wheels?) (?:by|with) mypyc", r"mypycify"),
        (r"\[(?:mqtt|queue)\]", r"^(?:mqtt|queue) = "),
        (r"reply says what (?:is|was) granted", NEVER),  # it states what holds now
    ],
)
def test_nothing_is_promised_that_is_not_built(promise: str, built: str) -> None:
    code = [*(path for folder in sorted(OURS) for path in (ROOT / folder).rglob("*.py")), ROOT / "pyproject.toml"]
    sources = {path: path.read_text(encoding="utf-8") for path in code}
    if any(re.search(built, text, re.MULTILINE) for text in sources.values()):
        return
    history = {ROOT / "CHANGELOG.md", ROOT / "docs" / "from-the-notes.md"}
    pages = {path: path.read_text(encoding="utf-8") for path in PAGES if path not in history}
    reported = [str(path.relative_to(ROOT)) for path, text in {**pages, **sources}.items() if re.search(promise, text)]
    assert reported == []
