"""Pytest plugin: how a run is spread over its processes (pytest-xdist, `--dist loadfile`).

A file's tests stay together, and so do files that use what is started once for all of them: a JVM, which is slow for
its first minutes; an etcd and five routers. It ends with the last of these files, for nobody uses it any more and it
takes a hundredth of a core for each process. What takes long begins first: at the end no process is left alone with it.

Each process collects all tests. In a fresh clone translating the test files takes twice as long as the rest of that, so
each process begins with other folders: it translates its share, and finds what the others have translated meanwhile.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

TESTS = Path(__file__).resolve().parents[1]
LONGEST_FIRST = Path(__file__).with_name("longest_first.txt")
"""Files of tests by the time that they take in `make test-all` (`ARGS=--junitxml=FILE`). It is about time only: a file
that is missing there, or stands at the wrong place, is run all the same."""
BEGINS_WITH = "begins_with"
TOGETHER = {
    "conformance": re.compile(""),
    "spark": re.compile(r"\bspark: Any\b"),
    "topology": re.compile(r"\betcd: EtcdServer\b|\bplace: StorePlace\b"),
}
"""Folder -> what is found in its files that stay together."""


@cache
def unit_of(file: str) -> str:
    """What one process runs in one go: a file, or files that stay together, by their folder."""
    path = TESTS.parent / file
    sign = TOGETHER.get(path.parent.name)
    return str(Path(file).parent) if sign is not None and sign.search(path.read_text(encoding="utf-8")) else file


def ordered(files: Iterable[str]) -> list[str]:
    """The files, each once, in the order in which they are begun: the longest first, then those with most tests."""
    numbers: dict[str, int] = {}
    for file in files:
        numbers[file] = numbers.get(file, 0) + 1
    known = {f"tests/{line}": rank for rank, line in enumerate(LONGEST_FIRST.read_text(encoding="utf-8").split())}
    units: dict[str, int] = {}
    for file in sorted(numbers, key=lambda file: (known.get(file, len(known)), -numbers[file], file)):
        units.setdefault(unit_of(file), len(units))
    return sorted(numbers, key=lambda file: (units[unit_of(file)], file))


def shares(folders: Sequence[Path], number: int) -> list[list[Path]]:
    """Folders, and single files, dealt out so that each share has about as many bytes of Python."""
    dealt: list[list[Path]] = [[] for _ in range(number)]
    sizes = [0] * number
    for size, folder in sorted(((_bytes_in(folder), folder) for folder in folders), reverse=True):
        least = sizes.index(min(sizes))
        dealt[least].append(folder)
        sizes[least] += size
    return dealt


def _bytes_in(folder: Path) -> int:
    return sum(file.stat().st_size for file in ([folder] if folder.is_file() else folder.rglob("*.py")))


def reading_order(folders: Sequence[Path], number: int, count: int) -> list[str]:
    """The folders in the order in which process `number` of `count` reads them: its share, then the next one's."""
    dealt = shares(folders, count)
    return [str(folder) for share in dealt[number:] + dealt[:number] for folder in share]


def folders_of_tests() -> list[Path]:
    """What `tests` consists of."""
    return sorted(
        path for path in TESTS.iterdir() if path.match("test_*.py") or (path.is_dir() and any(path.rglob("test_*.py")))
    )


class Spread(LoadFileScheduling):  # type: ignore[misc]  # it has no types
    """Deals out units in the order in which the tests come."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid.partition("::")[0])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Spread | None:
    """In the process that prints. The longest come first, not those with most tests."""
    if config.getoption("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False
    return Spread(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """In the process that prints: assigns to each that runs tests what to read first, where it runs all of them."""
    if node.config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        number = int(node.workerinput["workerid"].removeprefix("gw"))
        node.workerinput[BEGINS_WITH] = reading_order(folders_of_tests(), number, node.workerinput["workercount"])


_shared: list[tuple[pytest.FixtureDef[Any], pytest.FixtureRequest]] = []
"""What was set up for all files of a unit, and has not ended."""


def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> None:
    """Notes what the files of a unit share: fixtures of the session, of the conftest of their folder."""
    if fixturedef.scope == "session" and fixturedef.baseid in {f"tests/{folder}" for folder in TOGETHER}:
        _shared.append((fixturedef, request))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Ends what the files of a unit share behind its last test."""
    yield
    files = [each.nodeid.partition("::")[0] for each in (item, nextitem) if each is not None]
    while _shared and len({unit_of(file) for file in files}) == 2:
        fixture, request = _shared.pop()
        fixture.finish(request)  # type: ignore[arg-type]  # it is the request that it was set up for


def pytest_configure(config: pytest.Config) -> None:
    """In a process that runs tests."""
    if begins_with := getattr(config, "workerinput", {}).get(BEGINS_WITH):
        config.args[:] = begins_with


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Whatever was read first, the tests are in one order in all processes."""
    if hasattr(config, "workerinput"):
        files = [item.nodeid.partition("::")[0] for item in items]
        ranks = {file: rank for rank, file in enumerate(ordered(files))}
        items.sort(key=lambda item: ranks[item.nodeid.partition("::")[0]])
