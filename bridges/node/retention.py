"""How long a subscription is kept that no query reads (J-14, J-15): what its journal stores about that."""

from __future__ import annotations

from dataclasses import dataclass

from oncewire.store.store import Transaction

EXPIRE_UNREAD_S = 3 * 86_400
"""Of subscriptions that a query made by itself: longer than a weekend, after which somebody starts the query again."""
NOTE_S = 60.0
"""How often the time without a reader is stored: a node that is killed forgets this much of it."""

RELEASED = "an operator has released it (`oncewire bridge release`)"
"""Why a subscription has ended."""


@dataclass(frozen=True, slots=True)
class Retention:
    """What a journal stores about its readers.

    Attributes:
        unread_s: seconds without a request for the subscription, as long as a node ran that could have answered.
        ended: why the node does not receive the subscription any more; empty = it receives it.
    """

    unread_s: float = 0.0
    ended: str = ""


def read_retention(do: Transaction) -> Retention:
    """What is stored at this moment."""
    ((unread_s, ended),) = do.execute("SELECT unread_s, ended FROM node_subscription")
    return Retention(unread_s, ended)


def note_unread(do: Transaction, unread_s: float) -> None:
    """Nobody has asked for the subscription for so long."""
    do.execute("UPDATE node_subscription SET unread_s = ?", (unread_s,))


def note_ended(do: Transaction, why: str) -> None:
    """The node does not receive the subscription any more; an empty text: it receives it again."""
    do.execute("UPDATE node_subscription SET unread_s = 0, ended = ?", (why,))


class Attention:
    """When a subscription was last asked for. The node's clock ticks for it; it is no wall clock.

    Args:
        unread_s: as its journal has it.

    Attributes:
        unread_s: seconds since the last request.
    """

    def __init__(self, unread_s: float) -> None:
        self.unread_s = unread_s
        self._noted_s = unread_s
        self._is_unasked = True

    def asked(self) -> None:
        """A client has asked for the subscription."""
        self.unread_s = 0.0
        self._is_unasked = False

    def lost(self) -> None:
        """The network cannot be reached: what is asked for from now on is asked for in spite of that."""
        self._is_unasked = True

    @property
    def is_unasked(self) -> bool:
        """Nobody has asked for it since the network was lost, or since the node started."""
        return self._is_unasked

    def passed(self, seconds: float) -> bool:
        """So much time has passed; True = store `unread_s`, and call `noted()`."""
        self.unread_s += seconds
        return abs(self.unread_s - self._noted_s) >= NOTE_S

    def noted(self) -> None:
        """`unread_s` is stored."""
        self._noted_s = self.unread_s
