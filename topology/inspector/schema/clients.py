"""Entities of clients: subscriptions, publishers, connections, and publishers that wait."""

from __future__ import annotations

from delivery_records.model.tags import REVISION_BITS
from topology.inspector.schema.model import (
    KEY,
    VHOST,
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
    rate,
    seconds,
    text,
)

_EPOCH = Attribute(
    "epoch",
    Type.INTEGER,
    "The epoch that was shown. If the client has attached again since, nothing changes (K-5a).",
    is_required=True,
    low=1,
    high=(1 << REVISION_BITS) - 1,
)
_ENDED = (
    "Its unsettled deliveries count as not accepted: their publishers get the outcomes of the other subscriptions. A "
    "connected client gets a detach with an error. If it attaches again, that is a new subscription without the "
    "messages it missed."
)
_RID = text("rid", "The incarnation of that router.")
_OWNER = (
    "What its client is, as its name shows: `feed of a work queue`, `Consumer or bridge node` (its link has the "
    "name of its topic), `program with a random container-id` (another process makes another one), `member of a "
    "shared subscription`, or `client`."
)

SUBSCRIPTION = EntityType(
    "subscription",
    "A subscription that messages are delivered to. It outlives its client's connection by the timeout it requested.",
    "container-id/link-name, or its key",
    (
        KEY,
        text("name", "container-id/link-name.", Column("subscription", 0)),
        text("topic", "Topic or pattern.", Column("topic", 1)),
        text("filter", "Which messages of it, as canonical text (E-9); empty: all.", Column("filter", 4, "Filter")),
        VHOST,
        text("router", "Router of its link, or of its last link.", Column("router", 0)),
        text(
            "state",
            "`attached` (its link is up, here), `provisional` (the same, but its client has not proved that "
            "it is alive), `detached` (its link is closed; it ends in `expires_in_s`; while that is null, its time "
            "starts when its client ends the AMQP session or connection that its expiry policy names), `orphaned` (its "
            "router has stopped; ends likewise), `elsewhere` (at another live router, which alone knows its link), or "
            "`shared` (its members have the links; without members it is `detached`).",
            Column("state", 0),
        ),
        Attribute(
            "members",
            Type.INTEGER,
            "Members of a shared subscription; null of others.",
            Column("members", 4, ""),
            is_nullable=True,
        ),
        text("member_of", "Shared subscription whose member it is; empty of others.", Column("member of", 5)),
        Attribute("grouped", Type.BOOLEAN, "Whether a shared subscription keeps groups of messages in order (SH-6)."),
        Attribute(
            "stores", Type.BOOLEAN, "Whether it says that it stores messages for others, who process them later (I-3g)."
        ),
        rate(
            "delivered_rate",
            "Deliveries per second to it; null where its link is not here.",
            Column("deliv/s", 2, "Delivered"),
        ),
        here("lag", "Deliveries it has not settled", Column("lag", 2)),
        here("former", "Entries of its map from before etcd began anew, which its application may end (K-9)"),
        here("held", "Those of them that wait for credit or for space in its unsettled map", Column("held", 3)),
        here("credit", "Link credit", Column("credit", 4)),
        seconds(
            "expires_in_s",
            "Until it expires; null while its client is attached, or if only another router knows.",
            Column("ends in", 2, ""),
            Aging.SHRINKS,
            is_nullable=True,
        ),
        Attribute(
            "joins_behind",
            Type.LIST,
            "Routers that have not applied its creation yet (A-6).",
            Column("joins behind", 3, ""),
        ),
        text("mode", "exactly-once, at-least-once or at-most-once.", Column("mode", 5)),
        integer("epoch", "Names the last write to its key; changes with each attach.", Column("epoch", 6)),
        seconds(
            "timeout_s",
            "How long it is kept without its client; at most a minute until the client has proved that "
            "it is alive (A-10).",
            Column("timeout", 7, "Kept for"),
            is_nullable=True,
        ),
        text("peer", "Address of its client.", Column("client", 3, "Client")),
        text("user", "As logged in; empty without a login.", Column("user", 3, "User")),
        text("owner", _OWNER, Column("owner", 5, "Owner")),
        text(
            "incarnation",
            "Incarnation of the subscription, as sent to its client. Text: JavaScript would round it.",
            Column("incarnation", 9),
        ),
        _RID,
        Attribute(
            "confirmed",
            Type.BOOLEAN,
            "Whether messages published now are delivered to it (A-6); null where its link is not here.",
            is_nullable=True,
        ),
    ),
    table="subscriptions",
    operations=(
        Operation(
            "expire",
            "End a disconnected subscription before its timeout. Refused while its client is, or may be, attached. "
            "Send the request to the router where it was attached.",
            _ENDED,
            Role.OPERATOR,
            (_EPOCH,),
            is_harmful=True,
        ),
    ),
    delete=Operation("delete", "End it, attached or not.", _ENDED, Role.ADMIN, (_EPOCH,), is_harmful=True),
)

