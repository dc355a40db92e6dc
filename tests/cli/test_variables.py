"""Environment variables of the command line and of routers' settings: one list each, and none spoils a command."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import click
import pytest

from oncewire.cli import variables
from oncewire.cli.commands import COMMAND_GROUP
from router.settings.config_loading import SETTINGS, load
from tests.support.terminal import ONCEWIRE, on_terminal
from topology.etcd.server import free_port

PROJECT = Path(__file__).resolve().parents[2]
SETTING_VARIABLES = {each.variable for each in SETTINGS.values()}
BOTH = {variables.QUEUE_STORE, "ONCEWIRE_STORE", "ONCEWIRE_LOG_LEVEL"}
"""Of a command and a setting: they mean the same in both."""
NAMES = re.compile(r"(?<!_)ONCEWIRE_[A-Z0-9_]*[A-Z0-9]\b")
SHOWN = ("README.md", "CONTRIBUTING.md", "Makefile", "docs/**/*.md", "examples/**/*", "deploy/**/*")
LOCAL = "local=router.commands.cli:local"


def commands() -> Iterator[click.Command]:
    """All commands of `oncewire`, with those of groups."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = project["entry-points"][COMMAND_GROUP]
    left = [EntryPoint(name, value, COMMAND_GROUP).load() for name, value in declared.items()]
    while left:
        command = left.pop()
        left += command.commands.values() if isinstance(command, click.Group) else ()
        yield command


def of_options() -> set[str]:
    found = set[str]()
    for command in commands():
        for option in command.params:
            given = option.envvar or ()
            found.update([given] if isinstance(given, str) else given)
    return found


def shown() -> set[str]:
    """Whatever a page, an example, a chart or a tool of the project calls a variable of ours."""
    files = (file for pattern in SHOWN for file in PROJECT.glob(pattern) if file.is_file())
    return {name for file in files for name in NAMES.findall(file.read_text(encoding="utf-8", errors="replace"))}


def test_every_variable_of_an_option_is_in_the_list_of_the_command_line() -> None:
    assert of_options() - set(variables.PURPOSE) == BOTH - {variables.QUEUE_STORE}


def test_no_variable_has_two_meanings() -> None:
    assert (of_options() | set(variables.PURPOSE)) & SETTING_VARIABLES == BOTH


def test_a_router_starts_with_every_variable_of_other_programs_that_a_page_shows() -> None:
    others = (shown() | of_options() | set(variables.PURPOSE)) - SETTING_VARIABLES
    assert {"ONCEWIRE_HTTP_URL", "ONCEWIRE_TOKEN_FILE", "ONCEWIRE_COMPILED"} <= others
    assert load(None, {}, dict.fromkeys(others, "x")).config == load(None, {}, {}).config


def test_the_page_of_the_command_line_has_every_variable_with_its_purpose() -> None:
    page = (PROJECT / "docs/command-line.md").read_text(encoding="utf-8")
    for name, purpose in variables.PURPOSE.items():
        assert f"| `{name}` | {purpose} |" in page


def environment_with(**further: str) -> dict[str, str]:
    return {**os.environ, **further}


def test_oncewire_router_runs_where_the_address_of_the_inspector_is_exported() -> None:
    command = [sys.executable, "-P", "-c", ONCEWIRE, "router=router.commands.cli:router", "router", "--print-config"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=environment_with(ONCEWIRE_HTTP_URL="http://127.0.0.1:8672", ONCEWIRE_URL="amqp://127.0.0.1"),
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.timeout(600)
def test_oncewire_local_uses_the_store_of_the_variable_and_names_what_it_does_not_use(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for name, value in {
        "ONCEWIRE_HTTP_URL": "http://127.0.0.1:1",
        "ONCEWIRE_STORE": "etcd3",
        "ONCEWIRE_LIMITS_WINDOW": "7",
        "ONCEWIRE_QUEUE_STORE": "sqlite:///x",
    }.items():
        monkeypatch.setenv(name, value)
    ports = f"--port={free_port()}", f"--http-port={free_port()}"
    with on_terminal(LOCAL, "local", "--routers=1", "--log-level=info", "--json", *ports) as network:
        text = network.wait_for("}\n")
        http = json.loads(text.splitlines()[-1])["routers"][0]["http"]
        with urllib.request.urlopen(f"{http}/api/v1/management/config/router") as answer:
            assert json.load(answer)["store"] == "etcd3"
        assert "Note: ONCEWIRE_LIMITS_WINDOW is set. `oncewire local` does not use it" in text
        assert "ONCEWIRE_QUEUE_STORE" not in text
        assert network.end(signal.SIGINT) == 0
