"""Limits, times and settings that pages quote in prose, by page: each is looked up in the code or file that sets it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path

from bridges.edge import journals_api, restart_core
from bridges.edge import settings as edge_settings
from bridges.journal import reader_link
from bridges.journal.model import JournalSettings
from bridges.store.topic_link import RENEW_S
from bridges.workqueue.items import MAX_PAYLOAD_BYTES, QueueSettings
from bridges.workqueue.mongodb_items import POP_HOLD_S
from bridges.workqueue.mongodb_schedules import MAX_DOCUMENT_PAYLOAD
from delivery_records.model import limits
from delivery_records.model.durations import BOUNDS_S
from oncewire.client.defaults import IDLE_TIME_OUT_S
from oncewire.client.transactions.consumer import BACK_OFF_FIRST_S
from oncewire.filters.limits import MAX_READ_BYTES
from oncewire.settings.schema import Setting
from oncewire.store import sqlite
from oncewire.store.owners import LEASE_S
from oncewire.store.postgres import ANSWER_SECONDS, CONNECT_SECONDS, STOPPED_SECONDS
from oncewire.transport.turn import TURN_S
from oncewire.wire.connection import MIN_PEER_IDLE_TIME_OUT_MS
from router.amqp.offers import OPEN_BYTES
from router.authentication.authenticators import CHECK_S
from router.clients.anonymous_link import HELD_BYTES
from router.clients.attach_rate_core import BURST_S
from router.incarnations.incarnation import FLUSH_S
from router.operator.amqp_node import MAX_REQUEST_BYTES
from router.routed.half import WINDOW_BYTES
from router.settings.config_loading import SETTINGS
from topology.etcd.store import MAX_WRITE_BYTES
from topology.inspector.rates_core import POINT_S
from topology.inspector.watching import PERIOD_S
from topology.links.linkstate import HEARTBEAT_S
from topology.members.membership import LEASE_TTL_S

ROOT = Path(__file__).resolve().parents[2]
UNITS = {
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "a second": 1.0,
    "B": 1.0,
    "KiB": 2.0**10,
    "MiB": 2.0**20,
    "GiB": 2.0**30,
}
"""Of times in seconds, of sizes in bytes; other units are never those of a setting."""


def in_file(name: str, pattern: str) -> float:
    """A number in a file that is deployed."""
    found = re.findall(pattern, (ROOT / "deploy" / name).read_text(), re.MULTILINE)
    assert len(found) == 1, (name, pattern, found)
    return float(found[0])


CHART = "helm/oncewire/values.yaml"
CRASHED_S = LEASE_TTL_S + limits.GRACE_S
QUOTED: Mapping[str, tuple[float, ...]] = {
    "conformance.md": (MIN_PEER_IDLE_TIME_OUT_MS / 1000, limits.ANNOTATIONS_BYTES),
    "edges.md": (
        edge_settings.LEASE_S,
        restart_core.FIRST_S,
        restart_core.AWAITED_S,
        restart_core.LONGEST_S,
        CONNECT_SECONDS,
        ANSWER_SECONDS,
    ),
    "filters.md": (MAX_READ_BYTES,),
    "gazette.md": (BACK_OFF_FIRST_S, STOPPED_SECONDS),
    "how-to/kubernetes.md": (
        in_file(CHART, r"^preStopSeconds: (\d+)$"),
        in_file(CHART, r"^terminationGracePeriodSeconds: (\d+)$"),
        in_file(CHART, r"^etcd:$[\s\S]*?^ +size: (\d+)Gi$") * UNITS["GiB"],
    ),
    "how-to/sizing.md": (sqlite.MAX_BYTES, reader_link.READ_BYTES),
    "inspector-api.md": (POINT_S, 1 / PERIOD_S),
    "journals.md": (JournalSettings().max_bytes, journals_api.MAX_ANSWER_BYTES, journals_api.MAX_WAIT_S),
    "logins.md": (CHECK_S,),
    "management.md": (MAX_REQUEST_BYTES,),
    "monitoring.md": (CRASHED_S, BOUNDS_S[0], in_file("prometheus/alerts.yml", r"oncewire_lease_age_seconds > (\d+)$")),
    "protocol.md": (
        MAX_WRITE_BYTES,
        FLUSH_S,
        limits.DRAIN_PATIENCE_S,
        limits.BARRIER_REPEAT_S,
        limits.PROBE_S,
        HEARTBEAT_S,
        limits.CREDIT_LOOK_S,
        IDLE_TIME_OUT_S,
        OPEN_BYTES,
        HELD_BYTES,
        WINDOW_BYTES,
    ),
    "reference/errors/amqp-link-message-size-exceeded.md": (limits.WINDOW_BYTES,),
    "reference/errors/amqp-resource-limit-exceeded.md": (limits.ANNOTATIONS_BYTES,),
    "subscriptions.md": (MAX_READ_BYTES,),
    "threats.md": (BURST_S,),
    "topic-policies.md": (limits.ANNOTATIONS_BYTES,),
    "walkthrough.md": (TURN_S,),
    "workqueue-reference.md": (
        LEASE_S,
        RENEW_S,
        POP_HOLD_S,
        sqlite.MAX_BYTES,
        MAX_DOCUMENT_PAYLOAD,
        MAX_PAYLOAD_BYTES,
        QueueSettings().max_payload_bytes,
    ),
    "workqueue.md": (LEASE_S,),
}
"""What a page quotes beside the defaults of settings, in seconds or bytes."""


def _default(setting: Setting) -> float | None:
    """Of a setting in seconds or bytes."""
    if isinstance(setting.default, (int, float)) and (setting.key.endswith("_s") or "iB" in setting.allowed):
        return float(setting.default)
    return None


DEFAULTS = frozenset(value for setting in SETTINGS.values() if (value := _default(setting)) is not None)
"""Of the router's settings, in seconds or bytes."""


def in_base_unit(figure: str, unit: str) -> float:
    """In seconds or bytes; 0 for a figure of another unit."""
    return float(figure.replace(",", "")) * UNITS.get(unit, 0.0)


def is_limit(page: str, figure: str, unit: str) -> bool:
    """Return whether a figure of this page is a default or a limit that the code has."""
    value = in_base_unit(figure, unit)
    document = "protocol.md" if page.startswith("protocol/") else page
    return value > 0 and any(math.isclose(value, each) for each in (*DEFAULTS, *QUOTED.get(document, ())))
