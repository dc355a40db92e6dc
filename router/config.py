"""Every setting of the router, once: name, type, default, what is allowed, and why it is there."""

from __future__ import annotations

import ipaddress
import re
import socket
from dataclasses import dataclass, replace

from delivery_records.model import limits
from oncewire.settings.parsers import (
    KIB,
    MIB,
    host_names,
    number,
    one_of,
    pairs,
    size,
    text,
    urls,
    whole_number,
    yes_or_no,
)
from oncewire.settings.schema import Applies, setting
from router.access_rules import AccessRule, SlowRule, access_rules, slow_rules, user_patterns
from router.certificate_users import CertificateRule, certificate_rules
from router.groups import groups
from router.quotas import QuotaRule, quota_rules
from router.routed.limits import RoutedLimits
from router.settings import ALGORITHMS, ROLES, ConnectorSettings, algorithms, connectors, origins, prefixes
from router.topic_rules import (
    MAX_ATTEMPTS,
    MAX_ATTEMPTS_ALLOWED,
    ON_EMPTY,
    ON_EMPTY_ALLOWED,
    ON_REJECT,
    ON_REJECT_ALLOWED,
    RETRY_ALLOWED,
    RETRY_S,
    TopicRule,
    policy_by,
    topic_rules,
)
from router.virtual_hosts import VirtualHost, virtual_hosts
from router.worker import MOST_WORKERS, Worker
from topology import linkstate

MAX_FRAME_SIZE = 1 * MIB
"""A map of 21,800 unsettled deliveries fits in one frame (C-4)."""
MAX_MESSAGE_SIZE = 64 * MIB
IDLE_TIMEOUT_S = 10.0
"""How long a router waits for a silent client before it closes the connection. A shorter time would disconnect stock
clients whose program is busy: some of them send heartbeats only while the program calls them."""
OPEN_TIMEOUT_S = 10.0
"""A handshake and a login take four round trips; the login may wait 6 s behind others that are checked."""
ATTACH_RATE = 100.0
"""Each attach writes to etcd, which takes some thousand a second from all routers, and costs its router 2 ms."""
MAX_OPENING = 4000
"""After a failover thousands connect at once, perhaps from one address; a silent one costs 7 KB."""
HTTP_CONNECTIONS = 256
"""Some scrapers, health checks and open pages; all else are requests that take milliseconds."""
REDIAL_S = 1.0
"""One packet a second to a router that has stopped for good costs less than a longer path."""
START_PATIENCE_S = 86_400.0
"""A day: longer than an outage that somebody works on. A forgotten router terminates after it."""
_PORT = "0 to 65535; 0 = any free port"
_ANONYMOUS = "loopback, always or never"
_SHOWN = "none, optional or required"
_FILE = "path of a PEM file, or empty"
_ROLE = "none, viewer, operator or admin"


