"""Where an edit applies: found by the tokens of its old text, in whatever file and layout they stand.

A file that moves, a line that is broken elsewhere, a block that is indented anew and a comment change no token, so they
leave each edit as it is. Text that stands in several places needs the name of its function or class beside it.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from chaos.mutants.edit_error import EditError

_LAYOUT = frozenset(
    {
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.COMMENT,
        tokenize.ENCODING,
        tokenize.ENDMARKER,
    }
)
_Position: TypeAlias = tuple[int, int]
"""Line, from 1 on, and column."""
_SOURCES = 512
"""Sources whose tokens are kept: all that edits may name, with a few edited ones."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """One place in the sources.

    Attributes:
        module: its name.
        start: of the first character of the old text.
        end: behind the last one.
        indent: columns before the first line's text.
    """

    module: str
    start: int
    end: int
    indent: int


def find(sources: Mapping[str, str], old: str, where: str = "") -> Anchor:
    """The one place where `old` stands.

    Args:
        sources: by name of their modules.
        old: statements, or a part of one.
        where: the function or class that it stands in, as `Class.method`; empty: it stands nowhere else.

    Raises:
        EditError: it stands nowhere, or in several places.
    """
    tokens = _tokens_of(old)
    found = [
        anchor
        for module, source in sources.items()
        if all(token in source for token in tokens)
        for anchor in _matches(module, source, tokens, where)
    ]
    if len(found) != 1:
        place = f" in {where}" if where else ""
        modules = f": {', '.join(anchor.module for anchor in found)}" if found else ""
        raise EditError(f"the old text stands {len(found)} times{place}, not once{modules}")
    return found[0]


def replaced(source: str, anchor: Anchor, old: str, new: str) -> str:
    """The source with `new` in that place, indented as it is there."""
    shift = anchor.indent - _indent_of(old)
    lines = new.strip("\n").splitlines()
    moved = [line if not line.strip() else " " * (_indent_of(line) + shift) + line.lstrip() for line in lines]
    text = "\n".join(moved)
    line_start = anchor.start - anchor.indent
    if _indent_of(old) and not source[line_start : anchor.start].strip():  # whole lines: the first may be indented anew
        return source[:line_start] + text + source[anchor.end :]
    return source[: anchor.start] + text.lstrip(" ") + source[anchor.end :]


def _indent_of(text: str) -> int:
    return len(text) - len(text.lstrip(" "))


def _tokens_of(text: str) -> tuple[str, ...]:
    """Between parentheses nothing depends on layout, and the text may end in the middle of a statement."""
    found: list[str] = []
    with suppress(tokenize.TokenError):  # the parenthesis that is put before it is open, at least
        tokens = tokenize.generate_tokens(io.StringIO("(\n" + text).readline)
        found.extend(token.string for token in tokens if token.type not in _LAYOUT)
    return tuple(found[1:])


@lru_cache(maxsize=_SOURCES)
def _read(source: str) -> tuple[tuple[str, ...], tuple[_Position, ...], tuple[_Position, ...]]:
    """Tokens of a source, where each begins, and where it ends."""
    tokens = [t for t in tokenize.generate_tokens(io.StringIO(source).readline) if t.type not in _LAYOUT]
    return tuple(t.string for t in tokens), tuple(t.start for t in tokens), tuple(t.end for t in tokens)


def _matches(module: str, source: str, tokens: tuple[str, ...], where: str) -> Iterator[Anchor]:
    strings, starts, ends = _read(source)
    lines = source.splitlines(keepends=True)
    first, last = _lines_of(source, where) if where else (1, len(lines))
    for at in range(len(strings) - len(tokens) + 1):
        is_inside = first <= starts[at][0] and starts[at + len(tokens) - 1][0] <= last
        if strings[at] == tokens[0] and is_inside and strings[at : at + len(tokens)] == tokens:
            start, end = starts[at], ends[at + len(tokens) - 1]
            yield Anchor(module, _offset(lines, start), _offset(lines, end), _indent_of(lines[start[0] - 1]))


def _offset(lines: list[str], position: _Position) -> int:
    return sum(len(line) for line in lines[: position[0] - 1]) + position[1]


@lru_cache(maxsize=_SOURCES)
def _lines_of(source: str, where: str) -> tuple[int, int]:
    """First and last line of a function or class; none where the source has none of that name."""
    scope: list[ast.stmt] = ast.parse(source).body
    lines = (1, 0)
    for name in where.split("."):
        for node in scope:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name == name:
                scope, lines = node.body, (node.lineno, node.end_lineno or node.lineno)
                break
        else:
            return 1, 0
    return lines
