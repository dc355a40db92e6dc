"""Reads message selectors, the subset of SQL-92 of Jakarta Messaging 3.8.1.1. The first loads the parser library."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from oncewire.filters.errors import FilterError
from oncewire.filters.like import parts_of
from oncewire.filters.limits import MAX_LIKES, MAX_SELECTOR_CHARS, MAX_SELECTOR_DEPTH, MAX_SELECTOR_TOKENS
from oncewire.filters.syntax import (
    Between,
    Chain,
    Comparison,
    In,
    IsNull,
    Junction,
    Like,
    Literal,
    Name,
    Node,
    Not,
    Sign,
    children,
    depth_of,
    is_condition,
)

if TYPE_CHECKING:
    from lark import UnexpectedInput

LARGEST_INTEGER = 2**63
"""With a sign before it, the smallest long of Java."""
RESERVED = ("AND", "OR", "NOT", "BETWEEN", "LIKE", "ESCAPE", "IN", "IS", "NULL", "TRUE", "FALSE")
UNSTEADY = frozenset({"JMSXDeliveryCount", "JMSRedelivered", "amqp.delivery_count", "amqp.redelivered"})
"""They differ between copies of one message, so what was excluded once would match the next time (E-9)."""

GRAMMAR = r"""
?start: or_
?or_: and_
    | and_ (_OR and_)+ -> disjunction
?and_: not_
    | not_ (_AND not_)+ -> conjunction
?not_: NOT not_ -> negation
    | predicate
?predicate: sum
    | sum OPERATOR sum -> comparison
    | sum [NOT] _BETWEEN sum _AND sum -> between
    | sum [NOT] _IN "(" STRING ("," STRING)* ")" -> in_
    | sum [NOT] _LIKE STRING [_ESCAPE STRING] -> like
    | sum _IS [NOT] _NULL -> is_null
?sum: product
    | product (SIGN product)+ -> chain
?product: signed
    | signed (STAR signed)+ -> chain
?signed: SIGN signed -> sign
    | primary
?primary: STRING -> string
    | HEX -> hexadecimal
    | INTEGER -> integer
    | FLOAT -> floating
    | _TRUE -> true
    | _FALSE -> false
    | NAME -> name
    | "(" or_ ")"

OPERATOR: "=" | "<>" | "!=" | "<=" | ">=" | "<" | ">"
SIGN: "+" | "-"
STAR: "*" | "/"
STRING: /'([^']|'')*'/
HEX.4: /0x[0-9a-f]+l?(?![\w$.])/i
FLOAT.3: /(\d+\.\d*(e[+-]?\d+)?|\.\d+(e[+-]?\d+)?|\d+e[+-]?\d+)[fd]?(?![\w$.])|\d+[fd](?![\w$.])/i
INTEGER.2: /\d+l?(?![\w$.])/i
NAME: /([^\W\d]|\$)[\w$]*(\.[\w$]+)*/
"""
_WORDS = "".join(f"{'' if word == 'NOT' else '_'}{word}.5: /{word}(?![\\w$.])/i\n" for word in RESERVED)
_TOO_LARGE = "has more than 64 bits; write it with a decimal point"
_TOKEN = re.compile(r"'(?:[^']|'')*'|[\w$.]+|[^\s\w]")
_SAID = {
    "OPERATOR": "a comparison",
    "SIGN": "+ or -",
    "STAR": "* or /",
    "STRING": "a string in single quotes",
    "HEX": "a number",
    "FLOAT": "a number",
    "INTEGER": "a number",
    "NAME": "a property",
    "LPAR": "(",
    "RPAR": ")",
    "COMMA": ",",
    "$END": "the end",
}
"""Names of the parser's terminals in error texts; others are words of the language."""


class _Reading:
    """Makes nodes of what the parser has recognised, from the leaves up."""

    def string(self, found: Sequence[Any]) -> Node:
        return Literal(_unquoted(found[0]))

    def hexadecimal(self, found: Sequence[Any]) -> Node:
        return _integer(found[0], 16)

    def integer(self, found: Sequence[Any]) -> Node:
        return _integer(found[0], 10)

    def floating(self, found: Sequence[Any]) -> Node:
        value = float(found[0].rstrip("fFdD"))
        if not math.isfinite(value):
            raise FilterError(f"selector: the number {found[0]:.40} is too large for a double")
        return Literal(value)

    def true(self, _found: Sequence[Any]) -> Node:
        return Literal(value=True)

    def false(self, _found: Sequence[Any]) -> Node:
        return Literal(value=False)

    def name(self, found: Sequence[Any]) -> Node:
        name = str(found[0])
        if name in UNSTEADY:
            raise FilterError(
                f"selector: {name} differs between the first and a repeated copy of a message; leave it out"
            )
        return Name(name)

    def sign(self, found: Sequence[Any]) -> Node:
        sign, operand = str(found[0]), found[1]
        if isinstance(operand, Literal) and not isinstance(operand.value, (bool, str)):
            return operand if sign == "+" else Literal(-operand.value)
        return Sign(sign, operand)

    def chain(self, found: Sequence[Any]) -> Node:
        return Chain(found[0], tuple((str(found[at]), found[at + 1]) for at in range(1, len(found), 2)))

    def comparison(self, found: Sequence[Any]) -> Node:
        left, operator, right = found
        return Comparison("<>" if operator == "!=" else str(operator), left, right)

    def between(self, found: Sequence[Any]) -> Node:
        operand, negated, low, high = found
        return Between(operand, low, high, negated is not None)

    def in_(self, found: Sequence[Any]) -> Node:
        operand, negated, *strings = found
        return In(operand, tuple(sorted({_unquoted(string) for string in strings})), negated is not None)

    def like(self, found: Sequence[Any]) -> Node:
        operand, negated, pattern, escape = found
        text = "" if escape is None else _unquoted(escape)
        if escape is not None and len(text) != 1:
            raise FilterError("selector: ESCAPE takes one character")
        try:
            parts_of(_unquoted(pattern), text)
        except ValueError as error:
            raise FilterError(f"selector: {error}") from None
        return Like(operand, _unquoted(pattern), text, negated is not None)

    def is_null(self, found: Sequence[Any]) -> Node:
        return IsNull(found[0], found[1] is not None)

    def negation(self, found: Sequence[Any]) -> Node:
        return Not(found[1])

    def conjunction(self, found: Sequence[Any]) -> Node:
        return Junction("AND", tuple(found))

    def disjunction(self, found: Sequence[Any]) -> Node:
        return Junction("OR", tuple(found))


