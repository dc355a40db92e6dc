"""What `transact` is at a store that changes one document at a time: a job of exactly one operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from bridges.workqueue.store import Operations
from oncewire.store.errors import NeedsTransactions

_NAMES = frozenset(name for name in vars(Operations) if not name.startswith("_"))


def refused(what: str) -> NeedsTransactions:
    """The error for what only a store with transactions can do."""
    return NeedsTransactions(
        f"{what} was not done",
        "a MongoDB store changes one document at a time, and this would change several things at once",
        "do one operation after the other, or use a SQLite or PostgreSQL store",
    )


def _refuse(*_: object) -> NoReturn:
    raise refused("the transaction")


class Planned:
    """The result of an operation that has not happened yet. A job can return it and do nothing else with it.

    Attributes:
        name: of the operation.
        arguments: its arguments by position.
        options: its arguments by name.
    """

    def __init__(self, name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        self.name = name
        self.arguments = arguments
        self.options = options

    __iter__ = __len__ = __bool__ = __getitem__ = __lt__ = __gt__ = __add__ = __sub__ = _refuse


class OneOperation:
    """What a job gets: it notes the operation, so that a second one is refused before anything has happened (W-1).

    Args:
        now: time by the store's clock.
    """

    def __init__(self, now: float) -> None:
        self.now = now
        self._planned: Planned | None = None

    def __getattr__(self, name: str) -> Callable[..., Planned]:
        if name not in _NAMES:
            raise AttributeError(name)

        def plan(*arguments: Any, **options: Any) -> Planned:
            if self._planned is not None:
                _refuse()
            self._planned = Planned(name, arguments, options)
            return self._planned

        return plan

    def execute(self, *_: object) -> NoReturn:
        """There are no tables of the application here."""
        _refuse()

    write = write_many = execute

    def of(self, job: Callable[[Any], Any]) -> tuple[Any, Planned | None]:
        """Run a job: what it returned, and the operation to be done. A job returns the operation's result, or nothing.

        Raises:
            NeedsTransactions: the job is more than one operation.
        """
        returned = job(self)
        if self._planned is not None and returned is not None and returned is not self._planned:
            _refuse()
        return returned, self._planned
