"""The one schema of what can be managed: entity types, their attributes and operations.

HTTP, AMQP `$management`, the command line and the reference page (docs/management.md) are all read off it. Where an
entity is a row of the inspector, its attributes are that row's fields; those of the configuration are the settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum

from delivery_records.diagnostics.trace import TRACE_TIME_CAP_S, TRACE_TIME_S
from delivery_records.tags import REVISION_BITS
from oncewire.settings.schema import Setting
from router.config import RouterConfig
from router.config_loading import SETTINGS
from router.operator.access import Role
from router.operator.reload import values_of

AMQP_PREFIX = "oncewire."
"""In front of a type's name at `$management`; without it the name is understood, too."""
LEVELS = ("debug", "info", "warning", "error")
MAX_COST = 65_535


class Type(Enum):
    """What an attribute or argument holds."""

    TEXT = "text"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    LIST = "list"
    MAP = "map"


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute of an entity, or an argument of an operation."""

    name: str
    type: Type
    meaning: str
    settable: Role | None = None
    """The role that may change it; None = nobody."""
    is_required: bool = False
    """For arguments."""
    is_nullable: bool = False
    choices: tuple[str, ...] = ()
    """Of a text: what may be said."""
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Operation:
    """Something that can be done to an entity."""

    name: str
    meaning: str
    deliveries: str
    """What happens to deliveries; told before somebody confirms it."""
    role: Role
    arguments: tuple[Attribute, ...] = ()
    is_harmful: bool = False
    """The command line asks before it does it."""


@dataclass(frozen=True, slots=True)
class EntityType:
    """A kind of thing that can be seen and perhaps changed."""

    name: str
    meaning: str
    naming: str
    """How one entity is called in a path, a request, or on the command line."""
    attributes: tuple[Attribute, ...]
    table: str | None = None
    """The inspector's table whose rows these are."""
    operations: tuple[Operation, ...] = ()
    delete: Operation | None = None
    """What deleting one means; None = that is not possible."""

    def operation(self, name: str) -> Operation | None:
        """The operation of that name."""
        return next((each for each in self.operations if each.name == name), None)

    @property
    def settable(self) -> tuple[Attribute, ...]:
        """Attributes that somebody may change."""
        return tuple(each for each in self.attributes if each.settable is not None)


def _text(name: str, meaning: str) -> Attribute:
    return Attribute(name, Type.TEXT, meaning)


def _integer(name: str, meaning: str) -> Attribute:
    return Attribute(name, Type.INTEGER, meaning)


def _number(name: str, meaning: str) -> Attribute:
    return Attribute(name, Type.NUMBER, meaning, is_nullable=True)


def _here(name: str, meaning: str) -> Attribute:
    return Attribute(name, Type.INTEGER, f"{meaning}; null where its link is not here", is_nullable=True)


_KEY = _text("key", "Its identity: unique in its type, and stays the same.")
_EPOCH = Attribute(
    "epoch", Type.INTEGER,
    "The epoch you were shown: what was attached again since is left alone (K-5a).", is_required=True,
    low=1, high=(1 << REVISION_BITS) - 1,
)  # fmt: skip
_ENDED = (
    "What it was sent and had not answered counts as accepted by nobody; its publishers are told what the other "
    "subscriptions have said. Its client, when it is there, is told that the subscription is gone; attached again it "
    "begins anew, behind what it missed."
)

ROUTER = EntityType(
    "router",
    "A router of the network. Operations are for the router that is asked; of others only attributes are known.",
    "its id, or its rid",
    (
        _KEY,
        _text("id", "Its name: the setting id."),
        _text("amqp", "Where clients connect."),
        _text("http", "Where operators connect; empty = nowhere."),
        _text("version", "Of the software."),
        _text("state", "serving, draining or leaving."),
        Attribute("is_self", Type.BOOLEAN, "Whether it is the router that was asked."),
        _integer("subscriptions", "Subscriptions attached there."),
        _integer("publishers", "Publishers attached there."),
        Attribute("next_hop", Type.TEXT, "The neighbour on the best path; null without a path.", is_nullable=True),
        Attribute("distance", Type.INTEGER, "Cost of the best path; null without a path.", is_nullable=True),
    ),
    table="routers",
    operations=(
        Operation(
            "drain",
            "Send its clients to other routers, then stop, as SIGTERM does (K-8a). The answer says for how long.",
            "Clients that keep a map lose and double nothing. One without a map may be sent again, marked, what is "
            "unsettled when the limit (limits.drain_limit_s) is over.",
            Role.OPERATOR,
            is_harmful=True,
        ),
        Operation(
            "reload",
            "Read the configuration file again, as SIGHUP does. A file with a mistake changes nothing. The answer "
            "names the settings that hold from now on (changed) and those that wait for a restart (needs_restart).",
            "None is touched.",
            Role.ADMIN,
        ),
        Operation(
            "trace",
            "Trace which rules deliveries meet, for a while, or stop it. The answer says what is traced.",
            "None is touched; each traced message costs some time and memory.",
            Role.OPERATOR,
            (
                Attribute(
                    "on", Type.BOOLEAN, "true = begin, and forget what was traced before; false = stop.",
                    is_required=True,
                ),
                Attribute("topics", Type.LIST, "Only deliveries to these topics; all when left out."),
                Attribute("publishers", Type.LIST, "Only deliveries of these publishers; all when left out."),
                Attribute("sample", Type.NUMBER, "Share of the deliveries, above 0; 1 when left out.", high=1, low=0),
                Attribute(
                    "time_s", Type.NUMBER, f"How long; {TRACE_TIME_S:g} seconds when left out.",
                    high=TRACE_TIME_CAP_S, low=0,
                ),
            ),
        ),
    ),
)  # fmt: skip

