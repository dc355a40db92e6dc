"""One Spark session for the whole run, real routers and bridge nodes, and a check that no query is left behind.

Everything that needs no JVM is tested without: mark what does with `@pytest.mark.spark`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.node.node_process import NodeProcess, running_node
from tests.spark.spark_helpers import Names, RouterChild

_SESSION: list[Any] = []


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "spark: needs a Spark session, that is a JVM")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("spark") is not None:
            item.add_marker(pytest.mark.needs("spark"))
            item.add_marker(pytest.mark.timeout(900))
            # Spark leaves sockets to the garbage collector.
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::DeprecationWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::FutureWarning"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The session: two task slots, two attempts for each task, so that retries are exercised."""
    from bridges.spark import register
    from tests.spark.short_session import short_session

    session = short_session("tests", "local[2,2]", tmp_path_factory.mktemp("spark"), "1g")
    register(session)
    _SESSION.append(session)
    yield session
    _SESSION.clear()
    session.stop()


@pytest.fixture(autouse=True)
def no_query_is_left_running() -> Iterator[None]:
    """A query that goes on would disturb the tests behind it."""
    yield
    left = [query for session in _SESSION for query in session.streams.active]
    for query in left:
        query.stop()
    assert not left, f"queries were left running: {[query.name or query.id for query in left]}"


@pytest.fixture(scope="session")
def router() -> Iterator[RouterChild]:
    """One real router for the run; each test has topics of its own (`names`)."""
    child = RouterChild()
    yield child
    child.stop()


@pytest.fixture
def names(request: pytest.FixtureRequest) -> Names:
    """Topics, subscriptions and sinks that no other test uses."""
    return Names(request.node.name)


@pytest.fixture(scope="session")
def node(router: RouterChild, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """One real bridge node for the run, as with `router`; `spark_helpers.node_options` names it to Spark."""
    with running_node(tmp_path_factory.mktemp("shared") / "node", [router.url]) as process:
        yield process


@pytest.fixture
def own_node(router: RouterChild, tmp_path: Path) -> Iterator[NodeProcess]:
    """A node of this test alone, which may be killed and spoilt."""
    with running_node(tmp_path / "node", [router.url]) as process:
        yield process
