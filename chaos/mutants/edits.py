"""Load cores with edits applied to an in-memory copy of their source.

The modules of the record core that only define data (inputs, effects, records of the view, ...) are shared with the
shipped core, so that a mutated core speaks the same types; all its others are executed again under their own names and
taken out again. The client cores, the lease clock and what routers remember of etcd are single modules.
"""

from __future__ import annotations

import importlib.util
import sys
import tomllib
import types
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from chaos.mutants.anchors import Anchor, find, replaced
from chaos.mutants.edit_error import EditError
from chaos.simulator.cores import SHIPPED, Cores
from chaos.sources import source_of

_PACKAGE = "delivery_records"
_SHARED = frozenset(
    {
        "assigned",
        "effects",
        "filters",
        "inputs",
        "limits",
        "outcomes",
        "messages",
        "parts",
        "patience",
        "tags",
        "timers",
        "topics",
        "view",
    }
)
"""Data that worlds and cores exchange; an edit there would split the types."""
_ALONE = {
    "oncewire.client.deduplicating_core": ("deduplicating", "DeduplicatingCore"),
    "oncewire.client.publisher_core": ("publisher", "PublisherCore"),
    "oncewire.client.subscriber_core": ("subscriber", "SubscriberCore"),
    "topology.keys.epochs": ("epoch_of", "epoch_of"),
    "topology.members.history_core": ("history", "SeenHistory"),
    "topology.members.lease_clock": ("lease_clock", "LeaseClock"),
}
"""Modules outside the record core that edits may change: the field of `Cores`, and the class or function it holds."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One rule taken out: `old` becomes `new`."""

    name: str
    rule: str
    old: str
    """Found by its tokens, in whatever file and layout they stand (`anchors`)."""
    new: str
    why: str = ""
    """What the rule is for: the counterexample or finding it answers."""
    where: str = ""
    """The function or class that the old text stands in, where others have the same."""
    aim: tuple[str, ...] = ()
    """Faults that show its absence, when random ones rarely do."""
    is_directed: bool = False
    """A written schedule of that name shows it, and no seed does."""


def read_edits(file: Path) -> tuple[Edit, ...]:
    """The edits of a TOML file: a table for each, with its name.

    The table `aims` names lists that edits share; `*name` in an aim stands for all of one.
    """
    tables = tomllib.loads(file.read_text(encoding="utf-8"))
    shared = {f"*{name}": aims for name, aims in tables.pop("aims", {}).items()}
    return tuple(
        Edit(name, **table | {"aim": tuple(each for aim in table.get("aim", ()) for each in shared.get(aim, [aim]))})
        for name, table in tables.items()
    )


def load(edits: tuple[Edit, ...]) -> Cores:
    """The shipped cores with these edits.

    Raises:
        EditError: an old text is not found exactly once.
    """
    sources = _sources()
    touched = set()
    for edit in edits:
        anchor = anchor_of(edit, sources)
        sources[anchor.module] = replaced(sources[anchor.module], anchor, edit.old, edit.new)
        touched.add(anchor.module)
    parts: dict[str, Any] = {}
    for name in touched & _ALONE.keys():
        field, made = _ALONE[name]
        parts[field] = getattr(_execute_alone(name, sources[name]), made)
    if touched - _ALONE.keys():
        names = _names()
        edited = _execute({names[name]: source for name, source in sources.items() if name not in _ALONE})
        parts["records"] = edited["records"].Records
    return replace(SHIPPED, **parts)


def anchor_of(edit: Edit, sources: Mapping[str, str] | None = None) -> Anchor:
    """Where it applies: in the shipped cores, or in these sources of them.

    Raises:
        EditError: an old text is not found exactly once.
    """
    try:
        return find(_sources() if sources is None else sources, edit.old, edit.where)
    except EditError as error:
        raise EditError(f"{edit.name}: {error}") from None


def _sources() -> dict[str, str]:
    return {name: path.read_text(encoding="utf-8") for name, path in _modules().items()}


def run_from_sources() -> dict[str, types.ModuleType]:
    """Copies of the record core's modules, by their last name: what can be patched and traced in each build."""
    return _execute({module: source_of(module).read_text() for module in _names().values()})


def _modules() -> dict[str, Path]:
    """Modules that edits may change: those of the record core by their last name, others by their whole name."""
    return {name: source_of(module) for name, module in {**_names(), **{alone: alone for alone in _ALONE}}.items()}


@cache
def _names() -> dict[str, str]:
    """Whole names of the record core's modules that can be edited, by their last name, which is theirs alone."""
    spec = importlib.util.find_spec(_PACKAGE)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    folder = Path(next(iter(spec.submodule_search_locations)))
    files = [file for file in folder.rglob("*.py") if file.stem not in _SHARED | {"__init__"}]
    names = {file.stem: ".".join([_PACKAGE, *file.relative_to(folder).with_suffix("").parts]) for file in files}
    assert len(names) == len(files)
    return names


@lru_cache(maxsize=128)  # all modules of the core, and a few edited ones: each edit leaves the others as they are
def _compiled(name: str, source: str) -> types.CodeType:
    return compile(source, f"<edited {name}>", "exec", dont_inherit=True)


def _execute_alone(name: str, source: str) -> types.ModuleType:
    module = types.ModuleType(name)
    saved = sys.modules[name]
    sys.modules[name] = module  # dataclasses look their module up
    try:
        exec(_compiled(name, source), module.__dict__)  # noqa: S102 - our own source
    finally:
        sys.modules[name] = saved
    return module


class _Finder:
    """Finds the edited modules while they are imported."""

    def __init__(self, sources: dict[str, str]) -> None:
        self._sources = sources

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        if name not in self._sources:
            return None
        return importlib.util.spec_from_loader(name, _Loader(self._sources[name]))  # type: ignore[arg-type]  # duck


class _Loader:
    def __init__(self, source: str) -> None:
        self._source = source

    def create_module(self, spec: object) -> types.ModuleType | None:
        return None

    def exec_module(self, module: types.ModuleType) -> None:
        exec(_compiled(module.__name__, self._source), module.__dict__)  # noqa: S102 - our own source


def _execute(sources: dict[str, str]) -> dict[str, types.ModuleType]:
    """Import all of these; return them by their last name."""
    saved = {name: sys.modules.pop(name) for name in sources if name in sys.modules}
    places = [(sys.modules[package], module) for package, _, module in (name.rpartition(".") for name in sources)]
    attributes = [(package, module, getattr(package, module)) for package, module in places if hasattr(package, module)]
    for package, module, _ in attributes:
        delattr(package, module)  # `from delivery_records import credit` must import, not find the shipped one
    finder = _Finder(sources)
    sys.meta_path.insert(0, finder)  # type: ignore[arg-type]  # a finder needs find_spec only
    try:
        loaded = {name.rpartition(".")[2]: importlib.import_module(name) for name in sources}
    finally:
        sys.meta_path.remove(finder)  # type: ignore[arg-type]  # as above
        for name in sources:
            sys.modules.pop(name, None)
        sys.modules.update(saved)
        for package, module, value in attributes:
            setattr(package, module, value)
    return loaded
