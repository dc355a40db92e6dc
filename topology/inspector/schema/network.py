"""What every router knows and can be asked for: routers, links, topics; and the log of the router itself."""

from __future__ import annotations

from delivery_records.diagnostics.trace import TRACE_TIME_CAP_S, TRACE_TIME_S
from topology.inspector.schema.model import (
    KEY,
    Attribute,
    Column,
    EntityType,
    Operation,
    Role,
    Type,
    integer,
    text,
)

LEVELS = ("debug", "info", "warning", "error")
MAX_COST = 65_535

_TRACE = Operation(
    "trace",
    "Trace which rules deliveries meet, for a while, or stop it. The answer says what is traced.",
    "None is touched; each traced message costs some time and memory.",
    Role.OPERATOR,
    (
        Attribute(
            "on", Type.BOOLEAN, "true = begin, and forget what was traced before; false = stop.", is_required=True,
        ),
        Attribute("topics", Type.LIST, "Only deliveries to these topics; all when left out."),
        Attribute("publishers", Type.LIST, "Only deliveries of these publishers; all when left out."),
        Attribute("sample", Type.NUMBER, "Share of the deliveries, above 0; 1 when left out.", high=1, low=0),
        Attribute(
            "time_s", Type.NUMBER, f"How long; {TRACE_TIME_S:g} seconds when left out.", high=TRACE_TIME_CAP_S, low=0,
        ),
    ),
)  # fmt: skip

ROUTER = EntityType(
    "router",
    "A router of the network. Operations are for the router that is asked; of others only attributes are known.",
    "its id, or its rid",
    (
        text("id", "Its name: the setting id.", Column("router", 0)),
        text("state", "serving, draining or leaving.", Column("state", 0)),
        integer("subscriptions", "Subscriptions attached there.", Column("subs", 1)),
        integer("publishers", "Publishers attached there.", Column("pubs", 1)),
        Attribute(
            "next_hop", Type.TEXT, "The neighbour on the best path; null without a path.",
            Column("via", 2, "Next hop"), is_nullable=True,
        ),
        Attribute(
            "distance", Type.INTEGER, "Cost of the best path; 0 for the router itself, null without a path.",
            Column("cost", 2),
            is_nullable=True,
        ),
        text("http", "Where operators connect; empty = nowhere.", Column("http", 3, "")),
        text("amqp", "Where clients connect.", Column("amqp", 4, "")),
        text("version", "Of the software.", Column("version", 5)),
        text("key", KEY.meaning, Column("rid", 6, "")),
        Attribute("is_self", Type.BOOLEAN, "Whether it is the router that was asked."),
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
        _TRACE,
    ),
)  # fmt: skip

LINK = EntityType(
    "link",
    "One direction of a link between two routers, as all routers know it. A cost belongs to one direction: it counts "
    "for frames from `from` to `to`. Change it at the router `from`; for both directions, at both routers.",
    "the id of the neighbour, for a link from the router that is asked; or the key",
    (
        text("key", "`RID>RID` of the two routers: unique, and stays the same while both incarnations last."),
        text("from", "The router that sends.", Column("from", 0)),
        text("to", "The router that receives.", Column("to", 0)),
        Attribute(
            "cost", Type.INTEGER,
            "1 to 65535, lower is better. A change takes effect at once in all routers, and the link stays up. It "
            "holds until the process ends, also when the link is made again; null = as the two routers' settings say.",
            Column("cost", 0), settable=Role.OPERATOR, is_nullable=True, low=1, high=MAX_COST,
        ),
        text("state", "up, or one-way: only one end knows of it, and it is not used.", Column("state", 1)),
        Attribute(
            "on_best_path", Type.BOOLEAN, "Part of a best path from the router that is asked.",
            Column("on a best path", 2, "Best path"),
        ),
        text("from_rid", "Its incarnation."),
        text("to_rid", "Its incarnation."),
    ),
    table="links",
)  # fmt: skip

TOPIC = EntityType(
    "topic",
    "A topic, or a pattern that somebody subscribes to. Nothing creates it: it is there while somebody uses it. A "
    "pattern is listed as itself.",
    "its name",
    (
        KEY,
        text("name", "The topic, or the pattern.", Column("topic", 0)),
        integer("publishers", "Publishers to it; to a pattern, those it matches.", Column("pubs", 0, "Publishers")),
        integer(
            "subscriptions",
            "Subscriptions that get what is published to it; for a pattern, those with just this pattern.",
            Column("subs", 0, "Subscriptions"),
        ),
        integer(
            "waiting", "Publishers at this router whose oldest delivery is unsettled for more than a second.",
            Column("waiting", 1, "Publishers here that wait over 1 s"),
        ),
        Attribute("is_pattern", Type.BOOLEAN, "Whether it has wildcards.", Column("pattern", 2, "")),
    ),
    table="topics",
)  # fmt: skip

LOG = EntityType(
    "log",
    "The log of the router that is asked.",
    "router",
    (
        KEY,
        Attribute(
            "level", Type.TEXT, "What is logged; nothing is logged per message. Holds until the process ends or the "
            "settings are loaded again.", settable=Role.OPERATOR, choices=LEVELS,
        ),
        text("format", "text or json: the setting log.format."),
    ),
)  # fmt: skip
