"""The modules under simulation, as they are or with one rule taken out."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from chaos.mutants.anchors import find, replaced
from chaos.mutants.edits import Edit, read_edits
from chaos.routed import steps
from chaos.sources import source_of

MODULES = (
    "router.routed.terms",
    "router.routed.choice_core",
    "router.routed.limits",
    "router.routed.relay_core",
    "router.routed.half",
    "router.routed.links",
    "oncewire.store.owners",
    "oncewire.store.sharing_core",
    "oncewire.store.claims",
    "bridges.store.client_journals",
    "bridges.store.links",
    "bridges.store.push_core",
    "bridges.store.push_link",
    "bridges.workqueue.amqp_core",
    "bridges.journal.log",
    "bridges.journal.cursors",
    "bridges.journal.start_core",
    "bridges.journal.reader_core",
    "bridges.journal.reader_link",
    "bridges.journal.address",
    "chaos.routed.model_store",
)
"""In the order in which they import each other."""
EDITS = read_edits(source_of("chaos.routed").with_name("mutants.toml"))
"""The rules, each taken out once: a run of some seed must notice."""
WINDOW_FRAMES = 4
"""Small, so that windows close in a short run."""
MAX_AHEAD = 8
MAX_UNDER_WAY = 6
READ_COUNT = 4
"""Of a journal's reader: small, so that a short run meets them."""


@dataclass(frozen=True, slots=True)
class Code:
    """The modules of a run, by the last part of their names."""

    terms: Any
    limits: Any
    half: Any
    links: Any
    owners: Any
    claims: Any
    client_journals: Any
    push_core: Any
    amqp_core: Any
    log: Any
    cursors: Any
    reader_core: Any
    reader_link: Any
    address: Any
    model_store: Any


def copies(names: Sequence[str], edit: Edit | None) -> dict[str, types.ModuleType]:
    """Copies of modules, in this order, which use each other and no original, with an edit or without.

    Raises:
        EditError: the edit does not fit.
    """
    sources = {name: source_of(name).read_text(encoding="utf-8") for name in names}
    if edit is not None:
        anchor = find(sources, edit.old, edit.where)
        sources[anchor.module] = replaced(sources[anchor.module], anchor, edit.old, edit.new)
    made: dict[str, types.ModuleType] = {}
    with ExitStack() as stack:
        for name in names:
            module = made[name] = types.ModuleType(name)
            package, _, last = name.rpartition(".")
            # Both places an import looks in: `import package.last`, and `from package import last`.
            stack.enter_context(patch.dict(sys.modules, {name: module}))
            stack.enter_context(patch.object(importlib.import_module(package), last, module, create=True))
            code_object = compile(sources[name], str(source_of(name)), "exec")
            exec(code_object, module.__dict__)  # noqa: S102  (our own source, and that is the point)
    return made


def load(edit: Edit | None = None) -> Code:
    """A copy of the modules of its own, with an edit or without.

    Raises:
        EditError: the edit does not fit.
    """
    made = copies(MODULES, edit)
    short = {name.rpartition(".")[2]: made[name] for name in reversed(made)}  # `links` are the router's
    code = Code(**{field: short[field] for field in Code.__slots__})
    code.half.FIRST_FRAMES = code.half.MOST_FRAMES = WINDOW_FRAMES
    code.cursors.MAX_AHEAD = code.reader_core.MAX_AHEAD = MAX_AHEAD
    code.reader_core.MAX_UNDER_WAY, code.reader_core.READ_COUNT = MAX_UNDER_WAY, READ_COUNT
    code.reader_link.asyncio, code.reader_link.until_set = steps, steps.until_set
    return code
