"""Target `settings`: the text of a TOML file, flags and environment variables into the router's settings."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from chaos.fuzz.mutations import TEXTS, json_value, mutate_octets, mutate_text
from chaos.fuzz.target import Finding, InputTarget
from oncewire.cli.errors import CliError
from oncewire.settings.schema import Setting
from router.settings.config_loading import SETTINGS, format_config, load

EACH = 4
WHOLE = (
    "a = " + "[" * 3000,
    "a = " + "{b = " * 2000,
    ".".join("a" * 2000) + " = 1",
    "[" + ".".join("a" * 1500) + "]",
    "a = " + "9" * 5000,
    "a = 0x" + "f" * 5000,
    "a = 1e999",
    "a = 1979-13-40",
    "\ufeffid = 'r'",
    "a = '\0'",
    "[listen]\n[listen]",
    "listen = 1\nlisten.port = 2",
    "users = {'' = ''}",
    "[a." + "b" * 3000 + "]",
)
"""Files that are hard to read as a whole."""
VALUES = (
    "0",
    "-1",
    "1",
    "true",
    '"text"',
    "[]",
    "{}",
    "1.5",
    "inf",
    "nan",
    "1979-05-27",
    '["a"]',
    "[{a = 1}]",
    "9" * 400,
)
"""In TOML's own words."""


@dataclass(frozen=True, slots=True)
class Sources:
    """All that settings come from."""

    file: bytes
    flags: Mapping[str, object]
    environment: Mapping[str, str]


def _value(rng: random.Random, setting: Setting) -> str:
    kind = rng.random()
    if kind < 0.35:
        return _toml(setting.default)
    if kind < 0.6:
        return rng.choice(VALUES)
    return _toml(json_value(rng)) if kind < 0.8 else _toml(mutate_text(rng, setting.allowed))


def _toml(value: object) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(_toml(each) for each in value) + "]"
    if isinstance(value, str):
        return json.dumps(value)
    return str(value).lower() if isinstance(value, bool | int | float) else "'x'"


def _inputs(rng: random.Random) -> Iterator[Sources]:
    names = list(SETTINGS)
    for _ in range(EACH):
        chosen = [SETTINGS[name] for name in rng.sample(names, rng.choice((1, 1, 2, 5)))]
        text = "\n".join(f"{each.key} = {_value(rng, each)}" for each in chosen)
        if rng.random() < 0.03:
            text += "\n" + rng.choice(WHOLE)
        file = text.encode("utf-8", "surrogatepass")
        if rng.random() < 0.15:
            file = mutate_octets(rng, file)
        flags = {rng.choice(names): rng.choice(TEXTS) for _ in range(rng.choice((0, 0, 0, 1)))}
        variables = {}
        if rng.random() < 0.2:
            variable = rng.choice(chosen).variable
            variables[mutate_text(rng, variable) if rng.random() < 0.2 else variable] = rng.choice(TEXTS)
        yield Sources(file, flags, variables)


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="oncewire-fuzz-")


def take(sources: Sources) -> bool:
    """Load the settings as the command does; whether they can be used.

    Raises:
        Finding: a refusal does not say what, why and what to do.
    """
    file = Path(_folder().name) / "router.toml"
    file.write_bytes(sources.file)
    try:
        loaded = load(str(file), sources.flags, sources.environment)
    except CliError as error:
        if not all((error.what, error.why, error.fix)):
            raise Finding(f"the refusal says too little: {error.lines()}") from None
        return False
    format_config(loaded)
    return True


SETTINGS_TARGET = InputTarget(
    "settings",
    "TOML files, flags and variables of the router's settings; settings that can be printed, or an error with what, "
    "why and what to do",
    (
        "oncewire.settings",
        "router.settings.config",
        "router.settings.config_loading",
        "router.settings.values",
        "router.settings.access_rules",
        "router.settings.certificate_users",
    ),
    _inputs,
    take,
    lambda sources: 400 + len(sources.file),
)
