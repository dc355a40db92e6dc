"""Carries out requests on entities, however they came: over HTTP, or to `$management`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from delivery_records.model.effects import OrderEnding
from delivery_records.model.trace import Choice
from router.operator.access import Access, AccessDenied, Caller
from router.operator.arguments import ManagementError, check
from router.operator.controls import RouterControls
from router.operator.schema import AMQP_PREFIX, CONFIG, TYPES
from router.operator.stored_entities import StoredEntities
from router.process.logs import EventLog, RouterEvent
from topology.inspector.rows_core import Head, Row
from topology.inspector.schema.clients import CONNECTION, SUBSCRIPTION
from topology.inspector.schema.model import READER, EntityType, Operation, Role
from topology.inspector.schema.network import LINK, LOG, ROUTER, TOPIC
from topology.inspector.topic_names_core import topic_named

MAX_ROWS = 500
"""Entities of one answer; more are asked for with an offset."""
SELF = "router"
"""The one entity of the types log and config."""
_LOOK_AGAIN = "look at it again: `oncewire manage show subscription NAME`, or GET it"


class Tables(Protocol):
    """The inspector's source, as far as management reads it."""

    def heads(self, table: str) -> Sequence[Head]:
        """All rows of a table, sorted."""
        ...

    def rows(self, table: str, heads: Sequence[Head]) -> list[Row]:
        """The rows of these heads; those that have gone are left out."""
        ...


