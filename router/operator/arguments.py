"""Checks what somebody gives: attributes to change, arguments of operations. JSON and AMQP say the same things."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from topology.inspector.schema.model import Attribute, Type

_PYTHON: Mapping[Type, tuple[type, ...]] = {
    Type.TEXT: (str,),
    Type.INTEGER: (int,),
    Type.NUMBER: (int, float),
    Type.BOOLEAN: (bool,),
    Type.LIST: (list, tuple),
    Type.MAP: (dict,),
}
_KINDS = {
    Type.TEXT: "a text",
    Type.INTEGER: "a whole number",
    Type.NUMBER: "a number",
    Type.BOOLEAN: "true or false",
    Type.LIST: "a list of texts",
    Type.MAP: "a map",
}


class ManagementError(Exception):
    """A request that cannot be carried out.

    Attributes:
        status: as in HTTP; also the statusCode at `$management`.
        fix: what the caller can do.
    """

    def __init__(self, status: int, error: str, fix: str) -> None:
        super().__init__(error)
        self.status = status
        self.fix = fix


def check(known: Sequence[Attribute], given: Mapping[object, object], what: str) -> dict[str, object]:
    """What was given, once each name and value is known to be right.

    Args:
        known: what may be given.
        given: names and values as they came.
        what: for the error: "attribute" or "argument".

    Raises:
        ManagementError: 400, and what is allowed.
    """
    by_name = {each.name: each for each in known}
    names = ", ".join(by_name) or "none"
    for name in given:
        if name not in by_name:
            raise ManagementError(400, f"there is no {what} {name!r} here", f"known: {names}")
    missing = [each.name for each in known if each.is_required and given.get(each.name) is None]
    if missing:
        needed = by_name[missing[0]]
        raise ManagementError(400, f"the {what} {needed.name} is missing", f"give {needed.name}: {allowed(needed)}")
    for name, value in given.items():
        if not _fits(by_name[str(name)], value):
            raise ManagementError(400, f"{name} = {value!r} cannot be used", f"{name} is {allowed(by_name[str(name)])}")
    return {str(name): value for name, value in given.items()}


def allowed(attribute: Attribute) -> str:
    """For people: what may be given."""
    if attribute.choices:
        return f"one of {', '.join(attribute.choices)}"
    kind = _KINDS[attribute.type]
    if attribute.settable is not None and attribute.type in (Type.LIST, Type.MAP):
        return "what the setting of that name may be, as JSON"  # whose own parser checks it
    if attribute.low is not None:
        kind += f" from {attribute.low:.15g} to {attribute.high:.15g}"
    return f"{kind}, or null" if attribute.is_nullable else kind


def _fits(attribute: Attribute, value: object) -> bool:
    if value is None:
        return attribute.is_nullable or not (attribute.is_required or attribute.settable)
    if isinstance(value, bool) and attribute.type is not Type.BOOLEAN:
        return False
    if not isinstance(value, _PYTHON[attribute.type]):
        return False
    if attribute.choices and value not in attribute.choices:
        return False
    if attribute.type is Type.LIST:
        assert isinstance(value, list | tuple)
        return attribute.settable is not None or all(isinstance(each, str) for each in value)
    if attribute.low is not None and attribute.high is not None:
        assert isinstance(value, int | float)
        return attribute.low <= value <= attribute.high
    return True