PUBLISHER = EntityType(
    "publisher",
    "A publisher's link and its window of unsettled deliveries.",
    "container-id/link-name, or its key",
    (
        KEY,
        text("name", "container-id/link-name.", Column("publisher", 0)),
        text("topic", "What it publishes to.", Column("topic", 1)),
        VHOST,
        text("router", "Router of its link, or of its last link.", Column("router", 0)),
        text(
            "state",
            "The phase of its link here (`proving`, `waiting`, `starting`, `active`, `ending`, `closing`, "
            "`suspended`), `orphaned` or `elsewhere`, as of a subscription.",
            Column("state", 0),
        ),
        rate(
            "published_rate",
            "Deliveries per second from it; null where its link is not here.",
            Column("pub/s", 2, "Published"),
        ),
        here("unsettled", "Unsettled deliveries in its window", Column("unsettled", 1)),
        here(
            "granted",
            "Deliveries that it may have unsettled now: those it has and its link credit",
            Column("granted", 2),
        ),
        here(
            "reported",
            "Those of them whose outcome was sent to it and that it has not settled",
            Column("reported", 3, ""),
        ),
        here("unreceived", "Those of them without a body, until it sends them again", Column("unreceived", 3, "")),
        here("credit", "Link credit", Column("credit", 2)),
        here("bytes", "Bytes of the bodies held for it", Column("bytes", 4), Unit.BYTES),
        seconds(
            "expires_in_s",
            "Until its session expires; null while its client is attached.",
            Column("ends in", 4, ""),
            Aging.SHRINKS,
            is_nullable=True,
        ),
        integer("session", "Number of its publisher session; 0 = none has started.", Column("session", 6)),
        integer("epoch", "Names the last write to its key.", Column("epoch", 6)),
        text("peer", "Address of its client.", Column("client", 3, "Client")),
        text("user", "As logged in; empty without a login.", Column("user", 3, "User")),
        _RID,
    ),
    table="publishers",
)

CONNECTION = EntityType(
    "connection",
    "A client's connection to the router that serves the request.",
    "the client's address host:port, or its container-id if it has only one connection",
    (
        KEY,
        text("container_id", "The client's container-id.", Column("container", 0, "Client")),
        text("peer", "Its address.", Column("client", 0, "Address")),
        text("user", "As logged in; empty without a login.", Column("user", 2, "User")),
        text("router", "The router that it is connected to.", Column("router", 2)),
        VHOST,
        integer("links", "Links on it.", Column("links", 1)),
        integer("publishers", "Publishers among them.", Column("pubs", 1, "Publishers")),
        integer("subscriptions", "Subscribers among them.", Column("subs", 1, "Subscriptions")),
    ),
    table="connections",
    operations=(
        Operation(
            "close",
            "Close it with amqp:connection:forced; its links are suspended (A-9). Clients that reconnect automatically "
            "connect again.",
            "None is lost or duplicated for clients that keep an unsettled map: unsettled deliveries resume when they "
            "attach again. Until then publishers wait for its subscriptions.",
            Role.OPERATOR,
            is_harmful=True,
        ),
    ),
    delete=Operation("delete", "Same as close.", "Same as close.", Role.OPERATOR, is_harmful=True),
)

WAIT = EntityType(
    "wait",
    "A publisher at this router with unsettled deliveries, longest wait first. Its attributes describe the oldest "
    "delivery without an outcome.",
    "",
    (
        KEY,
        text("publisher", "container-id/link-name.", Column("publisher", 0)),
        seconds("oldest_s", "How long ago that delivery arrived at this router.", Column("since", 0), Aging.GROWS),
        integer("unsettled", "Deliveries in its window.", Column("unsettled", 1)),
        text("topic", "What it publishes to.", Column("topic", 2)),
        VHOST,
        text("router", "The router that serves the request.", Column("router", 2)),
        integer("credit", "Link credit.", Column("credit", 4)),
        text("oldest_tag", "The delivery's network tag in hex, for `/deliveries`.", Column("tag", 5)),
        Attribute(
            "oldest_is_older",
            Type.BOOLEAN,
            "The delivery is older than `oldest_s`: its publisher attached here after a failover.",
        ),
        text(
            "reason",
            "`subscriptions` (those in `waiting_for` have not accepted it), `publisher-repeats` (the "
            "publisher announced it and has not sent it again), `dead-letter` (a subscription failed it, and nobody "
            "subscribes to its dead-letter topic), `publisher-settles` (all outcomes were sent, the "
            "publisher has not settled), `publisher-away` (the outcome is known, the publisher is disconnected), or "
            "`publisher-proves` (its client has not proved that it is alive).",
        ),
        Attribute(
            "waiting_for",
            Type.LIST,
            "The first 8 subscriptions that have not accepted it.",
            parts=(
                text("subscription", "container-id/link-name."),
                text("key", "Its key."),
                text("owner", _OWNER),
                text("ends_with", "The command that ends it, if nobody needs it any more."),
                text("router", "Router of its link, or of its last link."),
                _RID,
                seconds("since_s", "How long its oldest delivery of this publisher is pending.", aging=Aging.GROWS),
                text(
                    "state",
                    "`in-doubt` (its client has it), `held` (waits at its router), `again` (its client wants "
                    "it again), `detached`, `orphaned`, `unreachable` (no path leads to its router), `underway` (it "
                    "has not arrived at its router), or `elsewhere` (the router named knows more).",
                ),
            ),
        ),
        integer("waiting_for_count", "Number of subscriptions that have not accepted it."),
        text("phase", "Phase of the publisher's link."),
        text("peer", "Address of its client.", Column("client", 3)),
        text("user", "As logged in; empty without a login.", Column("user", 3)),
        integer("granted", "Deliveries that it may have unsettled now: those it has and its link credit."),
        integer("bytes", "Bytes of the bodies held for it.", unit=Unit.BYTES),
        _RID,
    ),
    table="waits",
)
