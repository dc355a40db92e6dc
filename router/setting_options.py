"""Settings as command-line flags."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import click

from router.config_loading import SETTINGS
from router.settings import yes_or_no

_SHORT_FLAGS = {"etcd_endpoints": ("--etcd",)}
"""Further names of flags: `oncewire local` calls it so, too."""


def setting_options(names: Iterable[str]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A decorator that gives a command one flag for each of these settings, in this order."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        for name in reversed(list(names)):
            setting = SETTINGS[name]
            attributes: dict[str, Any] = {"metavar": "VALUE"}
            if setting.parse is yes_or_no:
                attributes = {"is_flag": False, "flag_value": "true", "metavar": "[true|false]"}
            option = click.option(
                setting.flag,
                *_SHORT_FLAGS.get(name, ()),
                name,
                default=None,
                help=f"{setting.reason} [{setting.allowed}]",
                **attributes,
            )
            command = option(command)
        return command

    return decorate
