"""Our errors as Spark shows them: the first line says what happened and what to do, without Python's stack before it.

Spark runs readers and writers in workers of its own, and hands an error on as text: the traceback first, the error
last. An error of ours explains itself, so the traceback is left out for it, and for nothing else.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from bridges.node.errors import NodeError

HIDE = "SPARK_HIDE_TRACEBACK"
"""PySpark looks at this variable when it has caught an error, which ends its worker."""
T = TypeVar("T", bound=type)


def errors_first(kind: T) -> T:
    """Class decorator for what Spark calls: errors of ours lose their traceback there."""
    for name, member in list(vars(kind).items()):
        if inspect.isfunction(member) and (name == "__init__" or not name.startswith("_")):
            setattr(kind, name, _plain(member))
    return kind


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def rows(*given: Any, **named: Any) -> Iterator[Any]:
            try:
                yield from function(*given, **named)
            except NodeError:
                _hide_traceback()
                raise

        return rows

    @functools.wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        try:
            return function(*given, **named)
        except NodeError:
            _hide_traceback()
            raise

    return call


def _hide_traceback() -> None:
    """In a worker of Spark only: other programs show what they like."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is not None and spec.name.partition(".")[0] == "pyspark":
        os.environ[HIDE] = "1"
