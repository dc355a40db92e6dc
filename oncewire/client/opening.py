"""What opens a link: to be awaited, or entered without `await`; and what its client needs beside it."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

if TYPE_CHECKING:
    from oncewire.client.codec import Codec, CodecSource


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


def resolved(codec: CodecSource | None) -> Codec | None:
    """The codec that was asked for. Raises UsageError: it is none."""
    if codec is None:
        return None
    from oncewire.client.codec import codec_of

    return codec_of(codec)


def first_of(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first exception of a group that is no group."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
