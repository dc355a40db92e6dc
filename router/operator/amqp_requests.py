"""Requests and answers at `$management`, as messages (AMQP Management, working draft 9).

A request names its operation and type in application properties and its entity by `name` or `identity`; arguments are
the map in its body. The answer has a statusCode as in HTTP.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from oncewire.wire import BodyKind, Message, Properties, encode_message
from router.operator.access import Access, AccessDenied, Caller
from router.operator.arguments import ManagementError
from router.operator.schema import AMQP_PREFIX, TYPES
from router.operator.service import MAX_ROWS, SELF, Management, type_named
from topology.inspector.schema.model import READER, EntityType

NODE_TYPE = "org.amqp.management"
"""The type of the management node itself; its one entity is called `self`."""
MessageId: TypeAlias = object
_Row: TypeAlias = dict[str, object]


@dataclass(frozen=True, slots=True)
class Request:
    """One request, read from a message."""

    operation: str
    properties: Mapping[str, object]
    body: object
    correlation: MessageId
    """Comes back in the answer: the request's correlation-id, else its message-id."""


def read_request(message: Message) -> Request:
    """What a message asks for; an operation it does not name is empty."""
    properties = message.application_properties or {}
    head = message.properties or Properties()
    correlation = head.message_id if head.correlation_id is None else head.correlation_id
    operation = properties.get("operation")
    name = operation if isinstance(operation, str) else ""
    return Request(name, properties, message.body, correlation)


class Answering:
    """Answers requests. Everything a request can say is checked here or by the service."""

    def __init__(self, management: Management, access: Access, other_nodes: Callable[[], list[str]]) -> None:
        """Answer for one router.

        Args:
            management: carries requests out.
            access: the rights of whoever asks.
            other_nodes: addresses of the management nodes of other routers.
        """
        self._management = management
        self._access = access
        self._other_nodes = other_nodes
        self._of_node: Mapping[str, Callable[[Request], object]] = {
            "GET-TYPES": lambda request: {_full(each): [] for each in self._wanted(request)},
            "GET-ATTRIBUTES": lambda request: {_full(each): _attributes(each) for each in self._wanted(request)},
            "GET-OPERATIONS": lambda request: {_full(each): _operations(each) for each in self._wanted(request)},
            "GET-ANNOTATIONS": lambda request: {_full(each): [] for each in self._wanted(request)},
            "GET-MGMT-NODES": lambda _request: self._other_nodes(),
        }
        self._of_entity: Mapping[str, Callable[[Request, EntityType, Caller], Awaitable[object]]] = {
            "READ": self._read,
            "UPDATE": self._update,
            "DELETE": self._delete,
        }

    async def answer(self, request: Request, caller: Caller) -> bytes:
        """Carry a request out; the encoded answer, be it an error."""
        try:
            self._access.require(caller, READER)  # it was when its links were attached, and may be no more
            status, body = await self._answer(request, caller)
            return encode_answer(request.correlation, status, "OK" if status == 200 else "No Content", body)
        except (ManagementError, AccessDenied) as refused:
            return encode_answer(request.correlation, refused.status, f"{refused}. {refused.fix}", {})

    async def _answer(self, request: Request, caller: Caller) -> tuple[int, object]:
        operation = request.operation
        if not operation:
            raise ManagementError(400, "the request has no application property operation", "READ, QUERY, ...")
        found = self._of_node.get(operation)
        if found is not None:
            return 200, found(request)
        if operation == "QUERY":
            return 200, await self._query(request)
        if operation == "CREATE":
            raise ManagementError(501, "nothing is created here", "clients create subscriptions by attaching")
        entity = type_named(_text(request, "type"))
        handle = self._of_entity.get(operation)
        if handle is not None:
            return (204 if operation == "DELETE" else 200), await handle(request, entity, caller)
        answer = await self._management.operate(entity.name, _name(request), operation, _map(request), caller)
        return 200, answer

    # --- entities -----------------------------------------------------------------------------------------------------

    async def _read(self, request: Request, entity: EntityType, _caller: Caller) -> object:
        return with_names(entity, await self._management.read(entity.name, _name(request)))

    async def _update(self, request: Request, entity: EntityType, caller: Caller) -> object:
        # A client may send back what it has read: what nobody can set and has not changed is no request to set it.
        name = _name(request)
        given = _map(request)
        row = with_names(entity, await self._management.read(entity.name, name))
        settable = {each.name for each in entity.settable}
        changes = {key: value for key, value in given.items() if key in settable or row.get(str(key)) != value}
        return with_names(entity, await self._management.update(entity.name, name, changes, caller))

    async def _delete(self, request: Request, entity: EntityType, caller: Caller) -> object:
        given: dict[object, object] = {key: value for key, value in request.properties.items() if key == "epoch"}
        given |= _map(request)
        await self._management.delete(entity.name, _name(request), given, caller)
        return {}

    async def _query(self, request: Request) -> object:
        offset, count = _number(request, "offset", 0), min(_number(request, "count", MAX_ROWS), MAX_ROWS)
        wanted = _map(request).get("attributeNames") or []
        if not isinstance(wanted, list | tuple) or not all(isinstance(each, str) for each in wanted):
            raise ManagementError(400, "attributeNames is no list of texts", "leave it out, or name attributes")
        types = self._wanted(request)
        names = list(wanted) or _names_of(types)
        results: list[list[object]] = []
        skipped = 0
        for entity in types:
            rows, total = await self._management.query(entity.name, max(0, offset - skipped), MAX_ROWS)
            skipped = min(offset, skipped + total)
            results += [[row.get(name) for name in names] for row in (with_names(entity, each) for each in rows)]
            if len(results) >= count:
                break
        return {"attributeNames": names, "results": results[:count]}

    def _wanted(self, request: Request) -> list[EntityType]:
        name = request.properties.get("entityType")
        if name is None:
            return self._management.types()
        return [type_named(str(name))]


