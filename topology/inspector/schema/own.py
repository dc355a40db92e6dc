"""Entities that only the router itself knows: its overview, channels, neighbours, events."""

from __future__ import annotations

from topology.inspector.schema.model import (
    KEY,
    Aging,
    Attribute,
    Column,
    EntityType,
    Metric,
    Type,
    Unit,
    integer,
    seconds,
    text,
)

_ROUTER = text("router", "The other router's id.", Column("router", 0))
_AT = text("at", "The router that reports it.", Column("at", 2, "At"))
_RID = text("rid", "Its incarnation.", Column("rid", 3, ""))

CHANNEL = EntityType(
    "channel",
    "A channel from this router's record core to that of another router, with credit of its own.",
    "",
    (
        KEY,
        _AT,
        _ROUTER,
        text("state", "State of the channel.", Column("state", 0)),
        integer("generation", "Increases when the channel is set up again.", Column("generation", 2)),
        integer("sent", "Frames sent.", Column("sent", 1)),
        integer("received", "Frames received.", Column("received", 1)),
        integer("waiting", "Frames that wait for credit.", Column("waiting", 1, "Waiting for credit")),
        _RID,
    ),
    table="channels",
)

NEIGHBOUR = EntityType(
    "neighbour",
    "A router that this router is connected to.",
    "",
    (
        KEY,
        _AT,
        _ROUTER,
        integer("cost", "Cost of the link from this router.", Column("cost", 0)),
        integer(
            "waiting_bytes",
            "Bytes queued for it.",
            Column("waiting bytes", 1, "Waiting"),
            Unit.BYTES,
            Metric("oncewire_neighbour_waiting_bytes", "Bytes queued for a neighbour"),
        ),
        integer(
            "dropped_frames",
            "Bodies dropped because it was slow.",
            Column("dropped", 1, "Bodies dropped"),
            metric=Metric("oncewire_neighbour_dropped_frames", "Bodies dropped because a neighbour was slow", True),
        ),
        integer(
            "bytes_in",
            "Bytes received from it.",
            Column("bytes in", 2, "In"),
            Unit.BYTES,
            Metric("oncewire_neighbour_bytes", "Bytes from and to neighbours", True, "in"),
        ),
        integer(
            "bytes_out",
            "Bytes sent to it.",
            Column("bytes out", 2, "Out"),
            Unit.BYTES,
            Metric("oncewire_neighbour_bytes", "Bytes from and to neighbours", True, "out"),
        ),
        _RID,
    ),
    table="neighbours",
)

EVENT = EntityType(
    "event",
    "A line of this router's log.",
    "",
    (
        integer("seq", "Its sequence number."),
        text("router", "Whose log it is; only in a reply of all routers.", Column("router", 2, "")),
        text("time", "When it was logged (RFC 3339, UTC).", Column("time", 0)),
        text("level", "debug, info, warning or error.", Column("level", 1)),
        text("event", "Its name.", Column("event", 0)),
        Attribute("fields", Type.MAP, "Its fields, by name.", Column("fields", 0)),
    ),
    table="events",
)

OVERVIEW = EntityType(
    "overview",
    "The router that serves the request.",
    "",
    (
        text("router", "Its id."),
        text("rid", "Its incarnation; empty without a lease."),
        text("version", "Of the software."),
        seconds("uptime_s", "Time since its process started.", aging=Aging.GROWS),
        Attribute(
            "ready",
            Type.BOOLEAN,
            "Whether it accepts clients.",
            metric=Metric("oncewire_ready", "1 if the router accepts clients"),
        ),
        Attribute("waiting_for", Type.LIST, "What is missing until it accepts clients."),
        Attribute(
            "draining",
            Type.MAP,
            "Null unless it drains (K-8a).",
            is_nullable=True,
            metric=Metric("oncewire_draining", "1 while this router drains"),
            parts=(
                seconds("limit_s", "Longest wait for its clients."),
                seconds("left_s", "Until it stops.", aging=Aging.SHRINKS),
            ),
        ),
        seconds(
            "lease_left_s",
            "Until it stops serving, if etcd stays unreachable.",
            metric=Metric("oncewire_lease_left_seconds", "Time until this router stops serving if etcd is unreachable"),
        ),
        integer(
            "applied",
            "The revision of etcd that it has applied; 0 without a lease.",
            metric=Metric("oncewire_applied_revision", "etcd revision this router has applied"),
        ),
        Attribute("standalone", Type.BOOLEAN, "It runs without etcd and other routers."),
        Attribute(
            "counts",
            Type.MAP,
            "Of the network as this router knows it, and of this router.",
            parts=(
                integer(
                    "routers",
                    "Routers of the network.",
                    metric=Metric("oncewire_routers", "Routers of the network in etcd"),
                ),
                integer("links", "Links between routers; each direction counts once."),
                integer("topics", "Topics and patterns."),
                integer(
                    "subscriptions",
                    "Subscriptions of the network.",
                    metric=Metric("oncewire_subscriptions", "Subscriptions of the network"),
                ),
                integer(
                    "publishers",
                    "Publishers of the network.",
                    metric=Metric("oncewire_publishers", "Publishers of the network"),
                ),
                integer("windows", "Publishers here."),
                integer(
                    "joining",
                    "New subscriptions here that not every router has applied yet (A-6).",
                    metric=Metric("oncewire_barriers_waiting", "New subscriptions here, unknown to some routers"),
                ),
                integer(
                    "connections",
                    "Client connections here.",
                    metric=Metric("oncewire_client_connections", "Open client connections"),
                ),
                integer("waiting_publishers", "Publishers here with unsettled deliveries."),
                integer("delayed_1s", "Those whose oldest delivery is unsettled for more than 1 s."),
                integer("stuck_10s", "Those whose oldest delivery is unsettled for more than 10 s."),
                integer("held_10s", "Subscriptions here that could be sent none of their held deliveries for 10 s."),
            ),
        ),
        Attribute(
            "can",
            Type.MAP,
            "What the caller may do.",
            parts=(
                Attribute("manage", Type.BOOLEAN, "Change things."),
                Attribute("bodies", Type.BOOLEAN, "See the first bytes of messages."),
                Attribute("queues", Type.BOOLEAN, "See work queues: this router has the setting `queue_store`."),
            ),
        ),
    ),
    table="overview",
)
