"""What opens a link: to be awaited, or entered without `await`."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar


class _Block(Protocol):
    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


L = TypeVar("L", bound=_Block)


class Opening(Coroutine[Any, Any, L], Generic[L]):
    """A link that opens when this is awaited: ``link = await opening``, or ``async with opening as link:``.

    It is a coroutine, too, for `asyncio.create_task` and the like. Leaving the block is leaving the link's.
    """

    def __init__(self, opening: Coroutine[Any, Any, L]) -> None:
        self._opening = opening
        self._link: L | None = None

    def __await__(self) -> Generator[Any, Any, L]:
        return self._opening.__await__()

    async def __aenter__(self) -> L:
        self._link = await self._opening
        return await self._link.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._link is not None, "the block was entered"
        await self._link.__aexit__(kind, error, trace)

    def send(self, value: Any) -> Any:
        """As of a coroutine."""
        return self._opening.send(value)

    def throw(self, *error: Any) -> Any:
        """As of a coroutine."""
        return self._opening.throw(*error)

    def close(self) -> None:
        """As of a coroutine."""
        self._opening.close()
