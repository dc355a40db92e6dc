"""The router's settings from all sources, and what must fit together in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from oncewire.settings.loading import Schema, read_toml
from oncewire.settings.printing import in_force
from oncewire.settings.schema import settings_of
from oncewire.wire import LocalProtocolError
from oncewire.wire.saslprep import saslprep
from router.settings.config import RouterConfig, anonymous_is_allowed
from router.settings.groups import MARK, named_groups
from router.settings.worker import name_of
from topology.links.linkstate import MIN_HEARTBEATS_IN_SILENCE

MAX_ID = 64
MAX_PORT = 65_535
SETTINGS = settings_of(RouterConfig)
"""Every setting by the name of its field."""
SCHEMA = Schema(SETTINGS, "`oncewire router --print-config`")
SHORT_FLAGS = {"etcd_endpoints": "--etcd"}
"""Further names of flags: `oncewire local` calls it so, too."""


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """The settings and where each came from (`default`, a file's name, a variable, a flag), by field name."""

    config: RouterConfig
    sources: Mapping[str, str]


def load(file: str | None, flags: Mapping[str, object], environment: Mapping[str, str]) -> LoadedConfig:
    """Merge all sources and check the result.

    Args:
        file: path of a TOML file, or None.
        flags: values of command-line flags by field name; None = not given.
        environment: the process' environment.

    Raises:
        CliError: something in a source cannot be used.
    """
    return merge({} if file is None else read_toml(file), file or "", flags, environment)


def merge(
    content: Mapping[str, object],
    file: str,
    flags: Mapping[str, object] | None = None,
    environment: Mapping[str, str] | None = None,
) -> LoadedConfig:
    """As `load`, with the content of the file that errors call `file`.

    Raises:
        CliError: something in a source cannot be used.
    """
    given = SCHEMA.read(content, file, flags, environment)
    config = RouterConfig(**given.values)
    check(config, given.sources)
    return LoadedConfig(config, given.sources)


def has_secrets_of(loaded: LoadedConfig, file: str) -> bool:
    """Whether a secret in force stands in this file."""
    return any(each.secret and loaded.sources[name] == file for name, each in SETTINGS.items())


def check(config: RouterConfig, sources: Mapping[str, str]) -> None:
    """Refuse settings that are right one by one and wrong together."""

    def refuse(name: str, why: str, fix: str) -> None:
        raise SCHEMA.refusal(name, getattr(config, name), sources[name], why, fix)

    open_to_all = anonymous_is_allowed(config.allow_anonymous, config.listen_host)
    _check_logins(config, refuse)
    _check_groups(config, refuse)
    if not open_to_all and not config.users and not config.has_strangers:
        refuse(
            "listen_host",
            f"nobody could log in: other machines can reach this address, listen.allow_anonymous is "
            f"{config.allow_anonymous} and no users are set",
            'set users_file, or users = {name = "password"}, or listen.allow_anonymous = "always" where everybody may '
            "connect",
        )
    open_to_routers = config.inter_router_password or anonymous_is_allowed(
        config.inter_router_allow_anonymous, config.inter_router_host
    )
    if not config.standalone and config.inter_router_host and not open_to_routers:
        refuse(
            "inter_router_host",
            "no other router could log in: other machines can reach this address and inter_router.password is empty",
            "set inter_router.password to the same text at every router, "
            'or inter_router.allow_anonymous = "always" on a private network',
        )
    if config.standalone and config.connectors:
        refuse("connectors", "a standalone router has no other routers", "leave standalone or the connectors out")
    _check_workers(config, refuse)
    if config.mesh == "auto" and config.connectors:
        refuse(
            "connectors",
            "inter_router.mesh is auto: routers find each other in etcd, connectors are not used",
            "set inter_router.mesh = configured, or leave the connectors out",
        )
    if bool(config.etcd_cert_file) != bool(config.etcd_key_file):
        refuse("etcd_cert_file", "a certificate needs its key", "set both etcd.cert_file and etcd.key_file")
    if config.http_websocket and not config.http_host:
        refuse("http_websocket", "there is no HTTP: http.host is empty", "set http.host, or leave http.websocket out")
    _check_tls(config, refuse)
    _check_silence(config, refuse)
    if config.subscription_timeout_s > config.subscription_timeout_cap_s:
        refuse(
            "subscription_timeout_s",
            f"the cap is {config.subscription_timeout_cap_s:g} seconds",
            "raise limits.subscription_timeout_cap_s or lower limits.subscription_timeout_s",
        )
    if config.publisher_timeout_s > config.publisher_timeout_cap_s:
        refuse(
            "publisher_timeout_s",
            f"the cap is {config.publisher_timeout_cap_s:g} seconds",
            "raise limits.publisher_timeout_cap_s or lower limits.publisher_timeout_s",
        )


def _check_workers(config: RouterConfig, refuse: Callable[[str, str, str], None]) -> None:
    """Each of several workers has a place in etcd, an id and ports of its own."""
    if config.workers == 1 or config.worker is not None:
        return
    if config.standalone:
        refuse(
            "workers",
            "a standalone router keeps all attachments in one process, and workers share them by etcd",
            "set etcd.endpoints in the place of standalone, or leave workers out",
        )
    longest = name_of(config.node_id, config.workers)
    if len(longest) > MAX_ID:
        refuse("id", f"the last worker would be called {longest}: more than {MAX_ID} characters", "set a shorter id")
    ports = [config.inter_router_port]
    if config.inter_router_advertise:
        advertised = config.inter_router_advertise.rpartition(":")[2]
        if not config.inter_router_port or not advertised.isdecimal():
            refuse(
                "inter_router_advertise",
                "each worker listens on a port of its own, and is advertised with its own",
                "set inter_router.port, and here host:port of the first worker; the others count on from there",
            )
        ports.append(int(advertised))
    if max(ports) + config.workers - 1 > MAX_PORT:
        why = f"{config.workers} workers count on from there, beyond {MAX_PORT}"
        refuse("inter_router_port", why, "set a lower one")


def _check_tls(config: RouterConfig, refuse: Callable[[str, str, str], None]) -> None:
    """Whoever listens with TLS has a certificate, and whoever checks certificates an authority."""
    if not config.tls_cert_file:
        for name in ("listen_tls", "inter_router_tls", "http_tls"):
            if getattr(config, name):
                refuse(name, "tls.cert_file is empty", "set tls.cert_file and tls.key_file for this router")
    if config.tls_key_file and not config.tls_cert_file:
        refuse("tls_key_file", "there is no certificate to it", "set tls.cert_file, too")
    for name, switch, listens in (
        ("tls_client_certificates", "listen.tls", config.listen_tls),
        ("http_client_certificates", "http.tls", config.http_tls),
    ):
        if getattr(config, name) == "none":
            continue
        if not listens:
            refuse(name, "without TLS nobody shows a certificate", f"set {switch} = true, or leave it none")
        if not config.tls_ca_file:
            refuse(name, "no authority is named", "set tls.ca_file to the one that signs these certificates")
    if config.inter_router_tls and not (config.inter_router_ca_file or config.tls_ca_file):
        refuse(
            "inter_router_tls",
            "no authority of routers' certificates is named",
            "set inter_router.ca_file, or tls.ca_file where it signs routers only",
        )


def _check_logins(config: RouterConfig, refuse: Callable[[str, str, str], None]) -> None:
    """Users come from one place, and their logins can be carried out."""
    if config.users and config.users_file:
        refuse("users_file", "users is set, too", "keep one of them; `oncewire users add` puts a user into the file")
    strangers = [user for user, _ in config.roles if user not in dict(config.users) and not user.startswith(MARK)]
    if strangers and not config.has_strangers:
        refuse(
            "roles", f"there is no user {strangers[0]}", f"set a password: users.{strangers[0]}, or leave the role out"
        )
    _check_other_logins(config, refuse)
    if config.inter_router_password:
        try:
            saslprep(config.inter_router_password, "password")
        except LocalProtocolError as error:
            refuse("inter_router_password", f"{error}: SCRAM cannot use it", "choose another one, at every router")


def _check_groups(config: RouterConfig, refuse: Callable[[str, str, str], None]) -> None:
    """Groups that are named exist: a rule for nobody would look like one that is kept."""
    known = {name for name, _ in config.groups}
    for field, patterns in (
        ("access_rules", [each for rule in config.access_rules for each in rule.users]),
        ("slow_rules", [each for rule in config.slow_rules for each in rule.users]),
        ("quota_rules", [each for rule in config.quota_rules for each in rule.users]),
        ("vhosts", [each for vhost in config.vhosts for each in vhost.users]),
        ("adopts_links", config.adopts_links),
        ("roles", [user for user, _ in config.roles]),
    ):
        unknown = next((name for name in named_groups(patterns) if name not in known), None)
        if unknown is not None:
            refuse(field, f"there is no group {unknown}", f"add it: groups.{unknown} = [users], or leave it out")


def _check_other_logins(config: RouterConfig, refuse: Callable[[str, str, str], None]) -> None:
    """Certificates are asked for, tokens can be checked, and an authenticator is alone."""
    if config.external_rules and config.tls_client_certificates == config.http_client_certificates == "none":
        refuse(
            "external_rules",
            "no listener asks for certificates",
            "set tls.client_certificates or http.client_certificates to optional or required",
        )
    is_open = not config.listen_tls and not anonymous_is_allowed(config.allow_plain, config.listen_host)
    if is_open and (config.has_tokens or config.authenticator):
        refuse(
            "listen_tls",
            "passwords and tokens would cross the network for all on the way to read",
            "set listen.tls, or listen.allow_plain = always on a private network",
        )
    if config.jwks_url and config.jwks_file:
        refuse("jwks_file", "jwt.jwks_url is set, too", "keep one of them")
    for name in ("jwt_issuer", "jwt_audience"):
        if config.has_tokens and not getattr(config, name):
            refuse(name, "tokens of all others would be accepted, too", "set it to what your issuer writes into tokens")
    if config.authenticator and (config.users or config.users_file or config.has_tokens):
        refuse(
            "authenticator", "users, users_file or jwt.* are set, too", "leave those out: it checks all logins alone"
        )


def _check_silence(config: RouterConfig, refuse: Callable[[str, str, str], None]) -> None:
    """A silence holds several heartbeats, and ends before a lease does."""
    shortest = MIN_HEARTBEATS_IN_SILENCE * config.inter_router_heartbeat_s
    if config.inter_router_silence_s < shortest:
        refuse(
            "inter_router_silence_s",
            f"neighbours are heard every {config.inter_router_heartbeat_s:g} seconds (inter_router.heartbeat_s), and "
            "one late heartbeat would look like a dead router",
            f"set inter_router.silence_s to {shortest:g} or more, or lower inter_router.heartbeat_s",
        )
    if not config.standalone and config.inter_router_silence_s >= config.lease_ttl_s:
        refuse(
            "inter_router_silence_s",
            f"the lease of a silent router ends after {config.lease_ttl_s} seconds (etcd.lease_ttl_s), and it must be "
            "routed around before that",
            "lower inter_router.silence_s or raise etcd.lease_ttl_s",
        )


def format_config(loaded: LoadedConfig) -> str:
    """The settings in force as a TOML file with a comment for each; secrets are left out."""
    return in_force(SETTINGS, loaded.config, loaded.sources)
