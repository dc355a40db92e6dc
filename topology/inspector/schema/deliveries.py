"""A delivery's record, as one router holds it."""

from __future__ import annotations

from topology.inspector.schema.model import VHOST, Attribute, Column, EntityType, Type, Unit, integer, seconds, text

_OPEN_SINCE = seconds(
    "since_s", "How long ago the delivery arrived; null when nothing is pending.", Column("since", 0), is_nullable=True
)


def _nullable(name: str, kind: Type, meaning: str, column: Column | None = None, unit: Unit | None = None) -> Attribute:
    return Attribute(name, kind, meaning, column, unit, is_nullable=True)


# The page lays out these attributes itself (empty labels). It shows a new attribute that has a label below them.
DELIVERY = EntityType(
    "delivery",
    "A router's record of a delivery.",
    "",
    (
        text(
            "role",
            "`ingress` (the router of its publisher), `egress` (a router of its subscriptions), or `past` (its "
            "record is deleted; traced rules remain).",
        ),
        text("router", "The router that has the record."),
        text("rid", "Its incarnation."),
        text("publisher", "container-id/link-name.", Column("publisher", 0, "")),
        _nullable(
            "publisher_tag",
            Type.TEXT,
            "The publisher's tag in hex; null where it is not known.",
            Column("its tag", 0, ""),
        ),
        text("network_tag", "The tag that subscribers see, in hex.", Column("network tag", 0, "")),
        text("topic", "What it was published to; empty in a past record.", Column("topic", 0, "")),
        VHOST,
        text("state", "`in-doubt`, `accepted`, `rejected` or `settled`.", Column("state", 0, "")),
        _nullable(
            "size", Type.INTEGER, "Of the bare message; null where no body is held.", Column("size", 0, ""), Unit.BYTES
        ),
        _nullable("digest", Type.TEXT, "SHA-256 of the bare message in hex.", Column("sha-256", 0, "")),
        _nullable("first_bytes", Type.TEXT, "Of the bare message, in base64; null without the right to see bodies."),
        integer("session", "The publisher's session."),
        _nullable("number", Type.INTEGER, "Its place in the session; null where it is not known."),
        _nullable(
            "arrived_s",
            Type.NUMBER,
            "How long ago it arrived, or was declared by the map of a publisher that attached again.",
            Column("age", 0, ""),
            Unit.SECONDS,
        ),
        Attribute(
            "local_subscriptions",
            Type.LIST,
            "Subscriptions at this router.",
            Column("subscriptions", 0, ""),
            parts=(
                text("name", "container-id/link-name.", Column("subscription", 0)),
                text("state", "`in-doubt`, `accepted`, `rejected`, `expired` or `settled`.", Column("state", 0)),
                _nullable(
                    "detail",
                    Type.TEXT,
                    "`held`, `sent`, `known`, `done`, `again`, `skipped` or `expired`.",
                    Column("detail", 0),
                ),
                _OPEN_SINCE,
            ),
        ),
        integer("local_count", "How many they are; at most 500 are listed."),
        Attribute(
            "other_routers",
            Type.LIST,
            "Other routers with subscriptions, at the ingress.",
            Column("other routers", 0, ""),
            parts=(
                text("router", "Its id.", Column("router", 0)),
                text("rid", "Its incarnation."),
                text("state", "`in-doubt`, `accepted` or `rejected`.", Column("state", 0)),
                integer("subscriptions", "Subscriptions there.", Column("subscriptions", 0)),
                integer("owing", "Those of them that are pending.", Column("pending", 0)),
                _OPEN_SINCE,
            ),
        ),
        Attribute(
            "rules",
            Type.LIST,
            "The rules applied to it, while they are traced.",
            Column("rules", 0, ""),
            parts=(
                seconds("at_s", "How long ago.", Column("ago", 0)),
                text("rule", "Its name on the protocol page.", Column("rule", 0)),
                text("text", "What was done.", Column("", 0)),
            ),
        ),
        _nullable("rules_off", Type.TEXT, "Why no rules are listed; null when they are traced."),
    ),
    table="deliveries",
)
