"""Entities that every router knows: routers, links, topics; and the log of the router itself."""

from __future__ import annotations

from delivery_records.model.trace import TRACE_TIME_CAP_S, TRACE_TIME_S
from topology.inspector.schema.model import (
    KEY,
    VHOST,
    Attribute,
    Column,
    EntityType,
    Operation,
    Role,
    Type,
    Unit,
    acceptance,
    integer,
    rate,
    text,
)

LEVELS = ("debug", "info", "warning", "error")
MAX_COST = 65_535

_TRACE = Operation(
    "trace",
    "Start or stop a trace of the rules applied to deliveries. The reply lists what is traced.",
    "None is affected. Each traced message costs some time and memory.",
    Role.OPERATOR,
    (
        Attribute("on", Type.BOOLEAN, "true = start, and delete the previous trace; false = stop.", is_required=True),
        Attribute("topics", Type.LIST, "Only deliveries to these topics. Default: all."),
        Attribute("publishers", Type.LIST, "Only deliveries of these publishers. Default: all."),
        Attribute("sample", Type.NUMBER, "Share of the deliveries, above 0. Default: 1.", high=1, low=0),
        Attribute("time_s", Type.NUMBER, f"Duration. Default: {TRACE_TIME_S:g} seconds.", high=TRACE_TIME_CAP_S, low=0),
    ),
)

_EXPLAIN = Operation(
    "explain",
    "Show which rules decide for a user: of access, quotas, slow subscribers and groups, and what the user uses; for a "
    "topic to publish to, also its policy. Rules "
    "are numbered from 1 on.",
    "None is affected.",
    Role.VIEWER,
    (
        text("user", "The user. Default: whoever has not logged in."),
        text("vhost", "The virtual host. Default: the default one."),
        text("publish", "A topic, or the address of a queue, to publish to."),
        text("subscribe", "A topic, a pattern, or the address of a queue, to subscribe to."),
        text("view", "The address of a queue whose payloads are to be seen: queue://NAME."),
        text("replay", "The address of a queue whose items are to be replayed: queue://NAME."),
    ),
)

ROUTER = EntityType(
    "router",
    "A router of the network. A router runs operations on itself only.",
    "its id, or its rid",
    (
        text("id", "Its name: the setting id.", Column("router", 0)),
        text("state", "serving, draining or leaving.", Column("state", 0)),
        integer("subscriptions", "Subscriptions attached there.", Column("subs", 1)),
        integer("publishers", "Publishers attached there.", Column("pubs", 1)),
        Attribute(
            "next_hop",
            Type.TEXT,
            "The neighbour on the best path; null without a path.",
            Column("via", 2, "Next hop"),
            is_nullable=True,
        ),
        Attribute(
            "distance",
            Type.INTEGER,
            "Cost of the best path; 0 for the router itself, null without a path.",
            Column("cost", 2),
            is_nullable=True,
        ),
        text("http", "HTTP address for operators; empty = it serves no HTTP.", Column("http", 3, "")),
        text("amqp", "Address for clients.", Column("amqp", 4, "")),
        text("version", "Version of the software.", Column("version", 5)),
        text(
            "group",
            "What workers behind one address have in common: the setting id; empty = it is one process.",
            Column("group", 5, "Group"),
        ),
        text("key", KEY.meaning, Column("rid", 6, "")),
        Attribute("is_self", Type.BOOLEAN, "Whether it is the router that serves the request."),
        rate(
            "published_rate",
            "Deliveries per second from publishers there; null where only that router knows.",
            Column("pub/s", 2, "Published"),
        ),
        rate(
            "delivered_rate",
            "Deliveries per second to subscribers there; null likewise.",
            Column("deliv/s", 2, "Delivered"),
        ),
        *acceptance(),
    ),
    table="routers",
    operations=(
        Operation(
            "drain",
            "Redirect its clients to other routers, then stop, as SIGTERM does (K-8a). The reply has the time limit.",
            "A client that keeps an unsettled map loses and repeats nothing. A client without one may get deliveries "
            "again, marked, that are unsettled after limits.drain_limit_s.",
            Role.OPERATOR,
            is_harmful=True,
        ),
        Operation(
            "reload",
            "Read the configuration file again, as SIGHUP does. A file with an error changes nothing. The reply lists "
            "the settings that took effect (changed) and those that need a restart (needs_restart).",
            "None is affected.",
            Role.ADMIN,
        ),
        _TRACE,
        _EXPLAIN,
    ),
)

