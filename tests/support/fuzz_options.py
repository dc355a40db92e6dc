"""Pytest plugin: how long the seeded fuzz of routers runs, and with which seed."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the two options."""
    parser.addoption("--fuzz-streams", type=int, default=250, help="connections of hostile clients (default 250)")
    parser.addoption("--fuzz-seed", type=int, default=1, help="the seed of the first of them (default 1)")
