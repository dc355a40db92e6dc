"""Target `filters`: what subscribers ask for, texts of keys that somebody else wrote, and messages to try them on."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from chaos.fuzz.mutations import STRANGE, TEXTS, mutate_octets, mutate_text
from chaos.fuzz.target import Finding, InputTarget
from oncewire.filters.errors import FilterError
from oncewire.filters.filter_set import SYMBOLS, canonical_text, compile_text
from oncewire.filters.sections import MessageSections, TooCostly
from oncewire.filters.selector import read_selector
from oncewire.filters.syntax import write
from oncewire.wire import Described, Header, Message, Properties, Symbol, encode_message

EACH = 4
SELECTORS = (
    "color = 'red' AND size > 3",
    "NOT (a BETWEEN 1 AND 2.5e3 OR b NOT IN ('x', 'it''s')) AND c IS NOT NULL",
    "JMSPriority >= 4 AND JMSCorrelationID LIKE 'a!_%' ESCAPE '!'",
    "-a * (b + 0x1F) / 2 <> .5 OR flag = TRUE",
)
WORDS = (
    *"()'=<>+-*/,%_",
    " AND ",
    " OR ",
    "NOT ",
    " IN (",
    " LIKE '",
    " ESCAPE '",
    " IS NULL",
    " BETWEEN ",
    "\u2603",
    "--",
)
"""What the grammar is made of: in the wrong place it is likelier to get far than other text."""
FIELDS: Mapping[str, object] = {"subject": "&p:a", "color": "&s:d", "size": 3, "message-id": "m", "priority": None}
VALUES: Mapping[str, object] = {
    "selector": SELECTORS[0],
    "no-local": [],
    "subject": "a.b",
    "subject-pattern": "a.*.#",
    "properties": FIELDS,
    "application-properties": FIELDS,
}
MESSAGE = encode_message(
    Message(
        b"body",
        header=Header(durable=True, priority=5),
        properties=Properties(message_id="m", subject="a.b", correlation_id="a_1"),
        application_properties={"color": "red", "size": 3, "a": 2.5, "b": "x", "flag": True, "c": None},
    )
)
STORED = canonical_text(
    {SYMBOLS[kind]: Described(SYMBOLS[kind], value) for kind, value in VALUES.items() if "properties" not in kind}
)
"""A key's text. Making it loads the grammar, which is no part of what an input costs."""


@dataclass(frozen=True, slots=True)
class Input:
    """What is asked for, or else the text of a key; and a message."""

    asked: Mapping[Symbol, object] | None
    stored: str
    message: bytes


def _inputs(rng: random.Random) -> Iterator[Input]:
    for _ in range(EACH):
        message = mutate_octets(rng, MESSAGE) if rng.random() < 0.5 else MESSAGE
        kind = rng.random()
        if kind < 0.2:
            yield Input(None, mutate_text(rng, STORED), message)
        elif kind < 0.7:
            yield Input({SYMBOLS["selector"]: Described(SYMBOLS["selector"], _selector(rng))}, "", message)
        else:
            names = rng.sample(sorted(VALUES), rng.choice((1, 2, 3)))
            yield Input({SYMBOLS[name]: _filter(rng, name) for name in names}, "", message)


def _selector(rng: random.Random) -> str:
    text = rng.choice(SELECTORS)
    for _ in range(rng.choice((0, 1, 1, 2, 5))):
        place = rng.randrange(len(text) + 1)
        word = rng.choice(WORDS) * rng.choice((1, 1, 1, 70))
        rest = text[place + rng.choice((0, 1, 3)) :]
        text = mutate_text(rng, text) if rng.random() < 0.2 else text[:place] + word + rest
    return text


def _filter(rng: random.Random, name: str) -> object:
    """Of one kind, wrong in at most one place."""
    value = VALUES[name]
    if isinstance(value, Mapping) and rng.random() < 0.8:
        value = {**value, rng.choice((*FIELDS, *TEXTS)): rng.choice((*STRANGE, *TEXTS))}
    elif isinstance(value, str) and rng.random() < 0.6:
        value = mutate_text(rng, value)
    elif rng.random() < 0.3:
        value = rng.choice(STRANGE)
    descriptor = SYMBOLS[name] if rng.random() < 0.9 else rng.choice(STRANGE)
    return Described(descriptor, value) if rng.random() < 0.95 else rng.choice(STRANGE)


def take(given: Input) -> bool:
    """Read filters and try them on a message; whether they can be applied.

    Raises:
        Finding: what was granted cannot be read again, is another filter then, or a refusal says nothing.
    """
    try:
        text = given.stored if given.asked is None else canonical_text(given.asked)
        filters = compile_text(text) if text else None
    except FilterError as refused:
        if not str(refused) or refused.condition not in ("amqp:invalid-field", "amqp:not-implemented"):
            raise Finding(f"the refusal says too little: {refused!r}") from None
        return False
    if filters is not None and filters.test is not None:
        try:
            answer = filters.test(MessageSections(given.message, 0))
        except TooCostly:
            answer = False
        if not isinstance(answer, bool):
            raise Finding(f"a filter answered {answer!r}")
    selector = None if given.asked is None else given.asked.get(SYMBOLS["selector"])
    if isinstance(selector, Described) and isinstance(selector.value, str):
        _check_again(str(selector.value))
    return True


def _check_again(selector: str) -> None:
    """A granted selector is known by its canonical text: reading that must come to the same."""
    symbol = SYMBOLS["selector"]
    once = canonical_text({symbol: Described(symbol, selector)})
    again = canonical_text({symbol: Described(symbol, write(read_selector(selector)))})
    if once != again:
        raise Finding(f"{selector!r} has two canonical texts")


FILTERS = InputTarget(
    "filters",
    "filters of sources and texts of keys, mutated, tried on mutated messages; a filter with one canonical text and an "
    "answer, or a refusal that says why",
    ("oncewire.filters", "oncewire.wire"),
    _inputs,
    take,
    lambda each: len(repr(each.asked)) + len(each.stored) + len(each.message),
)
