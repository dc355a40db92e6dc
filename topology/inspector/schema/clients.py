"""Clients and what they have attached: subscriptions, publishers, connections, and publishers that wait."""

from __future__ import annotations

from delivery_records.tags import REVISION_BITS
from topology.inspector.schema.model import (
    KEY,
    Aging,
    Attribute,
    Column,
    EntityType,
    Operation,
    Role,
    Type,
    Unit,
    here,
    integer,
    seconds,
    text,
)

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
_RID = text("rid", "The incarnation of that router.")

SUBSCRIPTION = EntityType(
    "subscription",
    "What messages are owed to. It outlives its client's connection for as long as it asked for.",
    "container-id/link-name, or its key",
    (
        KEY,
        text("name", "container-id/link-name.", Column("subscription", 0)),
        text("topic", "Topic or pattern.", Column("topic", 1)),
        text("router", "Where its link is, or was last.", Column("router", 0)),
        text(
            "state", "`attached` (its link is up, here), `provisional` (the same, but its client has not shown life "
            "yet), `detached` (its link is gone; it ends in `expires_in_s`, or, while that is null, so long after its "
            "client has ended the AMQP session or connection that its expiry policy names), `orphaned` (its router is "
            "gone; ends likewise), or `elsewhere` (at another live router, which alone knows whether its link is up).",
            Column("state", 0),
        ),
        here("lag", "Deliveries it has not settled", Column("lag", 2)),
        here("held", "Those of them that wait for its credit or for room in its map", Column("held", 3)),
        here("credit", "Deliveries it takes now", Column("credit", 4)),
        seconds(
            "expires_in_s", "Until it expires; null while its client is there, or known to another router only.",
            Column("ends in", 2, ""), Aging.SHRINKS, is_nullable=True,
        ),
        Attribute(
            "joins_behind", Type.LIST, "Routers that have not applied its creation, until it is confirmed (A-6).",
            Column("joins behind", 3, ""),
        ),
        text("mode", "exactly-once, at-least-once or at-most-once.", Column("mode", 5)),
        integer(
            "epoch", "Revision of the last write to its key; changes with each attach.", Column("epoch", 6),
        ),
        seconds(
            "timeout_s", "How long it stays without its client; a minute at most until that has shown life (A-10), "
            "also where it has left before.",
            Column("timeout", 7, "Kept for"), is_nullable=True,
        ),
        text("peer", "Where its client connected from.", Column("peer", 8, "Client")),
        text(
            "incarnation", "One life of the subscription, as its client is told. Text: JavaScript would round it.",
            Column("incarnation", 9),
        ),
        _RID,
        Attribute(
            "confirmed", Type.BOOLEAN, "Whether what is sent now is owed to it (A-6); null where its link is not here.",
            is_nullable=True,
        ),
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
        KEY,
        text("name", "container-id/link-name.", Column("publisher", 0)),
        text("topic", "What it publishes to.", Column("topic", 1)),
        text("router", "Where its link is, or was last.", Column("router", 0)),
        text(
            "state", "The phase of its link here (`proving`, `waiting`, `starting`, `active`, `closing`, `suspended`), "
            "`orphaned` or `elsewhere`, as of a subscription.", Column("state", 0),
        ),
        here("unsettled", "Deliveries in its window", Column("unsettled", 1)),
        here("told", "Those of them whose outcome it was told and has not settled", Column("told", 3, "")),
        here(
            "unreceived", "Those of them that are known by name only, until it repeats them",
            Column("unreceived", 3, ""),
        ),
        here("credit", "Deliveries it may send now", Column("credit", 2)),
        here("bytes", "Bytes of the bodies held for it", Column("bytes", 4), Unit.BYTES),
        seconds(
            "expires_in_s", "Until its session expires; null while its client is there.", Column("ends in", 4, ""),
            Aging.SHRINKS, is_nullable=True,
        ),
        integer("session", "One life of its unsettled map; 0 = none has begun.", Column("session", 6)),
        integer("epoch", "Revision of the last write to its key.", Column("epoch", 6)),
        text("peer", "Where its client connected from.", Column("peer", 7, "Client")),
        _RID,
    ),
    table="publishers",
)  # fmt: skip

CONNECTION = EntityType(
    "connection",
    "A client's connection to the router that is asked.",
    "the client's address host:port, or its container-id when it has one connection only",
    (
        KEY,
        text("container_id", "The client's name.", Column("container", 0, "Client")),
        text("peer", "Its address.", Column("peer", 0, "Address")),
        integer("links", "Links on it.", Column("links", 1)),
        integer("publishers", "Publishers among them.", Column("pubs", 1, "Publishers")),
        integer("subscriptions", "Subscribers among them.", Column("subs", 1, "Subscriptions")),
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
    delete=Operation("delete", "The same as close.", "As with close.", Role.OPERATOR, is_harmful=True),
)  # fmt: skip

WAIT = EntityType(
    "wait",
    "A publisher here with unsettled deliveries; those that wait longest come first. It is about the oldest delivery "
    "whose outcome is open.",
    "",
    (
        KEY,
        text("publisher", "container-id/link-name.", Column("publisher", 0)),
        seconds(
            "oldest_s", "How long ago that delivery arrived at this router.", Column("since", 0), Aging.GROWS,
        ),
        integer("unsettled", "Deliveries in its window.", Column("unsettled", 1)),
        text("topic", "What it publishes to.", Column("topic", 2)),
        text("router", "The router that is asked.", Column("router", 2)),
        integer("credit", "Deliveries it may send now.", Column("credit", 4)),
        text("oldest_tag", "The delivery's network tag in hex, for `/deliveries`.", Column("tag", 5)),
        Attribute(
            "oldest_is_older", Type.BOOLEAN,
            "The publisher came from another router with the delivery, which is older than `oldest_s`.",
        ),
        text(
            "reason", "`subscriptions` (those in `waiting_for` owe it), `publisher-repeats` (it was announced and has "
            "not been sent again), `publisher-settles` (all outcomes were told, the publisher has not settled), "
            "`publisher-away` (its outcome is known, and there is no link to tell it on), or `publisher-proves` (the "
            "link has not shown life).",
        ),
        Attribute(
            "waiting_for", Type.LIST, "The first 8 subscriptions that owe it.",
            parts=(
                text("subscription", "container-id/link-name."),
                text("key", "Its key."),
                text("router", "Where it is attached, or was last."),
                _RID,
                seconds(
                    "since_s", "How long it has owed its oldest delivery of this publisher.", aging=Aging.GROWS,
                ),
                text(
                    "state", "`in-doubt` (its client has it), `held` (waits at its router), `again` (its client wants "
                    "it again), `detached`, `orphaned`, `unreachable` (no path leads to its router), `underway` (it "
                    "has not arrived at its router), or `elsewhere` (the router named knows more).",
                ),
            ),
        ),
        integer("waiting_for_count", "Subscriptions that owe it, named or not."),
        text("phase", "Phase of the publisher's link."),
        integer("bytes", "Bytes of the bodies held for it.", unit=Unit.BYTES),
        _RID,
    ),
    table="waits",
)  # fmt: skip
