"""What consumers have set aside in their database: seen, dropped and retried by an operator (CO-12).

A message that is to be retried is only marked here. Its consumer, which owns the input, moves it to the end: when it is
opened, or, as it runs, within `LOOK_S`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oncewire.client.errors import UsageError
from oncewire.store.store import Transaction
from oncewire.wire import Message, WireError, decode_message, vocabulary
from oncewire.wire.annotations import replace_annotations

LOOK_S = 2.0
"""Between two looks of a running consumer at what is marked; an operator waits for it."""
FAILED = "failed "
"""With what the reason begins where the function has failed; of what else is refused a retry would be a duplicate."""
_OF_SEQUENCE = tuple(
    str(key).encode() for key in (vocabulary.PRODUCER, vocabulary.SEQUENCE, vocabulary.FLOOR, vocabulary.TRANSACTION)
)


@dataclass(frozen=True, slots=True)
class SetAside:
    """A message that a consumer has set aside.

    Attributes:
        consumer: its name.
        position: of the message in the consumer's input.
        topic: the topic or pattern that it came in on.
        user: who published it.
        why: the attempts and the last error, or why it is out of sequence.
        is_to_retry: whether it is marked, and waits for the consumer.
        payload: the encoded message.
    """

    consumer: str
    position: int
    topic: str
    user: str
    why: str
    is_to_retry: bool
    payload: bytes

    @property
    def body(self) -> object:
        """Of the message; None where that cannot be read."""
        try:
            message: Message = decode_message(self.payload)
        except WireError:
            return None
        return message.body


def set_aside(do: Transaction, consumer: str | None = None, limit: int = 1000) -> list[SetAside]:
    """What is there, in the order of positions; None = of all consumers."""
    rows = do.execute(
        "SELECT store, position, source, owner, why, retry, payload FROM oncewire_store_refused"
        " WHERE (? = '' OR store = ?) ORDER BY store, position LIMIT ?",
        (consumer or "", consumer or "", limit),
    )
    return [
        SetAside(store, position, source, user, why, bool(retry), bytes(payload))
        for store, position, source, user, why, retry, payload in rows
    ]


def retry(do: Transaction, consumer: str, positions: Sequence[int] | None) -> int:
    """Let the consumer process messages once more; None = all at which its function has failed. Returns how many.

    Raises:
        UsageError: there is none at a position, or it was not the function that failed.
    """
    chosen = _chosen(do, consumer, positions)
    wrong = [each for each in chosen if not each.why.startswith(FAILED)]
    if positions is None:
        chosen = [each for each in chosen if each not in wrong]
    elif wrong:
        raise UsageError(
            f"message {wrong[0].position} of the consumer {consumer!r} cannot be retried",
            f"the function has not failed at it: {wrong[0].why}",
            "drop it, or let its publisher send it anew",
        )
    return _each(do, "UPDATE oncewire_store_refused SET retry = 1 WHERE store = ? AND position = ?", chosen)


def drop(do: Transaction, consumer: str, positions: Sequence[int] | None) -> int:
    """Delete messages for good; None = all of the consumer. Returns how many.

    Raises:
        UsageError: there is none at a position.
    """
    chosen = _chosen(do, consumer, positions)
    return _each(do, "DELETE FROM oncewire_store_refused WHERE store = ? AND position = ?", chosen)


def _chosen(do: Transaction, consumer: str, positions: Sequence[int] | None) -> list[SetAside]:
    known = {each.position: each for each in set_aside(do, consumer, limit=1_000_000)}
    if positions is None:
        return list(known.values())
    missing = [position for position in positions if position not in known]
    if missing:
        raise UsageError(
            f"the consumer {consumer!r} has set no message {missing[0]} aside",
            f"its database has {len(known)} of this consumer",
            "`oncewire consumer dead` shows which",
        )
    return [known[position] for position in positions]


def _each(do: Transaction, statement: str, chosen: Sequence[SetAside]) -> int:
    """A message that is marked is not looked at again, whoever did it."""
    for each in chosen:
        do.write(statement, (each.consumer, each.position))
    return len(chosen)


def without_sequence(payload: bytes) -> bytes:
    """The message as one that nobody has numbered: its number has passed, and would be refused as a copy."""
    return replace_annotations(payload, _OF_SEQUENCE, b"", 0)