@dataclass(frozen=True, slots=True)
class RouterConfig:
    """The settings of one router process. Checked as a whole by `config_loading.check`."""

    id: str = setting(
        "id",
        text(r"[A-Za-z0-9_.-]{0,64}"),
        "",
        "up to 64 of A-Z a-z 0-9 _ . -",
        "Name of this router in logs, metrics and etcd; empty = the host's name.",
    )
    standalone: bool = setting(
        "standalone",
        yes_or_no,
        False,
        "true or false",
        "One router without etcd. Attachments are kept in the process and lost when it stops.",
    )
    workers: int = setting(
        "workers",
        whole_number(1, MOST_WORKERS),
        1,
        f"1 to {MOST_WORKERS}",
        "Processes behind one port of clients, each a router of the network with the id ID-1, ID-2, ...; needs etcd.",
    )
    listen_host: str = setting(
        "listen.host", text(r"\S+"), "127.0.0.1", "an address or host name to listen on", "Where AMQP clients connect."
    )
    listen_port: int = setting(
        "listen.port", whole_number(0, 65535), 5672, _PORT, "5672 is the port registered for AMQP."
    )
    listen_tls: bool = setting(
        "listen.tls",
        yes_or_no,
        False,
        "true or false",
        "Clients connect with TLS (amqps) only; needs tls.cert_file. 5671 is the port registered for it.",
    )
    listen_advertise: str = setting(
        "listen.advertise",
        text(r"\S*"),
        "",
        "host:port, or empty",
        "Address that other routers and clients get from the router key; empty = the listening address.",
    )
    allow_anonymous: str = setting(
        "listen.allow_anonymous",
        one_of("loopback", "always", "never"),
        "loopback",
        _ANONYMOUS,
        "Accept clients without a password. loopback = only where no other machine can connect.",
        applies=Applies.NEW,
    )
    allow_plain: str = setting(
        "listen.allow_plain",
        one_of("loopback", "always", "never"),
        "loopback",
        _ANONYMOUS,
        "Accept passwords (SASL PLAIN) and tokens on connections without TLS, for all on the way to read.",
        applies=Applies.NEW,
    )
    users: tuple[tuple[str, str], ...] = setting(
        "users",
        pairs(":"),
        (),
        'a table name = "password"; in a text name:password,...',
        "Users and their passwords, for small setups; else use users_file. Operators log in over HTTP, too.",
        secret=True,
        applies=Applies.NOW,
        is_table=True,
    )
    users_file: str = setting(
        "users_file",
        text(),
        "",
        "path of a file of `oncewire users`, or empty",
        "Users with hashed passwords, in the place of users. A reload reads the file again.",
        applies=Applies.NOW,
    )
    external_rules: tuple[CertificateRule, ...] = setting(
        "external.rules",
        certificate_rules,
        (),
        'tables {take = "CN", "DNS", "URI" or "email", pattern, user}; in a text take pattern user;...',
        "Users by certificates that clients and operators show: the first rule whose pattern fits the whole name.",
        applies=Applies.NEW,
    )
    jwks_url: str = setting(
        "jwt.jwks_url",
        text(r"(?:https://|http://(?:127\.0\.0\.1|localhost)[:/])[^\s@]+|"),
        "",
        "URL https://host/path, or empty; http:// to this machine only",
        "Public keys of whoever issues the tokens that users log in with; needs the extra oncewire[jwt].",
    )
    jwks_file: str = setting(
        "jwt.jwks_file",
        text(),
        "",
        "path of a JSON Web Key Set, or empty",
        "The same keys in a file, in the place of jwt.jwks_url. A reload reads the file again.",
    )
    jwt_issuer: str = setting("jwt.issuer", text(), "", "text; needed for tokens", "A token's `iss` must be this text.")
    jwt_audience: str = setting(
        "jwt.audience", text(), "", "text; needed for tokens", "A token's `aud` must be this text, or contain it."
    )
    jwt_user_claim: str = setting(
        "jwt.user_claim", text(r".+"), "sub", "name of a claim", "The claim of a token that names the user."
    )
    jwt_algorithms: tuple[str, ...] = setting(
        "jwt.algorithms",
        algorithms,
        ("RS256", "PS256", "ES256", "EdDSA"),
        f"a list of {', '.join(ALGORITHMS)}; in a text name,name",
        "Algorithms of signatures that are accepted.",
    )
    jwt_leeway_s: float = setting(
        "jwt.leeway_s",
        number(0, 300),
        10.0,
        "0 to 300 seconds",
        "Difference of clocks: a token is accepted so long before its beginning and after its end.",
    )
    jwt_refetch_s: float = setting(
        "jwt.refetch_s",
        number(1, 3600),
        30.0,
        "1 to 3600 seconds",
        "Shortest time between two requests to jwt.jwks_url. A token with an unknown key causes one.",
    )
    authenticator: str = setting(
        "authenticator",
        text(r"[A-Za-z0-9_.-]*"),
        "",
        "name of an entry point, or empty",
        "An installed package that checks passwords and tokens, in the place of users, users_file and jwt.*.",
    )
    roles: tuple[tuple[str, str], ...] = setting(
        "roles",
        pairs("=", ROLES),
        (),
        'a table user = "viewer", "operator" or "admin"; in a text user=role,...',
        "Role of a user over HTTP and at $management. A user without a role here has http.anonymous_role.",
        applies=Applies.NOW,
        is_table=True,
    )
    vhosts: tuple[VirtualHost, ...] = setting(
        "vhosts",
        virtual_hosts,
        (),
        "tables {name, hostnames, users}: lists of texts; in a text as JSON",
        "Virtual hosts, the same at every router: no two share a topic or a link. Default of users: *@name.",
        applies=Applies.NOW,
    )
    access_rules: tuple[AccessRule, ...] = setting(
        "access.rules",
        access_rules,
        (),
        "tables {users, publish, subscribe, view, replay, vhosts}: lists of texts; in a text as JSON",
        "Who may publish and subscribe what; with a rule, what none allows is refused. None = everybody everything.",
        applies=Applies.NOW,
    )
    slow_rules: tuple[SlowRule, ...] = setting(
        "slow.rules",
        slow_rules,
        (),
        'tables {topics, users, vhosts, after_s, action = "expel", "detach" or "wait"}; in a text as JSON',
        "Subscribers that answer nothing for after_s: the first rule that fits. None = publishers wait (K-5b).",
        applies=Applies.NEW,
    )
    quota_rules: tuple[QuotaRule, ...] = setting(
        "quota.rules",
        quota_rules,
        (),
        "tables {users, and some of connections, sessions, links, keys, attach_rate, unsettled, bytes, map_entries, "
        "timeout_s, min_frame_size, min_map, message_size}; in a text as JSON",
        "How much a user may use, where that is less than limits.* allow: the first rule that fits.",
        applies=Applies.NEW,
    )
    topic_rules: tuple[TopicRule, ...] = setting(
        "topics.rules",
        topic_rules,
        (),
        'tables {topics, vhosts, and some of on_empty = "accept", "release" or "reject", on_reject = "accept" or '
        '"report", max_attempts, retry_first_s, retry_cap_s, dead_letter = "a topic", dead_letter_wait_s, ttl_s}; '
        "in a text as JSON",
        "Policies of topics, the same at every router: the first rule that fits; else limits.* apply (I-3d).",
        applies=Applies.NOW,
    )
    groups: tuple[tuple[str, tuple[str, ...]], ...] = setting(
        "groups",
        groups,
        (),
        'a table name = ["user", "user-*"]; in a text as JSON',
        "Groups of users. `@name` stands for one where rules, adopts_links and roles name users.",
        applies=Applies.NOW,
        is_table=True,
    )
    adopts_links: tuple[str, ...] = setting(
        "adopts_links",
        user_patterns,
        (),
        "a list of users, * for any characters; in a text name,name",
        "Users who keep the subscriptions and sessions that they had without a login (A-2c).",
        applies=Applies.NEW,
    )
    idle_timeout_s: float = setting(
        "listen.idle_timeout_s",
        number(1, 3600),
        IDLE_TIMEOUT_S,
        "1 to 3600 seconds",
        "A client that sends nothing, not even heartbeats, for this long is disconnected.",
        applies=Applies.NEW,
    )
    inter_router_host: str = setting(
        "inter_router.host",
        text(r"\S*"),
        "127.0.0.1",
        "an address or host name, or empty = do not listen",
        "Where other routers connect.",
    )
    inter_router_port: int = setting(
        "inter_router.port",
        whole_number(0, 65535),
        0,
        _PORT,
        "Any free port works: other routers read it from the router key in etcd.",
    )
    inter_router_tls: bool = setting(
        "inter_router.tls",
        yes_or_no,
        False,
        "true or false, the same at every router",
        "Routers connect with mutual TLS: both sides show tls.cert_file, and check it with inter_router.ca_file.",
    )
    inter_router_ca_file: str = setting(
        "inter_router.ca_file",
        text(),
        "",
        _FILE,
        "Authority of routers' certificates; empty = tls.ca_file. Let it sign nothing but routers.",
    )
    inter_router_advertise: str = setting(
        "inter_router.advertise",
        text(r"\S*"),
        "",
        "host:port, or empty",
        "Address other routers connect to; empty = the listening address.",
    )
    inter_router_password: str = setting(
        "inter_router.password",
        text(),
        "",
        "text, the same at every router; empty = none",
        "Routers with the same password trust each other.",
        secret=True,
    )
    inter_router_allow_anonymous: str = setting(
        "inter_router.allow_anonymous",
        one_of("loopback", "always", "never"),
        "loopback",
        _ANONYMOUS,
        "Accept routers without the password. loopback = only where no other machine can connect.",
    )
    inter_router_allow_plain: str = setting(
        "inter_router.allow_plain",
        one_of("loopback", "always", "never"),
        "loopback",
        _ANONYMOUS,
        "Log in with PLAIN, too, at routers older than SCRAM, and take theirs. Set always while they are replaced.",
    )
    inter_router_heartbeat_s: float = setting(
        "inter_router.heartbeat_s",
        number(0.05, 60),
        linkstate.HEARTBEAT_S,
        "0.05 to 60 seconds",
        "Interval of heartbeats, 10 bytes to each neighbour.",
    )
    inter_router_silence_s: float = setting(
        "inter_router.silence_s",
        number(0.15, 180),
        linkstate.SILENCE_S,
        "0.15 to 180 seconds",
        "A neighbour that is silent for this long is routed around. A false alarm changes a path and loses no message.",
    )
    inter_router_redial_s: float = setting(
        "inter_router.redial_s",
        number(0.05, 300),
        REDIAL_S,
        "0.05 to 300 seconds",
        "Longest wait before a lost link is dialed again. A repaired link is up after this time and a handshake.",
    )
    mesh: str = setting(
        "inter_router.mesh",
        one_of("auto", "configured"),
        "auto",
        "auto or configured",
        "auto = links to all routers in etcd; configured = only inter_router.connectors.",
    )
    connectors: tuple[ConnectorSettings, ...] = setting(
        "inter_router.connectors",
        connectors,
        (),
        'tables {to = "node id or host:port", cost = 1 to 65535}; in a text to=cost,...',
        "Links that this router opens if inter_router.mesh = configured. Lower cost is better.",
    )
    http_host: str = setting(
        "http.host",
        text(r"\S*"),
        "127.0.0.1",
        "an address or host name, or empty = no HTTP",
        "Health, metrics, inspector and management for operators.",
    )
    http_tls: bool = setting(
        "http.tls", yes_or_no, False, "true or false", "Operators connect with https only; needs tls.cert_file."
    )
    http_client_certificates: str = setting(
        "http.client_certificates",
        one_of("none", "optional", "required"),
        "none",
        _SHOWN,
        "Certificates of operators, checked with tls.ca_file. Browsers and monitoring need one where required.",
    )
    http_names: tuple[str, ...] = setting(
        "http.names",
        host_names,
        (),
        "a list of host names; in a text name,name",
        "Further host names in requests without login. Addresses, the host's name and the id are always accepted.",
        applies=Applies.NOW,
    )
    http_anonymous_role: str = setting(
        "http.anonymous_role",
        one_of("none", *ROLES),
        "viewer",
        _ROLE,
        "Role of everybody without login, over HTTP and at $management.",
        applies=Applies.NOW,
    )
    http_loopback_role: str = setting(
        "http.loopback_role",
        one_of("none", *ROLES),
        "admin",
        _ROLE,
        "Role of programs on this machine without login, over HTTP and at $management; that of everybody is the least "
        "they have.",
        applies=Applies.NOW,
    )
    http_max_connections: int = setting(
        "http.max_connections",
        whole_number(4, 100_000),
        HTTP_CONNECTIONS,
        "4 to 100000",
        "Most connections for HTTP. Beyond it the oldest of the address that has most is closed for a new one.",
    )
    http_port: int = setting("http.port", whole_number(0, 65535), 8672, _PORT, "Port for HTTP.")
    http_websocket: bool = setting(
        "http.websocket",
        yes_or_no,
        False,
        "true or false",
        "AMQP clients connect by WebSocket, too: ws(s)://HOST:PORT/amqp at the port for HTTP.",
    )
    http_origins: tuple[str, ...] = setting(
        "http.origins",
        origins,
        (),
        'a list of "https://host[:port]"; in a text https://host,...',
        "Other sites whose pages may connect by WebSocket. Those of this router always may.",
        applies=Applies.NEW,
    )
    tls_cert_file: str = setting(
        "tls.cert_file", text(), "", _FILE, "This router's certificate, with the intermediate ones behind it."
    )
    tls_key_file: str = setting(
        "tls.key_file", text(), "", _FILE, "Key of that certificate, without passphrase; empty = in tls.cert_file."
    )
    tls_ca_file: str = setting(
        "tls.ca_file", text(), "", _FILE, "Authority of clients' certificates, and of other routers' for https."
    )
    tls_crl_file: str = setting(
        "tls.crl_file",
        text(),
        "",
        _FILE,
        "Certificates that are revoked. It needs a list of each authority that has signed a certificate in use.",
    )
    tls_min_version: str = setting(
        "tls.min_version", one_of("1.2", "1.3"), "1.3", "1.2 or 1.3", "Oldest version of TLS that listeners accept."
    )
    tls_client_certificates: str = setting(
        "tls.client_certificates",
        one_of("none", "optional", "required"),
        "none",
        _SHOWN,
        "Certificates of AMQP clients, checked with tls.ca_file. optional = one that is shown must be valid.",
    )
    queue_store: str = setting(
        "queue_store",
        text(),
        "",
        "an address that `oncewire queue` takes, or empty = none",
        "Store of work queues that the inspector shows. Operators may replay items.",
        secret=True,
    )
    store: str = setting(
        "store",
        one_of("gateway", "etcd3"),
        "gateway",
        "gateway or etcd3",
        "Access to etcd: gateway = its JSON gateway over HTTP; etcd3 = gRPC, needs the extra oncewire[etcd3].",
    )
    etcd_endpoints: tuple[str, ...] = setting(
        "etcd.endpoints",
        urls,
        ("http://127.0.0.1:2379",),
        "URLs http(s)://host:port",
        "The etcd cluster that all routers share; 2379 is etcd's client port.",
    )
    etcd_user: str = setting("etcd.user", text(), "", "text, or empty", "User name for etcd, if etcd requires one.")
    etcd_password: str = setting("etcd.password", text(), "", "text, or empty", "Password of that user.", secret=True)
    etcd_ca_file: str = setting("etcd.ca_file", text(), "", _FILE, "Certificate authority of etcd, for https.")
    etcd_cert_file: str = setting("etcd.cert_file", text(), "", _FILE, "This router's certificate for etcd.")
    etcd_key_file: str = setting("etcd.key_file", text(), "", _FILE, "Key of that certificate.")
    etcd_memory_folder: str = setting(
        "etcd.memory_folder",
        text(),
        "",
        "path of a folder, or empty",
        "Where this router remembers how far etcd has come, to notice after a restart that etcd's data were lost or "
        "restored (K-9); empty = it remembers while it runs.",
    )
    lease_ttl_s: int = setting(
        "etcd.lease_ttl_s",
        whole_number(3, 300),
        10,
        "3 to 300 seconds",
        "Time to live of the router's lease. Without etcd the router stops serving after two thirds of it (K-3).",
    )
    etcd_start_patience_s: float = setting(
        "etcd.start_patience_s",
        number(0, 604_800),
        START_PATIENCE_S,
        "0 to 604800 seconds",
        "How long a starting router waits for an unreachable etcd; then it terminates with exit code 2.",
    )
    services_prefixes: tuple[str, ...] = setting(
        "services.prefixes",
        prefixes,
        ("queue://",),
        "a list of beginnings of addresses; in a text queue://,...",
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


def is_loopback(host: str) -> bool:
    """True when only this machine can connect to `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def anonymous_is_allowed(setting_value: str, host: str) -> bool:
    """Whether a listener on `host` accepts clients without a password."""
    return setting_value == "always" or (setting_value == "loopback" and is_loopback(host))
