"""Operations on etcd that wait at the same time go together in one call (A-2e)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

UNDER_WAY = 2
"""Calls of a lane at once. One more than one, so that what comes alone behind one other waits for nothing; with more,
fewer go together, and each costs etcd and this router as much as several operations in one."""

_Operation = TypeVar("_Operation")
_Call = TypeVar("_Call")


class Lane(Generic[_Operation, _Call]):
    """Operations of one sort, in order. What has gathered while `UNDER_WAY` calls are under way goes in the next one.

    Nothing waits for others to come: an operation that finds room starts at the end of the loop's turn, with those of
    the same turn.
    """

    def __init__(
        self,
        tasks: asyncio.TaskGroup,
        take: Callable[[deque[_Operation]], _Call],
        carry_out: Callable[[_Call], Coroutine[Any, Any, None]],
    ) -> None:
        """Nothing waits.

        Args:
            tasks: end all that is under way when they end.
            take: what goes in the next call; takes at least one operation out of those that wait, from the left.
            carry_out: makes the call, and says what became of its operations.
        """
        self._tasks = tasks
        self._take = take
        self._carry_out = carry_out
        self._waiting: deque[_Operation] = deque()
        self._under_way = 0
        self._is_scheduled = False

    def add(self, operation: _Operation) -> None:
        """Have it carried out as soon as there is room."""
        self._waiting.append(operation)
        self._schedule()

    def _schedule(self) -> None:
        if self._waiting and self._under_way < UNDER_WAY and not self._is_scheduled:
            self._is_scheduled = True
            self._under_way += 1
            self._tasks.create_task(self._run(), name="a call to etcd")

    async def _run(self) -> None:
        self._is_scheduled = False
        call = self._take(self._waiting)
        self._schedule()
        await self._carry_out(call)
        self._under_way -= 1
        self._schedule()
