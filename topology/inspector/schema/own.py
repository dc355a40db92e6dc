"""What a router knows of itself alone: its overview, channels, neighbours, events."""

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
_RID = text("rid", "Its incarnation.", Column("rid", 3, ""))

CHANNEL = EntityType(
    "channel",
    "A channel of this router's record core to that of another router; its frames wait for the other side's credit.",
    "",
    (
        KEY,
        _ROUTER,
        text("state", "State of the channel.", Column("state", 0)),
        integer("generation", "Grows whenever the channel begins anew.", Column("generation", 2)),
        integer("sent", "Frames sent.", Column("sent", 1)),
        integer("received", "Frames received.", Column("received", 1)),
        integer("waiting", "Frames that wait for credit.", Column("waiting", 1, "Waiting for credit")),
        _RID,
    ),
    table="channels",
)

NEIGHBOUR = EntityType(
    "neighbour",
    "A router that this router has a connection to.",
    "",
    (
        KEY,
        _ROUTER,
        integer("cost", "Cost of the link from this router.", Column("cost", 0)),
        integer(
            "waiting_bytes", "Bytes that wait to be sent to it.", Column("waiting bytes", 1, "Waiting"), Unit.BYTES,
            Metric("oncewire_neighbour_waiting_bytes", "Bytes that wait for a neighbour"),
        ),
        integer(
            "dropped_frames", "Bodies dropped because it was slow.", Column("dropped", 1, "Bodies dropped"),
            metric=Metric("oncewire_neighbour_dropped_frames", "Bodies dropped because a neighbour was slow", True),
        ),
        integer(
            "bytes_in", "Bytes received from it.", Column("bytes in", 2, "In"), Unit.BYTES,
            Metric("oncewire_neighbour_bytes", "Bytes from and to neighbours", True, "in"),
        ),
        integer(
            "bytes_out", "Bytes sent to it.", Column("bytes out", 2, "Out"), Unit.BYTES,
            Metric("oncewire_neighbour_bytes", "Bytes from and to neighbours", True, "out"),
        ),
        _RID,
    ),
    table="neighbours",
)  # fmt: skip

EVENT = EntityType(
    "event",
    "A line of this router's log.",
    "",
    (
        integer("seq", "Its running number."),
        text("time", "When it was logged (RFC 3339, UTC).", Column("time", 0)),
        text("level", "debug, info, warning or error.", Column("level", 1)),
        text("event", "Its name.", Column("event", 0)),
        Attribute("fields", Type.MAP, "What it says, by name.", Column("fields", 0)),
    ),
    table="events",
)

OVERVIEW = EntityType(
    "overview",
    "The router that is asked.",
    "",
    (
        text("router", "Its id."),
        text("rid", "Its incarnation; empty while it has no lease."),
        text("version", "Of the software."),
        seconds("uptime_s", "Since its process started.", aging=Aging.GROWS),
        Attribute(
            "ready", Type.BOOLEAN, "Whether clients are welcome.",
            metric=Metric("oncewire_ready", "1 when clients are welcome"),
        ),
        Attribute("waiting_for", Type.LIST, "What is missing until clients are welcome."),
        Attribute(
            "draining", Type.MAP, "Null while it serves (K-8a).", is_nullable=True,
            metric=Metric("oncewire_draining", "1 while this router sends its clients away"),
            parts=(
                seconds("limit_s", "How long it waits for its clients at most."),
                seconds("left_s", "Until it stops.", aging=Aging.SHRINKS),
            ),
        ),
        seconds(
            "lease_left_s", "Until it stops serving without etcd.",
            metric=Metric("oncewire_lease_left_seconds", "Time until this router stops serving without etcd"),
        ),
        integer(
            "applied", "etcd's revision it has applied; 0 while it has no lease.",
            metric=Metric("oncewire_applied_revision", "etcd revision this router has applied"),
        ),
        Attribute("standalone", Type.BOOLEAN, "It has no etcd and no other routers."),
        Attribute(
            "counts", Type.MAP, "Of the network as it knows it, and of itself.",
            parts=(
                integer(
                    "routers", "Routers of the network.",
                    metric=Metric("oncewire_routers", "Routers of the network, as this one knows it from etcd"),
                ),
                integer("links", "Links between routers; each direction counts."),
                integer("topics", "Topics and patterns."),
                integer(
                    "subscriptions", "Subscriptions of the network.",
                    metric=Metric("oncewire_subscriptions", "Subscriptions of the network"),
                ),
                integer(
                    "publishers", "Publishers of the network.",
                    metric=Metric("oncewire_publishers", "Publishers of the network"),
                ),
                integer("windows", "Publishers here."),
                integer(
                    "joining", "New subscriptions here that some router has not heard of yet (A-6).",
                    metric=Metric("oncewire_barriers_waiting", "Subscriptions here that not every router knows yet"),
                ),
                integer(
                    "connections", "Connections of clients here.",
                    metric=Metric("oncewire_client_connections", "Client connections that are open"),
                ),
                integer("waiting_publishers", "Publishers here with unsettled deliveries."),
                integer("delayed_1s", "Those whose oldest delivery is unsettled for more than 1 s."),
                integer("stuck_10s", "Those whose oldest delivery is unsettled for more than 10 s."),
                integer("held_10s", "Subscriptions here with held deliveries of which none could be sent for 10 s."),
            ),
        ),
        Attribute(
            "can", Type.MAP, "What whoever asks may do.",
            parts=(
                Attribute("manage", Type.BOOLEAN, "Change things."),
                Attribute("bodies", Type.BOOLEAN, "See the first bytes of messages."),
                Attribute("queues", Type.BOOLEAN, "See work queues: this router has the setting `queue_store`."),
            ),
        ),
    ),
    table="overview",
)  # fmt: skip