def _unquoted(token: str) -> str:
    return str(token)[1 : len(token) - 1].replace("''", "'")


def _integer(text: str, base: int) -> Literal:
    value = int(text.rstrip("lL"), base)
    if value > LARGEST_INTEGER:
        raise FilterError(f"selector: the number {text:.40} {_TOO_LARGE}")
    return Literal(value)


@cache
def _parser() -> Callable[[str], Node]:
    """The parser, made for the first selector: 2 MB that routers without one need not hold, and 0.14 s."""
    from lark import Lark

    parser = Lark(
        f"{GRAMMAR}{_WORDS}%ignore /[ \\t\\n\\r\\f]+/\n", parser="lalr", lexer="basic", transformer=_Reading()
    )
    return cast("Callable[[str], Node]", parser.parse)


def read_selector(text: str) -> Node:
    """The condition that a selector states.

    Raises:
        FilterError: it is none; the text names the place and what is expected there.
    """
    if len(text) > MAX_SELECTOR_CHARS:
        raise FilterError(f"selector: it has {len(text)} characters, more than {MAX_SELECTOR_CHARS}; make it shorter")
    if not text.strip():
        raise FilterError("selector: it is empty; leave the filter out to get every message")
    if len(_TOKEN.findall(text)) > MAX_SELECTOR_TOKENS:
        raise FilterError(f"selector: it has more than {MAX_SELECTOR_TOKENS} words and signs; make it simpler")
    node = _parsed(text)
    if depth_of(node) > MAX_SELECTOR_DEPTH:
        raise FilterError(f"selector: it is nested deeper than {MAX_SELECTOR_DEPTH} levels; make it simpler")
    _check(node)
    return node


def check_sum(texts: Sequence[str]) -> None:
    """The limits that hold for all selectors of a source together, before the first is parsed.

    Raises:
        FilterError: they are too long together, or too costly for each message.
    """
    if len(texts) < 2:  # `read_selector` looks at each
        return
    characters = sum(map(len, texts))
    if characters > MAX_SELECTOR_CHARS:
        raise FilterError(
            f"the selectors have {characters} characters, more than {MAX_SELECTOR_CHARS}; make them shorter"
        )
    found = [token.upper() for text in texts for token in _TOKEN.findall(text)]
    if len(found) > MAX_SELECTOR_TOKENS:
        raise FilterError(f"the selectors have more than {MAX_SELECTOR_TOKENS} words and signs; make them simpler")
    likes = found.count("LIKE")
    if likes > MAX_LIKES:
        raise FilterError(f"the selectors have {likes} LIKE, more than {MAX_LIKES}; use IN, or several subscriptions")


def _parsed(text: str) -> Node:
    from lark import UnexpectedInput
    from lark.exceptions import VisitError

    try:
        return _parser()(text)
    except UnexpectedInput as error:
        raise FilterError(_described(text, error)) from None
    except VisitError as error:
        if isinstance(error.orig_exc, FilterError):
            raise error.orig_exc from None
        raise


def _described(text: str, error: UnexpectedInput) -> str:
    """Where the parser stopped and what it wants there."""
    token = getattr(error, "token", None)
    place: int | None = getattr(error, "pos_in_stream", None)
    at = len(text) if place is None else place
    if token is not None and token.type == "$END":
        at = len(text)
    found = f"{text[at : at + 20]!r}" if at < len(text) else "the end"
    if token is None:
        hint = "a string ends with a single quote" if text[at : at + 1] == "'" else "nothing of a selector begins so"
        return f"selector: character {at + 1} is {found}; {hint}"
    terminals: Iterable[str] = getattr(error, "accepts", None) or getattr(error, "expected", None) or ()
    wanted = sorted({_SAID.get(name, name.strip("_")) for name in terminals})
    return f"selector: character {at + 1} is {found}; expected {', '.join(wanted)}"


def _check(root: Node) -> None:
    """What the grammar does not say: conditions where conditions must be, and the limits.

    Raises:
        FilterError: see `read_selector`.
    """
    likes = 0
    conditions: list[Node] = [root]
    left = [root]
    while left:
        node = left.pop()
        left.extend(children(node))
        likes += isinstance(node, Like)
        if isinstance(node, (Not, Junction)):
            conditions.extend(children(node))
        if isinstance(node, Literal) and node.value == LARGEST_INTEGER and isinstance(node.value, int):
            raise FilterError(f"selector: the number {LARGEST_INTEGER} {_TOO_LARGE}")
    if likes > MAX_LIKES:
        raise FilterError(f"selector: it has {likes} LIKE, more than {MAX_LIKES}; use IN, or several subscriptions")
    for node in conditions:
        if not is_condition(node):
            raise FilterError("selector: a number or a string stands where a condition must be; compare it")
