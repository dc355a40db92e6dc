"""Settings as command-line flags."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from oncewire.settings.parsers import yes_or_no
from oncewire.settings.schema import Setting


def setting_options(
    settings: Mapping[str, Setting], short: Mapping[str, str] | None = None
) -> Callable[[Callable[..., object]], Callable[..., object]]:
    """A decorator that gives a command one flag for each of these settings, in this order.

    Args:
        settings: by the names of the command's parameters.
        short: further flags by name.
    """

    def decorate(command: Callable[..., object]) -> Callable[..., object]:
        for name, each in reversed(list(settings.items())):
            attributes: dict[str, Any] = {"metavar": "VALUE"}
            if each.parse is yes_or_no:
                attributes = {"is_flag": False, "flag_value": "true", "metavar": "[true|false]"}
            names = (each.flag, *((short[name],) if short and name in short else ()), name)
            help_text = f"{each.reason} [{each.allowed}]"
            command = click.option(*names, default=None, help=help_text, **attributes)(command)
        return command

    return decorate
