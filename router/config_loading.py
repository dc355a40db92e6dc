"""Read the settings from flags, environment and file, in this order of strength; say clearly what is wrong."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oncewire.cli.errors import CliError
from router.config import RouterConfig, anonymous_is_allowed
from router.settings import Connector, Setting, settings_of
from topology.linkstate import MIN_HEARTBEATS_IN_SILENCE

SETTINGS = settings_of(RouterConfig)
"""Every setting by the name of its field."""
_BY_KEY = {setting.key: name for name, setting in SETTINGS.items()}
_TABLES = {key.rpartition(".")[0] for key in _BY_KEY if "." in key}
_TOML_TABLES = ("users", "roles")
"""Settings that are tables of a name and a text."""
_HELP = "`oncewire router --print-config` prints every setting with what is allowed"


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
    given: dict[str, tuple[object, str]] = {}
    if file is not None:
        for key, value in _flatten(_read_toml(file)).items():
            given[_field_of(key, file)] = (value, file)
    _check_variables(environment)
    for name, setting in SETTINGS.items():
        if environment.get(setting.variable):
            given[name] = (environment[setting.variable], setting.variable)
        if flags.get(name) is not None:
            given[name] = (flags[name], setting.flag)
    values: dict[str, Any] = {
        name: _parse(SETTINGS[name], value, source) for name, (value, source) in given.items()
    }
    config = RouterConfig(**values)
    sources = {name: given[name][1] if name in given else "default" for name in SETTINGS}
    check(config, sources)
    return LoadedConfig(config, sources)


def check(config: RouterConfig, sources: Mapping[str, str]) -> None:
    """Refuse settings that are right one by one and wrong together."""

    def refuse(name: str, why: str, fix: str) -> None:
        setting = SETTINGS[name]
        shown = _shown(setting, getattr(config, name))
        raise CliError(f"{setting.key} = {shown} (from {sources[name]}) cannot be used", why, fix)

    open_to_all = anonymous_is_allowed(config.allow_anonymous, config.listen_host)
    if not open_to_all and not config.users:
        refuse(
            "listen_host",
            f"nobody could log in: other machines can reach this address, listen.allow_anonymous is "
            f"{config.allow_anonymous} and no users are set",
            'set users = {name = "password"}, or listen.allow_anonymous = "always" where everybody may connect',
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
        refuse(
            "connectors", "a standalone router has no other routers", "leave standalone or the connectors out"
        )
    if config.mesh == "auto" and config.connectors:
        refuse(
            "connectors",
            "inter_router.mesh is auto: routers find each other in etcd, connectors are not used",
            "set inter_router.mesh = configured, or leave the connectors out",
        )
    if bool(config.etcd_cert_file) != bool(config.etcd_key_file):
        refuse("etcd_cert_file", "a certificate needs its key", "set both etcd.cert_file and etcd.key_file")
    strangers = [user for user, _ in config.roles if user not in dict(config.users)]
    if strangers:
        refuse(
            "roles", f"there is no user {strangers[0]}", f"set a password: users.{strangers[0]}, or leave the role out"
        )
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
    lines: list[str] = []
    table = ""
    # TOML wants what stands in no table first.
    for name, setting in sorted(SETTINGS.items(), key=lambda item: item[1].key.rpartition(".")[0]):
        prefix, _, key = setting.key.rpartition(".")
        if prefix != table:
            table = prefix
            lines += [f"[{prefix}]", ""]
        value = getattr(loaded.config, name)
        if setting.key in _TOML_TABLES:
            value = dict(value)
        lines.append(f"# {setting.reason}")
        lines.append(
            f"# allowed: {setting.allowed}; from: {loaded.sources[name]}; {setting.flag}; {setting.variable}"
        )
        # A secret is left out, so that the output can be used as a file without letting anybody called *** in.
        lines += [
            f"# {key} is set and not shown" if setting.secret and value else f"{key} = {_toml(value)}",
            "",
        ]
    return "\n".join(lines)


# --- reading one source -----------------------------------------------------------------------------------------------


def _read_toml(file: str) -> dict[str, Any]:
    try:
        with Path(file).open("rb") as stream:
            return tomllib.load(stream)
    except OSError as error:
        raise CliError(
            f"the configuration file {file} cannot be read",
            error.strerror or str(error),
            "give the path of a TOML file",
        ) from None
    except UnicodeDecodeError as error:
        raise CliError(
            f"the configuration file {file} is not TOML",
            f"octet {error.start + 1} is not UTF-8 text",
            "give the path of a TOML file; save it as UTF-8",
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise CliError(f"the configuration file {file} is not TOML", str(error), "mend that line") from None


def _flatten(table: Mapping[str, Any], prefix: str = "") -> dict[str, object]:
    flat: dict[str, object] = {}
    for name, value in table.items():
        key = prefix + name
        if isinstance(value, dict) and key not in _BY_KEY:
            flat.update(_flatten(value, key + "."))
        else:
            flat[key] = value
    return flat


def _field_of(key: str, file: str) -> str:
    name = _BY_KEY.get(key)
    if name is not None:
        return name
    why = (
        f"{key} is a table, its settings stand below [{key}]"
        if key in _TABLES
        else "there is no such setting"
    )
    raise CliError(f"unknown setting {key} in {file}", why, _suggestion(key, list(_BY_KEY)))


def _check_variables(environment: Mapping[str, str]) -> None:
    """A misspelt variable would be ignored silently; those that begin like one of ours are refused."""
    known = {setting.variable for setting in SETTINGS.values()}
    beginnings = tuple(f"ONCEWIRE_{table.upper()}_" for table in _TABLES)
    for variable in environment:
        if variable.startswith(beginnings) and variable not in known:
            raise CliError(
                f"unknown environment variable {variable}",
                "there is no such setting",
                _suggestion(variable, list(known)),
            )


def _suggestion(word: str, known: list[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]}? {_HELP}" if close else _HELP


def _parse(setting: Setting, value: object, source: str) -> object:
    try:
        return setting.parse(value)
    except (ValueError, TypeError):
        shown = "***" if setting.secret else repr(value)
        raise CliError(
            f"{setting.key} = {shown} (from {source}) cannot be used",
            f"allowed: {setting.allowed}",
            f"set {setting.key} in the file, {setting.flag} or {setting.variable} to what is allowed",
        ) from None


def _shown(setting: Setting, value: object) -> str:
    return "***" if setting.secret else _toml(value)


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"{value:g}" if isinstance(value, float) else str(value)
    if isinstance(value, dict):
        items = ", ".join(f"{_toml(name)} = {_toml(item)}" for name, item in value.items())
        return f"{{ {items} }}" if items else "{}"
    if isinstance(value, tuple):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    if isinstance(value, Connector):
        return f"{{ to = {_toml(value.to)}, cost = {value.cost} }}"
    escaped = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
