"""Which code a run executes, as one short word: numbers of different code are never added up.

Each function takes `root`, a folder with the packages as they were at another time; None: the code that is installed.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from chaos.sources import source_of

RUN = "chaos.simulator.schedule"
"""Where a run begins."""
SEARCH = "chaos.mutants.search"
CATALOGUE = "chaos.mutants.catalogue"
_OURS = ("oncewire", "delivery_records", "topology", "chaos")
PROCESSES = ("oncewire", "delivery_records", "topology", "router")
"""Packages that routers and clients are made of."""
EXPERIMENTS = ("chaos.experiments.runner", "chaos.experiments.catalogue", "chaos.clients.load")

MAX_SOURCES = 4096
"""Several times what the project has: sources that are looked at again, or are as they were, are parsed once."""
Files = Mapping[str, bytes]
"""Sources by their paths in the project's folder."""


def code_version(*entries: str, root: Path | None = None) -> str:
    """A hash over every module of ours that these modules import, directly or not.

    Args:
        entries: names of modules; without any, the simulator with the cores it drives.
        root: see above.
    """
    digest = hashlib.sha256()
    for name, source in sorted(_closure(entries or (RUN,), root).items()):
        digest.update(f"{name}\0".encode() + source + b"\0")
    return digest.hexdigest()[:12]


def simulator_version(root: Path | None = None) -> str:
    """As code_version, of the simulator with the cores it drives."""
    return code_version(root=root)


def mutants_version(root: Path | None = None) -> str:
    """As code_version, with the catalogue of mutants."""
    version = code_version(RUN, SEARCH, CATALOGUE, root=root)
    tables = _tables_of_mutants(root)
    digest = hashlib.sha256(version.encode() + b"".join(tables[path] for path in sorted(tables)))
    return digest.hexdigest()[:12] if tables else version  # a root may be older than the tables


def mutants_files(root: Path | None = None) -> Files:
    """The files that mutants_version counts."""
    return {**imported_files(RUN, SEARCH, CATALOGUE, root=root), **_tables_of_mutants(root)}


def _tables_of_mutants(root: Path | None) -> Files:
    folder = place_of(CATALOGUE, root).parent / "rules"
    return {f"chaos/mutants/rules/{path.name}": path.read_bytes() for path in sorted(folder.glob("*.toml"))}


def processes_version(root: Path | None = None) -> str:
    """A hash over all of routers and clients as processes, and over the experiments that are made with them."""
    return packages_version(*PROCESSES, seed=code_version(*EXPERIMENTS, root=root), root=root)


def packages_version(*names: str, seed: str = "", root: Path | None = None) -> str:
    """A hash over whole packages, and over single modules; `seed` stands for what else counts."""
    digest = hashlib.sha256(seed.encode())
    for name in names:
        for path, _, source in _package(name, root):
            digest.update(f"{name}/{path}\0".encode() + source + b"\0")
    return digest.hexdigest()[:12]


def imported_files(*entries: str, root: Path | None = None) -> Files:
    """The files that code_version counts."""
    closure = _closure(entries or (RUN,), root)
    return {f"{name.replace('.', '/')}.py": source for name, source in closure.items()}


def package_files(*names: str, root: Path | None = None) -> Files:
    """The files that packages_version counts."""
    return {path: source for name in names for _, path, source in _package(name, root)}


def process_files(root: Path | None = None) -> Files:
    """The files that processes_version counts."""
    return {**package_files(*PROCESSES, root=root), **imported_files(*EXPERIMENTS, root=root)}


def _package(name: str, root: Path | None) -> Iterator[tuple[str, str, bytes]]:
    """Of each file of a package, or of a module: path within the package, path in the project, source."""
    file = place_of(name, root)
    is_package = file.name == "__init__.py"
    folder = Path(*name.split(".")) if is_package else Path(*name.split(".")[:-1])
    for path in sorted(file.parent.rglob("*.py")) if is_package else [file]:
        if path.is_file():  # a root may be older than the module
            within = path.relative_to(file.parent)
            yield str(within), str(folder / within), path.read_bytes()


def place_of(module: str, root: Path | None) -> Path:
    """The file of a module or package, whether it is there or not."""
    if root is None:
        return source_of(module)
    place = root.joinpath(*module.split("."))
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


def _closure(entries: tuple[str, ...], root: Path | None) -> dict[str, bytes]:
    """Name and source of each module. Packages' own `__init__` files take no part in a run."""
    found: dict[str, bytes] = {}
    left = list(entries)
    while left:
        name = left.pop()
        if name not in found and (path := _source_of(name, root)) is not None:
            found[name] = path.read_bytes()
            left += _imported(found[name])
    return found


def _source_of(name: str, root: Path | None) -> Path | None:
    """The module's file; None for packages, other people's modules, and names that are no modules."""
    if name.partition(".")[0] not in _OURS:
        return None
    path = place_of(name, root)
    return path if path.name != "__init__.py" and path.is_file() else None


@lru_cache(maxsize=MAX_SOURCES)
def _imported(source: bytes) -> tuple[str, ...]:
    """Names that may be modules; our code imports absolutely."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found += [node.module, *(f"{node.module}.{each.name}" for each in node.names)]
    return tuple(found)
