"""Log events with fields; the event's name is a Decision or a RouterEvent. `log_output` writes them."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from enum import Enum

from delivery_records.model.outcomes import Decision
from delivery_records.model.topics import VHOST_SEPARATOR
from oncewire.transport.log_limit_core import LogLimit
from topology.inspector.events_core import EventRing
from topology.inspector.topic_names_core import topic_facts

LOGGER_NAME = "oncewire.router"


class RouterEvent(Enum):
    """What the shell itself has to say; the record core's events are the values of `Decision`."""

    ROUTER_STARTED = "router_started"
    ROUTER_DRAINING = "router_draining"
    ROUTER_STOPPED = "router_stopped"
    INCARNATION_STARTED = "incarnation_started"
    INCARNATION_ENDED = "incarnation_ended"
    STORE_AWAITED = "store_awaited"
    STORE_FAILED = "store_failed"
    STORE_BACK = "store_back"
    HISTORY_LOST = "history_lost"
    ETCD_MEMORY_FAILED = "etcd_memory_failed"
    CLIENT_CONNECTED = "client_connected"
    CLIENT_REFUSED = "client_refused"
    CONNECTION_REFUSED = "connection_refused"
    ACCEPT_FAILED = "accept_failed"
    DESCRIPTORS_SHORT = "descriptors_short"
    WINDOWS_SMALL = "windows_small"
    CLIENT_DISCONNECTED = "client_disconnected"
    LOGIN_FAILED = "login_failed"
    LOGIN_UNDECIDED = "login_undecided"
    LOGIN_EXPIRED = "login_expired"
    TLS_REFUSED = "tls_refused"
    TLS_REVOKED = "tls_revoked"
    USERS_FILE_OPEN = "users_file_open"
    CONFIG_FILE_OPEN = "config_file_open"
    MANAGEMENT_DONE = "management_done"
    MANAGEMENT_REFUSED = "management_refused"
    CONFIG_RELOADED = "config_reloaded"
    CONFIG_REFUSED = "config_refused"
    DELIVERY_TOO_LARGE = "delivery_too_large"
    MESSAGE_REFUSED = "message_refused"
    NEIGHBOUR_UP = "neighbour_up"
    NEIGHBOUR_DOWN = "neighbour_down"
    COST_CHANGED = "cost_changed"
    NEIGHBOUR_REFUSED = "neighbour_refused"
    NEIGHBOUR_UNREACHABLE = "neighbour_unreachable"
    NEIGHBOUR_SLOW = "neighbour_slow"
    PATHS_CHANGED = "paths_changed"
    LOOP_LAG = "loop_lag"
    LOOP_STALLED = "loop_stalled"
    KEY_MALFORMED = "key_malformed"
    WORKER_STARTED = "worker_started"
    WORKER_ENDED = "worker_ended"
    DELIVERY_STUCK = "delivery_stuck"
    """A subscription has held a publisher up for more than 10 s; once a minute for each."""
    TELEMETRY_FAILED = "telemetry_failed"
    TELEMETRY_BACK = "telemetry_back"
    INTERNAL_ERROR = "internal_error"


_WARNINGS = frozenset(
    {
        RouterEvent.STORE_AWAITED,
        RouterEvent.STORE_FAILED,
        RouterEvent.HISTORY_LOST,
        RouterEvent.ETCD_MEMORY_FAILED,
        RouterEvent.CLIENT_REFUSED,
        RouterEvent.CONNECTION_REFUSED,
        RouterEvent.ACCEPT_FAILED,
        RouterEvent.DESCRIPTORS_SHORT,
        RouterEvent.WINDOWS_SMALL,
        RouterEvent.LOGIN_FAILED,
        RouterEvent.LOGIN_UNDECIDED,
        RouterEvent.TLS_REFUSED,
        RouterEvent.TLS_REVOKED,
        RouterEvent.USERS_FILE_OPEN,
        RouterEvent.CONFIG_FILE_OPEN,
        RouterEvent.MANAGEMENT_REFUSED,
        RouterEvent.CONFIG_REFUSED,
        RouterEvent.DELIVERY_TOO_LARGE,
        RouterEvent.MESSAGE_REFUSED,
        RouterEvent.NEIGHBOUR_REFUSED,
        RouterEvent.NEIGHBOUR_SLOW,
        RouterEvent.LOOP_LAG,
        RouterEvent.LOOP_STALLED,
        RouterEvent.KEY_MALFORMED,
        RouterEvent.WORKER_ENDED,
        RouterEvent.DELIVERY_STUCK,
        RouterEvent.TELEMETRY_FAILED,
        Decision.PUBLISHER_EXPIRED,
        Decision.PUBLISHER_UNKNOWN,
        Decision.PUBLISHER_NOT_ALIVE,
        Decision.PUBLISHER_UNFINISHED,
        Decision.PUBLISHER_NEVER_SETTLES,
        Decision.DELIVERY_ABANDONED,
        Decision.DELIVERY_POISONED,
        Decision.DELIVERY_FAILED,
        Decision.DEAD_LETTER_WAITS,
        Decision.DEAD_LETTER_GIVEN_UP,
        Decision.EXPIRED,
        Decision.FILTER_TOO_COSTLY,
        Decision.ATTACH_REFUSED,
        Decision.ATTACH_UNKNOWN,
        Decision.STEAL_REFUSED,
        Decision.CHANNEL_RESTARTED,
    }
)
_REFUSALS = frozenset(
    {
        RouterEvent.CLIENT_REFUSED,
        RouterEvent.CONNECTION_REFUSED,
        RouterEvent.ACCEPT_FAILED,
        RouterEvent.MANAGEMENT_REFUSED,
        RouterEvent.DELIVERY_TOO_LARGE,
        RouterEvent.MESSAGE_REFUSED,
        Decision.FILTER_TOO_COSTLY,
        Decision.ATTACH_REFUSED,
        Decision.STEAL_REFUSED,
        Decision.EXPIRED,
    }
)
"""What anybody can make a router say as often as they like: see `LogLimit`. `Logins` limits failed logins."""
_LEVELS = {logging.DEBUG: "debug", logging.INFO: "info", logging.WARNING: "warning"}
_DEBUG = frozenset({Decision.ATTACH_RETRIED, Decision.RETRY_SCHEDULED, RouterEvent.NEIGHBOUR_UNREACHABLE})


