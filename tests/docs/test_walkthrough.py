"""The walkthrough follows the code: every function it links to stands in the file."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
PAGE = PROJECT / "docs" / "walkthrough.md"
LONGEST = 150
LINK = re.compile(r"\[`([\w.]+)`\]\(\.\./([\w/.]+)\)")


@cache
def functions(file: Path) -> frozenset[str]:
    """The functions of a file, those of a class as `Class.function`."""
    return frozenset(_functions(ast.parse(file.read_text("utf-8"))))


def _functions(module: ast.Module) -> Iterator[str]:
    for node in module.body:
        if isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield f"{node.name}.{inner.name}"
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name


def is_there(name: str, place: str) -> bool:
    """Whether a file has a function."""
    file = PROJECT / place
    return file.is_file() and name in functions(file)


def test_every_function_of_the_walkthrough_stands_in_its_file() -> None:
    links = LINK.findall(PAGE.read_text("utf-8"))
    assert len(links) > 50
    assert [(name, place) for name, place in links if not is_there(name, place)] == []


def test_every_link_to_code_names_a_function() -> None:
    text = PAGE.read_text("utf-8")
    assert text.count("](../") == len(LINK.findall(text))


def test_a_function_that_was_renamed_or_moved_is_found() -> None:
    assert is_there("Records.handle", "delivery_records/records.py")
    assert not is_there("Records.handel", "delivery_records/records.py")
    assert not is_there("Records.handle", "delivery_records/publisher/ingress.py")
    assert not is_there("Records.handle", "delivery_records/no_such_file.py")


def test_the_walkthrough_is_short() -> None:
    assert len(PAGE.read_text("utf-8").splitlines()) <= LONGEST