LINK = EntityType(
    "link",
    "One direction of a link between two routers, as all routers know it. A cost belongs to one direction: it counts "
    "for frames from `from` to `to`. Change it at the router `from`; for both directions, at both routers.",
    "the id of the neighbour, for a link from the router that is asked; or the key",
    (
        _KEY,
        _text("from", "The router that sends."),
        _text("to", "The router that receives."),
        _text("from_rid", "Its incarnation."),
        _text("to_rid", "Its incarnation."),
        Attribute(
            "cost", Type.INTEGER,
            "1 to 65535, lower is better. A change takes effect at once in all routers, and the link stays up. It "
            "holds until the process ends, also when the link is made again; null = as the two routers' settings say.",
            settable=Role.OPERATOR, is_nullable=True, low=1, high=MAX_COST,
        ),
        _text("state", "up, or one-way: only one end knows of it, and it is not used."),
        Attribute("on_best_path", Type.BOOLEAN, "Part of a best path from the router that is asked."),
    ),
    table="links",
)  # fmt: skip

TOPIC = EntityType(
    "topic",
    "A topic, or a pattern that somebody subscribes to. Nothing creates it: it is there while somebody uses it.",
    "its name",
    (
        _KEY,
        _text("name", "The topic, or the pattern."),
        Attribute("is_pattern", Type.BOOLEAN, "Whether it has wildcards."),
        _integer("publishers", "Publishers to it."),
        _integer("subscriptions", "Subscriptions that get what is published to it."),
        _integer("waiting", "Publishers at this router whose oldest delivery is unsettled for more than a second."),
    ),
    table="topics",
)

SUBSCRIPTION = EntityType(
    "subscription",
    "What messages are owed to. It outlives its client's connection for as long as it asked for.",
    "container-id/link-name, or its key",
    (
        _KEY,
        _text("name", "container-id/link-name."),
        _text("topic", "Topic or pattern."),
        _text("router", "Where its link is, or was last."),
        _text("rid", "The incarnation of that router."),
        _integer("epoch", "Revision of the last write to its key; changes with each attach."),
        _text("incarnation", "One life of the subscription, as its client is told."),
        _text("mode", "exactly-once, at-least-once or at-most-once."),
        _number("timeout_s", "How long it stays without its client; a minute at most before that has shown life."),
        _text("peer", "Where its client connected from."),
        _text("state", "attached, provisional, detached, orphaned or elsewhere (see docs/inspector.md)."),
        _number("expires_in_s", "Until it expires; null while its client is there, or known to another router only."),
        Attribute(
            "confirmed", Type.BOOLEAN, "Whether what is sent now is owed to it; null where its link is not here.",
            is_nullable=True,
        ),
        Attribute("joins_behind", Type.LIST, "Routers it waits for until it is confirmed."),
        _here("lag", "Deliveries it has not settled"),
        _here("held", "Deliveries that wait for its credit"),
        _here("credit", "Deliveries it takes now"),
    ),
    table="subscriptions",
    operations=(
        Operation(
            "expire",
            "End a subscription that is away now instead of when its time is over. Refused while its client is, or may "
            "be, attached; ask the router where it was attached.",
            _ENDED, Role.OPERATOR, (_EPOCH,), is_harmful=True,
        ),
    ),
    delete=Operation("delete", "End it, attached or not.", _ENDED, Role.ADMIN, (_EPOCH,), is_harmful=True),
)  # fmt: skip