def with_names(entity: EntityType, row: _Row) -> _Row:
    """An entity as AMQP has it: with its type, identity and name."""
    name = (row.get("name") or row.get("id") if entity.table and not entity.is_stored else None) or row["key"]
    return {**row, "type": _full(entity), "identity": row["key"], "name": name}


def encode_answer(correlation: MessageId, status: int, description: str, body: object) -> bytes:
    """The message that answers a request."""
    assert correlation is None or isinstance(correlation, int | str | bytes) or hasattr(correlation, "hex")
    return encode_message(
        Message(
            _plain(body),
            BodyKind.VALUE,
            properties=Properties(correlation_id=correlation),  # type: ignore[arg-type]  # as it came
            application_properties={"statusCode": status, "statusDescription": description},
        )
    )


def _plain(value: object) -> object:
    """Tuples as lists: a sequence is one AMQP type, whatever Python calls it."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


def _full(entity: EntityType) -> str:
    return AMQP_PREFIX + entity.name


def _attributes(entity: EntityType) -> list[str]:
    return list(dict.fromkeys(["name", "identity", "type", *(each.name for each in entity.attributes)]))


def _names_of(types: Sequence[EntityType]) -> list[str]:
    return list(dict.fromkeys(name for entity in types for name in _attributes(entity)))


def _operations(entity: EntityType) -> list[str]:
    found = ["READ", *(["UPDATE"] if entity.settable else []), *(["DELETE"] if entity.delete is not None else [])]
    return found + [each.name for each in entity.operations]


def _text(request: Request, name: str) -> str:
    value = request.properties.get(name)
    if not isinstance(value, str) or not value:
        known = ", ".join(TYPES)
        raise ManagementError(400, f"the request has no application property {name}", f"known types: {known}")
    return value


def _name(request: Request) -> str:
    """Which entity: by identity or by name; log and config have one only."""
    for name in ("identity", "name"):
        value = request.properties.get(name)
        if isinstance(value, str) and value:
            return value
    if request.properties.get("type") in ("log", "config", f"{AMQP_PREFIX}log", f"{AMQP_PREFIX}config"):
        return SELF
    raise ManagementError(400, "the request has no application property name or identity", "name an entity")


def _number(request: Request, name: str, default: int) -> int:
    value = request.properties.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ManagementError(400, f"{name} = {value!r} cannot be used", f"{name} is a number from 0 on")
    return value


def _map(request: Request) -> Mapping[object, object]:
    if request.body is None or request.body == b"":
        return {}
    if not isinstance(request.body, dict):
        raise ManagementError(400, "the body of the request is no map", "send an amqp-value section with a map")
    return request.body
