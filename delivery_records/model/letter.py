"""A dead letter: the failures of one delivery, and who owes the copy that goes to the dead-letter topic (rule I-3e)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias


class Letter:
    """The failures of one delivery, and who owes its letter."""

    __slots__ = ("attempts", "count", "error", "is_done", "is_out", "owed", "reason", "subscription", "topic")

    def __init__(self, topic: str, subscription: str, reason: str, attempts: int, error: str) -> None:
        """A subscription was the first to fail it."""
        self.topic = topic
        """Of the original, as clients know it."""
        self.subscription = subscription
        self.reason = reason
        self.attempts = attempts
        self.error = error
        self.count = 1
        """Subscriptions that failed it."""
        self.owed: dict[str, None] = {}
        """Keys of the dead-letter subscriptions that it is owed to."""
        self.is_out = False
        """It was its turn: who is there, or comes, is sent it."""
        self.is_done = False
        """One of them is done with it."""

    @property
    def is_over(self) -> bool:
        """The entry need not wait for it any more."""
        return self.is_done and not self.owed


MakeLetter: TypeAlias = Callable[[bytes, Letter], bytes]
"""(message as it was forwarded, letter) -> the message with the annotations of the letter."""


def plain_letter(message: bytes, letter: Letter) -> bytes:
    """A `MakeLetter` that adds nothing, for runs without a wire format."""
    return message
