"""The protocol pages, read as one text: the index, and a page for each letter."""

from __future__ import annotations

from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
INDEX = DOCS / "protocol.md"
PAGES = (INDEX, *sorted((DOCS / "protocol").glob("*.md")))


def protocol_text() -> str:
    """All of them, one behind the other."""
    return "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