class Part(Enum):
    """Where a fault of our own was met (K-3b): the label of its metric, and what it ended."""

    CLIENT = "client"
    """While bytes of a client were handled or bytes for it made; it ended that connection."""
    NEIGHBOUR = "neighbour"
    """The same with another router."""
    LINK = "link"
    """While the record core handled what one link or channel sent; it ended that link or channel."""
    EFFECT = "effect"
    """While a decision of the record core was carried out; it ended the link or channel that it was for."""
    INCARNATION = "incarnation"
    """Where many depend on; it ended the incarnation (K-3)."""


class EventLog:
    """Writes events with the router's name; cheap when the level hides them. The inspector shows the last ones."""

    def __init__(self, router: str) -> None:
        self.counts: dict[str, int] = dict.fromkeys(("debug", "info", "warning", "error"), 0)
        """Events by level, also those that the level hides."""
        self.faults: dict[Part, int] = dict.fromkeys(Part, 0)
        """Faults of our own, by what they ended."""
        self.recent = EventRing()
        """What happened last; debug events only where they are logged."""
        self.incarnation = ""
        """The incarnation of the router that the events belong to, in hex as in etcd; JSON logs name it."""
        self._limit = LogLimit()
        self._router = router
        self._logger = logging.getLogger(LOGGER_NAME)

    def decision(self, decision: Decision, fields: Mapping[str, object]) -> None:
        """A decision of the record core."""
        topic = fields.get("topic")
        if isinstance(topic, str) and VHOST_SEPARATOR in topic:
            fields = {**fields, **topic_facts(topic)}
        self._write(decision, fields)

    def event(self, event: RouterEvent, **fields: object) -> None:
        """An event of the shell."""
        self._write(event, fields)

    def connection_refused(self, listener: str, peer: str, why: str) -> None:
        """See `RefusalLog`."""
        self.event(RouterEvent.CONNECTION_REFUSED, listener=listener, peer=peer, why=why)

    def accept_failed(self, listener: str, why: str) -> None:
        """See `RefusalLog`."""
        self.event(RouterEvent.ACCEPT_FAILED, listener=listener, why=why)

    def fault(self, part: Part, error: BaseException, doing: str) -> None:
        """A fault of our own that ended `part` of the router; logged with its traceback, and counted (K-3b)."""
        self.faults[part] += 1
        self.internal_error(error, doing)

    def internal_error(self, error: BaseException, doing: str) -> None:
        """A fault of our own, with its traceback."""
        extra = {"fields": {"router": self._router, "doing": doing}, "incarnation": self.incarnation}
        shown = {"doing": doing, "error": f"{type(error).__name__}: {error}"}
        self.counts["error"] += 1
        self.recent.add(time.time(), "error", RouterEvent.INTERNAL_ERROR.value, shown)
        self._logger.error(
            RouterEvent.INTERNAL_ERROR.value, extra=extra, exc_info=(type(error), error, error.__traceback__)
        )

    def _write(self, event: Decision | RouterEvent, fields: Mapping[str, object]) -> None:
        level = logging.WARNING if event in _WARNINGS else logging.DEBUG if event in _DEBUG else logging.INFO
        self.counts[_LEVELS[level]] += 1
        if level == logging.WARNING and event in _REFUSALS:
            repeated = self._limit.take(_sameness(event, fields), time.monotonic())
            if repeated is None:
                return
            fields = {**fields, "repeated": repeated} if repeated else fields
        is_logged = self._logger.isEnabledFor(level)
        if is_logged or level > logging.DEBUG:
            self.recent.add(time.time(), _LEVELS[level], event.value, fields)
        if is_logged:
            shown = {"router": self._router, **fields}
            extra = {"fields": shown, "incarnation": self.incarnation}
            self._logger.log(level, event.value, extra=extra)


def _sameness(event: Decision | RouterEvent, fields: Mapping[str, object]) -> tuple[object, ...]:
    """What makes a refusal the same as another: what it is, why, and the address of the other side without its port."""
    peer = str(fields.get("peer", fields.get("by", "")))
    reasons = () if event is Decision.STEAL_REFUSED else ("condition", "key", "why")  # a thief tries name after name
    why = next((fields[name] for name in reasons if name in fields), "")
    return event, why, peer.rpartition(":")[0] or peer
