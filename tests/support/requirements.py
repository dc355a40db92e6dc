"""Pytest plugin: what a test needs beside the extra `test`, and what happens where it is missing.

A test says so with a marker::

    @pytest.mark.needs("node", "rhea")
    def test_rhea_publishes_across_a_restart(): ...

Where a part is missing the test is skipped, and the run ends with one line for each missing part: its name, how many
tests did not run, and the command that gets it. With ``ONCEWIRE_REQUIRE=all`` (CI) a missing part is a failure instead.
No test skips itself in another way, and no test file needs a part to be imported.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).resolve().parents[2]
# Where `make tools` puts what is fetched for tests.
TOOLS = PROJECT / ".tools"
REQUIRE_VARIABLE = "ONCEWIRE_REQUIRE"
DEFAULT_SELECTION = "not campaign and not slow"
"""Of `make test`, as pyproject.toml has it."""


@dataclass(frozen=True, slots=True)
class Part:
    """Something a test may need that neither the base install nor the extra `test` brings.

    Attributes:
        what: How the part is called, in "... is missing" and at the end of a run.
        present: Returns whether it is there, without starting or fetching anything.
        command: The one command that gets it.
    """

    what: str
    present: Callable[[], bool]
    command: str


def program(name: str) -> Callable[[], bool]:
    """Returns a check for a program on PATH."""
    return lambda: shutil.which(name) is not None


def python_module(name: str) -> Callable[[], bool]:
    """Returns a check for an installed Python module."""
    return lambda: importlib.util.find_spec(name) is not None


def tool_file(path: str) -> Callable[[], bool]:
    """Returns a check for a file that `make tools` fetches."""
    return (TOOLS / path).exists


def toxiproxy_server() -> bool:
    """Return whether there is a Toxiproxy to start, and the package that drives it."""
    from chaos.network.toxiproxy import ToxiproxyNotFound, find_toxiproxy

    try:
        find_toxiproxy()
    except ToxiproxyNotFound:
        return False
    return python_module("toxiproxy")()


def postgresql() -> bool:
    """Return whether there is a PostgreSQL server to start, and the package that speaks to it."""
    from tests.support.postgres import find_postgresql

    return find_postgresql() is not None and python_module("psycopg")()


def mongodb() -> bool:
    """Return whether there is a server with MongoDB's protocol to start, and the package that speaks to it."""
    from tests.support.mongodb import find_ferretdb

    return find_ferretdb() is not None and python_module("pymongo")()


def prometheus() -> bool:
    """Return whether there are a Prometheus to start and its promtool."""
    from tests.support.prometheus import find_program

    return find_program("prometheus") is not None and find_program("promtool") is not None


def fastapi() -> bool:
    """Return whether a service with FastAPI can be run."""
    return python_module("fastapi")() and python_module("uvicorn")()


def mkdocs() -> bool:
    """Return whether the site can be built."""
    return all(python_module(name)() for name in ("mkdocs", "material", "mkdocstrings"))


def helm() -> bool:
    """Return whether there are a helm to start and the package that knows Kubernetes' schemas."""
    from tests.support.helm import find_helm

    return find_helm() is not None and python_module("kubernetes_validate")()


def go_amqp(program: str) -> Path:
    """Returns where a program with go-amqp is, `login` for example, if `make tools` has built it."""
    return Path(sys.prefix) / "bin" / f"oncewire-go-amqp-{program}"


def go_amqp_programs() -> bool:
    """Return whether the programs with go-amqp are built."""
    return all(go_amqp(program).exists() for program in ("journal", "login", "requests", "selector"))


def etcd_releases() -> bool:
    """Return whether the releases of etcd that the stores are tested with are built."""
    from tests.support.etcd_releases import RELEASES, program_of

    return all(program_of(release).exists() for release in RELEASES)


def map_library() -> bool:
    """Return whether the packages under test hold the library that draws the inspector's map."""
    from topology.inspector.page.serving import FOLDER, LIBRARY

    return (FOLDER / LIBRARY).is_file()


def brokers() -> bool:
    """Return whether the stock brokers are there, and the Java that two of them need."""
    found = ("apache-artemis-*/bin/artemis", "qpid-broker/*/lib", "rabbitmq/rabbitmq-server")
    return program("java")() and all(any((TOOLS / "brokers").glob(path)) for path in found)


