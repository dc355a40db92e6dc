"""One step of a processor: the function is called with a delivery, and what comes of it is an attempt. Without Spark.

What an attempt can be (Cues' names in brackets): messages for the output topic (attempt-output), a message for the
error topic (attempt-error), or nothing (attempt-nil). Each has the delivery hash, which stands for processor and
positions and is the same on every repeat.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from oncewire.client.delivery_hash import delivery_hash
from oncewire.wire import DecodeError, Message, Properties, decode_message, encode_data_message, encode_message
from oncewire.wire.vocabulary import DELIVERY_HASH

logger = logging.getLogger("oncewire.processor")

ERROR_CONTENT_TYPE = "application/json"
MAX_ERROR_TEXT = 4_096
"""Characters of an exception's text in an error message: it may quote its whole input."""


class StopAttempt(Exception):
    """Raise it in a processor's function to stop the query whatever is handled; the messages come again."""


UNHANDLED: tuple[type[Exception], ...] = (StopAttempt, MemoryError)
"""Never handled: they are not caused by the message."""


class AttemptKind(StrEnum):
    """What became of a delivery."""

    OUTPUT = "output"
    ERROR = "error"
    NIL = "nil"


@dataclass(frozen=True, slots=True)
class Input:
    """A message and its position.

    Attributes:
        topic: the input.
        journal, position: where.
        arrived: microseconds since 1970.
        payload: the encoded message.
    """

    topic: str
    journal: str
    position: int
    arrived: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Delivery:
    """What a processor's function gets.

    Attributes:
        delivery_hash: the same on each repeat, different for each delivery: the key of side effects.
        messages: input -> message. A zip has all its inputs, otherwise there is one.
        inputs: where they stand, in the order of the processor's inputs.
        batch: number of the attempt: the query's batch.
        attempt: how often Spark has tried this task before, since the query was started.
    """

    delivery_hash: str
    messages: Mapping[str, Message]
    inputs: tuple[Input, ...]
    batch: int
    attempt: int

    def __getitem__(self, topic: str) -> Message:
        return self.messages[topic]

    @property
    def message(self) -> Message:
        """The message of a delivery that has one.

        Raises:
            ValueError: it has several.
        """
        (found,) = self.messages.values()
        return found


Output = bytes | Message
Outputs = Output | Iterable[Output] | None
Function = Callable[[Delivery], Outputs | Mapping[str, Outputs]]


@dataclass(frozen=True, slots=True)
class Step:
    """A processor, as far as a single call is concerned.

    Attributes:
        name: of the processor.
        function: called with each delivery; returns a message, or bytes for one, or several of them, or None; or such
            values by topic.
        output: topics of what it returns, or the only one; None = it must return nothing.
        error: topic of handled errors; None = they are logged and counted.
        handled: exceptions of the function that the message is to blame for. All others stop the query.
    """

    name: str
    function: Function
    output: str | tuple[str, ...] | None
    error: str | None = None
    handled: tuple[type[Exception], ...] = (Exception,)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Topics of what the function returns."""
        if self.output is None:
            return ()
        return (self.output,) if isinstance(self.output, str) else self.output


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One row of an attempt.

    Attributes:
        kind: of the attempt.
        delivery_hash: of the delivery.
        failed: the function raised an exception that is handled.
        topic, payload: the message to publish; None if there is nothing to publish.
    """

    kind: AttemptKind
    delivery_hash: str
    failed: bool
    topic: str | None
    payload: bytes | None


def positions_of(inputs: Iterable[Input]) -> dict[str, str]:
    """What the delivery hash is made of: topic -> JOURNAL:POSITION.

    The journal is part of it: positions of a new one begin at 1 again, and a hash that was used before would keep the
    effects of another message away.
    """
    return {given.topic: f"{given.journal}:{given.position}" for given in inputs}


