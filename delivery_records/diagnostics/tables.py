"""Tables for people: what this router knows and holds, as plain data (`oncewire inspect` shows them)."""

from __future__ import annotations

from delivery_records.attachments.barrier import AttachBarrier
from delivery_records.attachments.endpoints import Endpoints
from delivery_records.channels.channel import Channels
from delivery_records.model.turn import Turn
from delivery_records.publisher.ingress import Ingress
from delivery_records.subscriber.egress import Egress
from delivery_records.subscriber.entries import State

WAITING_NAMES = 8
"""Subscriptions named for the oldest delivery a publisher waits for; the count is always given."""


def describe(
    node_id: str, turn: Turn, endpoints: Endpoints, channels: Channels, barrier: AttachBarrier
) -> dict[str, object]:
    """Everything this router can tell about the network and about what it holds. JSON-able."""
    view = turn.view
    names = {rid: router.record.node_id for rid, router in view.routers.items()}
    return {
        "router": node_id,
        "rid": turn.rid,
        "applied": view.applied,
        "routers": [
            {
                "id": r.record.node_id,
                "rid": rid,
                "amqp": r.record.amqp,
                "http": r.record.http,
                "draining": r.record.draining,
                "leaving": r.record.leaving,
                "group": r.record.group,
            }
            for rid, r in sorted(view.routers.items())
        ],
        "subscriptions": [
            {
                "name": s.name,
                "topic": s.record.topic,
                "router": names.get(s.record.rid, "gone"),
                "epoch": s.epoch,
                "incarnation": turn.told_incarnation(s.created),
                "mode": s.record.mode.value,
                "timeout_s": s.record.timeout_s,
                "peer": s.record.peer,
                "filter": s.record.filter,
            }
            for s in view.subscriptions.values()
        ],
        "publishers": [
            {
                "name": p.name,
                "topic": p.record.topic,
                "router": names.get(p.record.rid, "gone"),
                "epoch": p.epoch,
                "session": p.session,
                "peer": p.record.peer,
            }
            for p in view.publishers.values()
        ],
        "windows": [_window(ingress) for ingress in endpoints.ingresses.values()],
        "endpoints": [_endpoint(egress) for egress in endpoints.egresses.values()],
        "channels": [
            {
                "router": names.get(channel.rid, "unknown"),
                "rid": channel.rid,
                "state": channel.state.value,
                "generation": channel.generation,
                "sent": channel.sent,
                "received": channel.received,
                "waiting": channel.waiting,
            }
            for channel in channels.existing()
        ],
        "barrier_waiting": barrier.waiting,
        "counts": {decision.value: count for decision, count in turn.counts.items() if count},
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
        "told": window.told,
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
