"""The modules under simulation, as they are or with one rule taken out."""

from __future__ import annotations

import importlib
import sys
import types
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from chaos.sources import source_of

MODULES = (
    "router.routed.terms",
    "router.routed.choice_core",
    "router.routed.limits",
    "router.routed.relay_core",
    "router.routed.half",
    "router.routed.links",
    "bridges.workqueue.amqp_core",
    "chaos.routed.model_store",
)
"""In the order in which they import each other."""
WINDOW_FRAMES = 4
"""Small, so that windows close in a short run."""


class EditError(Exception):
    """The old text of an edit is not in its module exactly once: the rule has moved, and the edit must follow."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One rule taken out: in `module`, `old` becomes `new`."""

    name: str
    rule: str
    module: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Code:
    """The modules of a run, by the last part of their names."""

    terms: Any
    limits: Any
    half: Any
    links: Any
    amqp_core: Any
    model_store: Any


def load(edit: Edit | None = None) -> Code:
    """A copy of the modules of its own, with an edit or without.

    Raises:
        EditError: the edit does not fit.
    """
    sources = {name: _source(name, edit) for name in MODULES}
    made: dict[str, types.ModuleType] = {}
    with ExitStack() as stack:
        for name in MODULES:
            module = made[name] = types.ModuleType(name)
            package, _, last = name.rpartition(".")
            # Both places an import looks in: `import package.last`, and `from package import last`.
            stack.enter_context(patch.dict(sys.modules, {name: module}))
            stack.enter_context(patch.object(importlib.import_module(package), last, module, create=True))
            source, path = sources[name]
            exec(compile(source, path, "exec"), module.__dict__)  # noqa: S102  (our own source, and that is the point)
    short = {name.rpartition(".")[2]: module for name, module in made.items()}
    code = Code(**{field: short[field] for field in Code.__slots__})
    code.half.FIRST_FRAMES = code.half.MOST_FRAMES = WINDOW_FRAMES
    return code


def _source(name: str, edit: Edit | None) -> tuple[str, str]:
    path = source_of(name)
    source = path.read_text(encoding="utf-8")
    if edit is None or edit.module != name:
        return source, str(path)
    if source.count(edit.old) != 1:
        raise EditError(f"{edit.name}: {source.count(edit.old)} places in {name} have the old text")
    return source.replace(edit.old, edit.new), str(path)
