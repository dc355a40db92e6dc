"""Programs in Java of tests: translated once for each process that runs tests, and started for a short life."""

from __future__ import annotations

import subprocess
import tempfile
from functools import cache
from pathlib import Path

from tests.support.requirements import TOOLS

JARS = TOOLS / "qpid-jms"
SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Few threads and quick translations: half of what a program that lives for a second costs."""
_folders: list[tempfile.TemporaryDirectory[str]] = []
"""Where classes are, until the process ends."""


def java_command(source: Path) -> list[str]:
    """The command of a program in one file that uses Qpid JMS; `java FILE` would translate it anew for each start."""
    return ["java", *SHORT_LIVED, "-cp", f"{_classes(source)}:{JARS}/*", source.stem]


@cache
def _classes(source: Path) -> str:
    _folders.append(tempfile.TemporaryDirectory(prefix="oncewire-java-"))
    folder = _folders[-1].name
    options = [f"-J{option}" for option in SHORT_LIVED]
    subprocess.run(["javac", *options, "-d", folder, "-cp", f"{JARS}/*", str(source)], check=True, timeout=120)
    return folder
