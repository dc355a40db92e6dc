"""What the compiler is to know of a class. Python itself needs none of it, nor the package that declares it."""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["mypyc_attr"]

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr
else:

    def mypyc_attr(**_attributes):
        """Decorate with what mypyc reads."""
        return lambda cls: cls