class Management:
    """What can be asked of one router."""

    def __init__(
        self,
        node_id: str,
        tables: Tables,
        controls: RouterControls,
        access: Access,
        stored: StoredEntities,
        log: EventLog,
    ) -> None:
        """Nothing is asked yet.

        Args:
            node_id: the router's name.
            tables: what there is.
            controls: what can be changed.
            access: the rights of whoever asks.
            stored: what an edge's store has.
            log: every change is written there, with who made it.
        """
        self._node_id = node_id
        self._tables = tables
        self._controls = controls
        self._access = access
        self._stored = stored
        self._log = log

    # --- reading ------------------------------------------------------------------------------------------------------

    def types(self) -> list[EntityType]:
        """What there is at this router: the types of an edge's store only where it reads one."""
        return [each for each in TYPES.values() if self._stored.offers(each)]

    async def query(self, name: str, offset: int = 0, count: int = MAX_ROWS) -> tuple[list[Row], int]:
        """Entities of a type, and how many there are in all.

        Raises:
            ManagementError: no such type, or a number that cannot be used.
        """
        entity = type_named(name)
        if offset < 0 or not 1 <= count <= MAX_ROWS:
            raise ManagementError(
                400, f"offset {offset} and limit {count} cannot be used", f"offset is 0 or more, limit 1 to {MAX_ROWS}"
            )
        if entity.is_stored:
            rows = await self._stored.rows(entity)
            return rows[offset : offset + count], len(rows)
        if entity.table is None:
            return [self._own(entity)][offset : offset + count], 1
        heads = self._tables.heads(entity.table)
        return self._tables.rows(entity.table, heads[offset : offset + count]), len(heads)

    async def read(self, type_name: str, name: str) -> Row:
        """One entity.

        Raises:
            ManagementError: there is none of that name, or several.
        """
        entity = type_named(type_name)
        if entity.table is None:
            if name != SELF:
                raise ManagementError(404, f"there is no {entity.name} {name}", f"it is called {SELF}")
            return self._own(entity)
        if entity.is_stored:
            rows = [row for row in await self._stored.rows(entity) if row["key"] == name]
        else:
            rows = self._tables.rows(entity.table, self._named(entity, entity.table, name))
        if len(rows) > 1:
            keys = ", ".join(str(row["key"]) for row in rows[:3])
            raise ManagementError(400, f"{name} is the name of {len(rows)}", f"use a key: {keys}")
        if not rows:
            raise ManagementError(
                404,
                f"there is no {entity.name} {name} here",
                f"it is called by {entity.naming}; `oncewire manage list {entity.name}` names all",
            )
        return rows[0]

    def _named(self, entity: EntityType, table: str, name: str) -> list[Head]:
        """Those that are called so; a key is one's own, a name may be that of several."""
        heads = self._tables.heads(table)
        found = [head for head in heads if head.key == name]
        if found:
            return found
        if entity.name == LINK.name:  # the direction from this router to a neighbour
            own = [row["id"] for row in self._tables.rows("routers", self._tables.heads("routers")) if row["is_self"]]
            return [head for head in heads if own and head.text == f"{own[0]} {name}"]
        if entity.name == CONNECTION.name:  # heads are found by container-id and address together
            return [head for head in heads if head.order == name]
        return [head for head in heads if head.text == name]

    def _own(self, entity: EntityType) -> Row:
        config = self._controls.config()
        if entity.name == LOG.name:
            return {"key": SELF, "level": config["log.level"], "format": config["log.format"]}
        assert entity.name == CONFIG.name
        return {"key": SELF, **config}

    # --- changing -----------------------------------------------------------------------------------------------------

    async def update(self, type_name: str, name: str, given: Mapping[object, object], caller: Caller) -> Row:
        """Change attributes of an entity; the entity as it is then.

        Raises:
            ManagementError: it is not there, or cannot be changed so.
            AccessDenied: the caller may not.
        """
        entity = type_named(type_name)
        if not entity.settable:
            raise ManagementError(405, f"nothing of a {entity.name} can be set", "see GET /api/v1/management/schema")
        changes = check(entity.settable, given, "attribute that can be set")
        if not changes:
            raise ManagementError(400, "nothing is given to set", f"give {entity.settable[0].name}")
        self._require(caller, max(each.settable or Role.NONE for each in entity.settable), f"set {entity.name}")
        row = await self.read(type_name, name)
        if entity.name == LINK.name:
            self._set_cost(row, changes["cost"])
        elif entity.name == CONFIG.name:
            self._controls.set_policy(changes)
        else:
            assert entity.name == LOG.name
            self._controls.set_log_level(str(changes["level"]))
        self._done(caller, f"set {entity.name}", name, changes)
        return await self.read(type_name, str(row["key"]))

    def _set_cost(self, row: Row, cost: object) -> None:
        assert cost is None or isinstance(cost, int)
        own = self._self()
        if row["from_rid"] != own["key"]:
            raise ManagementError(
                409,
                f"that is the cost of a link from {row['from']}, and this is router {own['id']}",
                f"ask {row['from']}: each router says what its own direction costs",
            )
        if not self._controls.set_cost(str(row["to_rid"]), cost):
            raise ManagementError(409, f"there is no link to {row['to']} just now", "try again when it is up")

    async def delete(self, type_name: str, name: str, given: Mapping[object, object], caller: Caller) -> Row:
        """Delete an entity.

        Raises:
            ManagementError: it is not there, or cannot be deleted.
            AccessDenied: the caller may not.
        """
        entity = type_named(type_name)
        if entity.delete is None:
            raise ManagementError(405, f"a {entity.name} cannot be deleted", "see GET /api/v1/management/schema")
        return await self._carry_out(entity, entity.delete, name, given, caller)

    async def operate(
        self, type_name: str, name: str, operation: str, given: Mapping[object, object], caller: Caller
    ) -> Row:
        """Carry out an operation on an entity; its answer.

        Raises:
            ManagementError: there is no such entity or operation, or it cannot be done.
            AccessDenied: the caller may not.
        """
        entity = type_named(type_name)
        found = entity.operation(operation)
        if found is None:
            known = ", ".join(each.name for each in entity.operations) or "none"
            raise ManagementError(404, f"a {entity.name} has no operation {operation}", f"known: {known}")
        return await self._carry_out(entity, found, name, given, caller)

    async def _carry_out(
        self, entity: EntityType, operation: Operation, name: str, given: Mapping[object, object], caller: Caller
    ) -> Row:
        arguments = check(operation.arguments, given, "argument")
        self._require(caller, operation.role, f"{operation.name} {entity.name}")
        row = self._without_row(entity, name) or await self.read(entity.name, name)
        if entity.name == SUBSCRIPTION.name:
            answer = await self._end_subscription(row, arguments, only_if_away=operation is not entity.delete)
        elif entity.name == CONNECTION.name:
            if not self._controls.close_connection(str(row["key"])):
                raise ManagementError(404, f"the connection {name} is gone", "there is nothing left to do")
            answer = {"closed": row["key"]}
        elif entity.name == TOPIC.name:
            answer = await self._controls.publish(name, str(arguments["body"]), caller)
        else:
            assert entity.name == ROUTER.name
            answer = self._at_router(row, operation.name, arguments)
        if operation.role > READER:
            logged = {} if entity.name == TOPIC.name else arguments  # bodies of messages are not logged
            self._done(caller, f"{operation.name} {entity.name}", name, logged)
        return answer

    async def _end_subscription(self, row: Row, arguments: Mapping[str, object], *, only_if_away: bool) -> Row:
        epoch = arguments["epoch"]
        assert isinstance(epoch, int)
        ending, now = await self._controls.end_subscription(str(row["key"]), epoch, only_if_away=only_if_away)
        name = row["name"]
        if ending is OrderEnding.DELETED:
            return {"deleted": name}
        if ending is OrderEnding.NOT_FOUND:
            raise ManagementError(404, f"there is no subscription {name}", "it is gone already")
        if ending is OrderEnding.CHANGED:
            said = f"; its epoch is {now}" if now else ""
            raise ManagementError(409, f"{name} has changed since epoch {epoch}{said}. It was not ended", _LOOK_AGAIN)
        if ending is OrderEnding.ATTACHED:
            raise ManagementError(
                409,
                f"{name} is attached at router {row['router']}, or may be. It was not ended",
                f"ask router {row['router']}, or delete it",
            )
        if ending is OrderEnding.FAILED:
            raise ManagementError(503, f"etcd could not be asked. {name} was not ended", "try again")
        raise ManagementError(504, f"etcd did not say whether {name} was ended", _LOOK_AGAIN)

    def _without_row(self, entity: EntityType, name: str) -> Row | None:
        """This router itself, while it knows of no router: without etcd it can be drained and loaded again, too.

        Or all workers together, who are no router of the network; or a topic, which need not be in use by anybody.
        """
        if entity.name == TOPIC.name:
            return {"key": name}
        if entity.name == ROUTER.name and name == self._controls.group != "":
            return {"key": name, "id": name, "is_self": True, "http": ""}
        if entity.name != ROUTER.name or name != self._node_id or self._tables.heads("routers"):
            return None
        return {"key": name, "id": name, "is_self": True, "http": ""}

    def _at_router(self, row: Row, operation: str, arguments: Mapping[str, object]) -> Row:
        if not row["is_self"]:
            where = row["http"] or "its own machine: it serves no HTTP"
            raise ManagementError(409, f"this is router {self._self()['id']}, not {row['id']}", f"ask at {where}")
        is_all = row["id"] == self._controls.group
        if operation == "drain":
            return {"draining": self._controls.drain(whole_group=is_all)}
        if operation == "reload":
            return self._controls.reload(whole_group=is_all)
        if is_all:
            raise ManagementError(409, f"{operation} is for one worker", f"name it: {self._node_id}, or another one")
        if operation == "explain":
            return self._controls.explain(arguments)
        assert operation == "trace"
        return self._controls.trace(_choice(arguments) if arguments["on"] else None)

    def _self(self) -> Row:
        rows = self._tables.rows("routers", self._tables.heads("routers"))
        found = next((row for row in rows if row["is_self"]), None)
        if found is None:
            raise ManagementError(503, "this router has no lease in etcd just now", "try again")
        return found

    # --- who may, and who did -----------------------------------------------------------------------------------------

    def _require(self, caller: Caller, role: Role, doing: str) -> None:
        try:
            self._access.require(caller, role)
        except AccessDenied as denied:
            self._log.event(RouterEvent.MANAGEMENT_REFUSED, doing=doing, by=caller.shown, why=str(denied))
            raise

    def _done(self, caller: Caller, doing: str, name: str, given: Mapping[str, object]) -> None:
        said = ", ".join(f"{key}={value}" for key, value in given.items())
        self._log.event(RouterEvent.MANAGEMENT_DONE, doing=doing, name=name, given=said, by=caller.shown)


def type_named(name: str) -> EntityType:
    """The entity type of that name.

    Raises:
        ManagementError: there is none.
    """
    found = TYPES.get(name.removeprefix(AMQP_PREFIX))
    if found is None:
        raise ManagementError(404, f"there is no type {name}", f"known: {', '.join(TYPES)}")
    return found


def _choice(arguments: Mapping[str, object]) -> Choice:
    given = {name: value for name, value in arguments.items() if name != "on" and value is not None}
    for name in ("topics", "publishers"):
        if name in given:
            names = given[name]
            assert isinstance(names, list | tuple)
            given[name] = frozenset(topic_named(each) if name == "topics" else each for each in names)
    try:
        return Choice(**given)  # type: ignore[arg-type]  # the schema has checked the types
    except ValueError as error:
        raise ManagementError(400, str(error), "see GET /api/v1/management/schema") from None
