"""The parts of a selector, and its canonical text: equal selectors are one filter, however they are written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Literal:
    """A string, a number, TRUE or FALSE."""

    value: str | int | float | bool


@dataclass(frozen=True, slots=True)
class Name:
    """An application property, or a field of the message by its JMS name or with `amqp.` before it."""

    name: str


@dataclass(frozen=True, slots=True)
class Sign:
    """A number with its sign changed, or `+` before it."""

    sign: str
    operand: Node


@dataclass(frozen=True, slots=True)
class Chain:
    """Sums and products, from left to right: `first` and then pairs of operator and operand."""

    first: Node
    rest: tuple[tuple[str, Node], ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """`=`, `<>`, `<`, `<=`, `>`, `>=`."""

    operator: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Between:
    """`x BETWEEN low AND high`."""

    operand: Node
    low: Node
    high: Node
    negated: bool


@dataclass(frozen=True, slots=True)
class In:
    """`x IN ('a', 'b')`; the strings are sorted, and each is there once."""

    operand: Node
    values: tuple[str, ...]
    negated: bool


@dataclass(frozen=True, slots=True)
class Like:
    """`x LIKE 'a%_' ESCAPE '!'`; an empty `escape` is none."""

    operand: Node
    pattern: str
    escape: str
    negated: bool


@dataclass(frozen=True, slots=True)
class IsNull:
    """`x IS NULL`: the message has no such property."""

    operand: Node
    negated: bool


@dataclass(frozen=True, slots=True)
class Not:
    """NOT."""

    operand: Node


@dataclass(frozen=True, slots=True)
class Junction:
    """AND or OR of two or more conditions."""

    operator: str
    operands: tuple[Node, ...]


Node: TypeAlias = Literal | Name | Sign | Chain | Comparison | Between | In | Like | IsNull | Not | Junction

_NO_CONDITIONS = (Sign, Chain)


def is_condition(node: Node) -> bool:
    """Whether it may be true or false: a property may be, a number or a string never."""
    if isinstance(node, Literal):
        return isinstance(node.value, bool)
    return not isinstance(node, _NO_CONDITIONS)


def children(node: Node) -> Iterator[Node]:
    """The parts of a node."""
    if isinstance(node, Junction):
        yield from node.operands
    elif isinstance(node, Chain):
        yield node.first
        for _, operand in node.rest:
            yield operand
    elif isinstance(node, Comparison):
        yield node.left
        yield node.right
    elif isinstance(node, Between):
        yield node.operand
        yield node.low
        yield node.high
    elif isinstance(node, (Sign, In, Like, IsNull, Not)):
        yield node.operand


def depth_of(node: Node) -> int:
    """How deep its parts are nested; without recursion, for it may be any."""
    level, depth = [node], 0
    while level:
        depth += 1
        level = [child for parent in level for child in children(parent)]
    return depth


# Levels of precedence: what is weaker than its place asks for stands in parentheses.
_OR, _AND, _NOT, _PREDICATE, _SUM, _PRODUCT, _SIGN, _PRIMARY = range(8)


def write(node: Node) -> str:
    """The canonical text of a selector; reading it gives the same node."""
    return _write(node, _OR)


def _write(node: Node, place: int) -> str:
    level, text = _written(node)
    return text if level >= place else f"({text})"


def _written(node: Node) -> tuple[int, str]:
    if isinstance(node, Literal):
        return _PRIMARY, _literal(node.value)
    if isinstance(node, Name):
        return _PRIMARY, node.name
    if isinstance(node, Sign):
        return _SIGN, f"{node.sign} {_write(node.operand, _SIGN)}"
    if isinstance(node, Chain):
        is_sum = node.rest[0][0] in "+-"
        level, inside = (_SUM, _PRODUCT) if is_sum else (_PRODUCT, _SIGN)
        rest = "".join(f" {operator} {_write(operand, inside)}" for operator, operand in node.rest)
        return level, _write(node.first, inside) + rest
    if isinstance(node, Junction):
        level, inside = (_AND, _NOT) if node.operator == "AND" else (_OR, _AND)
        return level, f" {node.operator} ".join(_write(operand, inside) for operand in node.operands)
    if isinstance(node, Not):
        return _NOT, f"NOT {_write(node.operand, _NOT)}"
    return _PREDICATE, _predicate(node)


def _predicate(node: Comparison | Between | In | Like | IsNull) -> str:
    if isinstance(node, Comparison):
        return f"{_write(node.left, _SUM)} {node.operator} {_write(node.right, _SUM)}"
    operand, negated = _write(node.operand, _SUM), "NOT " if node.negated else ""
    if isinstance(node, Between):
        return f"{operand} {negated}BETWEEN {_write(node.low, _SUM)} AND {_write(node.high, _SUM)}"
    if isinstance(node, In):
        return f"{operand} {negated}IN ({', '.join(map(_literal, node.values))})"
    if isinstance(node, IsNull):
        return f"{operand} IS {negated}NULL"
    escape = f" ESCAPE {_literal(node.escape)}" if node.escape else ""
    return f"{operand} {negated}LIKE {_literal(node.pattern)}{escape}"


def _literal(value: str | float) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        doubled = value.replace("'", "''")
        return f"'{doubled}'"
    return repr(value)
