"""Where the Python source of a module is, also where its compiled form is what runs."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

TRANSLATED = ("delivery_records", "oncewire", "router")
"""Packages that hold modules of the compiled build (setup.py)."""


def source_of(module: str) -> Path:
    """The file a module was written in. Its top package is asked: the spec of a compiled module names no source."""
    top, *rest = module.split(".")
    spec = importlib.util.find_spec(top)
    assert spec is not None
    assert spec.submodule_search_locations, f"{top} is no package"
    place = Path(spec.submodule_search_locations[0]).joinpath(*rest)
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


class _SourceFinder(MetaPathFinder):
    """Finds modules of our packages by their source."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if path is None or fullname.partition(".")[0] not in TRANSLATED:
            return None
        file = Path(path[0]) / f"{fullname.rpartition('.')[2]}.py"
        return importlib.util.spec_from_file_location(fullname, file) if file.is_file() else None


def prefer_sources() -> None:
    """Let this process run the sources of modules that are compiled; none of them may be imported yet.

    Raises:
        RuntimeError: one is.
    """
    if "delivery_records" in sys.modules or "oncewire.wire" in sys.modules:
        raise RuntimeError("delivery_records or oncewire.wire is imported already")
    sys.meta_path.insert(0, _SourceFinder())
