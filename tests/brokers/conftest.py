"""One broker for a file of tests."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.brokers import Broker, running


@pytest.fixture(scope="module")
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """The kind that the file names, started once."""
    folder = Path(tempfile.mkdtemp(prefix="oncewire-broker-"))
    with running(request.module.KIND, folder) as started:
        yield started
    shutil.rmtree(folder)
