"""Runs in a process that goes on: what the product logs of injected faults is not for whoever looks at them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_logs() -> Iterator[None]:
    """Nothing is logged meanwhile, and afterwards as much as before."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
