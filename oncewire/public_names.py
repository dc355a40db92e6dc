"""The names of a package that are imported when they are first asked for (PEP 562): a program pays for what it uses."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any


def public_names(package: str, places: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make `__getattr__` and `__dir__` of a package.

    Type checkers and editors read the imports under ``TYPE_CHECKING`` beside it, and `__all__`: the same names.

    Args:
        package: its name.
        places: module -> names of it, with spaces between them.

    Returns:
        The two functions, to be assigned in the package's `__init__`.
    """
    modules = {name: module for module, names in places.items() for name in names.split()}

    def find(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        __import__(modules[name])
        found = getattr(sys.modules[modules[name]], name)
        setattr(sys.modules[package], name, found)  # the next time it is there
        return found

    def listed() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return find, listed
