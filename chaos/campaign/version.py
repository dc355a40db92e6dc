"""Which code a simulated run executes, as one short word: numbers of different code are never added up."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from pathlib import Path

from chaos.sources import source_of

RUN = "chaos.simulator.schedule"
"""Where a run begins."""
SEARCH = "chaos.mutants.search"
CATALOGUE = "chaos.mutants.catalogue"
_OURS = ("oncewire", "delivery_records", "topology", "chaos")
PROCESSES = ("oncewire", "delivery_records", "topology", "router")
"""Packages that routers and clients are made of."""
EXPERIMENTS = ("chaos.experiments.runner", "chaos.experiments.catalogue", "chaos.load")


def code_version(*entries: str) -> str:
    """A hash over every module of ours that these modules import, directly or not.

    Args:
        entries: names of modules; without any, the simulator with the cores it drives.
    """
    digest = hashlib.sha256()
    for name, source in sorted(_closure(entries or (RUN,)).items()):
        digest.update(f"{name}\0".encode() + source + b"\0")
    return digest.hexdigest()[:12]


def mutants_version() -> str:
    """As code_version, with the catalogue of mutants."""
    return code_version(RUN, SEARCH, CATALOGUE)


def processes_version() -> str:
    """A hash over all of routers and clients as processes, and over the experiments that are made with them."""
    return packages_version(*PROCESSES, seed=code_version(*EXPERIMENTS))


def packages_version(*names: str, seed: str = "") -> str:
    """A hash over whole packages, and over single modules; `seed` stands for what else counts."""
    digest = hashlib.sha256(seed.encode())
    for name in names:
        file = source_of(name)
        root = file.parent
        for path in sorted(root.rglob("*.py")) if file.name == "__init__.py" else [file]:
            digest.update(f"{name}/{path.relative_to(root)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def _closure(entries: tuple[str, ...]) -> dict[str, bytes]:
    """Name and source of each module. Packages' own `__init__` files take no part in a run."""
    found: dict[str, bytes] = {}
    left = list(entries)
    while left:
        name = left.pop()
        if name not in found and (path := _source_of(name)) is not None:
            found[name] = path.read_bytes()
            left += _imported(found[name])
    return found


def _source_of(name: str) -> Path | None:
    """The module's file; None for packages, other people's modules, and names that are no modules."""
    if name.partition(".")[0] not in _OURS:
        return None
    path = source_of(name)
    return path if path.name != "__init__.py" and path.is_file() else None


def _imported(source: bytes) -> Iterator[str]:
    """Names that may be modules; our code imports absolutely."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{each.name}" for each in node.names)
