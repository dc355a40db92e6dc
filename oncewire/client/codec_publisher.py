"""A publisher that encodes what it is given by a codec."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from oncewire.client.codec import Codec, encoded
from oncewire.client.outcomes import Outcome
from oncewire.client.publisher import Publisher
from oncewire.client.sending import Sending
from oncewire.wire import Message, Properties

if TYPE_CHECKING:
    import sqlite3


class CodecPublisher(Publisher):
    """A publisher that was opened with ``codec=``: it sends what the codec encodes; a ``Message`` is sent as it is.

    Each message states the codec's content-type, unless `properties` state another.
    """

    def __init__(self, codec: Codec, *arguments: Any, **terms: Any) -> None:
        super().__init__(*arguments, **terms)
        self._codec = codec

    if TYPE_CHECKING:  # as of a publisher, with other bodies

        async def send(
            self,
            body: object,
            *,
            timeout: float | None = None,
            properties: Properties | None = None,
            application_properties: dict[str, object] | None = None,
        ) -> Outcome:
            """See `Publisher`."""
            ...

        async def submit(
            self,
            body: object,
            *,
            properties: Properties | None = None,
            application_properties: dict[str, object] | None = None,
        ) -> Sending:
            """See `Publisher`."""
            ...

        async def submit_many(
            self, bodies: Sequence[object], *, effect: Callable[[sqlite3.Connection], object] | None = None
        ) -> list[Sending]:
            """See `Publisher`."""
            ...

    def _encode(
        self,
        body: object,
        properties: Properties | None = None,
        application_properties: dict[str, object] | None = None,
    ) -> bytes:
        if isinstance(body, Message):
            return super()._encode(body, properties, application_properties)
        data, properties = encoded(self._codec, body, properties)
        return super()._encode(data, properties, application_properties)