def compiled() -> bool:
    """Return whether the compiled build is under test."""
    from oncewire.cli.version import is_compiled

    return is_compiled()


PARTS = {
    "node": Part("Node.js", program("node"), "sudo apt-get install -y nodejs npm"),
    "rhea": Part("the AMQP client rhea", tool_file("node_modules/rhea/package.json"), "make tools"),
    "pyright": Part("the type checker pyright", tool_file("node_modules/pyright/package.json"), "make tools"),
    "ws": Part("the WebSockets of rhea", tool_file("node_modules/ws/package.json"), "make tools"),
    "proton": Part("the AMQP client python-qpid-proton", python_module("proton"), "make tools"),
    "go-amqp": Part("the AMQP client go-amqp", go_amqp_programs, "make tools"),
    "etcd-releases": Part("etcd 3.5, 3.6 and 3.7", etcd_releases, "make tools"),
    "qpid-jms": Part("the AMQP client Qpid JMS", tool_file("qpid-jms"), "make tools"),
    "jdk": Part("a Java compiler", program("javac"), "sudo apt-get install -y default-jdk-headless"),
    "matplotlib": Part("the package matplotlib", python_module("matplotlib"), "make tools"),
    "chromium": Part("the browser chromium", program("chromium"), "sudo apt-get install -y chromium"),
    "playwright": Part("the package playwright", python_module("playwright"), "make tools"),
    "atheris": Part("the fuzzer atheris", python_module("atheris"), "make tools"),
    "schemathesis": Part("the package schemathesis", python_module("schemathesis"), "make tools"),
    "axe": Part("the accessibility checker axe-core", tool_file("node_modules/axe-core/axe.min.js"), "make tools"),
    "map-library": Part("the library of the inspector's map", map_library, "make inspector-map"),
    "prometheus": Part("Prometheus with its promtool", prometheus, "make tools"),
    "fastapi": Part("the packages fastapi and uvicorn", fastapi, "make tools"),
    "mkdocs": Part("mkdocs with its theme, which build the site", mkdocs, "make tools"),
    "helm": Part("helm, or the package kubernetes-validate", helm, "make tools"),
    "docker-compose": Part(
        "docker-compose", program("docker-compose"), "sudo apt-get install -y --no-install-recommends docker-compose"
    ),
    "curl": Part("the program curl", program("curl"), "sudo apt-get install -y curl"),
    "ssh-keygen": Part("ssh-keygen", program("ssh-keygen"), "sudo apt-get install -y openssh-client"),
    "systemd-analyze": Part("systemd-analyze", program("systemd-analyze"), "sudo apt-get install -y systemd"),
    "compiler": Part("a C compiler", program("cc"), "sudo apt-get install -y gcc python3-dev"),
    "compiled": Part("the compiled build", compiled, "make compiled"),
    "valgrind": Part("valgrind", program("valgrind"), "sudo apt-get install -y valgrind"),
    "brokers": Part("RabbitMQ, ActiveMQ Artemis and Qpid Broker-J, or a Java for them", brokers, "make tools"),
    "toxiproxy": Part("the server Toxiproxy", toxiproxy_server, "make tools"),
    "go": Part("the Go toolchain", program("go"), "sudo apt-get install -y golang-go"),
    "cyclonedx": Part("cyclonedx-bom, which lists parts", tool_file("supply/bin/cyclonedx-py"), "make tools"),
    "sqlalchemy": Part("the package SQLAlchemy", python_module("sqlalchemy"), "make tools"),
    "asyncpg": Part("the package asyncpg", python_module("asyncpg"), "make tools"),
    "psycopg": Part("the package psycopg", python_module("psycopg"), "make tools"),
    "postgresql": Part("a PostgreSQL server, or the package psycopg", postgresql, "make tools"),
    "mongodb": Part("the server FerretDB, or the package PyMongo", mongodb, "make tools"),
    "spark": Part("the package pyspark", python_module("pyspark"), "make tools"),
    "spark-connect": Part("what pyspark needs for Spark Connect", python_module("grpc_status"), "make tools"),
    "java": Part("a Java runtime", program("java"), "sudo apt-get install -y default-jre-headless"),
}


