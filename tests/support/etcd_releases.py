"""The releases of etcd that the stores are tested with: scripts/install_etcd.sh builds them."""

from __future__ import annotations

import sys
from pathlib import Path

from topology.etcd.server import EtcdBinary

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "install_etcd.sh"
(_LINE,) = [line for line in SCRIPT.read_text().splitlines() if line.startswith("VERSIONS=")]
RELEASES = {version.rpartition(".")[0]: version for version in _LINE.split('"')[1].split()}
"""The version of each release, such as 3.5.35 of 3.5."""


def program_of(release: str) -> Path:
    """Where its server is, if it is built."""
    return Path(sys.prefix) / "bin" / f"oncewire-etcd-{release}"


def etcd_of(release: str) -> EtcdBinary:
    """Its server."""
    return EtcdBinary(str(program_of(release)), "scripts/install_etcd.sh", RELEASES[release])
