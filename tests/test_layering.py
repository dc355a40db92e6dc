"""The import rules of the architecture, held by reading every source file's syntax tree.

Arrows point one way: bridges -> oncewire.client -> oncewire.wire; router -> {wire, records, topology}; chaos -> all.
Pure parts import nothing that has a clock, chance, a socket or a thread.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.support.sources import statements

PROJECT = Path(__file__).resolve().parents[1]
FOLDERS = ("oncewire", "delivery_records", "topology", "router", "bridges", "pyspark_oncewire", "chaos")
LONGEST_FILE = 600
# Lines of code from `def` to the end, without the docstring.
LONGEST_FUNCTION = 60

# Whatever would make a pure core depend on more than its input.
IMPURE = frozenset(
    {
        "asyncio",
        "concurrent",
        "http",
        "importlib",
        "multiprocessing",
        "os",
        "pathlib",
        "random",
        "sched",
        "secrets",
        "select",
        "selectors",
        "shutil",
        "signal",
        "socket",
        "socketserver",
        "sqlite3",
        "ssl",
        "subprocess",
        "tempfile",
        "threading",
        "time",
        "urllib",
    }
)
# Pure beside every file named `*_core.py`.
PURE_PREFIXES = ("oncewire/wire/", "oncewire/filters/", "delivery_records/", "oncewire/client/transactions/sequence")
EVERYTHING = frozenset(FOLDERS)
BASE_INSTALL = frozenset({"aiohttp", "click", "prometheus_client", "rich", "uvloop"})


@dataclass(frozen=True, slots=True)
class Layer:
    """What the files under a path may import beside the standard library. The longest matching path counts.

    Attributes:
        ours: Our own modules, by prefix.
        others: Names of third-party modules; None where the layer chooses freely.
        but_not: What of `ours` it may not import after all.
    """

    ours: frozenset[str]
    others: frozenset[str] | None = frozenset()
    but_not: frozenset[str] = frozenset()


# The table of the architecture page. yarl is the URL type of aiohttp's interface and comes with it.
ROUTER = frozenset({"router", "topology", "delivery_records", "oncewire"})
# The router's own way up: rooms of its transport, then what joins them, then the operator's side, then commands.
JOINS_ROOMS = frozenset({"router.incarnations", "router.node"})
LAYERS: Mapping[str, Layer] = {
    "oncewire": Layer(frozenset({"oncewire"})),
    "oncewire/wire": Layer(frozenset({"oncewire.wire"})),
    "oncewire/filters": Layer(frozenset({"oncewire.filters", "oncewire.wire"}), frozenset({"lark"})),
    "oncewire/transport": Layer(frozenset({"oncewire.transport", "oncewire.wire"})),
    # For the compiler only: it is not imported.
    "oncewire/transport/compiling.py": Layer(frozenset(), frozenset({"mypy_extensions"})),
    "oncewire/transport/websocket.py": Layer(
        frozenset({"oncewire.transport", "oncewire.wire"}), frozenset({"aiohttp"})
    ),
    "oncewire/client": Layer(
        frozenset(
            {"oncewire.client", "oncewire.errors", "oncewire.public_names", "oncewire.transport", "oncewire.wire"}
        ),
        frozenset({"proton"}),
    ),
    # Imported by applications that make spans.
    "oncewire/client/tracing.py": Layer(frozenset({"oncewire.client", "oncewire.wire"}), frozenset({"opentelemetry"})),
    # Imported by applications that serve metrics.
    "oncewire/client/metrics.py": Layer(frozenset({"oncewire.client"}), frozenset({"prometheus_client"})),
    # Stands in the application's database; its client's consumers and what edges keep stand on it.
    "oncewire/store": Layer(frozenset({"oncewire.store", "oncewire.client.put_off", "oncewire.errors"})),
    "oncewire/client/transactions": Layer(
        frozenset({"oncewire.client", "oncewire.store", "oncewire.transport", "oncewire.wire"})
    ),
    # Runs in the tests of applications, and starts routers where they are installed; its scripted router needs none.
    "oncewire/testing": Layer(
        frozenset({"oncewire.testing", "oncewire.wire", "router.commands.in_process", "chaos.application_verdict"}),
        frozenset({"pytest"}),
    ),
    "oncewire/settings": Layer(frozenset({"oncewire.settings", "oncewire.cli.errors", "oncewire.cli.variables"})),
    "oncewire/cli": Layer(frozenset({"oncewire"}), frozenset({"click"})),
    "delivery_records": Layer(frozenset({"delivery_records"})),
    "topology": Layer(frozenset({"topology", "delivery_records"}), frozenset({"aiohttp", "yarl", "etcd3"})),
    # Router and command line both read it, so it knows neither.
    "topology/inspector/schema": Layer(frozenset({"topology.inspector.schema", "delivery_records"})),
    "router": Layer(ROUTER, BASE_INSTALL),
    "router/clients": Layer(ROUTER, but_not=JOINS_ROOMS | {"router.peers", "router.operator", "router.commands"}),
    # Below clients and peers, which both use AMQP and carry routed links.
    "router/amqp": Layer(frozenset({"router.amqp", "oncewire.wire"})),
    "router/routed": Layer(frozenset({"router.routed", "oncewire.wire"})),
    "router/peers": Layer(ROUTER, but_not=JOINS_ROOMS | {"router.clients", "router.operator", "router.commands"}),
    "router/operator": Layer(ROUTER, BASE_INSTALL, but_not=frozenset({"router.node", "router.commands"})),
    # Imported when they are configured (extras `jwt` and `otel`).
    "oncewire/cli/json_web_tokens.py": Layer(frozenset({"oncewire"}), frozenset({"aiohttp", "jwt"})),
    "router/operator/telemetry.py": Layer(
        frozenset({"router", "delivery_records", "oncewire"}), frozenset({"opentelemetry"})
    ),
    "bridges": Layer(frozenset({"bridges", "oncewire"}), None),
    # Features stand on it side by side; it knows none of them.
    "bridges/store": Layer(frozenset({"bridges.store", "oncewire"}), None),
    # A second wire inside the router process: it speaks to the records.
    "bridges/mqtt": Layer(frozenset({"bridges", "oncewire", "delivery_records"}), None),
    "pyspark_oncewire": Layer(frozenset({"bridges"}), None),
    "chaos": Layer(EVERYTHING, None),
}
# A folder's commands use the command line's parts, whatever else the folder may do.
COMMAND_FILES = ("cli.py", "_cli.py")
COMMANDS_MAY_KNOW = frozenset({"oncewire.cli"})


def is_pure(path: str) -> bool:
    """Return whether a file (path inside the project) is part of a pure core."""
    return path.startswith(PURE_PREFIXES) or path.endswith("_core.py")


@cache
def imported_modules(path: str, source: str) -> tuple[tuple[int, str], ...]:
    """Returns line number and full name of everything a file imports; asked for once for each core that reaches it."""
    return tuple(_imports(path, source))


def _imports(path: str, source: str) -> Iterator[tuple[int, str]]:
    """Yields what a file imports, wherever in the file it does."""
    package = path.removesuffix(".py").removesuffix("/__init__").split("/")
    if not path.endswith("/__init__.py"):
        package = package[:-1]
    for node in statements(ast.parse(source).body):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield node.lineno, name.name
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join(base + ([node.module] if node.module else []))
            for name in node.names:
                yield node.lineno, f"{module}.{name.name}"


def within(module: str, prefixes: frozenset[str]) -> bool:
    """Return whether a module is one of the prefixes or inside one."""
    return any(module == prefix or module.startswith(prefix + ".") for prefix in prefixes)


def layer_of(path: str) -> Layer:
    """Returns what a file may import."""
    layer = LAYERS[max((p for p in LAYERS if path == p or path.startswith(p + "/")), key=len)]
    if path.endswith(COMMAND_FILES):
        # The client's package comes with click alone.
        parts = frozenset({"click"} if path.startswith("oncewire/") else {"click", "rich"})
        others = None if layer.others is None else layer.others | parts
        return Layer(layer.ours | COMMANDS_MAY_KNOW, others, layer.but_not)
    return layer


def complaints(path: str, sources: Mapping[str, str]) -> list[str]:
    """Returns every breach of the import rules in one file, as `path:line: sentence`."""
    layer = layer_of(path)
    found = []
    for line, module in imported_modules(path, sources[path]):
        top = module.partition(".")[0]
        if top in EVERYTHING:
            if not within(module, layer.ours) or within(module, layer.but_not):
                found.append(f"{path}:{line}: imports {module}, which its layer must not know")
        elif top not in sys.stdlib_module_names and layer.others is not None and top not in layer.others:
            found.append(f"{path}:{line}: imports {module}, which is not among its layer's packages")
    if is_pure(path):
        found += [f"{where} reached from the pure {path}" for where in impure_imports(path, sources)]
    return found


def impure_imports(path: str, sources: Mapping[str, str]) -> list[str]:
    """Returns the impure imports of a file and of every file of ours that it imports, directly or not."""
    found = []
    seen = {path}
    waiting = [path]
    while waiting:
        current = waiting.pop()
        for line, module in imported_modules(current, sources[current]):
            if module.partition(".")[0] in IMPURE:
                found.append(f"{current}:{line}: imports {module},")
            reached = source_file(module, sources)
            if reached is not None and reached not in seen:
                seen.add(reached)
                waiting.append(reached)
    return found


def source_file(module: str, sources: Mapping[str, str]) -> str | None:
    """Returns the file of a module, or of the module that the last part of the name is a name in."""
    for name in (module, module.rpartition(".")[0]):
        stem = name.replace(".", "/")
        for path in (f"{stem}.py", f"{stem}/__init__.py"):
            if path in sources:
                return path
    return None


def read_sources() -> dict[str, str]:
    """Returns the text of every source file of the packages by its path inside the project."""
    files = (file for folder in FOLDERS for file in sorted((PROJECT / folder).rglob("*.py")))
    return {file.relative_to(PROJECT).as_posix(): file.read_text(encoding="utf-8") for file in files}


def too_long(path: str, source: str) -> list[str]:
    """Returns complaints about a file, or functions in it, that nobody reads in one go."""
    lines = source.count("\n")
    if lines <= LONGEST_FUNCTION:
        return []
    found = [f"{path}: {lines} lines, more than {LONGEST_FILE}"] if lines > LONGEST_FILE else []
    for node in statements(ast.parse(source).body):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if ast.get_docstring(node) is not None:
                lines -= (node.body[0].end_lineno or 0) - node.body[0].lineno + 1
            if lines > LONGEST_FUNCTION:
                found.append(f"{path}:{node.lineno}: {node.name} has {lines} lines, more than {LONGEST_FUNCTION}")
    return found


@dataclass(frozen=True, slots=True)
class Plan:
    """The rooms of one folder: folders and files at its top level.

    Attributes:
        rooms: From the top. A room may import those below it.
        most_entries: What a reader sees of the folder at once, with its `__init__.py`, `__main__.py` and `py.typed`.
        most_upward: Imports against the order of the rooms.
    """

    rooms: tuple[str, ...]
    most_entries: int
    most_upward: int = 0


PLANS: Mapping[str, Plan] = {
    # Who hands inputs on, then what they come through, down to data. What comes from another router goes up to its
    # ingress or egress.
    "delivery_records": Plan(
        ("records", "faults", "diagnostics", "attachments", "publisher", "subscriber", "channels", "model"), 10, 4
    ),
    # Who uses etcd, then what stands in it, then access to it. `inspector` and `links` use none of them.
    "topology": Plan(("shard_leases", "cli", "inspector", "members", "keys", "etcd", "links"), 9),
    # Who starts a router, what it shows, what it runs, the two kinds of connection, and what these share.
    "router": Plan(
        (
            "__main__",
            "commands",
            "node",
            "operator",
            "incarnations",
            "clients",
            "peers",
            "records_driver",
            "authentication",
            "process",
            "settings",
            "amqp",
            "routed",
        ),
        15,
    ),
    # What edges do, and the store that they stand on. `python -m bridges.node` is a command of `cli`.
    "bridges": Plan(("cli", "edge", "spark", "node", "journal", "workqueue", "store", "doors"), 10, 1),
}


def room_of(path: str) -> str:
    """Returns the room of a file: the folder or file at the top level of its own folder."""
    return path.split("/")[1].removesuffix(".py")


def upward(folder: str, sources: Mapping[str, str]) -> list[str]:
    """Returns the imports of a folder that lead from a room to one above it."""
    rooms = PLANS[folder].rooms
    files = {path for path in sources if path.startswith(f"{folder}/") and room_of(path) != "__init__"}
    found = []
    for path in sorted(files):
        here = rooms.index(room_of(path))
        modules = [module for _, module in imported_modules(path, sources[path])]
        targets = files.intersection(source_file(module, sources) for module in modules)
        found += [f"{path} -> {target}" for target in sorted(targets) if rooms.index(room_of(target)) < here]
    return found


@pytest.mark.parametrize("folder", PLANS)
def test_a_folder_is_a_few_rooms_and_hardly_an_import_leads_up(folder: str) -> None:
    plan = PLANS[folder]
    entries = {path.name for path in (PROJECT / folder).iterdir() if path.suffix in ("", ".py", ".typed")}
    entries.discard("__pycache__")
    assert len(entries) <= plan.most_entries
    assert {room_of(f"{folder}/{name}") for name in entries} - {"__init__", "py.typed"} == set(plan.rooms)
    found = upward(folder, read_sources())
    assert len(found) <= plan.most_upward, found


def test_an_import_that_leads_up_is_found() -> None:
    above, below = "delivery_records/publisher/ingress.py", "delivery_records/model/tags.py"
    assert upward("delivery_records", {above: "from delivery_records.model import tags", below: ""}) == []
    planted = {above: "", below: "from delivery_records.publisher.ingress import Ingress"}
    assert upward("delivery_records", planted) == [f"{below} -> {above}"]


def test_every_file_keeps_to_its_layer() -> None:
    sources = read_sources()
    assert [complaint for path in sources for complaint in complaints(path, sources)] == []


def test_no_file_and_no_function_is_longer_than_the_limit() -> None:
    sources = read_sources()
    for folder in ("tests", "benchmarks"):
        for file in (PROJECT / folder).rglob("*.py"):
            sources[file.relative_to(PROJECT).as_posix()] = file.read_text(encoding="utf-8")
    assert [complaint for path, text in sources.items() for complaint in too_long(path, text)] == []


def test_a_file_over_the_limit_is_found() -> None:
    assert too_long("router/node.py", "\n" * LONGEST_FILE) == []
    assert too_long("router/node.py", "\n" * (LONGEST_FILE + 1)) != []


def test_a_function_over_the_limit_is_found_and_its_docstring_does_not_count() -> None:
    fits = 'def f() -> None:\n    """One.\n\n    Two.\n    """\n' + "    pass\n" * (LONGEST_FUNCTION - 1)
    assert too_long("router/node.py", fits) == []
    assert too_long("router/node.py", fits + "    pass\n") != []


@pytest.mark.parametrize(
    ("path", "statement"),
    [
        ("oncewire/wire/link.py", "import asyncio"),
        ("oncewire/wire/link.py", "from time import monotonic"),
        ("oncewire/wire/link.py", "def f():\n    import socket"),
        ("oncewire/wire/link.py", "from oncewire import client"),
        ("oncewire/wire/link.py", "from ..client import publisher"),
        ("oncewire/wire/link.py", "import delivery_records.model.tags"),
        ("oncewire/transport/turn.py", "from oncewire.client import errors"),
        ("oncewire/transport/turn.py", "import uvloop"),
        ("oncewire/client/publisher_core.py", "import threading"),
        ("oncewire/client/publisher_core.py", "import ssl as tls"),
        ("oncewire/client/publisher.py", "import router.node"),
        ("oncewire/client/publisher.py", "import topology"),
        ("oncewire/client/publisher.py", "import aiohttp"),
        ("oncewire/client/publisher.py", "import delivery_records"),
        ("oncewire/cli/run.py", "from chaos import checker"),
        ("oncewire/cli/run.py", "import rich"),
        ("oncewire/client/cli.py", "def f():\n    from rich.table import Table"),
        ("delivery_records/publisher/ingress.py", "import random"),
        ("delivery_records/publisher/ingress.py", "from oncewire.wire import codec"),
        ("delivery_records/publisher/ingress.py", "import attrs"),
        ("topology/members/membership.py", "from router import node"),
        ("topology/members/membership.py", "import oncewire.wire"),
        ("topology/members/membership.py", "import networkx"),
        ("topology/cli.py", "import router.settings.config"),
        ("topology/inspector/schema/clients.py", "from topology.inspector import rows_core"),
        ("oncewire/settings/loading.py", "import oncewire.client"),
        ("oncewire/store/sqlite.py", "from oncewire.client.transactions import store"),
        ("oncewire/store/sqlite.py", "from bridges.store import outbox"),
        ("oncewire/store/postgres.py", "import psycopg"),
        ("oncewire/client/publisher.py", "import oncewire.store.opening"),
        ("router/node.py", "import bridges.mqtt"),
        ("router/node.py", "from chaos.checker import verdict"),
        ("router/node.py", "import proton"),
        ("router/routes_core.py", "from asyncio import Queue"),
        ("router/clients/connection.py", "from router.operator import amqp_node"),
        ("router/clients/listener.py", "from router.peers.neighbours import Neighbours"),
        ("router/clients/listener.py", "import aiohttp"),
        ("router/peers/neighbours.py", "from router.operator.status import Numbers"),
        ("router/peers/dialing.py", "import router.incarnations.incarnation"),
        ("router/routed/half.py", "from router.clients.listener import ClientListener"),
        ("router/amqp/errors.py", "from router.settings.config import RouterConfig"),
        ("router/operator/service.py", "from router.commands import manage"),
        ("bridges/node/journal.py", "import router"),
        ("bridges/node/journal.py", "import delivery_records"),
        ("bridges/spark/source.py", "import chaos"),
        ("bridges/store/outbox.py", "from bridges.workqueue.items import NewItem"),
    ],
)
def test_a_planted_import_across_layers_is_found(path: str, statement: str) -> None:
    assert complaints(path, {path: f'"""Planted."""\n{statement}\n'}) != []


@pytest.mark.parametrize(
    ("path", "statement"),
    [
        ("oncewire/wire/link.py", "from oncewire.wire.codec import encode"),
        ("oncewire/client/publisher.py", "import asyncio, ssl, proton"),
        ("oncewire/client_cli.py", "import click"),
        ("delivery_records/publisher/ingress.py", "from ..model.tags import NetworkTag"),
        ("topology/etcd/gateway_store.py", "import aiohttp"),
        ("topology/cli.py", "from oncewire.cli.errors import CliError"),
        ("router/node.py", "from topology.etcd.store import Store"),
        ("router/peers/neighbours.py", "from router.process.logs import EventLog"),
        ("router/operator/inspection.py", "from router.clients.listener import ClientListener"),
        ("bridges/mqtt/listener.py", "import delivery_records"),
        ("bridges/spark/source.py", "import pyspark"),
        ("chaos/checker.py", "import router, topology, bridges, toxiproxy"),
    ],
)
def test_imports_that_the_architecture_allows_are_not_complained_about(path: str, statement: str) -> None:
    assert complaints(path, {path: f'"""Planted."""\n{statement}\n'}) == []


def test_a_pure_core_is_not_pure_through_another_file() -> None:
    sources = {
        "router/routes_core.py": "from router.paths import best",
        "router/paths.py": "from router.clock import now",
        "router/clock.py": "import time",
    }
    assert complaints("router/routes_core.py", sources) == [
        "router/clock.py:1: imports time, reached from the pure router/routes_core.py"
    ]
