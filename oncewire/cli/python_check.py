"""Refuses a Python that is too old, before anything that only a new Python can read is imported.

This file, `main.py` and the `__init__.py` above them must stay readable for Python 3.7: a test holds that.
"""

from __future__ import annotations

import sys

OLDEST_PYTHON = (3, 11)


def complaint(version: tuple[int, ...]) -> tuple[str, ...] | None:
    """Returns the three lines for a Python of that version, or None where it is new enough."""
    if version[:2] >= OLDEST_PYTHON:
        return None
    found = ".".join(str(part) for part in version[:2])
    wanted = ".".join(str(part) for part in OLDEST_PYTHON)
    return (
        f"error: Oncewire cannot run on Python {found}",
        f"why: it needs Python {wanted} or newer",
        "what to do: install a newer Python (on Debian: sudo apt-get install -y python3 python3-venv), then Oncewire",
    )


def require_new_python(version: tuple[int, ...]) -> None:
    """Ends the process with exit code 2 and three lines on stderr where this Python is too old."""
    lines = complaint(version)
    if lines is not None:
        sys.stderr.write("\n".join(lines) + "\n")
        sys.exit(2)
