"""Coverage-guided inputs, made by atheris (optional) in a process of its own; its corpus stays in an ignored folder."""

from __future__ import annotations

import importlib.util
import random
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

MAX_BYTES = 2_048
"""Of an input: longer ones reach nothing more, and take longer."""
SEEDS = 200
"""Inputs of the target itself with which a corpus begins."""
PACKAGES = ["oncewire", "delivery_records", "topology", "router"]
"""Whose branches guide."""
KINDS = ("client", "server", "start")
PLACES: Mapping[str, str] = {
    "frames": "chaos.fuzz.frames:take_stream",
    "performatives": "chaos.fuzz.frames:take_body",
    "logins": "chaos.fuzz.logins:take",
    "router-messages": "chaos.fuzz.router_messages:take",
    "etcd-values": "chaos.fuzz.etcd_values:take",
}
"""Targets whose inputs are bytes, or can be made of them."""


class GuidedNotPossible(Exception):
    """The package is not installed."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a guided run came to."""

    cpu_s: float
    crash: Path | None
    """The input that was found; the run ended with it."""
    said: str


def take_of(name: str) -> Callable[[bytes], object]:
    """What takes the bytes of an input."""
    module, function = PLACES[name].split(":")
    take: Callable[[Any], object] = getattr(import_module(module), function)
    if name != "frames":
        return take
    return lambda data: take((KINDS[data[0] % len(KINDS)] if data else KINDS[0], data[1:], "guided"))


def run_guided(name: str, inputs: int, corpus: Path, seed: int = 1) -> Outcome:
    """Make so many inputs, or fewer if something is found.

    Raises:
        GuidedNotPossible: atheris is not installed.
    """
    if importlib.util.find_spec("atheris") is None:
        raise GuidedNotPossible("the package atheris is not installed")
    folder, crashes = corpus / name, corpus / "crashes"
    for each in (folder, crashes):
        each.mkdir(parents=True, exist_ok=True)
    if not any(folder.iterdir()):
        for number, data in enumerate(_first_inputs(name)):
            (folder / f"seed-{number}").write_bytes(data)
    before = set(crashes.iterdir())
    began = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "chaos.fuzz.guided",
            name,
            f"-runs={inputs}",
            f"-seed={seed}",
            f"-max_len={MAX_BYTES}",
            f"-artifact_prefix={crashes}/{name}-",
            "-verbosity=0",
            str(folder),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = sorted(set(crashes.iterdir()) - before)
    cpu_s = ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime
    if done.returncode and not found:
        raise GuidedNotPossible(f"atheris ended with exit code {done.returncode}: {done.stderr[-300:]}")
    return Outcome(cpu_s, found[0] if found else None, done.stderr)


def _first_inputs(name: str) -> Iterator[bytes]:
    from chaos.fuzz.target import InputTarget
    from chaos.fuzz.targets import GOALS

    target = GOALS[name].target
    assert isinstance(target, InputTarget)
    for number in range(SEEDS):
        found = next(iter(target.make(random.Random(f"{name} {number}"))))
        yield found if isinstance(found, bytes) else bytes((KINDS.index(found[0]),)) + found[1]


def main(arguments: list[str]) -> None:
    """The process: a target's name, then what libFuzzer is given."""
    import atheris

    name, *options = arguments
    with atheris.instrument_imports(include=PACKAGES):
        take = take_of(name)
    atheris.Setup([name, *options], take)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
