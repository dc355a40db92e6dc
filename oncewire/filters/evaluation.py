"""Evaluates selectors with SQL's three values: true, false and unknown (None). A message matches where it is true."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from oncewire.filters.like import compile_like
from oncewire.filters.sections import PROPERTY_FIELDS, MessageSections, Value, identifier, is_number, plain
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
)

Evaluation: TypeAlias = Callable[[MessageSections], Value]
_DURABLE, _PRIORITY, _TTL = 0, 1, 2
DEFAULT_PRIORITY: Final = 4
"""3.2.1."""


def compile_selector(node: Node) -> Callable[[MessageSections], bool]:
    """A test of messages; it raises `Unreadable` for those whose sections cannot be read."""
    evaluation = _compile(node)
    return lambda sections: evaluation(sections) is True


def takes_steps(node: Node) -> bool:
    """Whether a selector reads strings so that it is counted (`MAX_STEPS`)."""
    left = [node]
    while left:
        found = left.pop()
        if isinstance(found, Like) or (isinstance(found, Name) and found.name in COUNTED):
            return True
        left.extend(children(found))
    return False


def _compile(node: Node) -> Evaluation:
    if isinstance(node, Literal):
        value = node.value
        return lambda _sections: value
    if isinstance(node, Name):
        return _name(node.name)
    if isinstance(node, Comparison):
        return _comparison(node)
    if isinstance(node, Junction):
        return _junction(node)
    if isinstance(node, Not):
        return _negation(_compile(node.operand))
    if isinstance(node, (Sign, Chain)):
        return _sign(node) if isinstance(node, Sign) else _chain(node)
    return _predicate(node)


def _predicate(node: Between | In | Like | IsNull) -> Evaluation:
    if isinstance(node, IsNull):
        operand, negated = _compile(node.operand), node.negated
        return lambda sections: (operand(sections) is None) is not negated
    if isinstance(node, Between):
        evaluation = _junction_of(
            "AND",
            [
                _comparison(Comparison(">=", node.operand, node.low)),
                _comparison(Comparison("<=", node.operand, node.high)),
            ],
        )
    elif isinstance(node, In):
        values = frozenset(node.values)
        evaluation = _of_strings(_compile(node.operand), lambda text, _sections: text in values)
    else:
        evaluation = _of_strings(_compile(node.operand), compile_like(node.pattern, node.escape))
    return _negation(evaluation) if node.negated else evaluation


# ------------------------------------------------------------------ what names stand for


def _field(name: str) -> Evaluation:
    at = PROPERTY_FIELDS.index(name)
    return lambda sections: plain(sections.property(at))


def _header(index: int, default: Value) -> Evaluation:
    def read(sections: MessageSections) -> Value:
        value = sections.header(index)
        return default if value is None else plain(value)

    return read


def _identifier(name: str, *, is_message_id: bool) -> Evaluation:
    at = PROPERTY_FIELDS.index(name)

    def read(sections: MessageSections) -> Value:
        value = sections.property(at)
        if isinstance(value, (str, bytes)):
            sections.spend_on(value)
        return identifier(value, is_message_id=is_message_id)

    return read


def _user(sections: MessageSections) -> Value:
    value = sections.property(PROPERTY_FIELDS.index("user-id"))
    if not isinstance(value, bytes):
        return plain(value)
    sections.spend_on(value)
    return value.decode(errors="replace")


def _delivery_mode(sections: MessageSections) -> Value:
    return "PERSISTENT" if sections.header(_DURABLE) is True else "NON_PERSISTENT"


FIELDS: Final[dict[str, Evaluation]] = {
    "JMSMessageID": _identifier("message-id", is_message_id=True),
    "JMSCorrelationID": _identifier("correlation-id", is_message_id=False),
    "JMSTimestamp": _field("creation-time"),
    "JMSExpiration": _field("absolute-expiry-time"),
    "JMSType": _field("subject"),
    "JMSPriority": _header(_PRIORITY, DEFAULT_PRIORITY),
    "JMSDeliveryMode": _delivery_mode,
    "JMSXGroupID": _field("group-id"),
    "JMSXGroupSeq": _field("group-sequence"),
    "JMSXUserID": _user,
    "amqp.durable": _header(_DURABLE, default=False),
    "amqp.priority": _header(_PRIORITY, DEFAULT_PRIORITY),
    "amqp.ttl": _header(_TTL, None),
    "amqp.user_id": _user,
    **{f"amqp.{name.replace('-', '_')}": _field(name) for name in PROPERTY_FIELDS if name != "user-id"},
}
"""Names that are no application properties."""
COUNTED: Final = frozenset({"JMSMessageID", "JMSCorrelationID", "JMSXUserID", "amqp.user_id"})
"""Of these, what is written anew each time that it is read."""


def _name(name: str) -> Evaluation:
    found = FIELDS.get(name)
    if found is not None:
        return found
    return lambda sections: plain(sections.application().get(name))


# ------------------------------------------------------------------ conditions


_OPERATORS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _comparison(node: Comparison) -> Evaluation:
    """3.8.1.1: values of different types are never equal, unequal, less or more; strings and booleans have no order."""
    left, right, compare = _compile(node.left), _compile(node.right), _OPERATORS[node.operator]
    has_order = node.operator not in {"=", "<>"}

    def evaluate(sections: MessageSections) -> Value:
        one, other = left(sections), right(sections)
        if one is None or other is None:
            return None
        if is_number(one) and is_number(other):
            return compare(one, other)
        if has_order or isinstance(one, str) is not isinstance(other, str):
            return False
        if isinstance(one, bool) is not isinstance(other, bool):
            return False
        return compare(one, other)

    return evaluate


def _of_strings(operand: Evaluation, test: Callable[[str, MessageSections], bool]) -> Evaluation:
    """IN and LIKE: unknown without a value, false for what is no string."""

    def evaluate(sections: MessageSections) -> Value:
        value = operand(sections)
        if value is None:
            return None
        return isinstance(value, str) and test(value, sections)

    return evaluate


def _negation(operand: Evaluation) -> Evaluation:
    def evaluate(sections: MessageSections) -> Value:
        value = operand(sections)
        return not value if isinstance(value, bool) else None

    return evaluate


def _junction(node: Junction) -> Evaluation:
    return _junction_of(node.operator, [_compile(operand) for operand in node.operands])


def _junction_of(word: str, operands: list[Evaluation]) -> Evaluation:
    """AND ends at the first false, OR at the first true; else one unknown makes all of it unknown."""
    decides = word == "OR"

    def evaluate(sections: MessageSections) -> Value:
        result: Value = not decides
        for operand in operands:
            value = operand(sections)
            if value is decides:
                return decides
            if not isinstance(value, bool):
                result = None
        return result

    return evaluate


# ------------------------------------------------------------------ arithmetic


def _sign(node: Sign) -> Evaluation:
    operand, is_minus = _compile(node.operand), node.sign == "-"

    def evaluate(sections: MessageSections) -> Value:
        value = operand(sections)
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            return None
        return -value if is_minus else value

    return evaluate


def _chain(node: Chain) -> Evaluation:
    first = _compile(node.first)
    rest = [(_ARITHMETIC[sign], _compile(operand)) for sign, operand in node.rest]

    def evaluate(sections: MessageSections) -> Value:
        value = first(sections)
        for calculate, operand in rest:
            other = operand(sections)
            if not isinstance(value, (int, float)) or not isinstance(other, (int, float)):
                return None
            if isinstance(value, bool) or isinstance(other, bool):
                return None
            try:
                value = calculate(value, other)
            except (ZeroDivisionError, OverflowError):
                return None
        return value

    return evaluate


def _divide(one: float, other: float) -> float:
    """Whole numbers as in Java: the fraction is cut off."""
    if isinstance(one, int) and isinstance(other, int):
        quotient = abs(one) // abs(other)
        return quotient if (one < 0) is (other < 0) else -quotient
    return one / other


_ARITHMETIC: Final[dict[str, Callable[[float, float], float]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divide,
}