PUBLISHER = EntityType(
    "publisher",
    "A publisher's link and its window of unsettled deliveries.",
    "container-id/link-name, or its key",
    (
        _KEY,
        _text("name", "container-id/link-name."),
        _text("topic", "What it publishes to."),
        _text("router", "Where its link is, or was last."),
        _text("rid", "The incarnation of that router."),
        _integer("epoch", "Revision of the last write to its key."),
        _integer("session", "One life of its unsettled map; 0 = none has begun."),
        _text("peer", "Where its client connected from."),
        _text("state", "The phase of its link here, orphaned or elsewhere (see docs/inspector.md)."),
        _number("expires_in_s", "Until its session expires; null while its client is there."),
        _here("unsettled", "Deliveries in its window"),
        _here("unreceived", "Those of them that it has not repeated yet"),
        _here("told", "Those of them whose outcome it was told"),
        _here("bytes", "Bytes of the bodies held for it"),
        _here("credit", "Deliveries it may send now"),
    ),
    table="publishers",
)

CONNECTION = EntityType(
    "connection",
    "A client's connection to the router that is asked.",
    "the client's address host:port, or its container-id when it has one connection only",
    (
        _KEY,
        _text("container_id", "The client's name."),
        _text("peer", "Its address."),
        _integer("links", "Links on it."),
        _integer("publishers", "Publishers among them."),
        _integer("subscriptions", "Subscribers among them."),
    ),
    table="connections",
    operations=(
        Operation(
            "close",
            "Close it with amqp:connection:forced; its links are suspended (A-9). A client that connects again by "
            "itself does so.",
            "None is lost or doubled for clients that keep a map: what is unsettled goes on when they are back. Until "
            "then publishers wait for its subscriptions.",
            Role.OPERATOR, is_harmful=True,
        ),
    ),
    delete=Operation(
        "delete", "The same as close.", "As with close.", Role.OPERATOR, is_harmful=True,
    ),
)  # fmt: skip

LOG = EntityType(
    "log",
    "The log of the router that is asked.",
    "router",
    (
        _KEY,
        Attribute(
            "level", Type.TEXT, "What is logged; nothing is logged per message. Holds until the process ends or the "
            "settings are loaded again.", settable=Role.OPERATOR, choices=LEVELS,
        ),
        _text("format", "text or json: the setting log.format."),
    ),
)  # fmt: skip


_OF_FIELD = {"int": Type.INTEGER, "float": Type.NUMBER, "bool": Type.BOOLEAN, "str": Type.TEXT}


def _of_setting(name: str, written: str) -> Attribute:
    """A setting as an attribute; of a secret one only whether it is set."""
    setting = SETTINGS[name]
    if setting.secret:
        return Attribute(setting.key, Type.BOOLEAN, f"Whether it is set; never shown. {setting.reason}")
    kind = Type.MAP if setting.is_table else _OF_FIELD.get(written, Type.LIST)
    return Attribute(setting.key, kind, setting.reason)


CONFIG = EntityType(
    "config",
    "The settings in force at the router that is asked. They are changed in its file, then loaded (router, reload).",
    "router",
    (_KEY, *(_of_setting(each.name, str(each.type)) for each in fields(RouterConfig) if each.name in SETTINGS)),
)

TYPES: Mapping[str, EntityType] = {
    each.name: each for each in (ROUTER, LINK, TOPIC, SUBSCRIPTION, PUBLISHER, CONNECTION, LOG, CONFIG)
}


def as_data() -> dict[str, object]:
    """The schema as JSON-able data: what GET /api/v1/management/schema answers."""
    defaults = values_of(RouterConfig())
    return {
        "types": {
            entity.name: {
                "meaning": entity.meaning,
                "named_by": entity.naming,
                "attributes": [_attribute(each) for each in entity.attributes],
                "operations": [_operation(each) for each in entity.operations],
                "delete": None if entity.delete is None else _operation(entity.delete),
            }
            for entity in TYPES.values()
        },
        "settings": {setting.key: _setting(setting, defaults[setting.key]) for setting in SETTINGS.values()},
    }


def _setting(setting: Setting, default: object) -> dict[str, object]:
    return {
        "allowed": setting.allowed, "default": None if setting.secret else default,
        "takes_effect": setting.applies.value, "meaning": setting.reason, "secret": setting.secret,
        "flag": setting.flag, "variable": setting.variable,
    }  # fmt: skip


def _attribute(attribute: Attribute) -> dict[str, object]:
    found: dict[str, object] = {
        "name": attribute.name, "type": attribute.type.value, "meaning": attribute.meaning,
        "changed_by": None if attribute.settable is None else attribute.settable.word,
    }  # fmt: skip
    if attribute.choices:
        found["choices"] = list(attribute.choices)
    if attribute.low is not None:
        found |= {"low": attribute.low, "high": attribute.high}
    return found


def _operation(operation: Operation) -> dict[str, object]:
    return {
        "name": operation.name, "meaning": operation.meaning, "deliveries": operation.deliveries,
        "role": operation.role.word, "harmful": operation.is_harmful,
        "arguments": [
            {**_attribute(each), "required": each.is_required} for each in operation.arguments
        ],
    }  # fmt: skip
