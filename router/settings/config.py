"""Every setting of the router, once: name, type, default, what is allowed, and why it is there.

Here are those of services, limits, traces and logs, and what follows from all of them; the first ones are in
`of_clients`, and then come those of `of_network`. The order is that of the reference page.
"""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass, replace

from delivery_records.model import limits
from oncewire.settings.parsers import KIB, MIB, number, one_of, size, text, whole_number
from oncewire.settings.schema import Applies, setting
from oncewire.transport.hosts import is_loopback
from router.routed.limits import RoutedLimits
from router.settings.of_network import NetworkSettings
from router.settings.topic_rules import (
    MAX_ATTEMPTS,
    MAX_ATTEMPTS_ALLOWED,
    ON_EMPTY,
    ON_EMPTY_ALLOWED,
    ON_REJECT,
    ON_REJECT_ALLOWED,
    RETRY_ALLOWED,
    RETRY_S,
    policy_by,
)
from router.settings.values import ROLES, prefixes
from router.settings.worker import Worker

MAX_FRAME_SIZE = 1 * MIB
"""A map of 21,800 unsettled deliveries fits in one frame (C-4)."""
MAX_MESSAGE_SIZE = 64 * MIB
OPEN_TIMEOUT_S = 10.0
"""A handshake and a login take four round trips; the login may wait 6 s behind others that are checked."""
ATTACH_RATE = 100.0
"""Each attach writes to etcd, which takes some thousand a second from all routers, and costs its router 2 ms."""
MAX_OPENING = 4000
"""After a failover thousands connect at once, perhaps from one address; a silent one costs 7 KB."""


