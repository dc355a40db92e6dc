"""The Python that Spark's workers run on one machine: the one of this process, started in a third of the time.

Spark puts `pyspark.zip` in front of its workers' path. What is in a zip file is compiled by each process anew, for
there is no place where the result could be kept: most of a second of CPU time, for each start of a query. The installed
package is the same code, compiled once. So Spark is given a small wrapper that takes the zip files off the path.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

_HEAD = """\
#!/bin/sh
# In front of these is nothing but these: see bridges/spark/worker_python.py.
"""


def zips_in_front(environment: Mapping[str, str]) -> list[Path]:
    """The zip files that Spark will put in front, in their order; none where they are not the installed package."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        return []
    home = Path(found.origin).parent
    reported = environment.get("SPARK_HOME")
    if reported and Path(reported).resolve() != home.resolve():
        return []
    folder = Path(reported or home) / "python" / "lib"
    return [*folder.glob("pyspark.zip"), *folder.glob("py4j-*.zip")]


def make_wrapper(python: str, zips: Sequence[Path], folder: Path) -> Path:
    """A program that runs `python` without these files in front of its path; returns its path."""
    steps = [f"PYTHONPATH=${{PYTHONPATH#{shlex.quote(f'{each}:')}}}\n" for each in zips]
    program = folder / "python"
    program.write_text(f'{_HEAD}{"".join(steps)}export PYTHONPATH\nexec {shlex.quote(python)} "$@"\n')
    program.chmod(0o755)
    return program


@cache
def worker_python() -> str:
    """What to run workers with on this machine; a wrapper is removed when this process ends."""
    zips = zips_in_front(os.environ)
    if not zips:
        return sys.executable
    folder = tempfile.mkdtemp(prefix="oncewire-python-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return str(make_wrapper(sys.executable, zips, Path(folder)))
