"""Code blocks of the pages: where they are, what language they are in, and the note before them.

A note is a comment of HTML directly before a block:

    <!-- run by tests/docs/test_readme.py -->      that test runs the block as it stands on the page
    <!-- checked: takes an hour -->                it is not run, and this is why; its commands or settings exist
    <!-- fragment: needs a cluster -->             it is neither run nor checked, and this is why
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(
        ROOT / name
        for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "deploy/README.md", "examples/shop/README.md")
    ),
    *sorted((ROOT / "docs").rglob("*.md")),
]
FENCE = re.compile(r"^( *)(`{3,}|~{3,})(\S*)$")
NOTE = re.compile(r"^<!-- (.*) -->$")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block.

    Attributes:
        page: path from the project's folder.
        line: number of its first fence.
        language: as written behind the fence; empty = none.
        text: what is between the fences.
        note: the comment directly before it; empty = none.
    """

    page: str
    line: int
    language: str
    text: str
    note: str

    def __str__(self) -> str:
        """As a failing test shows it."""
        return f"{self.page}:{self.line}"

    @property
    def run_by(self) -> str:
        """The test file that runs it; empty = none is named."""
        return self.note.removeprefix("run by ") if self.note.startswith("run by ") else ""

    @property
    def why_fragment(self) -> str:
        """Why it is neither run nor checked; empty = it does not say that it is a fragment."""
        return self._reason("fragment: ")

    @property
    def why_checked(self) -> str:
        """Why it is only checked; empty = it does not say so."""
        return self._reason("checked: ")

    def _reason(self, kind: str) -> str:
        return self.note.removeprefix(kind).strip() if self.note.startswith(kind) else ""


def blocks_of(path: Path) -> Iterator[Block]:
    """The fenced blocks of a page, in order.

    Raises:
        ValueError: the last one does not end.
    """
    page = str(path.relative_to(ROOT))
    lines = path.read_text(encoding="utf-8").splitlines()
    start: int | None = None
    fence = language = note = ""
    indent = 0
    for number, line in enumerate(lines):
        found = FENCE.match(line)
        if start is None and found:
            start, indent, fence, language = number, len(found[1]), found[2], found[3]
            before = NOTE.match(lines[number - 1]) if number else None
            note = before[1] if before else ""
        elif start is not None and found and found[2] == fence and not found[3]:
            text = "".join(f"{inner[indent:]}\n" for inner in lines[start + 1 : number])
            yield Block(page, start + 1, language, text, note)
            start = None
    if start is not None:
        raise ValueError(f"{page}:{start + 1}: the block does not end")


def all_blocks() -> list[Block]:
    """The fenced blocks of all pages."""
    return [block for page in PAGES for block in blocks_of(page)]


def commands_of(text: str) -> list[list[str]]:
    """The simple commands of a block, as words."""
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|;&")
        lexer.whitespace_split = True
        command: list[str] = []
        for word in lexer:
            if word.strip("|;&"):
                command.append(word)
            else:
                found.append(command)
                command = []
        found.append(command)
    return [command for command in found if command]