@dataclass(frozen=True, slots=True)
class RouterConfig(NetworkSettings):
    """The settings of one router process. Checked as a whole by `config_loading.check`."""

    services_prefixes: tuple[str, ...] = setting(
        "services.prefixes",
        prefixes,
        ("queue://", "journal://"),
        "a list of beginnings of addresses; in a text queue://,journal://",
        "Addresses of services: links to them are forwarded to a service and are never topics (R-1).",
    )
    services_role: str = setting(
        "services.role",
        one_of(*ROLES),
        "operator",
        "viewer, operator or admin",
        "Who may serve such addresses: this role or a higher one; see roles and http.loopback_role.",
        applies=Applies.NOW,
    )
    window: int = setting(
        "limits.window",
        whole_number(1, 65_536),
        limits.WINDOW_DELIVERIES,
        "1 to 65536 deliveries",
        "Most unsettled deliveries of a publisher (W).",
    )
    window_bytes: int = setting(
        "limits.window_bytes",
        size(4 * KIB, 4096 * MIB),
        limits.WINDOW_BYTES,
        "4 KiB to 4 GiB",
        "Most bytes of bodies held for one publisher, and for all publishers of one AMQP session of a client that "
        "resumes (C-6). With less than 256 KiB the router warns: other clients may lose what they send before a close.",
    )
    router_bytes: int = setting(
        "limits.router_bytes",
        size(64 * KIB, 1024 * 1024 * MIB),
        limits.ROUTER_BYTES,
        "64 KiB to 1 TiB",
        "Most bytes of bodies and unsettled maps in this router; beyond it clients get no credit and no attach (C-6).",
    )
    max_message_size: int = setting(
        "limits.max_message_size",
        size(KIB, 1024 * 1024 * MIB),
        MAX_MESSAGE_SIZE,
        "1 KiB to 1 TiB",
        "Larger messages are refused. Those over 1 MiB pass a router without being stored. Those sent settled, to a "
        "service or to the anonymous terminus are stored, and no larger than limits.window_bytes, or 64 MiB.",
        applies=Applies.NEW,
    )
    max_frame_size: int = setting(
        "limits.max_frame_size",
        size(4096, 16 * MIB),
        MAX_FRAME_SIZE,
        "4 KiB to 16 MiB",
        "Largest frame. An unsettled map must fit in one frame: 48 bytes for each delivery (C-4).",
    )
    max_links: int = setting(
        "limits.max_links",
        whole_number(1, 65_536),
        1000,
        "1 to 65536",
        "Most links of one client connection.",
        applies=Applies.NOW,
    )
    max_connections: int = setting(
        "limits.max_connections",
        whole_number(1, 1_000_000),
        10_000,
        "1 to 1000000",
        "Most client connections of this router; further ones are redirected to other routers.",
        applies=Applies.NOW,
    )
    attach_rate: float = setting(
        "limits.attach_rate",
        number(1, 1_000_000),
        ATTACH_RATE,
        "1 to 1000000 attaches a second",
        "Attaches of a user, or of an address without login, beyond a burst of 100 s; a connection has a fifth.",
        applies=Applies.NEW,
    )
    max_opening: int = setting(
        "limits.max_opening",
        whole_number(2, 1_000_000),
        MAX_OPENING,
        "2 to 1000000",
        "Most client connections that have not logged in and opened yet, beside max_connections; an address has half.",
    )
    open_timeout_s: float = setting(
        "limits.open_timeout_s",
        number(0.5, 300),
        OPEN_TIMEOUT_S,
        "0.5 to 300 seconds",
        "From a TCP connection to the end of login and open, or of the header of the first HTTP request.",
    )
    subscription_timeout_s: float = setting(
        "limits.subscription_timeout_s",
        number(0, 604_800),
        limits.SUBSCRIPTION_TIMEOUT_S,
        "0 to 604800 seconds",
        "How long a subscription is kept without its link, if the client requests no timeout (T_sub).",
    )
    subscription_timeout_cap_s: float = setting(
        "limits.subscription_timeout_cap_s",
        number(0, 604_800),
        limits.SUBSCRIPTION_TIMEOUT_CAP_S,
        "0 to 604800 seconds",
        "Longest timeout a client can request; `never` becomes this.",
    )
    publisher_timeout_s: float = setting(
        "limits.publisher_timeout_s",
        number(0, 2_592_000),
        limits.PUBLISHER_TIMEOUT_S,
        "0 to 2592000 seconds",
        "How long the session of a publisher that asks for no time is kept without its link (T_pub)."
        " Make it longer than outages.",
    )
    publisher_timeout_cap_s: float = setting(
        "limits.publisher_timeout_cap_s",
        number(0, 2_592_000),
        limits.PUBLISHER_TIMEOUT_CAP_S,
        "0 to 2592000 seconds",
        "Longest timeout a client can request.",
    )
    end_wait_s: float = setting(
        "limits.end_wait_s",
        number(0, 3600),
        limits.END_WAIT_S,
        "0 to 3600 seconds",
        "Longest wait of a publisher's detach, end or close for outcomes of what was read (A-9a). What has none by"
        " then is *modified*, or *released* if it was sent to nobody.",
    )
    drain_limit_s: float = setting(
        "limits.drain_limit_s",
        number(0, 3600),
        limits.DRAIN_LIMIT_S,
        "0 to 3600 seconds",
        "Longest wait of a draining router for clients without an unsettled map (K-8a).",
        applies=Applies.NOW,
    )
    max_attempts: int = setting(
        "limits.max_attempts",
        MAX_ATTEMPTS,
        limits.MAX_ATTEMPTS,
        MAX_ATTEMPTS_ALLOWED,
        "Failed attempts until a delivery is rejected (E-4a).",
        applies=Applies.NOW,
    )
    retry_first_s: float = setting(
        "limits.retry_first_s",
        RETRY_S,
        limits.RETRY_FIRST_S,
        RETRY_ALLOWED,
        "Wait before the next attempt of a delivery that failed or was released again; it doubles (E-4a).",
        applies=Applies.NOW,
    )
    retry_cap_s: float = setting(
        "limits.retry_cap_s",
        RETRY_S,
        limits.RETRY_CAP_S,
        RETRY_ALLOWED,
        "Longest wait before the next attempt (E-4a).",
        applies=Applies.NOW,
    )
    on_reject: str = setting(
        "limits.on_reject",
        ON_REJECT,
        "accept",
        ON_REJECT_ALLOWED,
        "Outcome that a publisher gets if a subscription rejected its message: accepted, or rejected (report).",
        applies=Applies.NOW,
    )
    on_empty: str = setting(
        "limits.on_empty",
        ON_EMPTY,
        "release",
        ON_EMPTY_ALLOWED,
        "Outcome that a stock publisher gets if a topic has no subscription.",
        applies=Applies.NOW,
    )
    telemetry_endpoint: str = setting(
        "telemetry.endpoint",
        text(r"(?:https?://[^\s/]+(?:/\S*)?)?"),
        "",
        "URL http(s)://host:port, or empty = no spans",
        "OpenTelemetry collector (OTLP over HTTP, usually port 4318); needs the extra oncewire[otel].",
    )
    telemetry_sample_ratio: float = setting(
        "telemetry.sample_ratio",
        number(0, 1),
        0.01,
        "0 to 1",
        "Share of messages without a trace context that start a trace. Of others the sampled flag decides.",
    )
    log_level: str = setting(
        "log.level",
        one_of("debug", "info", "warning", "error"),
        "info",
        "debug, info, warning or error",
        "Lowest level that is logged. No level logs messages one by one.",
        applies=Applies.NOW,
    )
    log_format: str = setting(
        "log.format",
        one_of("text", "json"),
        "text",
        "text or json",
        "text = key=value lines; json = one JSON object a line.",
    )

    worker: Worker | None = None
    """No setting: which worker this process is; None = there is one process."""

    def of_worker(self, worker: Worker) -> RouterConfig:
        """The settings of one of several workers: names and ports that each needs for itself, all else as it is."""
        further, port = worker.number - 1, self.inter_router_port
        host, _, advertised = self.inter_router_advertise.rpartition(":")
        return replace(
            self,
            id=worker.name,
            worker=worker,
            inter_router_port=port + further if port else 0,
            inter_router_advertise=f"{host}:{int(advertised) + further}" if advertised else "",
        )

    @property
    def has_tokens(self) -> bool:
        """Whether users log in with JSON Web Tokens."""
        return bool(self.jwks_url or self.jwks_file)

    @property
    def names_files(self) -> bool:
        """Whether the settings name something that a reload reads again."""
        return bool(self.users_file or self.has_strangers or self.tls_cert_file or self.tls_ca_file)

    @property
    def has_strangers(self) -> bool:
        """Whether there are users whose names the settings do not list."""
        return bool(self.users_file or self.external_rules or self.has_tokens or self.authenticator)

    @property
    def node_id(self) -> str:
        """The router's name: as set, or made of the host's name."""
        return self.id or re.sub(r"[^A-Za-z0-9_.-]", "-", socket.gethostname())[:64] or "router"

    def routed_limits(self) -> RoutedLimits:
        """What routed links must know of these settings (R-8)."""
        held_bytes = 2 * self.window_bytes + self.kept_message_size
        return RoutedLimits(self.services_prefixes, held_bytes, self.kept_message_size)

    @property
    def kept_message_size(self) -> int:
        """The largest message that is stored whole (L-1): never less than what clients may send by default."""
        return min(self.max_message_size, max(self.window_bytes, MAX_MESSAGE_SIZE))

    def record_limits(self) -> limits.Limits:
        """The settings that the record core uses."""
        return limits.Limits(
            window=self.window,
            window_bytes=self.window_bytes,
            router_bytes=self.router_bytes,
            subscription_timeout_s=self.subscription_timeout_s,
            subscription_timeout_cap_s=self.subscription_timeout_cap_s,
            publisher_timeout_s=self.publisher_timeout_s,
            publisher_timeout_cap_s=self.publisher_timeout_cap_s,
            end_wait_s=self.end_wait_s,
            policy=self._default_policy,
        )

    @property
    def _default_policy(self) -> limits.TopicPolicy:
        return limits.TopicPolicy(
            on_empty=limits.OnEmpty(self.on_empty),
            report_rejections=self.on_reject == "report",
            max_attempts=self.max_attempts,
            retry_first_s=self.retry_first_s,
            retry_cap_s=self.retry_cap_s,
        )

    def policy_of(self, topic: str) -> limits.TopicPolicy:
        """What operators decide for a topic, named as routers know it (I-3d)."""
        return policy_by(self.topic_rules, self._default_policy, topic)


def anonymous_is_allowed(setting_value: str, host: str) -> bool:
    """Whether a listener on `host` accepts clients without a password."""
    return setting_value == "always" or (setting_value == "loopback" and is_loopback(host))
