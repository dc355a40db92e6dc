"""Settings as a TOML file with a comment for each: those in force, or all there are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass

from oncewire.settings.parsers import without_login
from oncewire.settings.schema import REQUIRED, Setting


def in_force(settings: Mapping[str, Setting], config: object, sources: Mapping[str, str]) -> str:
    """The settings in force, which are fields of `config`; secrets are left out.

    Args:
        settings: by the names of the fields.
        config: a dataclass that holds the values.
        sources: where each is from.
    """
    lines: list[str] = []
    table = ""
    # TOML wants what stands in no table first.
    for name, each in sorted(settings.items(), key=lambda item: item[1].table):
        value = getattr(config, name)
        # A secret is left out, so that the output can be used as a file and no password is `***`.
        is_hidden = value if each.secret else _has_login(value)
        lines += [
            *_heading(table, each),
            f"# {each.reason}",
            f"# allowed: {each.allowed}; from: {sources[name]}; {each.flag}; {each.variable}",
            f"# {each.name} is set and not shown" if is_hidden else f"{each.name} = {_value(each, value)}",
            "",
        ]
        table = each.table
    return "\n".join(lines)


def explained(settings: Iterable[Setting], table: str = "") -> list[str]:
    """Lines of a file with every setting and its default, all of them switched off.

    Args:
        settings: those of one table stand together, those of no table first.
        table: what the lines before them have begun.
    """
    lines: list[str] = []
    for each in settings:
        is_required = each.default is REQUIRED
        lines += [
            *_heading(table, each),
            f"# {each.reason}",
            f"# allowed: {each.allowed}" + ("; must be set" if is_required else ""),
            f"# {each.name} = {'...' if is_required else _value(each, each.default)}",
            "",
        ]
        table = each.table
    return lines


def toml(value: object) -> str:
    """A value as TOML has it; None is an empty text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"{value:g}" if isinstance(value, float) else str(value)
    if is_dataclass(value) and not isinstance(value, type):
        items = ", ".join(f"{name} = {toml(item)}" for name, item in asdict(value).items() if item is not None)
        return f"{{ {items} }}"
    if isinstance(value, Mapping):
        items = ", ".join(f"{toml(name)} = {toml(item)}" for name, item in value.items())
        return f"{{ {items} }}" if items else "{}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(toml(item) for item in value) + "]"
    escaped = ("" if value is None else str(value)).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _heading(table: str, following: Setting) -> list[str]:
    return [] if following.table == table else [f"[{following.table}]", ""]


def _has_login(value: object) -> bool:
    """Whether it is a URL with a user, or a list with one; patterns in tables of rules are no URLs."""
    texts = value if isinstance(value, tuple) else (value,)
    return any(isinstance(text, str) and without_login(text) != text for text in texts)


def _value(each: Setting, value: object) -> str:
    return toml(dict(value) if each.is_table and isinstance(value, tuple) else value)
