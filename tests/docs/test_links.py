"""Relative links of the pages lead to files and headings that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"), ROOT / "examples/shop/README.md"])

LINK = re.compile(r"!?\[(?:[^\]\[]|\[[^\]]*\])*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
INLINE_CODE = re.compile(r"`[^`\n]*`")
FENCE = re.compile(r"^\s*(```|~~~)")
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*\s*$")
SCHEME = re.compile(r"^[a-z][a-z0-9+.-]*:", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class DeadLink:
    """A link whose file or heading does not exist."""

    page: Path
    target: str

    def __str__(self) -> str:
        """As a failing test shows it."""
        return f"{self.page}: {self.target}"


def prose_lines(text: str) -> Iterator[str]:
    """The lines outside fenced code."""
    fence: str | None = None
    for line in text.splitlines():
        found = FENCE.match(line)
        if found and fence in (None, found.group(1)):
            fence = None if fence else found.group(1)
        elif fence is None:
            yield line


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them: lower case, no punctuation, dashes for spaces."""
    found: set[str] = set()
    for line in prose_lines(text):
        heading = HEADING.match(line)
        if heading:
            words = re.sub(r"[^\w\- ]", "", heading.group(1).replace("`", "").lower())
            slug = base = words.replace(" ", "-")
            count = 0
            while slug in found:
                count += 1
                slug = f"{base}-{count}"
            found.add(slug)
    return found


def relative_links(text: str) -> Iterator[str]:
    """Link targets that are not URLs."""
    for line in prose_lines(text):
        for found in LINK.finditer(INLINE_CODE.sub("``", line)):
            if not SCHEME.match(found.group(1)):
                yield found.group(1)


def has_heading(page: Path, anchor: str) -> bool:
    """True when the page has that anchor; only Markdown files are read."""
    return page.suffix != ".md" or anchor in anchors(page.read_text(encoding="utf-8"))


def dead_links(page: Path) -> list[DeadLink]:
    """The relative links of a page that lead to no file, or to no heading of a Markdown file."""
    text = page.read_text(encoding="utf-8")
    dead: list[DeadLink] = []
    for target in relative_links(text):
        name, _, anchor = target.partition("#")
        aim = (page.parent / name) if name else page
        if not aim.exists() or (anchor and not has_heading(aim, anchor)):
            dead.append(DeadLink(page, target))
    return dead


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_to_a_file_and_heading(page: Path) -> None:
    dead = dead_links(page)
    assert not dead, "\n".join(map(str, dead))


def test_every_module_named_in_from_the_notes_exists() -> None:
    text = (ROOT / "docs" / "from-the-notes.md").read_text(encoding="utf-8")
    modules = set(re.findall(r"`((?:attachments/|channels/|diagnostics/)?[a-z_]+\.py)`", text))
    folders = set(re.findall(r"`([a-z_]+/[a-z_/]*)`", text))
    assert len(modules) >= 8
    missing = [name for name in modules if not list((ROOT / "delivery_records").rglob(name))]
    missing += [name for name in folders if not (ROOT / name).is_dir()]
    assert not missing


# The checks themselves: each must see the fault it is there for.


def test_a_dead_link_and_a_dead_anchor_are_found(tmp_path: Path) -> None:
    (tmp_path / "b.md").write_text("# Here it is: `x_y`\n```\n# not a heading\n```\n")
    page = tmp_path / "a.md"
    page.write_text(
        "# Top\n[good](b.md) [good](b.md#here-it-is-x_y) [good](#top) [web](https://example.org/x)\n"
        "`[code](gone.md)`\n[dead](gone.md) [dead](b.md#not-a-heading) [dead](#bottom)\n"
    )
    assert [link.target for link in dead_links(page)] == ["gone.md", "b.md#not-a-heading", "#bottom"]


def test_equal_headings_get_numbered_anchors() -> None:
    assert anchors("# A b\n## A b\n## A-b\n") == {"a-b", "a-b-1", "a-b-2"}
