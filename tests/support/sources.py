"""Source files as tests of the structure read them."""

from __future__ import annotations

import ast
from collections.abc import Iterator


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yields statements and those inside them. Expressions, nine nodes of ten, hold none."""
    for node in body:
        yield node
        for name in ("body", "orelse", "finalbody"):
            yield from statements(getattr(node, name, []))
        for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            yield from statements(part.body)
