"""Settings of the ways to other routers, operators and etcd."""

from __future__ import annotations

from dataclasses import dataclass

from oncewire.settings.parsers import host_names, number, one_of, text, urls, whole_number, yes_or_no
from oncewire.settings.schema import Applies, setting
from router.settings.of_clients import ANONYMOUS, PORT, ClientSettings
from router.settings.values import ROLES, ConnectorSettings, connectors, origins
from topology.links import linkstate

HTTP_CONNECTIONS = 256
"""Some scrapers, health checks and open pages; all else are requests that take milliseconds."""
REDIAL_S = 1.0
"""One packet a second to a router that has stopped for good costs less than a longer path."""
START_PATIENCE_S = 86_400.0
"""A day: longer than an outage that somebody works on. A forgotten router terminates after it."""
_SHOWN = "none, optional or required"
_FILE = "path of a PEM file, or empty"
_ROLE = "none, viewer, operator or admin"


@dataclass(frozen=True, slots=True)
class NetworkSettings(ClientSettings):
    """The second part of a router's settings, behind those of clients."""

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
        PORT,
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
        ANONYMOUS,
        "Accept routers without the password. loopback = only where no other machine can connect.",
    )
    inter_router_allow_plain: str = setting(
        "inter_router.allow_plain",
        one_of("loopback", "always", "never"),
        "loopback",
        ANONYMOUS,
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
    http_port: int = setting("http.port", whole_number(0, 65535), 8672, PORT, "Port for HTTP.")
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
        "Store of an edge whose queues and journals the inspector shows. Operators may replay items.",
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
