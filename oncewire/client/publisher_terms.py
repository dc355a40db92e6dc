"""What `Client.publisher` takes beside the topic, and which kind of publisher a codec makes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypedDict

from oncewire.client.journals import JournalSource
from oncewire.client.opening import resolved
from oncewire.client.publisher import Publisher

if TYPE_CHECKING:
    from oncewire.client.codec import CodecSource


class PublisherTerms(TypedDict, total=False):
    """Arguments of `Client.publisher`, for type checkers."""

    name: str | None
    journal: JournalSource | None
    window: int
    window_bytes: int
    resend_in_doubt: bool
    exactly_once: bool
    require: int | None
    require_processed: int | None
    timeout: int | None


def publisher_of(codec: CodecSource | None) -> Callable[..., Publisher]:
    """What makes the publisher: with a codec one that takes what that encodes.

    Raises:
        UsageError: it is no codec.
    """
    found = resolved(codec)
    if found is None:
        return Publisher
    from oncewire.client.codec_publisher import CodecPublisher

    return partial(CodecPublisher, found)
