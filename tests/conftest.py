"""What all tests share. Helpers live in `tests/support` and are imported as `tests.support.NAME`."""

from __future__ import annotations

import gc
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import settings

import oncewire
from chaos.sources import TRANSLATED
from oncewire.cli.version import is_compiled
from router.commands.local_network import LocalNetwork
from tests.router.processes import RouterProcess, running_router
from tests.router.relay import assert_no_internal_error

# A shell starts its background jobs with Ctrl-C ignored, and processes that tests start, and stop by it, inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = [
    f"tests.support.{name}"
    for name in ("effort", "requirements", "long_runs", "fuzz_options", "spread", "ports", "isolation", "warm_start")
]

# No test judges by wall-clock speed, and a failure names what repeats it.
settings.register_profile("oncewire", deadline=None, print_blob=True)
settings.load_profile("oncewire")


def pytest_configure(config: pytest.Config) -> None:
    """Refuses compiled modules of the source tree that are older than their sources: they would be tested instead."""
    root = Path(oncewire.__file__).parents[1]
    if root != config.rootpath:
        return  # installed together
    compiled = [file for package in TRANSLATED for file in (root / package).rglob("*.so")]
    sources = [file.with_name(f"{file.name.partition('.')[0]}.py") for file in compiled]
    newest = max((file.stat().st_mtime for file in sources if file.exists()), default=0.0)
    if newest > min((file.stat().st_mtime for file in compiled), default=0.0) or not all(
        file.exists() for file in sources if not file.stem.endswith("__mypyc")
    ):
        raise pytest.UsageError("sources were changed after `make compiled`: run it again, or `make pure`")


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """Collecting makes some hundred thousand objects that stay: looking for garbage among them took a fifth of it."""
    gc.disable()


def pytest_collection_finish() -> None:
    """The tests themselves are not looked through by each garbage collection.

    What is young is looked through seldom: that took a tenth of the time of tests that make many objects.
    """
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(50_000, 20, 50)


def pytest_report_header(config: pytest.Config) -> str:
    """Says which packages are under test: the installed ones (`make test`) or the source tree, compiled or not."""
    folder = Path(oncewire.__file__).parent
    where = "the source tree" if folder.parent == config.rootpath else "the installed packages"
    return f"oncewire: {where}, {'compiled' if is_compiled() else 'pure Python'} ({folder})"


@pytest.fixture
async def router(request: pytest.FixtureRequest) -> AsyncIterator[RouterProcess]:
    """A router of the test alone, without an etcd, with the flags of the mark `router`; some files have another one."""
    mark = request.node.get_closest_marker("router")
    async with running_router("--standalone", *(() if mark is None else mark.args)) as process:
        yield process


@pytest.fixture
async def alpha() -> AsyncIterator[RouterProcess]:
    """One whose name does not change from test to test."""
    async with running_router("--standalone", "--id=alpha") as process:
        yield process


@pytest.fixture
async def network(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[LocalNetwork]:
    """Routers and an etcd of the test alone, as the mark `routers` says; files that need others have their own."""
    mark = request.node.get_closest_marker("routers")
    async with LocalNetwork(*mark.args, log_folder=tmp_path, log_level="info", **mark.kwargs) as found:
        yield found
    assert_no_internal_error(tmp_path)
