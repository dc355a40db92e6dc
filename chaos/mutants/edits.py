"""Load the record core with an edit applied to an in-memory copy of its source.

The modules that only define data (inputs, effects, records of the view, ...) are shared with the shipped core, so
that a mutated core speaks the same types; all others are executed again under their own names and taken out again.
"""

from __future__ import annotations

import importlib.util
import sys
import types
from dataclasses import dataclass
from pathlib import Path

from delivery_records.records import Records

_PACKAGE = "delivery_records"
_SHARED = frozenset(
    {"", "effects", "inputs", "limits", "outcomes", "peer_messages", "tags", "timers", "topics", "view"}
)
"""Data that worlds and cores exchange; an edit there would split the types."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One rule taken out: in `module`, `old` becomes `new`; several pairs belong to one rule."""

    name: str
    rule: str
    module: str
    old: str
    new: str
    why: str
    """What the rule is for: the counterexample or finding it answers."""
    aim: tuple[str, ...] = ()
    """Faults that show its absence, when random ones rarely do."""


class EditError(Exception):
    """The edit's old text is not in the source: the rule moved, so the edit must follow it."""


def load(edits: tuple[Edit, ...]) -> type[Records]:
    """The Records class of a core with these edits.

    Raises:
        EditError: an old text is not found exactly once.
    """
    sources = {name: path.read_text() for name, path in _modules().items()}
    for edit in edits:
        if edit.module not in sources:
            raise EditError(f"{edit.name}: {edit.module} is not a module that can be edited")
        if sources[edit.module].count(edit.old) != 1:
            count = sources[edit.module].count(edit.old)
            raise EditError(f"{edit.name}: the old text stands {count} times in {edit.module}.py, not once")
        sources[edit.module] = sources[edit.module].replace(edit.old, edit.new)
    return _execute(sources)


def _modules() -> dict[str, Path]:
    spec = importlib.util.find_spec(_PACKAGE)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    folder = Path(next(iter(spec.submodule_search_locations)))
    return {path.stem: path for path in folder.glob("*.py") if path.stem not in _SHARED | {"__init__"}}


class _Finder:
    """Finds the edited modules while they are imported."""

    def __init__(self, sources: dict[str, str]) -> None:
        self._sources = sources

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        package, _, module = name.rpartition(".")
        if package != _PACKAGE or module not in self._sources:
            return None
        return importlib.util.spec_from_loader(name, _Loader(self._sources[module]))  # type: ignore[arg-type]  # duck


class _Loader:
    def __init__(self, source: str) -> None:
        self._source = source

    def create_module(self, spec: object) -> types.ModuleType | None:
        return None

    def exec_module(self, module: types.ModuleType) -> None:
        exec(compile(self._source, f"<edited {module.__name__}>", "exec"), module.__dict__)  # noqa: S102 - our own source


def _execute(sources: dict[str, str]) -> type[Records]:
    names = [f"{_PACKAGE}.{module}" for module in sources]
    saved = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    package = sys.modules[_PACKAGE]
    attributes = {module: getattr(package, module) for module in sources if hasattr(package, module)}
    for module in attributes:
        delattr(package, module)  # `from delivery_records import credit` must import, not find the shipped one
    finder = _Finder(sources)
    sys.meta_path.insert(0, finder)  # type: ignore[arg-type]  # a finder needs find_spec only
    try:
        loaded = importlib.import_module(f"{_PACKAGE}.records").Records
    finally:
        sys.meta_path.remove(finder)  # type: ignore[arg-type]  # as above
        for name in names:
            sys.modules.pop(name, None)
        sys.modules.update(saved)
        for name, value in attributes.items():
            setattr(package, name, value)
    assert isinstance(loaded, type)
    return loaded