LINK = EntityType(
    "link",
    "One direction of a link between two routers, as all routers know it. A cost applies to one direction: to frames "
    "from `from` to `to`. Change it at the router `from`; for both directions, at both routers.",
    "the id of the neighbour, for a link from the router that serves the request; or the key",
    (
        text("key", "`RID>RID` of the two routers: unique, and constant during both incarnations."),
        text("from", "The router that sends.", Column("from", 0)),
        text("to", "The router that receives.", Column("to", 0)),
        Attribute(
            "cost",
            Type.INTEGER,
            "1 to 65535, lower is better. A change takes effect at once in all routers; the link stays up. It applies "
            "until the process stops, also after a reconnect; null = the cost in the two routers' settings.",
            Column("cost", 0),
            settable=Role.OPERATOR,
            is_nullable=True,
            low=1,
            high=MAX_COST,
        ),
        text("state", "up, or one-way: only one end announces it, and it is not used.", Column("state", 1)),
        Attribute(
            "on_best_path",
            Type.BOOLEAN,
            "Part of a best path from the router that serves the request.",
            Column("on a best path", 2, "Best path"),
        ),
        rate(
            "bytes_rate",
            "Bytes per second in this direction; null where only the two routers know.",
            Column("bytes/s", 2, "Flow"),
            Unit.BYTE_RATE,
        ),
        text("from_rid", "Its incarnation."),
        text("to_rid", "Its incarnation."),
    ),
    table="links",
)

_PUBLISH = Operation(
    "publish",
    "Publish a test message at this router, as a client does. Rules of access hold for the user. The reply has its "
    "network tag, and its outcome with the seconds it took, if that came within a second. Unless something else is "
    "traced at this router, the rules applied to the message are traced for a minute.",
    "It goes to all subscriptions of the topic, as any message. Other deliveries are not affected.",
    Role.OPERATOR,
    (Attribute("body", Type.TEXT, "The text, at most 4,096 bytes in UTF-8.", is_required=True),),
)

TOPIC = EntityType(
    "topic",
    "A topic, or a pattern of a subscription. Topics are not created: a topic exists while a client uses it.",
    "its name; in a virtual host $VHOST/NAME",
    (
        KEY,
        text("name", "The topic, or the pattern.", Column("topic", 0)),
        VHOST,
        integer(
            "publishers", "Publishers to it; for a pattern, to the topics it matches.", Column("pubs", 0, "Publishers")
        ),
        integer(
            "subscriptions",
            "Subscriptions that receive its messages; for a pattern, those with exactly this pattern.",
            Column("subs", 0, "Subscriptions"),
        ),
        integer(
            "waiting",
            "Publishers at this router whose oldest delivery has been unsettled for more than 1 s.",
            Column("waiting", 1, "Wait over 1 s"),
        ),
        rate(
            "published_rate",
            "Deliveries per second from publishers at this router; 0 for a pattern.",
            Column("pub/s", 2, "Published"),
        ),
        rate(
            "delivered_rate",
            "Deliveries per second to subscriptions here with exactly this topic or pattern.",
            Column("deliv/s", 2, "Delivered"),
        ),
        *acceptance(),
        Attribute("is_pattern", Type.BOOLEAN, "Whether it has wildcards.", Column("pattern", 2, "")),
        text(
            "policy",
            "What topics.rules and limits.* of the router that serves the request decide for it (I-3d); "
            "empty for a pattern. Two words of on_empty: for publishers without the capability, and with it.",
        ),
    ),
    table="topics",
    operations=(_PUBLISH,),
)

LOG = EntityType(
    "log",
    "The log of the router that serves the request.",
    "router",
    (
        KEY,
        Attribute(
            "level",
            Type.TEXT,
            "Lowest level that is logged. Applies until the process stops or the settings are loaded again.",
            settable=Role.OPERATOR,
            choices=LEVELS,
        ),
        text("format", "text or json: the setting log.format."),
    ),
)
