"""One thing that happens in a world: a verb and one or two numbers."""

from __future__ import annotations

from typing import TypeAlias

Choice: TypeAlias = tuple[str, int] | tuple[str, int, int]
"""A step without a fault has a verb such as `p.send`; a fault's begins with `!`; `wait` lets milliseconds pass."""
