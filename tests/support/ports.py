"""Each process of a test run takes ports of a range of its own: no other takes that of a server that is down."""

from __future__ import annotations

import os

from topology import etcd_server


def pytest_configure() -> None:
    """Narrows the range of `free_port` to the part of this worker; a run in one process has all of it."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is None:
        return
    number, workers = int(worker.removeprefix("gw")), int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    width = (etcd_server.LAST_PORT - etcd_server.FIRST_PORT + 1) // workers
    etcd_server.FIRST_PORT += number * width
    etcd_server.LAST_PORT = etcd_server.FIRST_PORT + width - 1