class NotRun:
    """The tests of a run that lack a part, or are left to `make test-all`."""

    def __init__(self) -> None:
        self.tests = 0
        self.slow = 0
        self.by_part: Counter[Part] = Counter()

    def note(self, missing: list[Part]) -> None:
        """One more test; it may lack several parts."""
        self.tests += 1
        self.by_part.update(missing)

    def lines(self) -> list[str]:
        """Returns what the run ends with: a line for each part, and one for the tests that take long."""
        return [
            f"not run: {count} test{'s' if count > 1 else ''} for lack of {part.what}; get it by: {part.command}"
            for part, count in self.by_part.most_common()
        ] + ([f"not run: {self.slow} tests that take long; run them by: make test-all"] if self.slow else [])

    def as_numbers(self) -> dict[str, int]:
        """Returns the counts by the names of parts, as one process of a run sends them to the one that prints."""
        names = {part: name for name, part in PARTS.items()}
        return {"": self.tests} | {names[part]: count for part, count in self.by_part.items()}

    def add(self, numbers: dict[str, int]) -> None:
        """Takes in what another process of the same run counted."""
        self.tests += numbers[""]
        self.by_part.update({PARTS[name]: count for name, count in numbers.items() if name})


NOT_RUN = pytest.StashKey[NotRun]()


def missing_parts(names: Iterable[str]) -> list[Part]:
    """Returns the missing ones among the named parts.

    Raises:
        pytest.UsageError: A name is not in the table above.
    """
    missing = []
    for name in names:
        part = PARTS.get(name)
        if part is None:
            known = ", ".join(sorted(PARTS))
            raise pytest.UsageError(f"needs({name!r}): no such part; tests/support/requirements.py knows {known}")
        if not part.present():
            missing.append(part)
    return missing


def everything_is_required() -> bool:
    """Return whether a missing part is a failure.

    Raises:
        pytest.UsageError: The variable is set to something else than `all` or nothing.
    """
    setting = os.environ.get(REQUIRE_VARIABLE, "")
    if setting not in ("", "all"):
        raise pytest.UsageError(f"{REQUIRE_VARIABLE}={setting}: only `all` is allowed, or leave it unset")
    return setting == "all"


def pytest_configure(config: pytest.Config) -> None:
    """Checks the setting before any test runs."""
    everything_is_required()
    config.stash[NOT_RUN] = NotRun()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuses misspelled parts before any test runs, also those of tests that would not be reached."""
    for item in items:
        for marker in item.iter_markers("needs"):
            missing_parts(marker.args)


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Counts what the default selection leaves to `make test-all`."""
    for item in items:
        marks = {marker.name for marker in item.iter_markers()}
        is_left = "slow" in marks and "campaign" not in marks
        if is_left and item.config.getoption("markexpr") == DEFAULT_SELECTION:
            item.config.stash[NOT_RUN].slow += 1


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips a test whose parts are missing, or fails it where everything is required."""
    names = [name for marker in item.iter_markers("needs") for name in marker.args]
    missing = missing_parts(names)
    if not missing:
        return
    if everything_is_required():
        sentences = "; ".join(f"{part.what} is missing, get it by {part.command}" for part in missing)
        pytest.fail(f"{sentences} ({REQUIRE_VARIABLE}=all)", pytrace=False)
    item.config.stash[NOT_RUN].note(missing)
    pytest.skip("; ".join(f"{part.what} is missing" for part in missing))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Sends the counts to the process that prints them, where several share the tests (pytest-xdist)."""
    config = session.config
    if (output := getattr(config, "workeroutput", None)) is not None:
        output["not_run"] = config.stash[NOT_RUN].as_numbers()
        output["not_run_slow"] = config.stash[NOT_RUN].slow


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Adds up what the processes counted; each leaves out the same slow tests, and one that broke has no output."""
    total = node.config.stash[NOT_RUN]
    output = getattr(node, "workeroutput", {})
    if "not_run" in output:
        total.add(output["not_run"])
        total.slow = output["not_run_slow"]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Generator[None]:
    """Ends the run with the list of what is missing, behind pytest's own lists."""
    yield
    not_run = terminalreporter.config.stash[NOT_RUN]
    if lines := not_run.lines():
        terminalreporter.ensure_newline()
        terminalreporter.section(f"not run: {not_run.tests + not_run.slow} tests")
    for line in lines:
        terminalreporter.write_line(line)
