"""Tables for people: what this router knows and holds, as plain data (`oncewire inspect` shows them)."""

from __future__ import annotations

from collections.abc import Mapping

from delivery_records.attachments.barrier import AttachBarrier
from delivery_records.attachments.endpoints import Endpoints
from delivery_records.channels.channel import Channel, Channels
from delivery_records.model.turn import Turn
from delivery_records.model.view import Publisher, Router, Subscription
from delivery_records.publisher.ingress import Ingress
from delivery_records.subscriber.egress import Egress
from delivery_records.subscriber.entries import State

WAITING_NAMES = 8
"""Subscriptions named for the oldest delivery a publisher waits for; the count is always given."""


def describe(
    node_id: str, turn: Turn, endpoints: Endpoints, channels: Channels, barrier: AttachBarrier
) -> dict[str, object]:
    """Everything this router knows of the network and of what it holds. JSON-able."""
    view = turn.view
    names = {rid: router.record.node_id for rid, router in view.routers.items()}
    return {
        "router": node_id,
        "rid": turn.rid,
        "applied": view.applied,
        "routers": [_router(router) for _, router in sorted(view.routers.items())],
        "subscriptions": [_subscription(turn, names, subscription) for subscription in view.subscriptions.values()],
        "publishers": [_publisher(names, publisher) for publisher in view.publishers.values()],
        "windows": [_window(ingress) for ingress in endpoints.ingresses.values()],
        "endpoints": [_endpoint(egress) for egress in endpoints.egresses.values()],
        "channels": [_channel(names, channel) for channel in channels.existing()],
        "barrier_waiting": barrier.waiting,
        "counts": {decision.value: count for decision, count in turn.counts.items() if count},
    }


def _router(router: Router) -> dict[str, object]:
    record = router.record
    return {
        "id": record.node_id,
        "rid": record.rid,
        "amqp": record.amqp,
        "http": record.http,
        "draining": record.draining,
        "leaving": record.leaving,
        "group": record.group,
    }


def _subscription(turn: Turn, names: Mapping[int, str], subscription: Subscription) -> dict[str, object]:
    record = subscription.record
    return {
        "name": subscription.name,
        "topic": record.topic,
        "router": names.get(record.rid, "gone"),
        "epoch": subscription.epoch,
        "incarnation": turn.reported_incarnation(subscription.created),
        "mode": record.mode.value,
        "timeout_s": record.timeout_s,
        "peer": record.peer,
        "filter": record.filter,
        "stores": record.stores is True,
    }


def _publisher(names: Mapping[int, str], publisher: Publisher) -> dict[str, object]:
    record = publisher.record
    return {
        "name": publisher.name,
        "topic": record.topic,
        "router": names.get(record.rid, "gone"),
        "epoch": publisher.epoch,
        "session": publisher.session,
        "peer": record.peer,
    }


def _channel(names: Mapping[int, str], channel: Channel) -> dict[str, object]:
    return {
        "router": names.get(channel.rid, "unknown"),
        "rid": channel.rid,
        "state": channel.state.value,
        "generation": channel.generation,
        "sent": channel.sent,
        "received": channel.received,
        "waiting": channel.waiting,
    }


def _window(ingress: Ingress) -> dict[str, object]:
    window = ingress.window
    head = window.at(window.next_accept)
    owing = [] if head is None else ingress.fanout.owing(head.number)
    return {
        "publisher": ingress.name,
        "topic": ingress.topic,
        "phase": ingress.phase.value,
        "epoch": ingress.epoch,
        "session": ingress.session,
        "unsettled": len(window),
        "unreceived": window.unreceived,
        "reported": window.reported,
        "bytes": window.body_bytes,
        "credit": max(0, ingress.credit.limit - ingress.credit.received),
        "waiting_for": owing[:WAITING_NAMES],
        "waiting_for_count": len(owing),
    }


def _endpoint(egress: Egress) -> dict[str, object]:
    states = dict.fromkeys((state.shown for state in State), 0)
    for entries in egress.sessions.values():
        for entry in entries.values():
            states[entry.state.shown] += 1
    return {
        "subscription": egress.name,
        "epoch": egress.epoch,
        "confirmed": egress.proof.confirmed,
        "entries": sum(states.values()),
        "states": {state: count for state, count in states.items() if count},
        "held": egress.outgoing.held,
        "credit": max(0, egress.outgoing.limit - egress.outgoing.sent),
    }
