"""Settings of how clients come in, who they are, and what the rules of operators say of them."""

from __future__ import annotations

from dataclasses import dataclass

from oncewire.settings.parsers import number, one_of, pairs, text, whole_number, yes_or_no
from oncewire.settings.schema import Applies, setting
from oncewire.settings.tokens import (
    ALGORITHMS_ALLOWED,
    DEFAULT_ALGORITHMS,
    DEFAULT_LEEWAY_S,
    DEFAULT_REFETCH_S,
    KEYS_URL_ALLOWED,
    algorithms,
    keys_url,
)
from router.settings.access_rules import AccessRule, SlowRule, access_rules, slow_rules, user_patterns
from router.settings.certificate_users import CertificateRule, certificate_rules
from router.settings.groups import groups
from router.settings.quotas import QuotaRule, quota_rules
from router.settings.topic_rules import TopicRule, topic_rules
from router.settings.values import ROLES
from router.settings.virtual_hosts import VirtualHost, virtual_hosts
from router.settings.worker import MOST_WORKERS

IDLE_TIMEOUT_S = 10.0
"""How long a router waits for a silent client before it closes the connection. A shorter time would disconnect stock
clients whose program is busy: some of them send heartbeats only while the program calls them."""
PORT = "0 to 65535; 0 = any free port"
ANONYMOUS = "loopback, always or never"


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The first part of a router's settings.

    `router.settings.config.RouterConfig` has all of them, and a dataclass goes on in another file by inheritance only.
    """

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
        "listen.port", whole_number(0, 65535), 5672, PORT, "5672 is the port registered for AMQP."
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
        ANONYMOUS,
        "Accept clients without a password. loopback = only where no other machine can connect.",
        applies=Applies.NEW,
    )
    allow_plain: str = setting(
        "listen.allow_plain",
        one_of("loopback", "always", "never"),
        "loopback",
        ANONYMOUS,
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
        keys_url,
        "",
        KEYS_URL_ALLOWED,
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
        DEFAULT_ALGORITHMS,
        ALGORITHMS_ALLOWED,
        "Algorithms of signatures that are accepted.",
    )
    jwt_leeway_s: float = setting(
        "jwt.leeway_s",
        number(0, 300),
        DEFAULT_LEEWAY_S,
        "0 to 300 seconds",
        "Difference of clocks: a token is accepted so long before its beginning and after its end.",
    )
    jwt_refetch_s: float = setting(
        "jwt.refetch_s",
        number(1, 3600),
        DEFAULT_REFETCH_S,
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