def attempt(step: Step, inputs: Sequence[Input], batch: int = 0, number: int = 0) -> list[AttemptRow]:
    """Call the function once, and return the result.

    Args:
        step: the processor.
        inputs: what it is called with.
        batch, number: see `Delivery`.

    Returns:
        One row for each output, or one row for an error or for nothing.

    Raises:
        TypeError: the function returned something that is no message, or for no topic of its own. Nothing was written.
        Exception: whatever the function raised that is not handled.
    """
    key = delivery_hash(step.name, positions_of(inputs))
    try:
        messages = {given.topic: decode_message(given.payload) for given in inputs}
    except DecodeError as error:  # no code could ever process it
        return [_failed(step, key, inputs, error)]
    delivery = Delivery(key, messages, tuple(inputs), batch, number)
    try:
        found = step.function(delivery)
        outputs = [
            (topic, output)
            for topic, given in (found.items() if isinstance(found, Mapping) else [(None, found)])
            for output in _several(given)
        ]
    except Exception as error:
        if isinstance(error, step.handled) and not isinstance(error, UNHANDLED):
            return [_failed(step, key, inputs, error)]
        error.add_note(f"processor {step.name}: delivery {key} of {_places(inputs)}")  # stands in Spark's error, too
        raise
    rows = [_output(step, key, topic, output) for topic, output in outputs if output is not None]
    return rows or [AttemptRow(AttemptKind.NIL, key, False, None, None)]


def _several(given: Outputs) -> list[Output | None]:
    return [given] if given is None or isinstance(given, (bytes, Message)) else list(given)


def _output(step: Step, key: str, topic: str | None, output: object) -> AttemptRow:
    if not isinstance(output, (bytes, Message)):
        raise TypeError(
            f"processor {step.name} returned {type(output).__name__}: return bytes, a Message, several of these or None"
        )
    if not step.outputs:
        raise TypeError(f"processor {step.name} returned a message, but it has no output: name its topic, return None")
    if topic is None and len(step.outputs) == 1:
        topic = step.outputs[0]
    if topic not in step.outputs:
        where = "without a topic" if topic is None else f"for {topic!r}"
        raise TypeError(
            f"processor {step.name} returned a message {where}: return a dict by topic, of {', '.join(step.outputs)}"
        )
    if isinstance(output, bytes):
        payload = encode_data_message(output, annotations={DELIVERY_HASH: key})
    else:
        payload = encode_message(replace(output, annotations={**output.annotations, DELIVERY_HASH: key}))
    return AttemptRow(AttemptKind.OUTPUT, key, False, topic, payload)


def _failed(step: Step, key: str, inputs: Sequence[Input], error: Exception) -> AttemptRow:
    """What a handled exception becomes. Its message counts as delivered."""
    where = "delivered as nothing" if step.error is None else f"written to {step.error}"
    logger.error(
        "processor %s: delivery %s of %s failed and is %s: %s: %s",
        step.name,
        key,
        _places(inputs),
        where,
        type(error).__name__,
        str(error)[:MAX_ERROR_TEXT],
    )
    if step.error is None:
        return AttemptRow(AttemptKind.NIL, key, True, None, None)
    payload = encode_data_message(
        error_body(step.name, key, inputs, error),
        properties=Properties(content_type=ERROR_CONTENT_TYPE),
        annotations={DELIVERY_HASH: key},
    )
    return AttemptRow(AttemptKind.ERROR, key, True, step.error, payload)


def _places(inputs: Iterable[Input]) -> str:
    return ", ".join(f"{topic} {place}" for topic, place in positions_of(inputs).items())


def error_body(name: str, key: str, inputs: Sequence[Input], error: Exception) -> bytes:
    """The body of an error message: JSON with everything that is needed to try again by hand.

    `inputs` are the encoded messages in base64.
    """
    return json.dumps(
        {
            "processor": name,
            "delivery_hash": key,
            "error": type(error).__name__,
            "text": str(error)[:MAX_ERROR_TEXT],
            "positions": positions_of(inputs),
            "inputs": {given.topic: base64.b64encode(given.payload).decode() for given in inputs},
        }
    ).encode()
