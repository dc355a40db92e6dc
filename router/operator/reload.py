"""Loading the settings again: what changes at once, and what waits for a restart. All of a file counts, or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass, replace
from typing import Any

from oncewire.settings.parsers import without_login
from oncewire.settings.schema import Applies, Setting
from router.settings.config import RouterConfig
from router.settings.config_loading import SETTINGS

_MEANT_FOR = {
    "allow_anonymous": ("listen_host", "http_host"),  # where clients connect by WebSocket
    "http_anonymous_role": ("listen_host", "http_host"),  # $management is where clients connect
}
"""What everybody may do who can reach an address: said of the new address, it must not hold at the old one."""


@dataclass(frozen=True, slots=True)
class Reloaded:
    """What a reload came to."""

    config: RouterConfig
    """What is in force from now on."""
    changed: tuple[str, ...]
    """Sentences: settings that hold from now on, or for connections made from now on."""
    needs_restart: tuple[str, ...]
    """Sentences: settings whose new value waits for a restart."""

    def as_data(self) -> dict[str, object]:
        """JSON-able."""
        return {"changed": list(self.changed), "needs_restart": list(self.needs_restart)}


def compare(running: RouterConfig, loaded: RouterConfig) -> Reloaded:
    """What loading `loaded` means for a router that runs with `running`."""
    changed: list[str] = []
    needs_restart: list[str] = []
    taken: dict[str, Any] = {}
    for name, setting in SETTINGS.items():
        old, new = getattr(running, name), getattr(loaded, name)
        if old == new:
            continue
        addresses = _MEANT_FOR.get(name, ())
        if setting.applies is Applies.RESTART:
            needs_restart.append(_sentence(setting, old, new))
        elif moved := [each for each in addresses if getattr(running, each) != getattr(loaded, each)]:
            with_it = " and ".join(SETTINGS[each].key for each in moved)
            needs_restart.append(f"{_sentence(setting, old, new)}, together with {with_it}")
        else:
            taken[name] = new
            scope = ", for new connections" if setting.applies is Applies.NEW else ""
            changed.append(_sentence(setting, old, new) + scope)
    return Reloaded(replace(running, **taken), tuple(changed), tuple(needs_restart))


def with_users(reloaded: Reloaded, before: frozenset[str], now: frozenset[str]) -> Reloaded:
    """What a reload came to, with what has changed in the file of users."""
    if not reloaded.config.users_file or before == now:
        return reloaded
    reported = f"users_file: {len(now - before)} added, {len(before - now)} removed"
    return replace(reloaded, changed=(*reloaded.changed, reported))


def values_of(config: RouterConfig) -> dict[str, object]:
    """The settings by their keys, JSON-able; of secret ones only whether they are set."""
    return {
        setting.key: bool(getattr(config, name)) if setting.secret else _plain(getattr(config, name), setting)
        for name, setting in SETTINGS.items()
    }


def _plain(value: object, setting: Setting) -> object:
    if isinstance(value, tuple):
        return dict(value) if setting.is_table else [_plain(each, setting) for each in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {name: each for name, each in asdict(value).items() if each is not None}
    return without_login(value) if isinstance(value, str) else value


def _sentence(setting: Setting, old: object, new: object) -> str:
    if setting.secret:
        return f"{setting.key} (not shown)"
    return f"{setting.key}: {_shown(_plain(old, setting))} -> {_shown(_plain(new, setting))}"


def _shown(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} = {each}" for name, each in value.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(_shown(each) for each in value) or "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value) if value != "" else "empty"
