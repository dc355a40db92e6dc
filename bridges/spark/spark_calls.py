"""What Spark calls in workers of its own: how errors of ours look there, and what a call leaves behind.

Spark hands an error on as text: the traceback first, the error last. An error of ours explains itself, so the
traceback is left out for it, and for nothing else: the first line says what happened and what to do.

A worker is used again, and looks for garbage after each call, among all objects. With pandas and pyarrow imported that
takes 15 to 70 ms of CPU, in each of the four workers of a query from a source to a sink: more than a small batch takes
otherwise. So what is there when a call of ours has imported something is left out of it from then on.
"""

from __future__ import annotations

import functools
import gc
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from bridges.node.errors import NodeError

HIDE = "SPARK_HIDE_TRACEBACK"
"""PySpark looks at this variable when it has caught an error, which ends its worker."""
T = TypeVar("T", bound=type)
_modules = 0
"""How many there were when the last ones were left out of garbage collections."""


def called_by_spark(kind: T) -> T:
    """Class decorator for what Spark calls; see the module. Other programs that call it see no difference."""
    for name, member in list(vars(kind).items()):
        if inspect.isfunction(member) and (name == "__init__" or not name.startswith("_")):
            setattr(kind, name, _called(member))
    return kind


def _called(function: Callable[..., Any]) -> Callable[..., Any]:
    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def rows(*given: Any, **named: Any) -> Iterator[Any]:
            try:
                yield from function(*given, **named)
            except NodeError:
                _hide_traceback()
                raise
            _keep_modules()

        return rows

    @functools.wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        try:
            result = function(*given, **named)
        except NodeError:
            _hide_traceback()
            raise
        _keep_modules()
        return result

    return call


def _is_worker() -> bool:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.partition(".")[0] == "pyspark"


def _hide_traceback() -> None:
    if _is_worker():
        os.environ[HIDE] = "1"


def end_quietly() -> None:
    """End a worker of a source whose query was stopped. Nobody hears Spark's error, and its traceback tells nothing."""
    if _is_worker() and isinstance(sys.exc_info()[1], EOFError):  # the driver has closed the connection
        sys.stderr.flush()
        os._exit(0)


def _keep_modules() -> None:
    """Modules stay until the worker ends; what is garbage by now is collected before, and not kept with them."""
    global _modules  # noqa: PLW0603  # of the process, as the garbage is
    if len(sys.modules) != _modules and _is_worker():
        gc.collect()
        gc.freeze()
        _modules = len(sys.modules)
