"""What a program imports that uses the client, counted by modules: a name costs what stands behind it, no more."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import oncewire
import oncewire.client

NAMED = {
    "oncewire",
    "oncewire.client",
    "oncewire.client.connecting",
    "oncewire.client.defaults",
    "oncewire.public_names",
}
"""Our modules behind `from oncewire import connect`."""
CONNECTED = 92
"""The most of our modules that a client may have imported before it dials: a module costs 0.3 ms of CPU, or more."""
OF_PYTHON = 122
"""The most of the standard library's, 103 of them asyncio's and ssl's."""
NOT_NEEDED = {
    "aiohttp",
    "bridges",
    "click",
    "decimal",
    "delivery_records",
    "email",
    "hashlib",
    "http",
    "importlib.metadata",
    "json",
    "logging.config",
    "multiprocessing",
    "pathlib",
    "prometheus_client",
    "router",
    "sqlite3",
    "tempfile",
    "tomllib",
    "topology",
    "uvloop",
    "oncewire.cli",
    "oncewire.client.asgi",
    "oncewire.client.codec",
    "oncewire.client.codec_publisher",
    "oncewire.client.deduplicating_core",
    "oncewire.client.journal_reader",
    "oncewire.client.json_codec",
    "oncewire.client.message_identity",
    "oncewire.client.metrics",
    "oncewire.client.process_lock",
    "oncewire.client.requests",
    "oncewire.client.service",
    "oncewire.client.sqlite_journal",
    "oncewire.client.sync",
    "oncewire.client.tracing",
    "oncewire.client.transactions",
    "oncewire.filters",
    "oncewire.store",
    "oncewire.transport.websocket",
    "oncewire.wire.bearer",
    "oncewire.wire.json_values",
    "oncewire.wire.saslprep",
    "oncewire.wire.scram",
}
"""Of optional parts: what a journal, a codec, a password, the blocking client, a consumer or a command line needs."""


def imported(program: str) -> set[str]:
    """The modules that a Python of its own has imported at the end of it, beyond those of a bare one."""
    program = f"import sys; bare = set(sys.modules)\n{program}\nfound = sorted(set(sys.modules) - bare)\n"
    program += "import json; print(json.dumps(found))"
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def ours(modules: set[str]) -> set[str]:
    return {name for name in modules if name.partition(".")[0] == "oncewire" and "__mypyc" not in name}


@pytest.mark.cold
def test_naming_connect_imports_no_part_of_the_client() -> None:
    modules = imported("from oncewire import connect")
    assert ours(modules) == NAMED
    assert modules.isdisjoint({"asyncio", "ssl", "logging", "dataclasses"})


@pytest.mark.cold
def test_naming_an_error_or_an_event_imports_no_engine() -> None:
    modules = imported("from oncewire.client import ClientEvent, NotAccepted, Outcome, UsageError, connect")
    assert not {name for name in ours(modules) if name.startswith(("oncewire.wire", "oncewire.transport"))}
    assert "asyncio" not in modules


@pytest.mark.cold
def test_naming_the_connect_of_programs_without_an_event_loop_imports_no_engine() -> None:
    modules = imported("from oncewire.client.sync import connect")
    assert not {name for name in ours(modules) if name.startswith(("oncewire.wire", "oncewire.transport"))}
    assert "sqlite3" not in modules


@pytest.mark.cold
def test_the_options_of_pub_and_sub_import_neither_engine_nor_event_loop() -> None:
    modules = imported("import oncewire.client.cli")
    assert not {name for name in modules if name.startswith(("oncewire.wire", "asyncio"))}


@pytest.mark.cold
def test_a_client_that_dials_has_imported_no_optional_part() -> None:
    modules = imported("from oncewire import connect; connect('amqps://a.example:5671')")
    assert "oncewire.wire.connection" in modules
    assert modules & NOT_NEEDED == set()
    assert len(ours(modules)) <= CONNECTED
    python = {name for name in modules - ours(modules) if name.partition(".")[0] in sys.stdlib_module_names}
    assert len(python) <= OF_PYTHON
    assert {name for name in modules - ours(modules) - python if "__mypyc" not in name} == set()


@pytest.mark.cold
@pytest.mark.parametrize(
    ("names", "needed"),
    [("SqliteJournal", "sqlite3"), ("Codec", "oncewire.client.codec"), ("Requester", "oncewire.client.requests")],
)
def test_an_optional_part_is_imported_when_it_is_named(names: str, needed: str) -> None:
    assert needed in imported(f"from oncewire.client import {names}")


@pytest.mark.parametrize("package", [oncewire, oncewire.client])
def test_type_checkers_editors_and_programs_see_the_same_names(package: object) -> None:
    names, path = vars(package)["__all__"], Path(vars(package)["__file__"])
    (checked,) = (node for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.If))
    stated = [alias.name for node in checked.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert sorted(stated) == sorted(names)
    assert set(names) <= set(dir(package))
    for name in names:
        assert getattr(package, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'Conect'"):
        _ = package.Conect  # type: ignore[attr-defined]
